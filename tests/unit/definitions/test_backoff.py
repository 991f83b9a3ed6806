"""Pauses between attempts (B006, B079-B089, P36, P37, user-needs 35) and priorities (B044)."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import random
from collections import Counter
from typing import Any

import pytest

from kumiko_django import Backoff, DefinitionError
from kumiko_django.definitions.options import (
    MAX_PAUSE_SECONDS,
    MAX_PRIORITY,
    check_priority,
    retry_window_ms,
)

pytestmark = pytest.mark.once

YEAR_MS = round(MAX_PAUSE_SECONDS * 1000)


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        (Backoff.fixed(2), [2000, 2000, 2000, 2000]),
        (Backoff.exponential(2), [2000, 4000, 8000, 16000]),
        (Backoff.exponential(0.5), [500, 1000, 2000, 4000]),
        (Backoff.exponential(2, max_seconds=5), [2000, 4000, 5000, 5000]),
        (Backoff.fixed(2, max_seconds=2), [2000, 2000, 2000, 2000]),
        (Backoff.fixed(dt.timedelta(minutes=1)), [60_000] * 4),
        (
            Backoff.exponential(dt.timedelta(seconds=2), max_seconds=dt.timedelta(seconds=5)),
            [2000, 4000, 5000, 5000],
        ),
        (Backoff.fixed(0.0001), [1, 1, 1, 1]),
        (Backoff.exponential(1, jitter=0), [1000, 2000, 4000, 8000]),
    ],
    ids=str,
)
def test_the_pauses(backoff: Backoff, delays: list[int]) -> None:
    assert [backoff.delay_ms(attempt) for attempt in (1, 2, 3, 4)] == delays


@pytest.mark.parametrize("kind", [Backoff.fixed, Backoff.exponential])
def test_jitter_spreads_evenly_up_and_down(kind: Any) -> None:
    """P36: plus or minus the fraction, never more, and not the same for a thousand jobs."""
    backoff, rng = kind(10, jitter=0.2), random.Random(1)
    delays = [backoff.delay_ms(1, rng) for _ in range(5000)]

    assert 8000 <= min(delays) < 8100
    assert 11900 < max(delays) <= 12000
    assert abs(sum(delays) / len(delays) - 10_000) < 100
    sides = Counter(delay < 10_000 for delay in delays)
    assert 0.45 < sides[True] / len(delays) < 0.55


def test_without_a_source_of_its_own_jitter_is_random_too() -> None:
    assert len({Backoff.fixed(1000, jitter=1).delay_ms(1) for _ in range(20)}) > 10


def test_the_ceiling_holds_after_jitter() -> None:
    """P36."""
    backoff, rng = Backoff.exponential(1, jitter=1, max_seconds=10), random.Random(2)

    assert max(backoff.delay_ms(9, rng) for _ in range(1000)) == 10_000


@pytest.mark.parametrize("seconds", [1, 1e9, 1e300, 10**15])
@pytest.mark.parametrize("attempt", [60, 64, 100, 5000, 10**9])
def test_a_far_attempt_gives_a_long_pause_and_no_overflow(seconds: float, attempt: int) -> None:
    """P36: unbounded growth ended in an error, and the job with it."""
    assert Backoff.exponential(seconds).delay_ms(attempt) == YEAR_MS
    assert 1 <= Backoff.exponential(seconds, jitter=1).delay_ms(attempt) <= YEAR_MS


@pytest.mark.parametrize(
    ("retries", "backoff", "window"),
    [
        (3, Backoff.exponential(1), 7000),
        (3, Backoff.fixed(1), 3000),
        (3, None, 0),
        (None, Backoff.fixed(1), 0),
        (0, Backoff.fixed(1), 0),
        (3, Backoff.fixed(1, jitter=0.5), 4500),
        (3, Backoff.exponential(1, jitter=0.5), 10_500),
        (4, Backoff.exponential(1, max_seconds=3), 1000 + 2000 + 3000 + 3000),
        (4, Backoff.exponential(1, jitter=1, max_seconds=3), 2000 + 3000 + 3000 + 3000),
        (2, Backoff.exponential(1e300), 2 * YEAR_MS),
    ],
)
def test_the_retry_window(retries: int | None, backoff: Backoff | None, window: int) -> None:
    """B089, with jitter and ceiling in it (P36)."""
    assert retry_window_ms(retries, backoff) == window


def test_no_series_of_pauses_is_longer_than_the_window() -> None:
    """B089, P36, user-needs 35: 2,000 backoffs made at random, each gap inside its interval."""
    rng = random.Random(20261129)
    for _ in range(2000):
        seconds = 10 ** rng.uniform(-4, 6)
        jitter = rng.choice([0.0, rng.random(), 1.0])
        ceiling = rng.choice([None, seconds * 10 ** rng.uniform(0, 3)])
        make = rng.choice([Backoff.fixed, Backoff.exponential])
        backoff, retries = make(seconds, jitter, ceiling), rng.randint(1, 40)
        total = 0
        for attempt in range(1, retries + 1):
            delay = backoff.delay_ms(attempt, rng)
            base = seconds * (2 ** (attempt - 1) if make == Backoff.exponential else 1)
            bound = min(
                base * (1 + jitter), math.inf if ceiling is None else ceiling, MAX_PAUSE_SECONDS
            )
            assert 1 <= delay <= max(1, bound * 1000 + 0.5)
            assert delay >= min(base * (1 - jitter) * 1000 - 0.5, bound * 1000 - 0.5)
            total += delay
        assert total <= retry_window_ms(retries, backoff)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("make", [Backoff.fixed, Backoff.exponential])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seconds": 0}, "seconds must be a number or timedelta above 0, not 0"),
        ({"seconds": -1}, "seconds must be"),
        ({"seconds": NAN}, "seconds must be"),
        ({"seconds": INF}, "seconds must be"),
        ({"seconds": 10**400}, "seconds must be"),
        ({"seconds": True}, "seconds must be"),
        ({"seconds": "2"}, "seconds must be"),
        ({"seconds": None}, "seconds must be"),
        ({"seconds": dt.timedelta(0)}, "seconds must be"),
        ({"seconds": 1, "jitter": 20}, r"a fraction from 0 to 1 \(0.2 for 20 %\), not 20"),
        ({"seconds": 1, "jitter": -0.1}, "jitter"),
        ({"seconds": 1, "jitter": NAN}, "jitter"),
        ({"seconds": 1, "jitter": True}, "jitter"),
        ({"seconds": 1, "jitter": "0.2"}, "jitter"),
        ({"seconds": 2, "max_seconds": 1}, "max_seconds must be at least seconds=2, not 1"),
        ({"seconds": 2, "max_seconds": 0}, "max_seconds"),
        ({"seconds": 2, "max_seconds": INF}, "max_seconds"),
        ({"seconds": 2, "max_seconds": NAN}, "max_seconds"),
        ({"seconds": 2, "max_seconds": "9"}, "max_seconds"),
        ({"seconds": 2, "max_seconds": dt.timedelta(seconds=1)}, "max_seconds"),
    ],
)
def test_a_wrong_value_is_refused(make: Any, values: dict[str, Any], message: str) -> None:
    """P10."""
    with pytest.raises(DefinitionError, match=message):
        make(**values)


def test_an_unknown_kind_is_refused() -> None:
    """User-needs 35: a typo fails when the job is defined (bullmq strands such a job: 1.13)."""
    with pytest.raises(DefinitionError, match=r"kind 'linear' is unknown: use Backoff\.fixed"):
        Backoff("linear", 1)  # type: ignore[arg-type]


def test_a_backoff_is_a_value() -> None:
    one, same = Backoff.fixed(dt.timedelta(seconds=5)), Backoff.fixed(5)

    assert one == same
    assert hash(one) == hash(same)
    assert one != Backoff.exponential(5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.seconds = 1  # type: ignore[misc]


@pytest.mark.parametrize("value", ["high", "normal", "low", 0, 1, 1000, MAX_PRIORITY])
def test_a_priority(value: Any) -> None:
    """B044: 0 counts as given."""
    assert check_priority(value, "here") == value


@pytest.mark.parametrize(
    "value", ["High", "", "1", -1, MAX_PRIORITY + 1, True, False, 1.5, None, [], NAN]
)
def test_a_wrong_priority_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^here: priority must be 'high', 'normal', 'low', or"):
        check_priority(value, "here")
