"""Settings with a second database, and what a process with them does: see test_transactions."""

from __future__ import annotations

import os
from typing import Any

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES

DATABASES["second"] = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": os.environ["KUMIKO_TEST_SECOND_DATABASE"],
}


def main() -> None:
    """Dispatch on every way in transactions of one database and of the other."""
    import django

    django.setup()
    import redis
    from django.conf import settings
    from django.db import transaction

    from tests.helpers.queues import QueueState
    from tests.integration.dispatching.entries import ENTRIES

    client = redis.Redis.from_url(settings.KUMIKO["REDIS_URL"], decode_responses=True)
    queue = QueueState(client, f"{settings.KUMIKO['QUEUE_PREFIX']}-worker")
    for name, entry in ENTRIES.items():
        _check(name, entry, queue, transaction)
        print("passed")  # noqa: T201 - that is how it tells the test
    client.close()


def _check(name: str, entry: Any, queue: Any, transaction: Any) -> None:
    start = queue.pending()
    with transaction.atomic(using="second"):
        sent = entry(using="second")
        assert queue.pending() == start, f"{name}: waits for the second database"
        with transaction.atomic():
            entry(using="second")
            transaction.set_rollback(True)
        assert queue.pending() == start, f"{name}: a rollback elsewhere is no commit here"
    assert queue.pending() == start + 2 * len(sent), name
    start = queue.pending()
    with transaction.atomic(using="second"):
        entry()
    assert queue.pending() == start + len(sent), f"{name}: without using it is the default's"
    with transaction.atomic(using="second"):
        entry(using="second")
        transaction.set_rollback(True, using="second")
    assert queue.pending() == start + len(sent), f"{name}: rolled back"
