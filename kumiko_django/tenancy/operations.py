"""Migration operations: row-level security for the tables of tenant models, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.db import models, router
from django.db.migrations.operations.base import Operation

from kumiko_django.exceptions import DefinitionError
from kumiko_django.tenancy import policies
from kumiko_django.tenancy.rules import DerivedRows, TableRule, rule_of, table_rules


class EnableRowLevelSecurity(Operation):
    """Put the table of a tenant model under policies, and what derives from it; reversible.

    That is the table itself, the tables of its many-to-many fields and, for a model that inherits
    from a tenant model, its second table: as far as they are there at this point of the migrations.
    Databases other than PostgreSQL are left as they are.

    Args:
        model: ``"app.Model"``, a tenant model or a through model between such.
    """

    reversible = True
    reduces_to_sql = True
    atomic = True

    def __init__(self, model: str) -> None:
        self.model = model

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        """How it is written in a migration."""
        return self.__class__.__name__, [self.model], {}

    def state_forwards(self, app_label: str, state: Any) -> None:
        """It changes no model."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Make the policies.

        Raises:
            DefinitionError: The model is not there, or its rows belong to no tenant.
        """
        for table in self._tables(schema_editor, to_state):
            for sql in policies.enable(table, schema_editor.connection):
                schema_editor.execute(sql, params=None)

    def database_backwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        """Take them away."""
        for table in self._tables(schema_editor, from_state):
            for sql in policies.disable(table, schema_editor.connection):
                schema_editor.execute(sql, params=None)

    def describe(self) -> str:
        """What it does, for ``migrate``."""
        return f"Enable row-level security for {self.model}"

    @property
    def migration_name_fragment(self) -> str:
        """A part of a migration's name."""
        return f"{self.model.rpartition('.')[2].lower()}_row_level_security"

    def _tables(self, schema_editor: Any, state: Any) -> Iterator[str]:
        connection = schema_editor.connection
        model = _model(self.model)
        if connection.vendor != "postgresql":
            return
        historical = {
            each._meta.db_table: {field.column for field in each._meta.local_concrete_fields}
            for each in state.apps.get_models(include_auto_created=True)
            if each._meta.managed and not each._meta.proxy
        }
        if not router.allow_migrate_model(connection.alias, model):
            return
        if not _is_there(model._meta.db_table, historical):
            raise DefinitionError(
                f"EnableRowLevelSecurity({self.model!r}): the table {model._meta.db_table}, or a "
                "column that tells its tenant, is not there yet (or has another name). Put the "
                "operation behind the one that makes it."
            )
        for table in derived_tables(model):
            if _is_there(table, historical):
                yield table


def derived_tables(model: type[models.Model]) -> list[str]:
    """The table of a model, and those of its many-to-many fields that belong to tenants."""
    rules = table_rules()
    relations = [relation.remote_field.through for relation in model._meta.local_many_to_many]
    through = [each for each in relations if isinstance(each, type)]
    tables = [each._meta.db_table for each in [model, *through] if each._meta.managed]
    return [table for table in dict.fromkeys(tables) if table in rules]


def _model(label: str) -> type[models.Model]:
    try:
        model = apps.get_model(label)
    except (LookupError, ValueError) as error:
        raise DefinitionError(f"EnableRowLevelSecurity({label!r}): {error}") from None
    if rule_of(model) is None:
        raise DefinitionError(
            f"EnableRowLevelSecurity({label!r}): its rows belong to no tenant. Derive it from "
            "TenantModel or TenantMixin."
        )
    return model


def _is_there(table: str, historical: dict[str, set[str]]) -> bool:
    """Whether a table, and all that its policies ask for, is in a state of the migrations."""
    return all(columns <= historical.get(name, set()) for name, columns in _asked(table))


def _asked(table: str) -> Iterator[tuple[str, set[str]]]:
    rule: TableRule = table_rules()[table]
    if not isinstance(rule, DerivedRows):
        yield table, {str(rule.field.column)}
        return
    yield table, {str(end.field.column) for end in rule.ends}
    for end in rule.ends:
        yield end.table, {str(end.target.column)}
        yield from _asked(end.table)
