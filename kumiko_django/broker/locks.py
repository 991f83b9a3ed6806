"""Keeping the locks of running jobs, from a thread of its own (bullmq-python 1.10, user-needs 12).

A lock that is not renewed in time hands the job to another worker while it still runs here. A
handler that blocks the event loop must not cause that, so the renewals do not run on the loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable

import redis
from redis.exceptions import RedisError

from kumiko_django.broker.address import RedisAddress
from kumiko_django.broker.bullmq import QueueScripts, script_text
from kumiko_django.broker.connection import new_sync_client
from kumiko_django.types.scrub import scrub

logger = logging.getLogger("kumiko_django.broker")

RENEWALS_PER_LOCK = 3
_STOP_SECONDS = 5.0


class LockKeeper:
    """Renews the locks of the jobs it is told of until it is told that they are settled."""

    def __init__(
        self,
        address: RedisAddress,
        scripts: QueueScripts,
        lock_ms: int,
        on_lost: Callable[[str, str], None],
    ) -> None:
        """Create a keeper for one queue.

        Args:
            address: Where Redis is.
            scripts: Script builder of the queue.
            lock_ms: Length of a lock in milliseconds.
            on_lost: Called on the event loop with the id of a job whose lock was lost, and with
                the token that stood for it.
        """
        self._scripts = scripts
        self._lock_ms = lock_ms
        self._on_lost = on_lost
        self._client: redis.Redis = new_sync_client(address)
        self._held: dict[str, str] = {}
        self._guard = threading.Lock()
        self._stopped = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_seen = time.monotonic()
        self._loop_was_blocked = False
        self._failing = False
        self._secrets = address.secrets
        self._thread = threading.Thread(
            target=self._work, name=f"kumiko-locks-{scripts.qualifiedName}", daemon=True
        )

    def open(self) -> None:
        """Start renewing. Call on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._loop_seen = time.monotonic()
        self._thread.start()

    def hold(self, token: str, job_id: str) -> None:
        """Renew the lock that ``token`` has on a job from now on.

        If another token of ours stands for the same job, that one is lost: the queue hands a job
        out again only when its lock has run out.
        """
        with self._guard:
            former = self._held.get(job_id)
            self._held[job_id] = token
        if former is not None and former != token:
            self._on_lost(job_id, former)

    def release(self, token: str, job_id: str) -> None:
        """Stop renewing it."""
        with self._guard:
            if self._held.get(job_id) == token:
                del self._held[job_id]

    def close(self) -> None:
        """Stop the thread and close its connection."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)
        self._client.close()

    def _work(self) -> None:
        interval = self._lock_ms / 1000 / RENEWALS_PER_LOCK
        # After a failure sooner than usual: the lock is running out.
        while not self._stopped.wait(min(interval, 1.0) if self._failing else interval):
            try:
                self._watch_loop()
                self._renew_all()
            except Exception:
                # Without this thread every job that runs would be handed out again.
                logger.exception("Renewing locks met a fault; it goes on")
                self._failing = True

    def _renew_all(self) -> None:
        with self._guard:
            held = dict(self._held)
        if not held:
            return
        try:
            lost = self._renew(held)
        except (RedisError, OSError) as error:
            if not self._failing:
                logger.warning("Locks cannot be renewed now: %s", scrub(str(error), self._secrets))
            self._failing = True
            return
        if self._failing:
            logger.info("Locks are renewed again")
        self._failing = False
        for job_id, token in held.items():
            if job_id in lost:
                self._tell_lost(token, job_id)

    def _renew(self, held: dict[str, str]) -> set[str]:
        call = self._scripts.extend_locks(list(held), list(held.values()), self._lock_ms)
        script = self._client.register_script(script_text(call.script))
        return {str(job_id) for job_id in script(keys=call.keys, args=call.args)}

    def _tell_lost(self, token: str, job_id: str) -> None:
        with self._guard:
            if self._held.get(job_id) != token:
                return  # about to be settled, or settled, while we asked
            del self._held[job_id]
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_lost, job_id, token)

    def _watch_loop(self) -> None:
        """Say so when a handler blocks the event loop; it holds up every other job."""
        if self._loop is None or self._loop.is_closed():
            return
        silent = time.monotonic() - self._loop_seen
        blocked = silent > self._lock_ms / 1000
        if blocked and not self._loop_was_blocked:
            logger.warning(
                "The event loop has been blocked for %.1f s. An async handler does blocking work; "
                "write it as a plain def, which runs in a thread.",
                silent,
            )
        self._loop_was_blocked = blocked
        self._loop.call_soon_threadsafe(self._note_loop)

    def _note_loop(self) -> None:
        self._loop_seen = time.monotonic()
