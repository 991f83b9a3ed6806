"""``python -m benchmarks.sides.scope ROUNDS``: rows by an indexed key, with and without a scope.

Prints, for each round, the median microseconds of a plain model, of the same with the tenant in the
filter by hand, and of a tenant model. The three take turns at every single SELECT, in an order that
is drawn anew, so that whatever else the machine does befalls all alike.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.project.settings"
os.environ.setdefault("BENCH_TENANTS", "100")
django.setup()

from django.db import connection, models  # noqa: E402

from kumiko_django import TenantModel, tenant_scope  # noqa: E402

ROWS, TENANTS = 20_000, 100
TENANT = "tenant-00005"


class PlainRow(models.Model):
    """A row as it is without us."""

    tenant_id = models.CharField(max_length=128, null=True, db_index=True)
    name = models.CharField(max_length=50)

    class Meta:
        app_label = "project"
        db_table = "bench_scope_plain"

    def __str__(self) -> str:
        return self.name


class OwnRow(TenantModel):
    """The same as a tenant's."""

    name = models.CharField(max_length=50)

    class Meta:
        app_label = "project"
        db_table = "bench_scope_own"

    def __str__(self) -> str:
        return self.name


def main(rounds: int) -> None:
    """Make the tables, measure, and drop them."""
    with connection.schema_editor() as editor:
        editor.create_model(PlainRow)
        editor.create_model(OwnRow)
    try:
        keys = _fill()
        with tenant_scope(TENANT):
            found = [_round(keys) for _ in range(rounds + 1)]
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(PlainRow)
            editor.delete_model(OwnRow)
    sys.stdout.write(json.dumps(found[1:]))  # the first has warmed up


def _fill() -> list[int]:
    """The same rows in both tables; the keys of one tenant's."""
    names = [f"tenant-{number % TENANTS:05}" for number in range(ROWS)]
    PlainRow._default_manager.bulk_create(
        [PlainRow(pk=key, tenant_id=name, name=name) for key, name in enumerate(names, 1)],
        batch_size=2000,
    )
    for tenant in set(names):
        with tenant_scope(tenant):
            mine = [key for key, name in enumerate(names, 1) if name == tenant]
            OwnRow.objects.bulk_create([OwnRow(pk=key, name=tenant) for key in mine])
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return [key for key, name in enumerate(names, 1) if name == TENANT]


def _round(keys: list[int]) -> list[float]:
    ways: list[Callable[[int], Any]] = [
        lambda key: PlainRow._default_manager.get(pk=key),
        lambda key: PlainRow._default_manager.get(pk=key, tenant_id=TENANT),
        lambda key: OwnRow.objects.get(pk=key),
    ]
    times: list[list[int]] = [[] for _ in ways]
    for key in keys:
        for way in random.sample(range(len(ways)), len(ways)):
            begin = time.perf_counter_ns()
            ways[way](key)
            times[way].append(time.perf_counter_ns() - begin)
    return [statistics.median(each) / 1000 for each in times]


if __name__ == "__main__":
    main(int(sys.argv[1]))
