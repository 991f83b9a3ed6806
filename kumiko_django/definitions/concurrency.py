"""Options that say how many jobs of a definition there may be, and how many may run (design 4)."""

from __future__ import annotations

import datetime as dt
import math
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from kumiko_django.exceptions import DefinitionError

if TYPE_CHECKING:
    from kumiko_django.definitions.job import JobDefinition

Concurrency: TypeAlias = Literal[
    "parallel", "skip", "replace", "debounce", "throttle", "sequential"
]
CONCURRENCIES: Final[tuple[Concurrency, ...]] = (
    "parallel", "skip", "replace", "debounce", "throttle", "sequential",
)  # fmt: skip
ConcurrencyScope: TypeAlias = Literal["tenant", "global"]
CONCURRENCY_SCOPES: Final[tuple[ConcurrencyScope, ...]] = ("tenant", "global")
Window: TypeAlias = "float | dt.timedelta"

MAX_WINDOW_SECONDS: Final = 365 * 24 * 3600.0
MOST_PER_TENANT: Final = 1_000_000


def milliseconds(value: Any) -> int:
    """A checked window; 0 for none."""
    if value is None:
        return 0
    seconds = value.total_seconds() if isinstance(value, dt.timedelta) else value
    return max(1, round(seconds * 1000))


def window_ms(definition: JobDefinition) -> int:
    """The window of ``debounce`` or ``throttle`` in milliseconds; 0 without one."""
    return milliseconds(definition.debounce or definition.throttle)


def quiet_ms(definition: JobDefinition) -> int:
    """By how much its mode delays a job that is queued: ``debounce`` by its window, else 0."""
    return window_ms(definition) if definition.concurrency == "debounce" else 0


def mode_of(definition: JobDefinition) -> Concurrency:
    """The ``concurrency`` that holds."""
    return definition.concurrency or "parallel"


def check(definition: JobDefinition, where: str) -> None:
    """Check the options of a definition that is being made.

    Raises:
        DefinitionError: A value or combination is wrong; the message names it and the fix (P10).
    """
    mode, scope = mode_of(definition), definition.concurrency_scope
    _one_of("concurrency", mode, CONCURRENCIES, where)
    _one_of("concurrency_scope", scope, CONCURRENCY_SCOPES, where)
    if scope == "global" and mode == "parallel":
        raise DefinitionError(
            f"{where}: concurrency_scope='global' has no effect without concurrency=. Add it, or "
            "drop concurrency_scope=."
        )
    for option, window in (("debounce", definition.debounce), ("throttle", definition.throttle)):
        _check_window(option, window, mode, where)
    _check_max_wait(definition.max_wait, definition.debounce, where)
    _check_cap(definition.max_per_tenant, where)


def _one_of(option: str, value: object, allowed: tuple[str, ...], where: str) -> None:
    if value not in allowed:
        raise DefinitionError(
            f"{where}: {option}={value!r} is unknown; use {', '.join(map(repr, allowed[:-1]))} or "
            f"{allowed[-1]!r}."
        )


def _check_window(option: str, value: object, mode: str, where: str) -> None:
    if mode == option and value is None:
        raise DefinitionError(
            f"{where}: concurrency={mode!r} needs its window; add {option}=30 (seconds)."
        )
    if value is None:
        return
    if mode != option:
        raise DefinitionError(
            f"{where}: {option}= has no effect without concurrency={option!r}. Add it, or drop "
            f"{option}=."
        )
    _check_seconds(option, value, where)


def _check_max_wait(value: object, debounce: Any, where: str) -> None:
    if value is None:
        return
    if debounce is None:
        raise DefinitionError(
            f"{where}: max_wait= bounds debounce=, which is not given. Add it, or drop max_wait=."
        )
    _check_seconds("max_wait", value, where)
    if milliseconds(value) < milliseconds(debounce):
        raise DefinitionError(
            f"{where}: max_wait={value!r} must be at least debounce={debounce!r}."
        )


def _check_seconds(option: str, value: Any, where: str) -> None:
    seconds = value.total_seconds() if isinstance(value, dt.timedelta) else value
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not math.isfinite(seconds) or not 0 < seconds <= MAX_WINDOW_SECONDS:
        raise DefinitionError(
            f"{where}: {option} must be seconds or a timedelta above 0 and up to a year, "
            f"not {value!r}."
        )


def _check_cap(value: object, where: str) -> None:
    if value is None:
        return
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number or not 1 <= value <= MOST_PER_TENANT:  # type: ignore[operator]
        raise DefinitionError(
            f"{where}: max_per_tenant must be a whole number from 1 to {MOST_PER_TENANT:,}, "
            f"not {value!r}. Drop it for no cap."
        )
