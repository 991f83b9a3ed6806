"""Every public method of querysets and managers, each with a call that finds (or writes) one row.

A call gets the method, bound to a queryset that is filtered to the one row (or, for managers, not
filtered), and the row. It returns something true if the row was found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from django.db import models
from django.db.models import Count, F, Q

Call: TypeAlias = Callable[[Any, Any], Any]

READS: dict[str, Call] = {
    "aggregate": lambda m, row: m(n=Count("pk", filter=Q(pk=row.pk)))["n"],
    "alias": lambda m, row: list(m(other=F("pk")).filter(other=row.pk)),
    "all": lambda m, row: row in list(m()),
    "annotate": lambda m, row: list(m(other=F("pk")).filter(other=row.pk)),
    "complex_filter": lambda m, row: list(m(Q(pk=row.pk))),
    "contains": lambda m, row: m(row),
    "count": lambda m, row: m(),
    "dates": lambda m, row: list(m("due", "year")),
    "datetimes": lambda m, row: list(m("due", "hour")),
    "defer": lambda m, row: row in list(m("code")),
    "difference": lambda m, row: list(m(type(row)._base_manager.none())),
    "distinct": lambda m, row: row in list(m()),
    "earliest": lambda m, row: m("weight") == row,
    "exclude": lambda m, row: row in list(m(pk=0)),
    "exists": lambda m, row: m(),
    "filter": lambda m, row: list(m(pk=row.pk)),
    "first": lambda m, row: m() == row,
    "get": lambda m, row: m(pk=row.pk),
    "in_bulk": lambda m, row: m([row.pk]),
    "intersection": lambda m, row: list(m(type(row)._base_manager.all())),
    "iterator": lambda m, row: row in list(m()),
    "last": lambda m, row: m() == row,
    "latest": lambda m, row: m("weight") == row,
    "only": lambda m, row: row in list(m("code")),
    "order_by": lambda m, row: row in list(m("project__name")),
    "prefetch_related": lambda m, row: row in list(m("project")),
    "resolve_expression": lambda m, row: list(type(row)._base_manager.filter(pk__in=m.__self__)),
    "reverse": lambda m, row: row in list(m()),
    "select_for_update": lambda m, row: row in list(m()),
    "select_related": lambda m, row: row in list(m("project")),
    "union": lambda m, row: list(m(m.__self__.all())),
    "using": lambda m, row: row in list(m("default")),
    "values": lambda m, row: {"pk": row.pk} in list(m("pk")),
    "values_list": lambda m, row: (row.pk,) in list(m("pk")),
}
if hasattr(models, "FETCH_PEERS"):  # Django 6.1
    READS["fetch_mode"] = lambda m, row: row in list(m(models.FETCH_PEERS))

WRITES: dict[str, Call] = {
    "bulk_update": lambda m, row: m([row], ["weight"]),
    "delete": lambda m, row: m()[0],
    "get_or_create": lambda m, row: not m(pk=row.pk, defaults={"code": "made"})[1],
    "update": lambda m, row: m(weight=77),
    "update_or_create": lambda m, row: not m(pk=row.pk, defaults={"weight": 77})[1],
}

ADDS: dict[str, Call] = {
    "bulk_create": lambda m, values: m([m.__self__.model(**values)]),
    "create": lambda m, values: m(**values),
}

UNFIT: dict[str, Call] = {
    "extra": lambda m, row: list(m(where=["1=1"])),
    "raw": lambda m, row: list(m("SELECT t.* FROM testapp_task t, testapp_memo m")),
}
"""SQL of one's own, refused in every scope without a grant."""

TEXT: dict[str, Call] = {"explain": lambda m, row: m()}
"""What tells of a query, and nothing of rows."""

NOTHING: dict[str, Call] = {"none": lambda m, row: list(m())}

PASSIVE = {
    "as_manager",
    "auto_created",
    "check",
    "contribute_to_class",
    "creation_counter",
    "db",
    "db_manager",
    "deconstruct",
    "from_queryset",
    "get_queryset",
    "name",
    "model",
    "ordered",
    "query",
    "totally_ordered",
    "use_in_migrations",
}
"""What touches no row: it makes another queryset or manager, or says something about one."""

GROUPS = (READS, WRITES, ADDS, UNFIT, TEXT, NOTHING)
SYNC: dict[str, Call] = {name: call for group in GROUPS for name, call in group.items()}
ASYNC_ONLY = {"aiterator"}


def public(kind: type) -> set[str]:
    """The public names of a class of Django's."""
    return {name for name in dir(kind) if not name.startswith("_")}


def twin(name: str) -> str | None:
    """The sync method that an async one calls, None for others."""
    return name[1:] if name.startswith("a") and name[1:] in SYNC else None
