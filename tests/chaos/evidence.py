"""What can be seen of jobs from outside: rows, the queue's own counts, calls of handlers."""

from __future__ import annotations

from typing import Any, TypeAlias

import redis

from kumiko_django.history.models import JobRun
from tests.chaos.jobs import calls_key
from tests.helpers.queues import QueueState
from tests.helpers.waiting import wait_until

Row: TypeAlias = tuple[str, bool, int, int]
"""Status, final, attempt, start."""

PORTION = 1000


class Evidence:
    """Looks at one lane's queue, at its jobs' rows and at the counter of their handlers."""

    def __init__(self, client: redis.Redis, queue_prefix: str) -> None:
        self.queue_prefix = queue_prefix
        self.queue = QueueState(client, f"{queue_prefix}-worker")
        self._client: Any = client
        self._calls = calls_key(queue_prefix)

    def waiting(self) -> int:
        """Count the jobs that wait for a worker."""
        return int(self._client.llen(self.queue.key("wait")))

    def rows(self, job_id: str) -> list[Row]:
        """Give a job's rows in the order of their starts."""
        rows = JobRun.objects.filter(queue_job_id=job_id).order_by("start", "id")
        return list(rows.values_list("status", "final", "attempt", "start"))

    def unrecorded(self) -> list[str]:
        """List the runs (``<job id>/<created ms>/<start>``) whose rows the queue vouches for."""
        return list(self._client.hkeys(self.queue.key("kumiko:unrecorded")))

    def calls(self) -> dict[str, int]:
        """Count the calls of handlers by job id."""
        return {job_id: int(count) for job_id, count in self._client.hgetall(self._calls).items()}

    def losses(self, job_ids: list[str]) -> dict[str, int]:
        """Give how often the queue says that each job lost its worker (``stalledCounter``)."""
        found: dict[str, int] = {}
        for first in range(0, len(job_ids), PORTION):
            portion = job_ids[first : first + PORTION]
            pipeline = self._client.pipeline(transaction=False)
            for job_id in portion:
                pipeline.hget(self.queue.key(job_id), "stc")
            counts = pipeline.execute()
            found |= {job_id: int(n or 0) for job_id, n in zip(portion, counts, strict=True)}
        return found

    def wait_all_done(self, timeout: float) -> None:
        """Wait until the queue has nothing to do, and no record that is not in the history."""
        try:
            wait_until(
                lambda: self.queue.pending() == 0 and not self.unrecorded(),
                description="all jobs are done and recorded", timeout=timeout, interval=0.1,
            )  # fmt: skip
        except AssertionError as error:
            left = self.unrecorded()
            raise AssertionError(
                f"{error}; the queue: {self.queue.counts()}, unrecorded {len(left)}: {left[:10]}"
            ) from None

    def wait_rows(self, job_id: str, expected: list[Row], timeout: float = 15) -> None:
        """Wait until a job has exactly these rows, and the queue has no record to give any more."""

        def settled() -> bool:
            return len(self.rows(job_id)) >= len(expected) and not self.unrecorded()

        try:
            wait_until(settled, description="all is recorded", timeout=timeout)
            wait_until(
                lambda: self.rows(job_id)[-1][0] == expected[-1][0],
                description="the last run has ended", timeout=timeout,
            )  # fmt: skip
        except AssertionError as error:
            raise AssertionError(
                f"{error}; rows {self.rows(job_id)}, expected {expected}, "
                f"unrecorded {self.unrecorded()}, queue {self.queue.counts()}"
            ) from None
        rows = self.rows(job_id)
        assert rows == expected, f"rows {rows}, expected {expected}"
