"""Multi-tenant background jobs for Django, on BullMQ.

Importing this module needs no ``django.setup()``: names that need the app registry or the broker
are loaded when first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kumiko_django.exceptions import (
    AccessDenied,
    BrokerUnavailable,
    DefinitionError,
    FacetMissing,
    KumikoError,
    PayloadError,
    PayloadTooLarge,
    ScopeError,
    SettingsError,
    TenantRequired,
    UnknownHandlerError,
    UnknownJobError,
    Unrecoverable,
)
from kumiko_django.types.ids import SYSTEM

if TYPE_CHECKING:
    from kumiko_django.broker.pending import apending_count, pending_count
    from kumiko_django.definitions.decorator import job
    from kumiko_django.definitions.job import JobDefinition
    from kumiko_django.definitions.options import Backoff
    from kumiko_django.definitions.registry import registry
    from kumiko_django.definitions.triggers import Cron, Every, Manual, On
    from kumiko_django.definitions.visible import VisibleFailure, VisibleRun
    from kumiko_django.dispatching.dispatcher import (
        adispatch,
        adispatch_many,
        dispatch,
        dispatch_many,
    )
    from kumiko_django.events.bindings import bind_signal
    from kumiko_django.events.emission import aemit, emit
    from kumiko_django.handlers.decorator import query_handler, write_handler
    from kumiko_django.privacy.accepting import accepts_personal_data
    from kumiko_django.run.context import JobContext
    from kumiko_django.tenancy.models import TenantMixin as TenantMixin
    from kumiko_django.tenancy.models import TenantModel as TenantModel
    from kumiko_django.tenancy.scope import current_tenant_id, system_scope, tenant_scope
    from kumiko_django.types.results import Dispatched

__version__ = "0.1.0"

_HOMES = {
    "job": "definitions.decorator",
    "JobDefinition": "definitions.job",
    "Backoff": "definitions.options",
    "registry": "definitions.registry",
    "Cron": "definitions.triggers",
    "Every": "definitions.triggers",
    "Manual": "definitions.triggers",
    "On": "definitions.triggers",
    "VisibleFailure": "definitions.visible",
    "VisibleRun": "definitions.visible",
    "dispatch": "dispatching.dispatcher",
    "adispatch": "dispatching.dispatcher",
    "dispatch_many": "dispatching.dispatcher",
    "adispatch_many": "dispatching.dispatcher",
    "emit": "events.emission",
    "aemit": "events.emission",
    "bind_signal": "events.bindings",
    "Dispatched": "types.results",
    "write_handler": "handlers.decorator",
    "query_handler": "handlers.decorator",
    "pending_count": "broker.pending",
    "apending_count": "broker.pending",
    "JobContext": "run.context",
    "accepts_personal_data": "privacy.accepting",
    "TenantMixin": "tenancy.models",
    "TenantModel": "tenancy.models",
    "tenant_scope": "tenancy.scope",
    "system_scope": "tenancy.scope",
    "current_tenant_id": "tenancy.scope",
}

# Without the models of ``_HOMES``: Django makes none before its apps are there, and a star import
# has to work without them.
__all__ = [
    "SYSTEM",
    "AccessDenied",
    "Backoff",
    "BrokerUnavailable",
    "Cron",
    "DefinitionError",
    "Dispatched",
    "Every",
    "FacetMissing",
    "JobContext",
    "JobDefinition",
    "KumikoError",
    "Manual",
    "On",
    "PayloadError",
    "PayloadTooLarge",
    "ScopeError",
    "SettingsError",
    "TenantRequired",
    "UnknownHandlerError",
    "UnknownJobError",
    "Unrecoverable",
    "VisibleFailure",
    "VisibleRun",
    "accepts_personal_data",
    "adispatch",
    "adispatch_many",
    "aemit",
    "apending_count",
    "bind_signal",
    "current_tenant_id",
    "dispatch",
    "dispatch_many",
    "emit",
    "job",
    "pending_count",
    "query_handler",
    "registry",
    "system_scope",
    "tenant_scope",
    "write_handler",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_HOMES})
