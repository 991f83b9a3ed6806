"""The condition that keeps a statement to the rows of its scope, as SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.exceptions import FullResultSet
from django.db import models
from django.db.models.expressions import Col

from kumiko_django.tenancy.access import Access, column_value
from kumiko_django.tenancy.rules import DerivedRows, End, OwnColumn, TableRule
from kumiko_django.types.ids import SYSTEM

Sql = tuple[str, list[Any]]
NEVER: Sql = ("0 = 1", [])


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
        found = _condition(self.rule, self.alias, self.access, compiler, self.writes, self.known)
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


def _condition(
    rule: TableRule,
    alias: str,
    access: Access,
    compiler: Any,
    writes: bool,
    known: End | None = None,
    depth: int = 0,
) -> Sql | None:
    if not writes and access.reads_all(rule.model):
        return None
    if isinstance(rule, OwnColumn):
        return _own_column(rule, alias, access, compiler, writes)
    ends = [end for end in rule.ends if end is not known]
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


def _own_column(
    rule: OwnColumn, alias: str, access: Access, compiler: Any, writes: bool
) -> Sql | None:
    wanted = {column_value(rule.field, access.tenant_id)}
    if not writes or access.lifted.global_writes:
        wanted.add(column_value(rule.field, SYSTEM))
    column, _ = compiler.compile(Col(alias, rule.field))
    parts: list[Sql] = []
    if None in wanted:
        wanted.discard(None)
        if rule.field.null:
            parts.append((f"{column} IS NULL", []))
    parts = [_equals(rule.field, column, value, compiler) for value in wanted] + parts
    if not parts:
        return NEVER
    return parts[0] if len(parts) == 1 else _joined(" OR ", parts)


def _equals(field: models.Field[Any, Any], column: str, value: Any, compiler: Any) -> Sql:
    connection = compiler.connection
    prepared = field.get_db_prep_value(value, connection)
    if connection.vendor == "mysql" and isinstance(value, str):
        # Its usual collations take 'Acme' and 'acme' for the same; the first half has the index.
        exact = f"CAST({column} AS BINARY) = CAST(%s AS BINARY)"
        return f"({column} = %s AND {exact})", [prepared, prepared]
    return f"{column} = %s", [prepared]


def _through(
    end: End, alias: str, access: Access, compiler: Any, writes: bool, depth: int
) -> Sql | None:
    inner = f"kumiko_{depth}"
    found = _condition(end.rule, inner, access, compiler, writes, depth=depth + 1)
    if found is None:
        return None
    quote = compiler.connection.ops.quote_name
    link, _ = compiler.compile(Col(alias, end.field))
    condition, params = found
    column, table = (
        f"{quote(inner)}.{quote(end.target.column)}",
        f"{quote(end.table)} {quote(inner)}",
    )
    rows = " ".join(["SELECT", column, "FROM", table, "WHERE", condition])
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
