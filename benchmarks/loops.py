"""The event loop: uvloop on every side where it is installed, else asyncio's own on every side."""

from __future__ import annotations

import asyncio
import importlib.util
import warnings

LOOP = "uvloop" if importlib.util.find_spec("uvloop") else "asyncio"
"""Name of the loop that all sides run on."""


def use_fast_loop() -> None:
    """Make ``asyncio.run`` of this process use uvloop, where it is installed."""
    if LOOP != "uvloop":
        return
    import uvloop

    with warnings.catch_warnings():
        # Policies are deprecated from Python 3.14 on, and work until 3.16.
        warnings.simplefilter("ignore", DeprecationWarning)
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())


def loop_name() -> str:
    """Name of the loop that runs now."""
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]
