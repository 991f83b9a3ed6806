"""What is done before a statement that writes is made: stamp, check, and keep it to own rows.

Called by the compilers, so for every path into the database that Django's ORM has: ``save``,
``update``, the bulk methods, related managers, the deletion collector, ``loaddata``.
"""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Model
from django.db.models.constants import OnConflict
from django.db.models.sql.where import WhereNode

from kumiko_django.exceptions import ScopeError
from kumiko_django.tenancy import references
from kumiko_django.tenancy.access import Access, Operation, column_value, current_access
from kumiko_django.tenancy.conditions import TenantCondition
from kumiko_django.tenancy.databases import refuse_other_database
from kumiko_django.tenancy.marks import pinned_tenant
from kumiko_django.tenancy.rules import DerivedRows, OwnColumn, TableRule, rule_of
from kumiko_django.tenancy.writes import before_write
from kumiko_django.types.ids import SYSTEM


def raw_refused(label: str, text: str) -> ScopeError:
    """SQL of the caller's own, in a statement that reads tenants' rows."""
    return ScopeError(
        f"SQL of your own ({text[:60]!r}) in a query of {label} could reach other tenants. Write "
        "it with expressions of Django; a job may be granted "
        'escape_hatches={"unsafe_raw": "why"}.'
    )


# ------------------------------------------------------------------------------------------ insert


def prepare_insert(compiler: Any) -> TenantCondition | None:
    """Stamp the new rows and check what they point to.

    Returns:
        The condition under which a row that is there already may be changed, where the statement
        changes such rows.
    """
    query = compiler.query
    model: type[Model] = query.model
    before_write(model, [field.name for field in query.fields], "insert", query.objs)
    if query.on_conflict == OnConflict.UPDATE:
        before_write(model, [field.name for field in query.update_fields], "update")
    rule = rule_of(model)
    if rule is None:
        return None
    access = current_access(rule.model, "insert")
    refuse_other_database([rule], access, compiler.connection.alias)
    changes_rows = query.on_conflict == OnConflict.UPDATE
    if isinstance(rule, OwnColumn):
        _stamp(query, rule, access)
        if changes_rows and any(f.column == rule.field.column for f in query.update_fields):
            raise _unchangeable(rule)
    references.check_inserted(query, rule, compiler.using)
    if not changes_rows:
        return None
    if isinstance(rule, DerivedRows) or compiler.connection.vendor not in ("postgresql", "sqlite"):
        raise ScopeError(
            f"update_conflicts cannot be kept to the tenant's rows of {model._meta.label} here "
            f"({compiler.connection.vendor}). Use ignore_conflicts and an update() with a filter."
        )
    return TenantCondition(model._meta.db_table, rule, access, writes=True)


def _stamp(query: Any, rule: OwnColumn, access: Access) -> None:
    own = given_none = column_value(rule.field, access.tenant_id)
    if access.lifted.global_writes:
        given_none = column_value(rule.field, SYSTEM)
    allowed = {own, given_none}
    if given_none is None and not rule.field.null:
        raise ScopeError(
            f"{rule.model._meta.label} has no rows of SYSTEM: {rule.field.name} cannot be NULL. "
            "Do it inside `with tenant_scope(tenant_id):`, or give such rows a value with "
            'KUMIKO["SYSTEM_TENANT_VALUE"].'
        )
    if not any(field.column == rule.field.column for field in query.fields):
        raise _unnamed(query.model, rule)
    name = next(f.attname for f in query.fields if f.column == rule.field.column)
    for row in query.objs:
        value = plain(rule, getattr(row, name))
        if value is None and not query.raw:
            setattr(row, name, given_none)
        elif value not in allowed:
            raise foreign_row(rule.model, value, access, "insert")


def _unnamed(model: type[Model], rule: OwnColumn) -> ScopeError:
    return ScopeError(
        f"Rows are added to {model._meta.label}, the table of {rule.model._meta.label}, without "
        f"{rule.field.column}. Add them through {rule.model._meta.label}."
    )


def plain(rule: OwnColumn, value: Any) -> Any:
    """A tenant column's value as the column has it.

    Raises:
        ScopeError: It is an expression, of which only the database knows what it will be.
    """
    if hasattr(value, "resolve_expression"):
        raise _unchangeable(rule)
    try:
        return rule.field.to_python(value)
    except ValidationError:
        return value  # which is nobody's, and refused as such


