"""``write`` and ``query`` and their async twins: the one door to every handler, from everywhere.

Who acts is settled first, then whether it may, then whether the payload fits. A handler runs in the
tenant of the scope that it is called in, and there is no argument for another.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from asgiref.sync import async_to_sync, sync_to_async
from django.db import transaction
from django.db.transaction import TransactionManagementError
from django.utils.asyncio import async_unsafe

from kumiko_django.events.emission import announce
from kumiko_django.events.event import Event, EventId
from kumiko_django.exceptions import AccessDenied, KumikoError, PayloadError, TenantRequired
from kumiko_django.handlers.context import HandlerContext, acting, acting_as, origin_of
from kumiko_django.handlers.definition import HandlerDefinition, Kind
from kumiko_django.handlers.identity import who_acts
from kumiko_django.handlers.principals import Principal, UserArgument
from kumiko_django.handlers.registry import handlers
from kumiko_django.tenancy.databases import own_database
from kumiko_django.tenancy.scope import current_tenant_id
from kumiko_django.types import ambient
from kumiko_django.types.jsonable import JSON, to_jsonable

logger = logging.getLogger("kumiko_django.handlers")

Who: TypeAlias = Callable[[str], Principal]
"""Gives who acts in a tenant; may ask the database."""


@async_unsafe("write() would block the event loop - await awrite() instead.")
def write(
    name: str, payload: Any = None, *, user: UserArgument = None, event_id: EventId = None
) -> JSON:
    """Call a write handler in a transaction, and emit its event when that has committed.

    Args:
        name: Its qualified name, e.g. ``shop:write:create-order``.
        payload: A mapping of JSON values, or what its schema takes; nothing means an empty one.
        user: Who acts: a user, the key of one, or ``system_user('why')``; by default whoever acts
            already: the handler's or the request's user, in a job as ``JOBS_WRITE_AS`` says, else
            an anonymous one.
        event_id: Makes a repetition the same event: jobs that listen are queued once for it.

    Returns:
        What the handler returned, as JSON.

    Raises:
        UnknownHandlerError: There is no such write.
        AccessDenied: Whoever acts has none of its roles, cannot act, or may not be acted as.
        TenantRequired, ScopeError: There is no scope, or it is another than that of who acts.
        PayloadError: The payload does not fit or the result has no JSON form; nothing is written.
        ValueError: ``event_id`` or ``user`` is wrong.
        SynchronousOnlyOperation: Called from async code; use :func:`awrite`.
    """
    return call_write(name, payload, _who(user, "write()", name), event_id)


async def awrite(
    name: str, payload: Any = None, *, user: UserArgument = None, event_id: EventId = None
) -> JSON:
    """Call a write handler from async code; arguments and errors as :func:`write`."""
    return await sync_to_async(call_write)(name, payload, _who(user, "awrite()", name), event_id)


@async_unsafe("query() would block the event loop - await aquery() instead.")
def query(name: str, payload: Any = None, *, user: UserArgument = None) -> JSON:
    """Call a query handler; arguments and errors as :func:`write`. It has no transaction."""
    return call_query(name, payload, _who(user, "query()", name))


async def aquery(name: str, payload: Any = None, *, user: UserArgument = None) -> JSON:
    """Call a query handler from async code; arguments and errors as :func:`write`."""
    return await acall_query(name, payload, _who(user, "aquery()", name))


def _who(user: UserArgument, method: str, name: str) -> Who:
    return lambda tenant_id: who_acts(user, tenant_id, method, name)


def call_write(name: str, payload: Any, who: Who, event_id: EventId) -> JSON:
    """Do what :func:`write` does, as whoever ``who`` gives."""
    call = _Call.of("write", name, payload, who)
    definition = call.definition
    # Before anything happens: what is wrong with it must not be found out after the work.
    event = Event.of(definition.qualified_name, call.encoded, event_id, None, of_handler=True)
    alias = definition.using or own_database()
    with acting_as(definition, call.principal), transaction.atomic(using=alias):
        result = call.run()
        if transaction.get_rollback(using=alias):
            # Django would roll back without a word, and this be taken for a success.
            raise TransactionManagementError(
                f"{definition.qualified_name} returned, but its transaction can only be rolled "
                "back: an error of the database was caught inside it. Catch it around a "
                "transaction.atomic() of its own, or let it pass."
            )
        announce(event, alias)
    call.log()
    return result


def call_query(name: str, payload: Any, who: Who, *, tells_origin: bool = True) -> JSON:
    """Do what :func:`query` does, as whoever ``who`` gives."""
    call = _Call.of("query", name, payload, who, tells_origin)
    with acting_as(call.definition, call.principal):
        return async_to_sync(call.arun)() if call.definition.is_async else call.run()


async def acall_query(name: str, payload: Any, who: Who, *, tells_origin: bool = True) -> JSON:
    """Do what :func:`aquery` does, as whoever ``who`` gives."""
    call = await sync_to_async(_Call.of)("query", name, payload, who, tells_origin)
    with acting_as(call.definition, call.principal):
        return await (call.arun() if call.definition.is_async else sync_to_async(call.run)())


@dataclass(frozen=True, slots=True)
class _Call:
    """One call that may go ahead."""

    definition: HandlerDefinition
    principal: Principal
    encoded: dict[str, JSON]
    argument: Any
    context: HandlerContext

    @classmethod
    def of(cls, kind: Kind, name: str, payload: Any, who: Who, tells_origin: bool = True) -> _Call:
        """Settle who acts, whether it may, and with what."""
        definition = handlers.get(name, kind)
        _refuse_writes_of_queries(definition)
        tenant_id = current_tenant_id()
        if tenant_id is None:
            raise TenantRequired(
                f"{name} needs a tenant. Call it inside tenant_scope(...), or in a request behind "
                "RequestScopeMiddleware."
            )
        principal = who(tenant_id)
        _check_access(definition, principal)
        encoded, argument = _read_payload(definition, payload)
        context = HandlerContext(
            definition.qualified_name,
            tenant_id,
            principal,
            ambient.user_id.get(),
            ambient.handler.get(),
            ambient.correlation_id.get(),
            origin_of(principal) if tells_origin else None,
        )
        return cls(definition, principal, encoded, argument, context)

    def run(self) -> JSON:
        """Call the function of a handler that is a ``def``."""
        result = self.definition.function(self.argument, self.context)
        if inspect.iscoroutine(result):
            result.close()
            raise KumikoError(
                f"{self.definition.qualified_name} returned a coroutine, which nobody awaits."
            )
        return self._checked(result)

    async def arun(self) -> JSON:
        """Call that of an ``async def``."""
        return self._checked(await self.definition.function(self.argument, self.context))

    def _checked(self, result: object) -> JSON:
        try:
            return to_jsonable(result, "result")
        except PayloadError as error:
            name = self.definition.qualified_name
            raise PayloadError(f"{name}: the {error}", path=error.path) from error

    def log(self) -> None:
        """Say who has written for whom (P102)."""
        logger.info(
            "%s by %s, caused by %s, in job %s for tenant %s",
            self.definition.qualified_name,
            self.principal,
            self.context.caller_id or "nobody",
            self.context.job_name or "none",
            self.context.tenant_id,
        )


def _refuse_writes_of_queries(definition: HandlerDefinition) -> None:
    around = acting.get()
    if around is not None and around.definition.kind == "query" and definition.kind == "write":
        raise AccessDenied(
            f"{around.definition.qualified_name} is a query and calls {definition.qualified_name}; "
            "a query writes nothing. Make it a write handler."
        )


def _check_access(definition: HandlerDefinition, principal: Principal) -> None:
    if definition.roles & principal.roles:
        return
    has = ", ".join(sorted(principal.roles)) or "none"
    raise AccessDenied(
        f"{definition.qualified_name} is for the roles {', '.join(sorted(definition.roles))}; "
        f"{principal} has in tenant {principal.tenant_id!r}: {has}."
    )


def _read_payload(definition: HandlerDefinition, payload: Any) -> tuple[dict[str, JSON], Any]:
    """The payload as JSON, as an event has it, and as the function takes it."""
    value, schema = {} if payload is None else payload, definition.payload_schema
    try:
        dumped = value if schema is None else schema.dump(value)
        encoded = _as_object(dumped)
        argument = _as_object(encoded) if schema is None else schema.load(encoded)
    except PayloadError as error:
        raise PayloadError(f"{definition.qualified_name}: {error}", path=error.path) from error
    return encoded, argument


def _as_object(value: object) -> dict[str, JSON]:
    encoded = to_jsonable(value) if isinstance(value, Mapping) else None
    if not isinstance(encoded, dict):
        raise PayloadError(
            f"payload must be a mapping of names to values, not {type(value).__name__}."
        )
    return encoded
