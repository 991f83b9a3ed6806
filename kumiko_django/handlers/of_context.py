"""The part of ``JobContext`` that calls handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.utils.asyncio import async_unsafe

from kumiko_django.events.event import EventId
from kumiko_django.handlers.calling import acall_query, call_query, call_write
from kumiko_django.handlers.in_run import RunIdentity
from kumiko_django.handlers.principals import UserArgument
from kumiko_django.types.jsonable import JSON

F = TypeVar("F", bound=Callable[..., Any])


def _not_on_loop(method: str) -> Callable[[F], F]:
    message = f"ctx.{method}() would block the event loop - await ctx.a{method}() instead."
    return async_unsafe(message)


class CallsHandlers:
    """Calls write and query handlers for a run; sync, and with an ``a`` in front for async code."""

    _identity: RunIdentity

    @_not_on_loop("write")
    def write(self, name: str, payload: Any = None, *, event_id: EventId = None) -> JSON:
        """Call a write handler in the run's tenant, with the run's write origin (B163).

        It acts as the system user; with ``JOBS_WRITE_AS = "caller"`` as who has caused the job.

        Args:
            name: Qualified name of the handler.
            payload: What it takes.
            event_id: Makes a repetition the same event; ``ctx.job_id`` often will do.

        Returns:
            What the handler returned, as JSON.

        Raises:
            UnknownHandlerError, AccessDenied, PayloadError, ScopeError: As
                :func:`kumiko_django.handlers.write`. Evaluated now, not when the run began (B166).
        """
        return self._write(name, payload, event_id)

    async def awrite(self, name: str, payload: Any = None, *, event_id: EventId = None) -> JSON:
        """Do the same from an async handler."""
        return await sync_to_async(self._write)(name, payload, event_id)

    @_not_on_loop("write_as")
    def write_as(
        self, user: UserArgument, name: str, payload: Any = None, *, event_id: EventId = None
    ) -> JSON:
        """Call a write handler as somebody else; each use is on record (B164, B239).

        Args:
            user: A user, or the key of one.
            name: Qualified name of the handler.
            payload: What it takes.
            event_id: As in :meth:`write`.

        Raises:
            AccessDenied: The job lacks the grant ``system_identity``, or the user a role.
        """
        return self._write_as(user, name, payload, event_id)

    async def awrite_as(
        self, user: UserArgument, name: str, payload: Any = None, *, event_id: EventId = None
    ) -> JSON:
        """Do the same from an async handler."""
        return await sync_to_async(self._write_as)(user, name, payload, event_id)

    @_not_on_loop("query_as")
    def query_as(self, user_id: UserArgument, name: str, payload: Any = None) -> JSON:
        """Call a query handler as somebody else; arguments and errors as :meth:`write_as`."""
        with self._identity.entered("ctx.query_as"):
            who = self._identity.somebody("ctx.query_as", name, user_id)
            return call_query(name, payload, who)

    async def aquery_as(self, user_id: UserArgument, name: str, payload: Any = None) -> JSON:
        """Do the same from an async handler."""
        with self._identity.entered("ctx.aquery_as"):
            who = self._identity.somebody("ctx.aquery_as", name, user_id)
            return await acall_query(name, payload, who)

    @_not_on_loop("query_as_member")
    def query_as_member(self, user_id: UserArgument, name: str, payload: Any = None) -> JSON:
        """Call a query handler as a member of the run's tenant; no grant is needed (B165).

        Roles are looked up once in a run. The write origin is not told to the handler (B174).

        Raises:
            AccessDenied: The user is no member of the tenant, or has none of the roles.
        """
        with self._identity.entered("ctx.query_as_member"):
            return call_query(name, payload, self._member(user_id), tells_origin=False)

    async def aquery_as_member(self, user_id: UserArgument, name: str, payload: Any = None) -> JSON:
        """Do the same from an async handler."""
        with self._identity.entered("ctx.aquery_as_member"):
            who = self._member(user_id)
            return await acall_query(name, payload, who, tells_origin=False)

    def _write(self, name: str, payload: Any, event_id: EventId) -> JSON:
        identity = self._identity
        with identity.entered("ctx.write"):
            who = identity.noted(name, lambda _: identity.default_principal())
            return call_write(name, payload, who, event_id)

    def _write_as(self, user: UserArgument, name: str, payload: Any, event_id: EventId) -> JSON:
        identity = self._identity
        with identity.entered("ctx.write_as"):
            who = identity.noted(name, identity.somebody("ctx.write_as", name, user))
            return call_write(name, payload, who, event_id)

    def _member(self, user_id: UserArgument) -> Any:
        return lambda _: self._identity.members.principal(user_id)
