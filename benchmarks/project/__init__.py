"""The Django project that every side of a comparison runs in: settings, one table, the jobs."""
