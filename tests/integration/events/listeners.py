"""Shortcuts of the tests of events: handlers, and both ways to emit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from kumiko_django import Dispatched, aemit, emit

Emit = Callable[..., list[Dispatched]]

both = pytest.mark.parametrize("send", [emit, async_to_sync(aemit)], ids=["sync", "async"])


def idle(payload: Any, ctx: Any) -> None:
    """Do nothing."""


def names(answers: list[Dispatched], queue: Any) -> list[str]:
    """The short names of the jobs that were queued."""
    return [queue.job(answer.job_id).name.rsplit(":", 1)[-1] for answer in answers]
