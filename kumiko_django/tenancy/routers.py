"""``TenantRouter``: which database a query goes to, and what may be related and migrated where."""

from __future__ import annotations

from typing import Any, Final

from django.apps import apps
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import Model

from kumiko_django.conf import get_settings
from kumiko_django.exceptions import SettingsError
from kumiko_django.tenancy.access import column_value
from kumiko_django.tenancy.compilers import is_historical
from kumiko_django.tenancy.databases import database_of, may_hold_tenants
from kumiko_django.tenancy.rules import column_of, rule_of, table_rules
from kumiko_django.tenancy.scope import current_tenant_id
from kumiko_django.types.ids import SYSTEM

OUR_APP: Final = "kumiko"


class TenantRouter:
    """Put it first in ``DATABASE_ROUTERS``.

    ``KUMIKO["TENANT_DATABASE"]`` says where the rows of a tenant are,
    ``KUMIKO["HISTORY_DATABASE"]`` where our own tables are. About everything else it has no
    opinion, so that routers behind it, or Django, decide.
    """

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        """The database of the tenant in scope, for its models; the history's for ours.

        Without a scope it has no opinion: the statement itself is refused. SYSTEM's is the default
        database; ``using()`` names another one, or the instance that a query begins at.

        Raises:
            SettingsError: A setting names no database.
        """
        if model._meta.app_label == OUR_APP:
            return history_database()
        if get_settings().tenant_database is None or is_historical(model) or rule_of(model) is None:
            return None
        tenant_id = current_tenant_id()
        if tenant_id is None:
            return None
        if tenant_id == SYSTEM:
            instance = hints.get("instance")
            at: str | None = None if instance is None else instance._state.db
            return DEFAULT_DB_ALIAS if at is None or may_hold_tenants(at) is False else at
        return database_of(tenant_id)

    db_for_write = db_for_read

    def allow_relation(self, obj1: Model, obj2: Model, **hints: Any) -> bool | None:
        """No relation between rows of two tenants, or between databases.

        A tenant's row and one of SYSTEM may be related; which of them points to which is checked
        when it is written.
        """
        if rule_of(type(obj1)) is None or rule_of(type(obj2)) is None:
            return None
        tenants = {_tenant_of(obj1), _tenant_of(obj2)} - {None, SYSTEM}
        databases = {_stored_in(obj1), _stored_in(obj2)} - {None}
        return len(tenants) <= 1 and len(databases) <= 1

    def allow_migrate(
        self, db: str, app_label: str, model_name: str | None = None, **hints: Any
    ) -> bool | None:
        """Our tables in the history's database only, those of tenant models where tenants are.

        Raises:
            SettingsError: A setting names no database.
        """
        if app_label == OUR_APP:
            history = history_database()
            return None if history is None else db == history
        model = hints.get("model") if model_name is None else _model(app_label, model_name)
        if model is None:
            return None
        if model._meta.db_table in table_rules():
            return may_hold_tenants(db)
        # A foreign key cannot point to a table that is not there.
        return False if may_hold_tenants(db) is False and _leads_to_tenants(model) else None


def history_database() -> str | None:
    """The alias of the database with our tables, None where it is not said.

    Raises:
        SettingsError: There is none of that name.
    """
    alias = get_settings().history_database
    if alias is not None and alias not in connections.databases:
        raise SettingsError(
            f'KUMIKO["HISTORY_DATABASE"] = {alias!r} is not in DATABASES. Give one of '
            f"{', '.join(connections.databases)}."
        )
    return alias


def _tenant_of(instance: Model) -> str | None:
    """Whose row it is, None where that is not known without asking the database."""
    column = column_of(type(instance))
    if column is None or column.field.attname not in instance.__dict__:
        return None
    value = instance.__dict__[column.field.attname]
    if value is None and instance._state.adding:
        return None  # it gets the scope's when it is saved
    return SYSTEM if value == column_value(column.field, SYSTEM) else str(value)


def _stored_in(instance: Model) -> str | None:
    return None if instance._state.adding else instance._state.db


def _model(app_label: str, model_name: str) -> type[Model] | None:
    """A model as it is now, None if there is no such model any more."""
    try:
        model: type[Model] = apps.get_model(app_label, model_name)
    except LookupError:
        return None
    return model


def _leads_to_tenants(model: type[Model], seen: frozenset[type[Model]] = frozenset()) -> bool:
    """Whether foreign keys of a table lead, by way of others too, to a tenant table."""
    if model in seen:
        return False
    if model._meta.db_table in table_rules():
        return True
    fields = (*model._meta.local_fields, *model._meta.local_many_to_many)
    targets = [field.remote_field.model for field in fields if field.remote_field is not None]
    return any(
        _leads_to_tenants(target, seen | {model}) for target in targets if isinstance(target, type)
    )
