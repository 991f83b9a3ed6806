"""The condition that keeps a statement to the rows of its scope, as SQL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from django.core.exceptions import FullResultSet
from django.db import connections
from django.db.models.sql.compiler import SQLCompiler

from kumiko_django.conf import get_settings
from kumiko_django.tenancy.access import Access, column_value
from kumiko_django.tenancy.rules import DerivedRows, End, OwnColumn, TableRule
from kumiko_django.types.ids import SYSTEM

Sql = tuple[str, Sequence[Any]]
NEVER: Sql = ("0 = 1", ())
_quote: Any = getattr(SQLCompiler, "quote_name", None) or SQLCompiler.quote_name_unless_alias
"""How a compiler quotes an alias; Django 6.1 has the shorter name."""


class Both:
    """What the caller asks for, and the conditions of this room; cheaper than a WhereNode."""

    def __init__(self, where: Any, conditions: Sequence[Sql]) -> None:
        self.where, self.conditions = where, conditions

    def as_sql(self, compiler: Any, connection: Any) -> Sql:
        """Both as one text; ``EmptyResultSet`` where the caller asks for nothing."""
        parts: list[str] = []
        params: list[Any] = []
        if self.where is not None:
            try:
                sql, values = compiler.compile(self.where)
            except FullResultSet:
                pass
            else:
                parts.append(sql)
                params += values
        for sql, values in self.conditions:
            parts.append(sql)
            params += values
        if not parts:
            raise FullResultSet
        # The caller's may be an OR: a WhereNode writes parentheses around itself, others may not.
        return (parts[0] if len(parts) == 1 else f"({') AND ('.join(parts)})"), params


class TenantCondition:
    """A node of a WHERE clause: the rows of ``alias`` that may be reached.

    Args:
        alias: How the statement calls the table.
        rule: Whose rows it holds.
        access: Whose rows may be reached.
        writes: Whether they are written, not only read.
        known: The end of a through table that the statement has checked already.
    """

    contains_aggregate = False
    contains_over_clause = False
    contains_column_references = True
    conditional = True

    def __init__(
        self,
        alias: str,
        rule: TableRule,
        access: Access,
        *,
        writes: bool = False,
        known: End | None = None,
    ) -> None:
        self.alias, self.rule, self.access = alias, rule, access
        self.writes, self.known = writes, known

    def as_sql(self, compiler: Any, connection: Any) -> Sql:
        """The condition; ``FullResultSet`` where there is none."""
        found = condition(self.rule, self.alias, self.access, compiler, self.writes, self.known)
        if found is None:
            raise FullResultSet
        return found

    def relabeled_clone(self, change_map: dict[str, str]) -> TenantCondition:
        """The same under another alias."""
        alias = change_map.get(self.alias, self.alias)
        return TenantCondition(alias, self.rule, self.access, writes=self.writes, known=self.known)

    def get_group_by_cols(self) -> list[Any]:
        """None: it is never among what is selected."""
        return []


def condition(
    rule: TableRule,
    alias: str,
    access: Access,
    compiler: Any,
    writes: bool,
    known: End | None = None,
    depth: int = 0,
) -> Sql | None:
    """The condition as SQL for a compiler, None where there is none; see TenantCondition."""
    if not writes and access.reads_all(rule.model):
        return None
    if isinstance(rule, OwnColumn):
        return _own_column(rule, alias, access, compiler, writes)
    ends = [end for end in rule.ends if end is not known]
    if writes and len(ends) == 1:
        ends = []  # what is owned is seen
    parts = [_through(end, alias, access, compiler, False, depth) for end in ends]
    found = [part for part in parts if part is not None]
    if writes:
        owned = [_through(end, alias, access, compiler, True, depth) for end in rule.ends]
        if all(part is not None for part in owned):
            found.append(_joined(" OR ", [part for part in owned if part is not None]))
    return _joined(" AND ", found) if found else None


def _joined(word: str, parts: Sequence[Sql]) -> Sql:
    text = word.join(sql for sql, _ in parts)
    return f"({text})", [value for _, values in parts for value in values]


def _own_column(rule: OwnColumn, alias: str, access: Access, compiler: Any, writes: bool) -> Sql:
    connection = compiler.connection
    with_system = not writes or access.lifted.global_writes
    system_value = get_settings().system_tenant_value
    return _reach(
        rule,
        _quote(compiler, alias),
        access.tenant_id,
        with_system,
        system_value,
        connection.alias,
        connection.vendor,
    )


@lru_cache(maxsize=4096)
def _reach(
    rule: OwnColumn,
    table: str,
    tenant_id: str,
    with_system: bool,
    system_value: object,
    using: str,
    vendor: str,
) -> Sql:
    """The condition, worked out once for each tenant and table, since every query asks.

    The value of SYSTEM is an argument, so that another setting is another question.
    """
    connection = connections[using]
    column = f"{table}.{connection.ops.quote_name(str(rule.field.column))}"
    wanted = dict.fromkeys([column_value(rule.field, tenant_id)])
    if with_system:
        wanted[column_value(rule.field, SYSTEM)] = None
    equals = f"{column} = %s"
    if vendor == "mysql" and any(isinstance(value, str) for value in wanted):
        # Its usual collations take 'Acme' and 'acme' for the same; the first half has the index.
        equals = f"({equals} AND CAST({column} AS BINARY) = CAST(%s AS BINARY))"
    parts: list[str] = []
    values: list[Any] = []
    for value in wanted:
        if value is not None:
            prepared = rule.field.get_db_prep_value(value, connection)
            parts.append(equals)
            values += [prepared] * equals.count("%s")
        elif rule.field.null:
            parts.append(f"{column} IS NULL")
    if not parts:
        return NEVER
    text = " OR ".join(parts)
    return (f"({text})" if len(parts) > 1 else text), tuple(values)


def _through(
    end: End, alias: str, access: Access, compiler: Any, writes: bool, depth: int
) -> Sql | None:
    inner = f"kumiko_{depth}"
    found = condition(end.rule, inner, access, compiler, writes, depth=depth + 1)
    if found is None:
        return None
    quote = compiler.connection.ops.quote_name
    link = f"{_quote(compiler, alias)}.{quote(end.field.column)}"
    text, params = found
    column, table = (
        f"{quote(inner)}.{quote(end.target.column)}",
        f"{quote(end.table)} {quote(inner)}",
    )
    rows = " ".join(["SELECT", column, "FROM", table, "WHERE", text])
    sql = f"{link} IN ({rows})"
    if end.field.null and not writes:
        sql = f"({link} IS NULL OR {sql})"
    return sql, params


def end_known_by_join(rule: TableRule, join: Any, parent_table: str) -> End | None:
    """The end of a through table that a join has followed, from a table with a condition."""
    if not isinstance(rule, DerivedRows):
        return None
    for end in rule.ends:
        if parent_table == end.table and join.join_cols == ((end.target.column, end.field.column),):
            return end
    return None
