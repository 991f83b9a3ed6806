"""Taking turns: one process of all does something while the others wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import Final

from kumiko_django.broker.lease import Lease
from kumiko_django.conf import get_settings
from kumiko_django.exceptions import BrokerUnavailable

logger = logging.getLogger("kumiko_django.worker")

_POLL_SECONDS: Final = 0.25
_LEASE_LOCKS, _TRIES_PER_LEASE = 2, 3
_JOIN_SECONDS: Final = 3.0


class Turn:
    """One process's turn. Used once.

    It is renewed by a thread: what is done meanwhile may block the event loop.
    """

    def __init__(self, name: str) -> None:
        """Create a turn that is not ours yet; those of one name exclude each other."""
        self._name = name
        seconds = get_settings().lock_seconds * _LEASE_LOCKS
        self._lease = Lease(name, seconds)
        self._pause = seconds / _TRIES_PER_LEASE
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"kumiko-turn-{name}", daemon=True)

    async def take(self, stop: asyncio.Event) -> bool:
        """Wait until it is ours.

        Args:
            stop: Ends the waiting.

        Returns:
            Whether it is ours; not if told to stop before.

        Raises:
            BrokerUnavailable: Redis does not answer.
        """
        told = False
        while not stop.is_set():
            if await asyncio.to_thread(self._lease.keep):
                self._thread.start()
                return True
            if not told:
                logger.info("%s: another process has its turn; waiting", self._name)
                told = True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _POLL_SECONDS)
        return False

    async def give_back(self) -> None:
        """Let the next one have it."""
        self._over.set()
        await asyncio.to_thread(self._thread.join, _JOIN_SECONDS)
        with contextlib.suppress(BrokerUnavailable):  # it runs out by itself
            await asyncio.to_thread(self._lease.release)

    def _renew(self) -> None:
        while not self._over.wait(self._pause):
            try:
                if not self._lease.keep():
                    logger.warning("%s: the turn is lost; another process has it now", self._name)
                    return
            except BrokerUnavailable as error:
                logger.warning("%s: the turn cannot be renewed: %s", self._name, error)
