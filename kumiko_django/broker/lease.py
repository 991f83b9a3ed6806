"""Leases: the right of one process to do a piece of housekeeping, for as long as it renews it."""

from __future__ import annotations

from typing import Any, Final
from uuid import uuid4

from kumiko_django.broker.connection import sync_client
from kumiko_django.conf import get_settings

# An owner whose lease has run out must neither prolong nor end that of the next one.
_RENEW: Final = """
if redis.call("GET", KEYS[1]) == ARGV[1] then
  return redis.call("PEXPIRE", KEYS[1], ARGV[2])
end
return 0
"""
_RELEASE: Final = """
if redis.call("GET", KEYS[1]) == ARGV[1] then
  return redis.call("DEL", KEYS[1])
end
return 0
"""


def housekeeping_key(name: str) -> str:
    """A key of the housekeeping, in the key space of the deployment's queues (B032)."""
    settings = get_settings()
    return f"{settings.key_prefix}:{settings.queue_prefix}:kumiko:housekeeping:{name}"


class Lease:
    """One owner's claim to a lease. Use from one thread."""

    def __init__(self, name: str, seconds: float) -> None:
        """Create a claim, which is not held yet.

        Args:
            name: What it is about.
            seconds: How long it holds without being renewed.
        """
        self._key = housekeeping_key(name)
        self._milliseconds = round(seconds * 1_000)
        self._token = uuid4().hex

    def keep(self) -> bool:
        """Take the lease if it is free, renew it if it is ours.

        Returns:
            Whether it is ours now.

        Raises:
            BrokerUnavailable: Redis is away; the lease may run out.
        """
        with sync_client() as client:
            if client.set(self._key, self._token, nx=True, px=self._milliseconds):
                return True
            return bool(_run(client, _RENEW, self._key, self._token, self._milliseconds))

    def release(self) -> None:
        """Give it back if it is ours.

        Raises:
            BrokerUnavailable: Redis is away; the lease runs out by itself.
        """
        with sync_client() as client:
            _run(client, _RELEASE, self._key, self._token)


def read_note(name: str) -> str | None:
    """What :func:`write_note` has left under a name, by whatever process.

    Raises:
        BrokerUnavailable: Redis is away.
    """
    with sync_client() as client:
        note: Any = client.get(housekeeping_key(name))
    return None if note is None else str(note)


def write_note(name: str, text: str, seconds: int) -> None:
    """Leave a text for all processes, for so many seconds.

    Raises:
        BrokerUnavailable: Redis is away.
    """
    with sync_client() as client:
        client.set(housekeeping_key(name), text, ex=seconds)


def _run(client: Any, script: str, key: str, *arguments: object) -> Any:
    return client.eval(script, 1, key, *arguments)
