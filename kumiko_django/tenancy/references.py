"""Foreign keys between tenants' rows: checked when they are written, and when they are pulled.

The database does not know tenants: to it a key of another tenant's row is as good as any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.db.models import Case, Model, QuerySet, Value, When
from django.db.models.functions import Cast
from django.db.models.sql import Query

from kumiko_django.exceptions import ScopeError
from kumiko_django.tenancy.access import Access, current_access
from kumiko_django.tenancy.lifting import reading_all, reading_own
from kumiko_django.tenancy.marks import for_writing
from kumiko_django.tenancy.rules import (
    DerivedRows,
    End,
    TableRule,
    referrers_of,
    tenant_references,
)
from kumiko_django.types.ids import SYSTEM

_CHUNK = 500


def check_inserted(query: Any, rule: TableRule, using: str) -> None:
    """Refuse new rows that point to rows which the scope does not see.

    Fixtures (``raw``) have their rows in any order, so only what makes a row the tenant's is
    checked for them.
    """
    ends = rule.ends if isinstance(rule, DerivedRows) else ()
    if ends:
        _check_owned(query, ends, using)
    named = {field.column for field in query.fields}
    for end in tenant_references(query.model):
        known = any(end.field is each.field for each in ends)
        if known or query.raw or end.field.column not in named:
            continue
        values = [getattr(row, end.field.attname) for row in query.objs]
        # Rows of one statement may point to one another.
        new = set()
        if query.on_conflict is None and end.target.model is query.model:
            new = {getattr(row, end.target.attname) for row in query.objs}
        _check(end, (value for value in values if value not in new), using)


def _check_owned(query: Any, ends: tuple[End, ...], using: str) -> None:
    """What a derived row points to must be seen, and one of it be the tenant's own."""
    orphans = set(range(len(query.objs)))
    for end in ends:
        values = [_plain(end, getattr(row, end.field.attname)) for row in query.objs]
        owned = _found(end, {value for value in values if value is not None}, using, own=True)
        _check(end, (value for value in values if value not in owned), using)
        orphans -= {number for number, value in enumerate(values) if value in owned}
    if orphans:
        raise ScopeError(
            f"A row of {query.model._meta.label} points to nothing that the current scope owns. "
            "A scope writes its own rows only: enter that of the rows it points to."
        )


def _plain(end: End, value: Any) -> Any:
    if hasattr(value, "resolve_expression"):
        raise _uncertain(end, value)
    return end.target.to_python(value)


def check_updated(query: Any, rule: TableRule, using: str) -> None:
    """Refuse to let rows point to rows which the scope does not see."""
    by_column = {end.field.column: end for end in tenant_references(query.model)}
    for field, _, value in query.values:
        end = by_column.get(field.column)
        if end is None:
            continue
        _check(end, _constants(end, value), using)
        if isinstance(rule, DerivedRows):
            _check_moved(rule, end, list(_constants(end, value)), using)


def _check_moved(rule: DerivedRows, end: End, values: list[Any], using: str) -> None:
    """A row that is told whose it is by what it points to stays the tenant's own."""
    kept = {value for value in values if value is not None}
    if any(each.field is end.field for each in rule.ends) and (
        len(kept) != len(set(values)) or _found(end, kept, using, own=True) != kept
    ):
        raise ScopeError(
            f"{end.field.model._meta.label}.{end.field.name} says whose the row is, and can only "
            "be changed to another row of the same tenant. Delete the row and add a new one."
        )


def _constants(end: End, value: Any) -> Iterator[Any]:
    if isinstance(value, Model):
        yield getattr(value, end.target.attname)
    elif isinstance(value, Value):
        yield value.value
    elif isinstance(value, Cast | When | Case):
        inner = value.get_source_expressions()
        for each in inner[1:] if isinstance(value, When) else inner:
            yield from _constants(end, each)
    elif hasattr(value, "resolve_expression"):
        raise _uncertain(end, value)
    else:
        yield value


def _uncertain(end: End, value: Any) -> ScopeError:
    return ScopeError(
        f"{end.field.model._meta.label}.{end.field.name} points to rows of tenants, and what "
        f"{type(value).__name__} will give cannot be checked. Set it to a row or its key."
    )


def _check(end: End, values: Iterable[Any], using: str) -> None:
    wanted: set[Any] = set()
    for value in values:
        if hasattr(value, "resolve_expression"):
            wanted.update(_constants(end, value))
        else:
            wanted.add(value)
    wanted = {end.target.to_python(value) for value in wanted if value is not None}
    if wanted and not wanted <= _found(end, wanted, using):
        raise ScopeError(
            f"{end.field.model._meta.label}.{end.field.name} was to point to a row of "
            f"{end.rule.model._meta.label} that the current scope does not have. Point to a row "
            "of the same tenant, or of SYSTEM."
        )


def _found(end: End, values: set[Any], using: str, *, own: bool = False) -> set[Any]:
    found: set[Any] = set()
    ordered = list(values)
    for start in range(0, len(ordered), _CHUNK):
        rows: QuerySet[Any] = QuerySet(model=end.target.model, using=using)
        rows = for_writing(rows) if own else rows
        name = end.target.attname
        chunk = ordered[start : start + _CHUNK]
        with reading_own():
            found.update(rows.filter(**{f"{name}__in": chunk}).values_list(name, flat=True))
    return found


def check_deleted(query: Any, rule: TableRule | None, using: str) -> None:
    """Refuse to delete rows to which rows of other tenants point.

    The collector cannot see these, so they would dangle, or go with the row by a cascade of the
    database. Rows of a tenant are pointed to by none but its own.
    """
    for end in referrers_of(query.model._meta.db_table):
        if rule is not None and _deletes_own_only(current_access(rule.model, "delete")):
            return
        rows = _referring(query, end, using)
        with reading_all(end.field.model):
            there = rows.exists()
        if not there:
            continue
        with reading_all(end.field.model):
            everyones = rows.count()
        if for_writing(rows).count() != everyones:
            raise ScopeError(
                f"Rows of {query.model._meta.label} were to be deleted to which other tenants' "
                f"rows of {end.field.model._meta.label} point. These have to go first, each in "
                "the scope of its tenant."
            )


def _deletes_own_only(access: Access) -> bool:
    return access.tenant_id != SYSTEM and not access.lifted.global_writes


def _referring(query: Any, end: End, using: str) -> QuerySet[Any]:
    inner = query.clone()
    inner.__class__ = Query
    inner.clear_select_clause()
    inner.add_fields([end.target.attname])
    deleted: QuerySet[Any] = QuerySet(model=query.model, using=using)
    deleted.query = inner
    referring: QuerySet[Any] = QuerySet(model=end.field.model, using=using)
    return referring.filter(**{f"{end.field.name}__in": deleted})
