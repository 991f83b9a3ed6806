"""Workers that are killed: at random moments under load, and between any two steps of a run.

``kills``    the load, the killing, and ``audit`` of every job afterwards (``make soak``)
``steps``    the places where a worker process kills itself, as a table of wrapped methods
``replies``  a proxy that loses the reply to one settling script
``jobs``     what runs meanwhile; an app of its own (``settings``), only in the worker processes
"""

from __future__ import annotations

SETTINGS = "tests.chaos.settings"
