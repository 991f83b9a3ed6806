"""``bind_signal``: a Django signal that announces an event."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeAlias

from django.apps import apps
from django.db.models.signals import ModelSignal
from django.db.models.utils import make_model_tuple
from django.dispatch import Signal

from kumiko_django.definitions.handler import innermost, place, runs_on_loop
from kumiko_django.definitions.on import emitted_name_problem
from kumiko_django.events.emission import aemit, emit, has_listeners
from kumiko_django.events.signal_arguments import refuse_missing, refuse_unknown, wanted_by
from kumiko_django.events.signal_payloads import default_payload
from kumiko_django.exceptions import DefinitionError
from kumiko_django.types.arguments import AMBIENT, TenantArgument

Function: TypeAlias = Callable[..., Any]

_WAITING: set[Hashable] = set()
"""Bindings to models that were not there when they were made: signal, sender, identity."""


def bind_signal(
    signal: Signal,
    event: str,
    *,
    sender: Any = None,
    payload: Function | None = None,
    when: Function | None = None,
    tenant_id: TenantArgument | Function = AMBIENT,
    dispatch_uid: Hashable | None = None,
) -> Binding:
    """Emit an event whenever a Django signal is sent: a model's, Django's own or yours.

    Call it in a ``jobs.py`` or in ``AppConfig.ready()``. The functions are given those of the
    signal's arguments that they name, ``sender`` included, or all if they take ``**kwargs``. They
    are kept alive by the binding, so lambdas will do; they may be async, and then run on a loop.
    They are not called while no job listens.

    Args:
        signal: The signal. Of model signals the event waits for the commit of the database that the
            instance was saved in, and what ``loaddata`` saves (``raw``) is not announced.
        event: The event's name.
        sender: As in ``signal.connect``; model signals take ``"app.Model"`` too.
        payload: Gives the event's payload; by default the arguments that can travel.
        when: Says whether this sending is announced.
        tenant_id: The tenant, or a function that gives it; by default that of the ambient scope.
        dispatch_uid: Makes the binding one of its own. By default the signal, sender, event and the
            places of the functions do: bound again, e.g. by a reload, the last binding counts.

    Returns:
        The binding; ``disconnect()`` ends it.

    Raises:
        DefinitionError: An argument is wrong.
    """
    _check(signal, event, {"payload": payload, "when": when})
    binding = Binding(signal, event, sender, (payload, when, tenant_id), dispatch_uid)
    binding.connect()
    return binding


class Binding:
    """A signal that announces an event, until it is disconnected."""

    def __init__(
        self,
        signal: Signal,
        event: str,
        sender: Any,
        functions: tuple[Function | None, Function | None, TenantArgument | Function],
        dispatch_uid: Hashable | None,
    ) -> None:
        payload, when, tenant = functions
        self.signal = signal
        self.event = event
        self.sender = sender
        self._payload = None if payload is None else _Call(payload, "payload", signal, event)
        self._when = None if when is None else _Call(when, "when", signal, event)
        self._tenant = _Call(tenant, "tenant_id", signal, event) if callable(tenant) else None
        self._fixed_tenant: TenantArgument = AMBIENT if callable(tenant) else tenant
        calls = (self._payload, self._when, self._tenant)
        if dispatch_uid is None:
            dispatch_uid = tuple(None if call is None else call.uid for call in calls)
        self._uid = ("kumiko_django", event, dispatch_uid)
        self._is_async = any(call is not None and call.is_async for call in calls)

    def __repr__(self) -> str:
        return f"<Binding of the event {self.event}>"

    def connect(self) -> None:
        """Listen, in the place of an earlier binding with the same identity."""
        if self._may_be_bound():
            self.disconnect()
        # Not weakly: nobody else holds the binding, and with it the functions.
        receiver = self._areceive if self._is_async else self._receive
        self.signal.connect(receiver, sender=self.sender, weak=False, dispatch_uid=self._uid)

    def disconnect(self) -> None:
        """Listen no longer."""
        self.signal.disconnect(sender=self.sender, dispatch_uid=self._uid)

    def _may_be_bound(self) -> bool:
        """Whether there can be an earlier binding; not if the first waits for its model.

        A disconnect that waits, too, is one more thing that ``check`` blames where a name is wrong.
        """
        if not isinstance(self.sender, str) or not isinstance(self.signal, ModelSignal):
            return True
        try:
            apps.get_registered_model(*make_model_tuple(self.sender))
        except (LookupError, ValueError):
            key = (self.signal, self.sender.lower(), self._uid)
            known = key in _WAITING
            _WAITING.add(key)
            return known
        return True

    def _receive(self, /, **arguments: Any) -> None:
        if not self._concerns(arguments):
            return
        if self._when is not None and not self._when(arguments):
            return
        payload = self._default(arguments) if self._payload is None else self._payload(arguments)
        tenant = self._fixed_tenant if self._tenant is None else self._tenant(arguments)
        emit(self.event, payload, tenant_id=tenant, using=self._using(arguments))

    async def _areceive(self, /, **arguments: Any) -> None:
        if not self._concerns(arguments):
            return
        if self._when is not None and not await self._when.awaited(arguments):
            return
        given, tenant = self._payload, self._tenant
        await aemit(
            self.event,
            self._default(arguments) if given is None else await given.awaited(arguments),
            tenant_id=self._fixed_tenant if tenant is None else await tenant.awaited(arguments),
            using=self._using(arguments),
        )

    def _concerns(self, arguments: Mapping[str, Any]) -> bool:
        if isinstance(self.signal, ModelSignal) and arguments.get("raw"):
            return False
        return has_listeners(self.event)

    def _default(self, arguments: Mapping[str, Any]) -> Any:
        return default_payload(self.signal, arguments)

    def _using(self, arguments: Mapping[str, Any]) -> str | None:
        return arguments.get("using") if isinstance(self.signal, ModelSignal) else None


class _Call:
    """A function that is given those of a signal's arguments that it names."""

    def __init__(self, function: Function, option: str, signal: Signal, event: str) -> None:
        self._function = function
        self._wanted = wanted_by(function, option)
        self._where = f"bind_signal: {option}= of the event {event} ({place(function)[1]})"
        refuse_unknown(self._wanted, signal, self._where)
        self.is_async = runs_on_loop(function)
        code = getattr(innermost(function), "__code__", None)
        line = None if code is None else (code.co_filename, code.co_firstlineno)
        # A function without code of its own, such as an object with __call__, is only itself.
        self.uid = (place(function)[1], line or id(function))

    def __call__(self, arguments: Mapping[str, Any]) -> Any:
        refuse_missing(self._wanted, arguments, self._where)
        names = self._wanted.names
        if names is None:
            return self._function(**arguments)
        return self._function(**{name: arguments[name] for name in names if name in arguments})

    async def awaited(self, arguments: Mapping[str, Any]) -> Any:
        result = self(arguments)
        return await result if inspect.isawaitable(result) else result


def _check(signal: object, event: object, functions: Mapping[str, object]) -> None:
    if not isinstance(signal, Signal):
        raise DefinitionError(
            "bind_signal takes a Django signal and the name of an event, e.g. "
            f"bind_signal(post_save, 'order.saved', sender=Order); {signal!r} is no signal."
        )
    problem = emitted_name_problem(event)
    if problem is not None:
        raise DefinitionError(f"bind_signal: {problem}")
    for option, function in functions.items():
        if function is not None and not callable(function):
            raise DefinitionError(
                f"bind_signal: {option} must be a function of the signal's arguments, such as "
                f"lambda instance: ..., not {function!r}."
            )
