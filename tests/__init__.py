"""The test suite.

``helpers/`` holds what tests are written with (services, processes, waiting, looking into queues),
``app/`` the Django app whose jobs they run, ``settings.py`` what both the tests and the processes
that they start are configured with, ``conftest.py`` the fixtures, ``kit/`` the tests of all that.
"""

from __future__ import annotations
