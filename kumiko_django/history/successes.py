"""When jobs were last completed (P84)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Final

from django.db.models import Max

from kumiko_django.history.models import JobRun, JobStat, RunStatus
from kumiko_django.history.queries import first_id_at

_NOT_ROLLED_UP: Final = dt.timedelta(hours=2)


def last_successes(job_names: Iterable[str]) -> dict[str, dt.datetime]:
    """The end of each job's last completed run on record; none for a job that has none.

    The hourly numbers say in which hour that run began, so that only the runs of that hour, and of
    the hours that may not be rolled up yet, are looked at.
    """
    names = list(job_names)
    hours = dict(
        JobStat.objects.filter(job_name__in=names, status=RunStatus.COMPLETED)
        .order_by()
        .values_list("job_name")
        .annotate(hour=Max("hour"))
    )
    recently = dt.datetime.now(dt.UTC) - _NOT_ROLLED_UP
    found: dict[str, dt.datetime] = {}
    for name in names:
        ended_at = _last_since(name, hours.get(name, recently))
        if ended_at is not None:
            found[name] = ended_at
        elif name in hours:  # its run is gone from the history, and not from the numbers
            found[name] = hours[name]
    return found


def _last_since(job_name: str, moment: dt.datetime) -> dt.datetime | None:
    runs = JobRun.objects.filter(
        job_name=job_name, status=RunStatus.COMPLETED, id__gte=first_id_at(moment)
    )
    return runs.order_by("-id").values_list("finished_at", flat=True).first()
