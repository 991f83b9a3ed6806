"""Which tables hold tenants' rows, and by what they are told apart.

The key is the table's name, not the model: what a query joins it knows by name only, and a proxy,
an unmanaged twin or the table of a many-to-many relation is guarded like the model itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from django.apps import apps
from django.db import models
from django.db.models.signals import class_prepared

Field: TypeAlias = "models.Field[Any, Any]"


@dataclass(frozen=True, slots=True, eq=False)
class OwnColumn:
    """A table with a tenant column."""

    model: type[models.Model]
    field: Field


@dataclass(frozen=True, slots=True, eq=False)
class End:
    """A column of a table without tenant column that points to a tenant's row."""

    field: Field
    target: Field
    rule: TableRule

    @property
    def table(self) -> str:
        """The table that is pointed to."""
        return self.target.model._meta.db_table


@dataclass(frozen=True, slots=True, eq=False)
class DerivedRows:
    """A table whose rows belong to whom the rows belong that they point to.

    The table of a many-to-many relation, and that of a model that inherits its tenant from a
    concrete parent.
    """

    model: type[models.Model]
    ends: tuple[End, ...]


TableRule: TypeAlias = OwnColumn | DerivedRows


@dataclass(slots=True)
class _Registry:
    """The rules of all tables, made when first asked for and again when a model was added."""

    columns: dict[type[models.Model], Field] = field(default_factory=dict)
    tables: dict[str, TableRule] | None = None
    referrers: dict[str, list[End]] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)
    """The tables by what stands in SQL for them, whatever quotes and case."""


_registry = _Registry()


def register(model: type[models.Model], tenant_field: Field) -> None:
    """Make known that the rows of a concrete model belong to tenants."""
    _registry.columns[model] = tenant_field
    _registry.tables = None


def table_rules() -> dict[str, TableRule]:
    """The rule of each tenant table, by the table's name."""
    tables = _registry.tables
    return _build() if tables is None else tables


def rule_of(model: type[models.Model]) -> TableRule | None:
    """The rule of a model's table, None for a plain model."""
    return table_rules().get(model._meta.db_table)


def mentioned(sql: str) -> TableRule | None:
    """The rule of the first tenant table that SQL of the caller's own names, None for none."""
    rules = table_rules()
    text = sql.lower()
    words = set(re.findall(r"\w+", text))
    for key, name in _registry.named.items():
        if key in words or (not key.isidentifier() and key in text):
            return rules[name]
    return None


def column_of(model: type[models.Model]) -> OwnColumn | None:
    """The tenant column that a model has or inherits, None for plain models and through tables."""
    rule = rule_of(model)
    while isinstance(rule, DerivedRows):
        end = rule.ends[0]
        if not getattr(end.field.remote_field, "parent_link", False):
            return None
        rule = end.rule
    return rule


def referrers_of(table: str) -> list[End]:
    """The columns of tenant tables that point to ``table``, through tables included."""
    table_rules()
    return _registry.referrers.get(table, [])


def _build() -> dict[str, TableRule]:
    rules: dict[str, TableRule] = {}
    known = [model for app in apps.all_models.values() for model in app.values()]
    for model, column in _registry.columns.items():
        if column.model is model:
            rules[_same(model)] = OwnColumn(model, column)
    for model in known:
        _add_child(model, rules)
    for model in known:
        for relation in model._meta.local_many_to_many:
            _add_through(relation, rules)
    tables = {model._meta.db_table: rules[_same(model)] for model in known if _same(model) in rules}
    referrers: dict[str, list[End]] = {}
    for model in known:
        rule = tables.get(model._meta.db_table)
        if rule is None or model._meta.proxy:
            continue
        for reference, target in _references(model):
            end = End(reference, target, rule)
            referrers.setdefault(end.table, []).append(end)
    _registry.named = {table_key(name): name for name in tables}
    if apps.models_ready:
        _registry.referrers, _registry.tables = referrers, tables
    return tables


def _same(model: type[models.Model]) -> str:
    return table_key(model._meta.db_table)


def table_key(name: str) -> str:
    """A table's name without what databases do not care about: quotes, schema, case."""
    return name.replace('"', "").replace("`", "").rsplit(".", 1)[-1].lower()


def _add_child(model: type[models.Model], rules: dict[str, TableRule]) -> TableRule | None:
    """The rule of a model; found by that of its concrete parents where it has none of its own."""
    found = rules.get(_same(model))
    if found is not None or model._meta.proxy:
        return found
    ends = []
    parents: dict[type[models.Model], Any] = model._meta.parents
    for parent, link in parents.items():
        rule = _add_child(parent, rules)
        if rule is not None and link is not None:
            ends.append(End(link, link.target_field, rule))
    if not ends:
        return None
    rules[_same(model)] = DerivedRows(model, tuple(ends))
    return rules[_same(model)]


def _add_through(relation: Any, rules: dict[str, TableRule]) -> None:
    through = relation.remote_field.through
    if isinstance(through, str) or _same(through) in rules:
        return
    ends = [
        End(reference, target, rules[_same(target.model)])
        for reference, target in _references(through)
        if _same(target.model) in rules
    ]
    if ends:
        rules[_same(through)] = DerivedRows(through, tuple(ends))


def _references(model: type[models.Model]) -> Iterator[tuple[Any, Field]]:
    """The foreign keys of a model's own table, each with the column that it points to."""
    for column in model._meta.local_concrete_fields:
        if isinstance(column, models.ForeignKey) and not isinstance(column.remote_field.model, str):
            yield column, column.target_field


def tenant_references(model: type[models.Model]) -> list[End]:
    """The foreign keys of a model's own table that point to rows of tenants, with their rules."""
    rules = table_rules()
    return [
        End(column, target, rules[target.model._meta.db_table])
        for column, target in _references(model)
        if target.model._meta.db_table in rules
    ]


def _forget(**_: object) -> None:
    _registry.tables = None


class_prepared.connect(_forget, dispatch_uid="kumiko_django.tenancy.rules.forget")
