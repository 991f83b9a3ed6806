"""The types of the suite's fixtures, for the annotations of tests.

The type of pytest-django's ``settings`` is ``pytest_django.Settings``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from tests.helpers.processes import RunJobs
from tests.helpers.queues import QueueState

ConnectionCount: TypeAlias = Callable[[], int | None]
"""``connection_count``"""

DatabaseAway: TypeAlias = Callable[[], AbstractContextManager[None]]
"""``database_away``"""


class RunJobsFactory(Protocol):
    """``runjobs``"""

    def __call__(
        self,
        lane: str = "worker",
        *arguments: str,
        concurrency: int | None = None,
        grace: float | None = None,
        env: dict[str, str] | None = None,
        ready: bool = True,
    ) -> RunJobs: ...


class QueueStateFactory(Protocol):
    """``queue_state``"""

    def __call__(self, lane: str = "worker") -> QueueState: ...
