"""Row-level security of PostgreSQL: the policies of a tenant table, as SQL.

They say what ``conditions`` says of each statement, of whatever the session carries (``session``).
A session that carries nothing reaches no row. ``(SELECT ...)`` around what does not depend on a
row lets PostgreSQL ask once for a statement, and use an index.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from django.db import models

from kumiko_django.conf import get_settings
from kumiko_django.tenancy.access import column_value
from kumiko_django.tenancy.lifting import Lifted
from kumiko_django.tenancy.rules import DerivedRows, End, OwnColumn, TableRule, table_rules
from kumiko_django.types.ids import SYSTEM

TENANT_SETTING: Final = "kumiko.tenant"
LIFTED_SETTING: Final = "kumiko.lifted"
NAMES: Final = ("kumiko_read", "kumiko_insert", "kumiko_update", "kumiko_delete")
RAW: Final = "unsafe_raw"
GLOBAL_WRITES: Final = "global_writes"

_CARRIED: Final = f"COALESCE(current_setting('{TENANT_SETTING}', true), '')"
_HAS_SCOPE: Final = f"(SELECT {_CARRIED} <> '')"
_IS_SYSTEM: Final = f"(SELECT {_CARRIED} = '{SYSTEM}')"
_OWN: Final = f"NULLIF(NULLIF({_CARRIED}, ''), '{SYSTEM}')"


def words(lifted: Lifted) -> str:
    """What is lifted, as a session carries it: one word a line."""
    found = [f"reads {model._meta.db_table}" for model in lifted.cross_tenant_reads]
    found += [GLOBAL_WRITES] if lifted.global_writes else []
    found += [RAW] if lifted.unsafe_raw else []
    return "\n".join(sorted(found))


def enable(table: str, connection: Any) -> list[str]:
    """The statements that put a tenant table under policies, or put them there anew.

    Args:
        table: Name of the table of a tenant model, or of one whose rows belong to tenants by what
            they point to.
        connection: To PostgreSQL.
    """
    rule, name = table_rules()[table], connection.ops.quote_name(table)
    maker = _Conditions(connection)
    reads, writes = maker.read(rule, name, table), maker.write(rule, name)
    created = [
        f"CREATE POLICY kumiko_read ON {name} FOR SELECT USING ({reads})",
        f"CREATE POLICY kumiko_insert ON {name} FOR INSERT WITH CHECK ({writes})",
        f"CREATE POLICY kumiko_update ON {name} FOR UPDATE USING ({writes}) WITH CHECK ({writes})",
        f"CREATE POLICY kumiko_delete ON {name} FOR DELETE USING ({writes})",
    ]
    return [
        *_dropped(name),
        *created,
        f"COMMENT ON POLICY kumiko_read ON {name} IS '{fingerprint(created)}'",
        f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY",
        f"ALTER TABLE {name} FORCE ROW LEVEL SECURITY",
    ]


def disable(table: str, connection: Any) -> list[str]:
    """The statements that take our policies away again."""
    name = connection.ops.quote_name(table)
    return [
        f"ALTER TABLE {name} NO FORCE ROW LEVEL SECURITY",
        f"ALTER TABLE {name} DISABLE ROW LEVEL SECURITY",
        *_dropped(name),
    ]


def _dropped(name: str) -> list[str]:
    return [f"DROP POLICY IF EXISTS {policy} ON {name}" for policy in NAMES]


def fingerprint(created: list[str]) -> str:
    """What policies are known by: it changes with what they say."""
    text = "\n".join(created).encode()
    return f"kumiko_django {hashlib.sha256(text).hexdigest()[:16]}"


def faults(table: str, connection: Any) -> list[str]:
    """What keeps a table from being guarded as it should be, in words; none where all is well."""
    wanted = enable(table, connection)
    created = [sql for sql in wanted if sql.startswith("CREATE")]
    name = connection.ops.quote_name(table)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relrowsecurity, relforcerowsecurity FROM pg_class WHERE oid = to_regclass(%s)",
            [name],
        )
        row = cursor.fetchone()
        cursor.execute(
            "SELECT polname, polpermissive, obj_description(oid, 'pg_policy') FROM pg_policy "
            "WHERE polrelid = to_regclass(%s)",
            [name],
        )
        policies = {policy: (permits, comment) for policy, permits, comment in cursor.fetchall()}
    if row is None:
        return ["there is no such table"]
    found = [] if all(row) else ["row-level security is not enabled and forced"]
    if not set(NAMES) <= policies.keys():
        found.append("policies are missing")
    elif policies["kumiko_read"][1] != fingerprint(created):
        found.append("its policies are not those of the model as it is now")
    others = [policy for policy, (permits, _) in policies.items() if permits]
    found += [f"the policy {policy} lets more through" for policy in others if policy not in NAMES]
    return found


class _Conditions:
    """What the rows of a table must fulfil, by its rule."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._quote = connection.ops.quote_name

    def read(self, rule: TableRule, name: str, table: str, depth: int = 0) -> str:
        """The rows of ``name`` that may be read."""
        lifted = _lifts(RAW, f"reads {table}")
        if isinstance(rule, OwnColumn):
            arms = [self._own(rule, name)]
            if (system := self._system(rule, name)) is not None:
                arms.append(f"({system} AND {_HAS_SCOPE})")
            return f"({' OR '.join([*arms, lifted])})"
        seen = [self._seen(end, name, depth) for end in rule.ends]
        return f"(({' AND '.join(seen)}) OR {lifted})"

    def write(self, rule: TableRule, name: str, depth: int = 0) -> str:
        """The rows of ``name`` that may be added, changed and deleted."""
        if isinstance(rule, OwnColumn):
            arms = [self._own(rule, name)]
            if (system := self._system(rule, name)) is not None:
                arms.append(f"({system} AND ({_IS_SYSTEM} OR {_lifts(GLOBAL_WRITES)}))")
        else:
            arms = [self._derived_write(rule, name, depth)]
        return f"({' OR '.join([*arms, _lifts(RAW)])})"

    def _derived_write(self, rule: DerivedRows, name: str, depth: int) -> str:
        owned = " OR ".join(self._exists(end, name, depth, writes=True) for end in rule.ends)
        if len(rule.ends) == 1:
            return f"({owned})"
        seen = " AND ".join(self._seen(end, name, depth) for end in rule.ends)
        return f"({seen} AND ({owned}))"

    def _seen(self, end: End, name: str, depth: int) -> str:
        found = self._exists(end, name, depth, writes=False)
        if end.field.null:
            return f"({name}.{self._quote(end.field.column)} IS NULL OR {found})"
        return found

    def _exists(self, end: End, name: str, depth: int, *, writes: bool) -> str:
        inner = f"kumiko_{depth}"
        if writes:
            condition = self.write(end.rule, inner, depth + 1)
        else:
            condition = self.read(end.rule, inner, end.table, depth + 1)
        link = f"{inner}.{self._quote(end.target.column)} = {name}.{self._quote(end.field.column)}"
        rows = " ".join(["SELECT 1 FROM", self._quote(end.table), inner])
        return f"EXISTS ({rows} WHERE {link} AND {condition})"

    def _own(self, rule: OwnColumn, name: str) -> str:
        column = f"{name}.{self._quote(str(rule.field.column))}"
        if _is_text(rule.field):
            return f"{column} = (SELECT {_OWN})"
        # "07" and "7" are two tenants, and one number.
        kind = rule.field.db_type(self._connection)
        return f"({column} = (SELECT {_OWN}::{kind}) AND {column}::text = (SELECT {_OWN}))"

    def _system(self, rule: OwnColumn, name: str) -> str | None:
        column = f"{name}.{self._quote(str(rule.field.column))}"
        if get_settings().system_tenant_value is None:
            return f"{column} IS NULL" if rule.field.null else None
        value = _literal(str(column_value(rule.field, SYSTEM)))
        return f"{column}::text = {value}"


def _lifts(*named: str) -> str:
    array = ", ".join(map(_literal, named))
    carried = f"COALESCE(current_setting('{LIFTED_SETTING}', true), '')"
    return f"(SELECT string_to_array({carried}, E'\\n') && ARRAY[{array}])"


def _is_text(field: models.Field[Any, Any]) -> bool:
    while isinstance(field, models.ForeignKey):
        field = field.target_field
    return isinstance(field, models.CharField | models.TextField)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
