"""The process that runs jobs: start, consume, drain, stop.

Enters: a ``HostConfig`` from the command line, signals from the operating system.
Leaves: an exit code; running consumers of one or both lanes in between.
"""

from __future__ import annotations
