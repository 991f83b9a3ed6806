"""Values of definition options: backoff and priority, validated when they are written."""

from __future__ import annotations

import datetime as dt
import math
import random
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from kumiko_django.exceptions import DefinitionError

Lane: TypeAlias = Literal["api", "worker"]
LANES: Final[tuple[Lane, ...]] = ("api", "worker")

PriorityName: TypeAlias = Literal["high", "normal", "low"]
Priority: TypeAlias = "PriorityName | int"
PRIORITY_NAMES: Final = ("high", "normal", "low")
LOW_PRIORITY: Final = 1000
MAX_PRIORITY: Final = 2_097_152
"""BullMQ's largest priority; the Python package accepts anything and misorders beyond it."""

DEFAULT_BACKOFF_SECONDS: Final = 1.0
MAX_PAUSE_SECONDS: Final = 365 * 24 * 3600.0
"""No pause is longer, whatever a backoff without a ceiling comes to: far beyond any use, and a
number that every queue and clock can hold."""
DEFAULT_MAX_DEFERS: Final = 100
MAX_DEFERS: Final = 1_000_000
Duration: TypeAlias = "float | dt.timedelta"


def as_seconds(value: Any) -> Any:
    """A timedelta in seconds; anything else as it is, to be checked by :func:`is_number`."""
    return value.total_seconds() if isinstance(value, dt.timedelta) else value


def is_number(value: object) -> bool:
    """Whether it is a finite number; a boolean is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before a retry. Make one with :meth:`fixed` or :meth:`exponential`.

    Both take seconds or timedeltas.

    Attributes:
        kind: ``fixed``: always ``seconds``; ``exponential``: doubled with every retry.
        seconds: Pause before the first retry.
        jitter: Fraction by which a pause varies at random, up and down: 0.2 is plus or minus 20 %.
        max_seconds: Ceiling of every pause, jitter included; None for none.
    """

    kind: Literal["fixed", "exponential"]
    seconds: float
    jitter: float = 0.0
    max_seconds: float | None = None

    @classmethod
    def fixed(
        cls, seconds: Duration, jitter: float = 0.0, max_seconds: Duration | None = None
    ) -> Backoff:
        """The same pause before every retry.

        Raises:
            DefinitionError: A value is out of range.
        """
        return cls("fixed", as_seconds(seconds), jitter, as_seconds(max_seconds))

    @classmethod
    def exponential(
        cls, seconds: Duration, jitter: float = 0.0, max_seconds: Duration | None = None
    ) -> Backoff:
        """A pause that doubles: ``seconds``, twice that, four times that.

        Raises:
            DefinitionError: A value is out of range.
        """
        return cls("exponential", as_seconds(seconds), jitter, as_seconds(max_seconds))

    def __post_init__(self) -> None:
        if self.kind not in ("fixed", "exponential"):
            raise DefinitionError(
                f"Backoff kind {self.kind!r} is unknown: use Backoff.fixed(seconds) or "
                "Backoff.exponential(seconds)."
            )
        if not is_number(self.seconds) or self.seconds <= 0:
            raise DefinitionError(
                f"Backoff seconds must be a number or timedelta above 0, not {self.seconds!r}."
            )
        if not is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise DefinitionError(
                f"Backoff jitter is a fraction from 0 to 1 (0.2 for 20 %), not {self.jitter!r}."
            )
        if self.max_seconds is not None and (
            not is_number(self.max_seconds) or self.max_seconds < self.seconds
        ):
            raise DefinitionError(
                f"Backoff max_seconds must be at least seconds={self.seconds!r}, "
                f"not {self.max_seconds!r}."
            )

    def delay_ms(self, attempt: int, rng: random.Random | None = None) -> int:
        """Milliseconds to wait after attempt number ``attempt`` (1 for the first) has failed."""
        swing = (rng or random).uniform(-self.jitter, self.jitter) if self.jitter else 0.0
        return self._pause_ms(attempt, 1 + swing)

    def longest_delay_ms(self, attempt: int) -> int:
        """The most that :meth:`delay_ms` can give for this attempt."""
        return self._pause_ms(attempt, 1 + self.jitter)

    def _pause_ms(self, attempt: int, swing: float) -> int:
        # The exponent is bounded so that attempt 5000 gives a large number, not an OverflowError.
        factor = 2 ** min(attempt - 1, 60) if self.kind == "exponential" else 1
        ceiling = MAX_PAUSE_SECONDS if self.max_seconds is None else self.max_seconds
        seconds = min(self.seconds * factor * swing, ceiling, MAX_PAUSE_SECONDS)
        return max(1, round(seconds * 1000))


DEFAULT_BACKOFF: Final = Backoff.fixed(DEFAULT_BACKOFF_SECONDS)
"""Used where a job has retries and names no backoff (P37)."""


def retry_window_ms(retries: int | None, backoff: Backoff | None) -> int:
    """Longest time that the pauses between all attempts can add up to (B089).

    Jitter and ceiling are included (P36).
    """
    if not retries or backoff is None:
        return 0
    return sum(backoff.longest_delay_ms(attempt) for attempt in range(1, retries + 1))


def check_timeout(value: Any, where: str) -> float | None:
    """``timeout=`` in seconds.

    Raises:
        DefinitionError: It is no timedelta or number of seconds above 0 and up to a year.
    """
    if value is None:
        return None
    seconds = as_seconds(value)
    if not is_number(seconds) or not 0 < seconds <= MAX_PAUSE_SECONDS:
        raise DefinitionError(
            f"{where}: timeout must be a timedelta or seconds, above 0 and at most a year, not "
            f"{value!r}. Leave it out for none."
        )
    return float(seconds)


def check_max_defers(value: Any, where: str) -> None:
    """Refuse a ``max_defers=`` that counts nothing.

    Raises:
        DefinitionError: It is no whole number from 0 on.
    """
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not 0 <= value <= MAX_DEFERS:
        raise DefinitionError(
            f"{where}: max_defers must be a whole number from 0 to {MAX_DEFERS:,}, not {value!r}. "
            "0 refuses every deferral."
        )


def check_priority(value: object, where: str) -> Priority:
    """``value`` if it is a priority: ``high``, ``normal``, ``low``, or BullMQ's integer.

    Raises:
        ValueError: It is none of these.
    """
    if isinstance(value, str) and value in PRIORITY_NAMES:
        return cast("PriorityName", value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_PRIORITY:
        return value
    raise ValueError(
        f"{where}: priority must be 'high', 'normal', 'low', or a whole number from 1 to "
        f"{MAX_PRIORITY} (lower runs first, all after 'normal'; 0 is 'normal'), not {value!r}."
    )


def check_per_tenant(per_tenant: object, spread: object, tenant: str, where: str) -> None:
    """Refuse values of ``per_tenant`` and ``spread`` that are wrong or do not go together.

    Raises:
        DefinitionError: They are.
    """
    if not isinstance(per_tenant, bool):
        raise DefinitionError(f"{where}: per_tenant must be True or False, not {per_tenant!r}.")
    if per_tenant and tenant == "system":
        raise DefinitionError(
            f"{where}: per_tenant=True runs the job for every tenant, tenant='system' for none. "
            "Drop one of the two."
        )
    if spread is None:
        return
    if not per_tenant:
        raise DefinitionError(
            f"{where}: spread= has no effect without per_tenant=True. Add that or drop it."
        )
    seconds = as_seconds(spread)
    if not is_number(seconds) or not 0 < seconds <= MAX_PAUSE_SECONDS:
        raise DefinitionError(
            f"{where}: spread must be seconds or a timedelta above 0 and of at most 365 days, "
            f"not {spread!r}."
        )
