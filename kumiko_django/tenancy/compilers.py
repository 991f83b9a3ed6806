"""SQL compilers that keep every statement of Django's ORM to the rows of its scope.

A queryset knows what it wants, a compiler knows what is really asked: which tables stand in the
FROM clause, also those that ``select_related``, an ordering or an annotation has joined, and for
subqueries and the parts of a union there is a compiler each. So the conditions are added here, when
the SQL is made, by the scope of that moment.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from django.apps import apps
from django.db.migrations.state import StateApps
from django.db.models import OneToOneField
from django.db.models.expressions import RawSQL
from django.db.models.sql.compiler import (
    SQLCompiler,
    SQLDeleteCompiler,
    SQLInsertCompiler,
    SQLUpdateCompiler,
)
from django.db.models.sql.constants import INNER
from django.db.models.sql.datastructures import BaseTable, Join
from django.db.models.sql.where import ExtraWhere

from kumiko_django.exceptions import ScopeError
from kumiko_django.tenancy import statements
from kumiko_django.tenancy.access import Access, current_access
from kumiko_django.tenancy.conditions import (
    Both,
    Sql,
    TenantCondition,
    condition,
    end_known_by_join,
)
from kumiko_django.tenancy.cross_tenant import is_wide, told, widened
from kumiko_django.tenancy.databases import refuse_other_database
from kumiko_django.tenancy.marks import WRITES, pinned_tenant
from kumiko_django.tenancy.rules import DerivedRows, TableRule, mentioned, table_rules


class _Watched(dict[type, bool]):
    """Whether nodes of a type are looked at more closely; most are not."""

    def __missing__(self, kind: type) -> bool:
        self[kind] = issubclass(kind, (Join, RawSQL, ExtraWhere))
        return self[kind]


_watched = _Watched()
_NAMES = re.compile(r'[\w."`$]*')
"""Raw SQL that is but a column's name, as Django itself writes it to prefetch many-to-many rows."""


class ReadRules(SQLCompiler):
    """What is added to the compiler of every statement."""

    _guarded: dict[str, TableRule] = {}
    """The tenant tables of the FROM clause, by alias, as soon as it is being made."""
    where: Any
    _access: Access
    _joined: set[str]
    _raw: str | None = None
    """SQL of the caller's own that was met before it was known which tables there are."""

    def get_from_clause(self) -> Any:
        """The tables, each with its condition: in its ON where it is joined, else in WHERE."""
        if self.query.extra_tables:
            self._refuse_extra_tables()
        guarded = self._tenant_tables()
        if not guarded:
            return super().get_from_clause()
        first = next(iter(guarded.values()))
        self._access = widened(self.query, current_access(first.model, "read"))
        refuse_other_database(guarded.values(), self._access, self.connection.alias, reads=True)
        self._refuse_other_pin(first)
        self._guarded, self._joined = guarded, set()
        if self._raw is not None:
            self._refuse_raw(self._raw)
        clause = super().get_from_clause()
        bases = [self._base_condition(alias) for alias in guarded if alias not in self._joined]
        # MySQL's DELETE with joins has none here: what it deletes by has the condition already.
        where = getattr(self, "where", None)
        self.where = Both(where, [each for each in bases if each is not None])
        return clause

    def execute_sql(self, *args: Any, **kwargs: Any) -> Any:
        """Run the statement; what it may read of all tenants, policies are told."""
        if not is_wide(self.query):
            return super().execute_sql(*args, **kwargs)
        with told(self.query):
            return super().execute_sql(*args, **kwargs)

    def compile(self, node: Any) -> Any:
        """SQL of one node; joins get their condition, raw SQL is refused where it could evade."""
        if _watched[type(node)]:
            if isinstance(node, Join):
                return self._join(node)
            self._watch_raw(node)
        return super().compile(node)

    def _tenant_tables(self) -> dict[str, TableRule]:
        query, rules = self.query, table_rules()
        if not rules or is_historical(query.model):
            return {}
        counts = query.alias_refcount
        return {
            alias: rules[table.table_name]
            for alias, table in query.alias_map.items()
            if table.table_name in rules and counts[alias]
        }

    def _join(self, join: Any) -> Any:
        sql, params = super().compile(join)
        alias = join.table_alias
        rule = self._guarded.get(alias) if alias is not None else None
        if rule is None or alias is None:
            return sql, params
        parent = self.query.alias_map[join.parent_alias].table_name
        known = (
            end_known_by_join(rule, join, parent) if join.parent_alias in self._guarded else None
        )
        self._joined.add(alias)
        found = condition(rule, alias, self._access, self, False, known)
        if found is None:
            return sql, params
        if not sql.endswith(")"):
            raise ScopeError(
                f"{rule.model._meta.label} is joined in a way that cannot be kept to the tenant: "
                f"{sql}. Query it on its own."
            )
        return f"{sql[:-1]} AND {found[0]})", [*params, *found[1]]

    def _base_condition(self, alias: str) -> Sql | None:
        table = self.query.alias_map[alias]
        rule = self._guarded[alias]
        if not isinstance(table, BaseTable):
            raise ScopeError(
                f"{rule.model._meta.label} is joined by a {type(table).__name__}, which cannot be "
                "kept to the tenant. Query it on its own."
            )
        writes = getattr(self.query, WRITES, False)
        if not writes and self._parent_is_joined(alias, rule):
            return None
        return condition(rule, alias, self._access, self, writes)

    def _parent_is_joined(self, alias: str, rule: TableRule) -> bool:
        """Whether the row of the concrete parent stands beside it, and has the condition."""
        if not isinstance(rule, DerivedRows) or len(rule.ends) != 1:
            return False
        end = rule.ends[0]
        return isinstance(end.field, OneToOneField) and any(
            table.table_name == end.table
            and table.parent_alias == alias
            and table.join_type == INNER
            and getattr(table, "join_field", None) == end.field
            and other in self._joined
            for other, table in self.query.alias_map.items()
        )

    def _refuse_other_pin(self, rule: TableRule) -> None:
        pin = pinned_tenant(self.query)
        if pin is not None and pin != self._access.tenant_id:
            raise ScopeError(
                f"This query of {rule.model._meta.label} belongs to tenant {pin!r}, and runs for "
                f"{self._access.name}. Make it again in the scope in which it is to run."
            )

    def _watch_raw(self, node: RawSQL | ExtraWhere) -> None:
        texts = node.sqls if isinstance(node, ExtraWhere) else [node.sql]
        text = " ".join(map(str, texts))
        if all(_NAMES.fullmatch(str(each)) for each in texts):
            return
        named = None if is_historical(self.query.model) else mentioned(text)
        if named is not None and not current_access(named.model, "raw").lifted.unsafe_raw:
            raise statements.raw_refused(named.model._meta.label, text)
        if self._guarded:
            self._refuse_raw(text)
        self._raw = text

    def _refuse_raw(self, text: str) -> None:
        if not self._access.lifted.unsafe_raw:
            label = next(iter(self._guarded.values())).model._meta.label
            raise statements.raw_refused(label, text)

    def _refuse_extra_tables(self) -> None:
        for table in self.query.extra_tables:
            rule = None if is_historical(self.query.model) else mentioned(table)
            if rule is not None and not current_access(rule.model, "raw").lifted.unsafe_raw:
                raise statements.raw_refused(rule.model._meta.label, f"tables=[{table!r}]")


