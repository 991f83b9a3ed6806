"""Values of definition options: backoff and priority, validated when they are written."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before a retry. Make one with :meth:`fixed` or :meth:`exponential`.

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
        cls, seconds: float, jitter: float = 0.0, max_seconds: float | None = None
    ) -> Backoff:
        """The same pause before every retry.

        Raises:
            DefinitionError: A value is out of range.
        """
        return cls("fixed", seconds, jitter, max_seconds)

    @classmethod
    def exponential(
        cls, seconds: float, jitter: float = 0.0, max_seconds: float | None = None
    ) -> Backoff:
        """A pause that doubles: ``seconds``, twice that, four times that.

        Raises:
            DefinitionError: A value is out of range.
        """
        return cls("exponential", seconds, jitter, max_seconds)

    def __post_init__(self) -> None:
        if self.kind not in ("fixed", "exponential"):
            raise DefinitionError(
                f"Backoff kind {self.kind!r} is unknown: use Backoff.fixed(seconds) or "
                "Backoff.exponential(seconds)."
            )
        if not _is_number(self.seconds) or self.seconds <= 0:
            raise DefinitionError(f"Backoff seconds must be above 0, not {self.seconds!r}.")
        if not _is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise DefinitionError(
                f"Backoff jitter is a fraction from 0 to 1 (0.2 for 20 %), not {self.jitter!r}."
            )
        if self.max_seconds is not None and (
            not _is_number(self.max_seconds) or self.max_seconds < self.seconds
        ):
            raise DefinitionError(
                f"Backoff max_seconds must be at least seconds={self.seconds!r}, "
                f"not {self.max_seconds!r}."
            )

    def delay_ms(self, attempt: int, rng: random.Random | None = None) -> int:
        """Milliseconds to wait after attempt number ``attempt`` (1 for the first) has failed."""
        # The exponent is bounded so that attempt 5000 gives a large number, not an OverflowError.
        factor = 2 ** min(attempt - 1, 60) if self.kind == "exponential" else 1
        seconds = self.seconds * factor
        if self.jitter:
            seconds *= 1 + (rng or random).uniform(-self.jitter, self.jitter)
        if self.max_seconds is not None:
            seconds = min(seconds, self.max_seconds)
        return max(1, round(seconds * 1000))


DEFAULT_BACKOFF: Final = Backoff.fixed(DEFAULT_BACKOFF_SECONDS)
"""Used where a job has retries and names no backoff (P37)."""


def retry_window_ms(retries: int | None, backoff: Backoff | None) -> int:
    """Longest time that the pauses between all attempts can add up to (B089).

    Jitter and ceiling are included (P36).
    """
    if not retries or backoff is None:
        return 0
    ceiling = math.inf if backoff.max_seconds is None else backoff.max_seconds
    total = 0.0
    for retry in range(retries):
        factor = 2 ** min(retry, 60) if backoff.kind == "exponential" else 1
        total += min(backoff.seconds * factor * (1 + backoff.jitter), ceiling)
    return round(total * 1000)


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