def foreign_row(model: type[Model], value: Any, access: Access, operation: Operation) -> ScopeError:
    """A row of another tenant was to be written."""
    whose = "SYSTEM" if value is None else f"tenant {value!r}"
    verb = {"insert": "be added to", "delete": "be deleted from"}.get(operation, "be changed in")
    return ScopeError(
        f"A row of {whose} was to {verb} {model._meta.label} in the scope of {access.name}. "
        "A scope writes its own rows only: enter that of the row."
    )


def _unchangeable(rule: OwnColumn) -> ScopeError:
    return ScopeError(
        f"{rule.model._meta.label}.{rule.field.name} says whose the row is; it is set by the scope "
        "when the row is added, and cannot be changed. Leave it out."
    )


def may_conflict(query: Any) -> bool:
    """Whether an insert may meet, and change, rows that are there already, of a tenant model."""
    return query.on_conflict == OnConflict.UPDATE and rule_of(query.model) is not None


def guard_conflict(compiler: Any, made: Any, condition: TenantCondition) -> Any:
    """The statements of an insert, so that a conflict changes own rows only."""
    query = compiler.query
    fields = query.fields
    suffix = compiler.connection.ops.on_conflict_suffix_sql(
        fields,
        query.on_conflict,
        (field.column for field in query.update_fields),
        (field.column for field in query.unique_fields),
    )
    where, values = condition.as_sql(compiler, compiler.connection)
    guarded = []
    for sql, params in made:
        before, found, after = sql.rpartition(suffix)
        if not suffix or not found or compiler.returning_params:
            raise ScopeError(
                f"update_conflicts cannot be kept to the tenant's rows of "
                f"{query.model._meta.label} on this database. Use update() with a filter."
            )
        guarded.append((f"{before}{suffix} WHERE {where}{after}", (*params, *values)))
    return guarded


def refuse_foreign_conflict(query: Any, rows: list[Any]) -> None:
    """Refuse an insert of which a row was kept back, since the row it met is not the tenant's."""
    if len(rows) != len(query.objs):
        raise ScopeError(
            f"{len(query.objs) - len(rows)} of the rows for {query.model._meta.label} stand in "
            "conflict with rows of another tenant. Make the tenant part of the unique fields."
        )


# ---------------------------------------------------------------------------------- update, delete


def prepare_update(compiler: Any) -> None:
    """Keep an update to own rows, and their tenant and what they point to as it must be."""
    query = compiler.query
    model: type[Model] = query.model
    before_write(model, [field.name for field, _, _ in query.values], "update")
    rule = rule_of(model)
    if rule is None:
        return
    access = _keep_to_own(compiler, rule, "update")
    if isinstance(rule, OwnColumn):
        own = {column_value(rule.field, access.tenant_id)}
        if access.lifted.global_writes:
            own.add(column_value(rule.field, SYSTEM))
        for field, _, value in query.values:
            if field.column != rule.field.column:
                continue
            # Through save() the column is always there: with the value that it has.
            key = getattr(value, field.target_field.attname) if isinstance(value, Model) else value
            if plain(rule, key) not in own:
                raise _unchangeable(rule)
    references.check_updated(query, rule, compiler.using)


def prepare_delete(compiler: Any) -> None:
    """Keep a deletion to own rows, and see to it that no others go or dangle with them."""
    model: type[Model] = compiler.query.model
    before_write(model, [], "delete")
    rule = rule_of(model)
    if rule is not None:
        _keep_to_own(compiler, rule, "delete")
    references.check_deleted(compiler.query, rule, compiler.using)


def _keep_to_own(compiler: Any, rule: TableRule, operation: Operation) -> Access:
    access = current_access(rule.model, operation)
    refuse_other_database([rule], access, compiler.connection.alias)
    # The query may be used again by its owner (the collector does), so a copy gets the condition.
    query = compiler.query = compiler.query.clone()
    refuse_unfiltered(query, rule, operation)
    pin = pinned_tenant(query)
    if pin is not None and pin != access.tenant_id:
        raise foreign_row(rule.model, pin, access, operation)
    alias = query.get_initial_alias()
    condition = TenantCondition(alias, rule, access, writes=True)
    both: list[Any] = [query.where, condition]
    query.where = WhereNode(both)
    return access


def refuse_unfiltered(query: Any, rule: TableRule, operation: Operation) -> None:
    """Refuse to change or delete all rows of a tenant at once.

    Raises:
        ScopeError: The query has no filter.
    """
    if not query.where.children:
        raise ScopeError(
            f"{operation}() of {rule.model._meta.label} without a filter would reach every row of "
            "the tenant. Say which: filter(pk__isnull=False) if you mean all."
        )