class InsertRules(ReadRules):
    """New rows get the tenant of the scope."""

    _prepared = False
    _conflict: TenantCondition | None = None

    def as_sql(self, *args: Any, **kwargs: Any) -> Any:
        """The statements, after the rows were stamped."""
        if not self._prepared and not is_historical(self.query.model):
            self._conflict = statements.prepare_insert(self)
            self._prepared = True
        made = super().as_sql(*args, **kwargs)
        return statements.guard_conflict(self, made, self._conflict) if self._conflict else made

    def execute_sql(self, *args: Any, **kwargs: Any) -> Any:
        """Insert, and see to it that a conflict has not met another tenant's row."""
        returning: Any = args[0] if args else kwargs.get("returning_fields")
        if is_historical(self.query.model) or not statements.may_conflict(self.query):
            return super().execute_sql(*args, **kwargs)
        wanted: Any = returning or self.query.get_meta().local_concrete_fields[:1]
        rows: Any = super().execute_sql(wanted)
        rows = [row for row in rows if row is not None]
        statements.refuse_foreign_conflict(self.query, rows)
        return rows if returning else []

    def apply_converters(self, rows: Any, converters: Any) -> Any:
        """Leave out the None that Django 5.2 has for a row that was kept back by a conflict."""
        return super().apply_converters((row for row in rows if row is not None), converters)


class UpdateRules(ReadRules):
    """Only the tenant's own rows are changed, and never their tenant."""

    _prepared = False

    def as_sql(self, *args: Any, **kwargs: Any) -> Any:
        """The statement, kept to the tenant's own rows."""
        if not self._prepared and not is_historical(self.query.model):
            self._prepared = True
            statements.prepare_update(self)
        return super().as_sql(*args, **kwargs)


class DeleteRules(ReadRules):
    """Only the tenant's own rows are deleted."""

    _prepared = False

    def as_sql(self, *args: Any, **kwargs: Any) -> Any:
        """The statement, kept to the tenant's own rows."""
        if not self._prepared and not is_historical(self.query.model):
            self._prepared = True
            statements.prepare_delete(self)
        return super().as_sql(*args, **kwargs)


def is_historical(model: Any) -> bool:
    """Whether a model is one of a migration, which works on the rows of all tenants."""
    return (
        model is not None
        and model._meta.apps is not apps
        and isinstance(model._meta.apps, StateApps)
    )


@cache
def with_rules(compiler: type[SQLCompiler]) -> type[SQLCompiler]:
    """The same compiler, of whatever database, with the rules of this module."""
    if issubclass(compiler, ReadRules):
        return compiler
    rules: type[ReadRules] = ReadRules
    if issubclass(compiler, SQLInsertCompiler):
        rules = InsertRules
    elif issubclass(compiler, SQLUpdateCompiler):
        rules = UpdateRules
    elif issubclass(compiler, SQLDeleteCompiler):
        rules = DeleteRules
    return type(f"Scoped{compiler.__name__}", (rules, compiler), {"__module__": __name__})
