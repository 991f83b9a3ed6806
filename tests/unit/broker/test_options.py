"""BullMQ's options: the same on every path, with an age for every finished job."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pytest_django import Settings

from kumiko_django import Backoff, JobDefinition, SettingsError
from kumiko_django.broker.options import (
    MAX_DELAY_MS,
    JobOptions,
    retry_delay_ms,
    stored_priority,
)
from kumiko_django.conf import get_settings

pytestmark = pytest.mark.once


def definition(**options: Any) -> JobDefinition:
    return JobDefinition(
        handler=lambda payload, ctx: None, name="some", app_label="testapp", **options
    )


def stored(job: JobDefinition, **overrides: Any) -> dict[str, Any]:
    return JobOptions.for_definition(job, **overrides).to_bullmq("id-1", 1000)


def test_the_options_of_a_plain_job() -> None:
    """B090, B091, bullmq-python 1.19, 1.20: ids and times of ours, ages, one stack trace."""
    assert stored(definition()) == {
        "jobId": "id-1",
        "timestamp": 1000,
        "attempts": 1,
        "removeOnComplete": {"age": 86_400},
        "removeOnFail": {"age": 604_800},
        "stackTraceLimit": 1,
    }


def test_retention_is_age_only_and_as_set(settings: Settings) -> None:
    """B090, B091, B092: a count on one job would sweep the records of others."""
    settings.KUMIKO = {**settings.KUMIKO, "COMPLETED_AGE": 60, "FAILED_AGE": 120}
    options = stored(definition(retries=3, priority="low"), delay_ms=5)
    assert (options["removeOnComplete"], options["removeOnFail"]) == ({"age": 60}, {"age": 120})


@pytest.mark.parametrize("key", ["COMPLETED_AGE", "FAILED_AGE"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "60"])
def test_a_retention_that_is_none_is_refused(key: str, value: Any, settings: Settings) -> None:
    """B024, B026: by name, before anything connects."""
    settings.KUMIKO = {**settings.KUMIKO, key: value}
    with pytest.raises(SettingsError, match=key):
        get_settings()


@pytest.mark.parametrize(("retries", "attempts"), [(None, 1), (0, 1), (1, 2), (3, 4)])
def test_attempts(retries: int | None, attempts: int) -> None:
    """B079."""
    assert stored(definition(retries=retries))["attempts"] == attempts


BACKOFFS: list[tuple[Backoff | None, dict[str, Any]]] = [
    (None, {"type": "fixed", "delay": 1000}),
    (Backoff.fixed(0.25), {"type": "fixed", "delay": 250}),
    (Backoff.exponential(2), {"type": "exponential", "delay": 2000}),
    (
        Backoff.exponential(2, jitter=0.2, max_seconds=60),
        {"type": "exponential", "delay": 2000, "jitter": 0.2, "maxDelay": 60_000},
    ),
]


@pytest.mark.parametrize(("backoff", "wanted"), BACKOFFS)
def test_backoff(backoff: Backoff | None, wanted: dict[str, Any]) -> None:
    """B080, P36, P37: type and delay, always there when there are retries."""
    assert stored(definition(retries=2, backoff=backoff))["backoff"] == wanted


def test_no_backoff_without_retries() -> None:
    """B079."""
    assert "backoff" not in stored(definition(retries=0))


PRIORITIES: list[tuple[Any, dict[str, Any]]] = [
    ("normal", {}),
    (0, {}),
    ("high", {"lifo": True}),
    ("low", {"priority": 1000}),
    (1, {"priority": 1}),
    (2_097_152, {"priority": 2_097_152}),
]


@pytest.mark.parametrize(("priority", "wanted"), PRIORITIES)
def test_priorities(priority: Any, wanted: dict[str, Any]) -> None:
    """B044, design 3: high is the front of ``wait``, numbers come after all normal jobs."""
    for options in (
        stored(definition(priority=priority)),
        stored(definition(priority="low"), priority=priority),
    ):
        found = {name: options[name] for name in ("lifo", "priority") if name in options}
        assert found == wanted


def test_delay() -> None:
    assert "delay" not in stored(definition(), delay_ms=0)
    assert stored(definition(), delay_ms=5)["delay"] == 5


# ------------------------------------------------------------------------ the pause before a retry

FALLBACK = Backoff.fixed(7)


@pytest.mark.parametrize(
    ("backoff", "attempt", "milliseconds"),
    [
        ({"type": "fixed", "delay": 250}, 1, 250),
        ({"type": "fixed", "delay": 250}, 9, 250),
        ({"type": "exponential", "delay": 1000}, 1, 1000),
        ({"type": "exponential", "delay": 1000}, 4, 8000),
        ({"type": "exponential", "delay": 1000, "maxDelay": 3000}, 4, 3000),
        ({"type": "exponential", "delay": 1000, "maxDelay": 10}, 4, 1000),
        ({"type": "exponential", "delay": 1000, "jitter": 7}, 1, 1000),
        (500, 3, 500),
    ],
)
def test_what_was_stored_holds(backoff: Any, attempt: int, milliseconds: int) -> None:
    """B080, P27: what held when the job was queued, whoever queued it."""
    assert retry_delay_ms(backoff, attempt, FALLBACK) == milliseconds


@pytest.mark.parametrize(
    "backoff",
    [
        None, 0, -5, True, "fixed", [], {}, {"type": "fixed"}, {"type": "fixed", "delay": 0},
        {"type": "fixed", "delay": "1000"}, {"type": "fixed", "delay": None},
        {"type": "custom", "delay": 1000}, {"type": None, "delay": 1000}, {"delay": 1000},
        {"type": ["fixed"], "delay": 1000}, {"type": "fixed", "delay": 1e300},
    ],
)  # fmt: skip
def test_what_is_no_backoff_is_replaced(backoff: Any) -> None:
    """bullmq-python 1.13: the package would strand a job with an unknown type."""
    assert retry_delay_ms(backoff, 2, FALLBACK) == 7000


@pytest.mark.parametrize(
    "number",
    [float("nan"), float("inf"), -float("inf"), 10**400],
    ids=["nan", "inf", "-inf", "big"],
)
@pytest.mark.parametrize("name", ["delay", "jitter", "maxDelay"])
def test_numbers_that_nobody_can_reckon_with_are_left_out(name: str, number: float) -> None:
    """bullmq-python 1.11, 1.13: JSON of other producers may have them. An error here would leave
    the failed job unsettled: it would run again, and again."""
    backoff = {"type": "fixed", "delay": 500, name: number}
    assert retry_delay_ms(backoff, 2, FALLBACK) == (7000 if name == "delay" else 500)


def test_no_pause_is_longer_than_the_queue_can_order() -> None:
    """P36: attempt 5000 of an exponential backoff is a number too."""
    for backoff in ({"type": "exponential", "delay": 1000}, {"type": "fixed", "delay": 3e11}):
        assert 86_400_000 < retry_delay_ms(backoff, 5000, FALLBACK) <= MAX_DELAY_MS
    assert retry_delay_ms(None, 5000, Backoff.exponential(1000)) <= MAX_DELAY_MS


def test_jitter() -> None:
    """P36, user-needs 35: within the fraction, and not always the same."""
    backoff = {"type": "fixed", "delay": 1000, "jitter": 0.2}
    rng = random.Random(7)
    pauses = {retry_delay_ms(backoff, 1, FALLBACK, rng) for _ in range(200)}
    assert len(pauses) > 50
    assert all(800 <= pause <= 1200 for pause in pauses)


@pytest.mark.parametrize(
    ("given", "expected"),
    [("high", "high"), ("normal", "normal"), (0, "normal"), ("low", 1000), (7, 7)],
)
def test_a_stored_priority_is_read_as_it_was_given(given: Any, expected: Any) -> None:
    """P44: a wrapper's children get the priority that it was dispatched with."""
    assert stored_priority(stored(definition(), priority=given)) == expected


@pytest.mark.parametrize("value", [None, True, -1, 2_097_153, "7", 1.5, [], float("nan")])
def test_a_priority_that_means_nothing_is_normal(value: Any) -> None:
    assert stored_priority({"priority": value, "lifo": "yes"}) == "normal"
