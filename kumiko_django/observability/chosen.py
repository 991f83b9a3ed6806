"""The meter and the tracer of this process: what ``METER`` and ``TRACER`` name, made once.

Without a setting there is None, and whoever measures asks only that.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from kumiko_django.conf import METER_METHODS, TRACER_METHODS, get_settings
from kumiko_django.exceptions import SettingsError
from kumiko_django.observability.guarded import GuardedMeter, GuardedTracer
from kumiko_django.types import ambient
from kumiko_django.types.ambient import TraceContext
from kumiko_django.types.setting_values import shown

T = TypeVar("T")


class _Chosen(Generic[T]):
    """One of the two, made when it is first asked for."""

    def __init__(self, key: str, methods: tuple[str, ...], guarded: Callable[[Any], T]) -> None:
        self.key = key
        self.methods = methods
        self._guarded = guarded
        self._made: tuple[T | None] | None = None
        self._guard = threading.Lock()

    def get(self) -> T | None:
        made = self._made
        if made is None:
            with self._guard:
                made = self._made = self._made or (self._make(),)
        return made[0]

    def forget(self) -> None:
        self._guard = threading.Lock()
        self._made = None

    def imported(self) -> Any:
        """What the setting names; None where it is not set.

        Raises:
            SettingsError: It cannot be imported, or is neither of the right kind nor a factory.
        """
        value = self._setting()
        if isinstance(value, str):
            path = value
            try:
                value = import_string(path)
            except ImportError as error:
                told = f'KUMIKO["{self.key}"] = {path!r} cannot be imported: {error}.'
                raise SettingsError(told) from error
        if value is not None and not (self._fits(value) or callable(value)):
            raise self._wrong(value)
        return value

    def _setting(self) -> Any:
        return getattr(get_settings(), self.key.lower())

    def _make(self) -> T | None:
        value = self.imported()
        if value is None:
            return None
        if not self._fits(value):
            try:
                made: Any = value()
            except Exception as error:
                raise SettingsError(
                    f'KUMIKO["{self.key}"] = {shown(self._setting())} was called to make one and '
                    f"raised {type(error).__name__}: {error}."
                ) from error
            if not self._fits(made):
                raise self._wrong(made)
            value = made
        return self._guarded(value)

    def _fits(self, value: Any) -> bool:
        return not isinstance(value, type) and all(
            callable(getattr(value, method, None)) for method in self.methods
        )

    def _wrong(self, value: Any) -> SettingsError:
        return SettingsError(
            f'KUMIKO["{self.key}"] must be a {self.key.lower()} (with the methods '
            f"{', '.join(self.methods)}), a callable without arguments that makes one, or the "
            f"dotted path to either; {shown(value)} is neither."
        )


_meter: Final = _Chosen[GuardedMeter]("METER", METER_METHODS, GuardedMeter)
_tracer: Final = _Chosen[GuardedTracer]("TRACER", TRACER_METHODS, GuardedTracer)


def get_meter() -> GuardedMeter | None:
    """The meter of this process; None where ``METER`` is not set.

    Raises:
        SettingsError: It cannot be had.
    """
    return _meter.get()


def get_tracer() -> GuardedTracer | None:
    """The tracer of this process; None where ``TRACER`` is not set.

    Raises:
        SettingsError: It cannot be had.
    """
    return _tracer.get()


def problems() -> list[str]:
    """What is wrong with the two settings, without making anything."""
    found: list[str] = []
    for chosen in (_meter, _tracer):
        try:
            chosen.imported()
        except SettingsError as error:
            found.append(str(error))
    return found


def current_trace() -> TraceContext | None:
    """The span that the caller works in: the tracer's, else the one that its run belongs to.

    Raises:
        SettingsError: ``TRACER`` cannot be had.
    """
    tracer = get_tracer()
    if tracer is not None and (parent := tracer.current()) is not None:
        return TraceContext.at(parent)
    return ambient.trace.get()


def forget() -> None:
    """Have both made anew when they are next asked for."""
    _meter.forget()
    _tracer.forget()


def _setting_changed(*, setting: str, **_: object) -> None:
    if setting == "KUMIKO":
        forget()


setting_changed.connect(_setting_changed, dispatch_uid="kumiko_django.observability.forget")
# A fork has none of the threads by which they send what they are given.
os.register_at_fork(after_in_child=forget)
