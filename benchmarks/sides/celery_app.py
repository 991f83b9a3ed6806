"""The Celery app; run as a module it sends tasks: ``celery_app 1000``."""

from __future__ import annotations

import os
import sys
from typing import Any

from celery import Celery

from benchmarks.project.payloads import payload

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.project.settings")


def insert(**data: Any) -> None:
    """One ORM insert."""
    from benchmarks.project import work

    work.insert(data)


app = Celery("bench")
app.conf.update(
    broker_url=os.environ["REDIS_URL"],
    result_backend="django-db",
    task_track_started=True,
    broker_connection_retry_on_startup=True,
)
# Not by update(), where an old-style name next to new ones is refused.
app.conf["CELERY_DB_REUSE_MAX"] = 1_000_000_000
task = app.task(insert, name="bench.insert")


if __name__ == "__main__":
    import django

    django.setup()
    for number in range(int(sys.argv[1])):
        task.apply_async(kwargs=payload(number))
