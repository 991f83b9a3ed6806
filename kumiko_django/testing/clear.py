"""``clear()``: empty the queues between tests."""

from __future__ import annotations

import asyncio

from django.core.exceptions import ImproperlyConfigured
from django.utils.asyncio import async_unsafe

from kumiko_django.broker.emptying import empty_queues
from kumiko_django.conf import Settings, get_settings


@async_unsafe("clear() would block the event loop - await aclear() instead.")
def clear() -> int:
    """Forget all that is in the queues of the settings, schedules and marks of boot jobs included.

    Call it where no worker of the same ``QUEUE_PREFIX`` runs. The history is in the database, which
    tests roll back or flush by themselves.

    Returns:
        How many keys there were in Redis.

    Raises:
        ImproperlyConfigured: ``QUEUE_PREFIX`` is the default, so these may not be a test's queues.
        BrokerUnavailable: Redis is not reached.
        SynchronousOnlyOperation: Called from async code; use :func:`aclear`.
    """
    prefix = get_settings().queue_prefix
    if prefix == Settings.__dataclass_fields__["queue_prefix"].default:
        raise ImproperlyConfigured(
            f'clear() would empty the queues of KUMIKO["QUEUE_PREFIX"] = "{prefix}", the default, '
            "which may be those of your site. Give tests a QUEUE_PREFIX of their own."
        )
    return empty_queues()


async def aclear() -> int:
    """Do the same from an async test; errors as :func:`clear`."""
    return await asyncio.to_thread(clear)
