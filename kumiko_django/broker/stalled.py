"""Looking for jobs whose workers are gone, and ending tasks that wait for Redis."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from redis.exceptions import RedisError

from kumiko_django.broker.lane_worker import LaneWorker

logger = logging.getLogger("kumiko_django.broker")

CANCEL_SECONDS: Final = 0.05


async def watch_stalled(worker: LaneWorker) -> None:
    """Put jobs that have lost their worker back into the queue, until cancelled."""
    while True:
        try:
            for job_id in await worker.requeue_stalled():
                logger.warning("Job %s lost its worker and is queued again", job_id)
        except (RedisError, OSError):
            logger.debug("Stalled jobs cannot be looked for now", exc_info=True)
        except Exception:
            logger.exception("Looking for stalled jobs of lane %s met a fault", worker.lane)
        await asyncio.sleep(worker.lock_ms / 1000)


def cancel_surely(task: asyncio.Future[Any]) -> None:
    """Cancel a task until it has ended: in the middle of a command a cancellation may get lost."""
    if not task.done():
        task.cancel()
        task.get_loop().call_later(CANCEL_SECONDS, cancel_surely, task)
