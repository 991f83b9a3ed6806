"""Emptying the queues of the settings: for tests, which must not run what others have left."""

from __future__ import annotations

from typing import Final

from kumiko_django.broker.connection import sync_client
from kumiko_django.broker.keys import queue_name
from kumiko_django.conf import get_settings
from kumiko_django.definitions.options import LANES

_PORTION: Final = 500
"""Keys looked at in one step; Redis serves others between two."""


def empty_queues() -> int:
    """Remove all that belongs to the queue prefix: jobs, schedules, boot marks, modes, records.

    Returns:
        How many keys there were.

    Raises:
        BrokerUnavailable: Redis does not answer.
    """
    settings = get_settings()
    queues = (*map(queue_name, LANES), settings.queue_prefix)
    ours = tuple(f"{settings.key_prefix}:{queue}:" for queue in queues)
    removed = 0
    with sync_client() as client:
        # A prefix has no characters that a pattern would take for its own.
        pattern = f"{settings.key_prefix}:{settings.queue_prefix}*"
        found = {key for key in client.scan_iter(pattern, _PORTION) if key.startswith(ours)}
        if found:
            removed = client.unlink(*found)
    return removed
