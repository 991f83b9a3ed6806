"""What happened: one row per run, its log lines, and the recorder that writes both.

Enters: frozen events of runs (started, progress, log lines, ended) from worker processes.
Leaves: ``JobRun`` and ``JobRunLog`` rows, read by the admin and by operators.
"""

from __future__ import annotations
