"""``ctx.defer()``: what the queue is told, and what is on record (B193-B203, P95-P99)."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from django.utils import timezone

from kumiko_django import JobContext, KumikoError
from kumiko_django.broker.carried import carried
from kumiko_django.broker.delivery import Complete, Delivery, Fail, Fate, GiveBack, Postpone, Retry
from kumiko_django.history.models import JobRun
from tests.unit.run.deliveries import NAME, RunOne, delivery

pytestmark = pytest.mark.django_db(transaction=True)

META = {
    "_tenantId": "acme",
    "_triggeredById": "user-7",
    "_correlationId": "chain-1",
    "_writeOrigin": {"root": "user"},
    "_other": [1],
    "n": 1,
}


def returns(payload: Any, ctx: JobContext) -> Any:
    return ctx.defer(30)


def raises(payload: Any, ctx: JobContext) -> Any:
    try:
        raise ctx.defer(dt.timedelta(seconds=30))  # noqa: TRY301 - as handlers do
    except Exception:  # noqa: BLE001 - it steers the flow and is not caught by accident
        return "caught"


async def returns_async(payload: Any, ctx: JobContext) -> Any:
    return ctx.defer(30)


async def raises_async(payload: Any, ctx: JobContext) -> Any:
    raise ctx.defer(30)


@pytest.mark.parametrize("handler", [returns, raises, returns_async, raises_async])
def test_a_deferred_run_stays_open(handler: Any, run_one: RunOne) -> None:
    """B142, B195, B198, B200, B240, P97, P98: returned or raised; everything in the data is
    kept."""
    given = delivery(job_name=NAME, data=META, start=4, attempt=2, max_attempts=3, losses=1)
    settlement = run_one(handler, given)
    run = JobRun.objects.exclude(status="lost").get()
    assert isinstance(settlement, Postpone)
    assert settlement.delay_ms == 30_000
    data = json.loads(settlement.data)
    assert {key: data[key] for key in META} == META
    assert (data["_deferCount"], data["_runStart"]) == (1, 4)
    assert data["_run"] == {"id": str(run.id), "attempt": 2, "losses": 1, "defers": 1, "lines": 0}
    assert (run.status, run.final, run.attempt, run.start, run.deferrals) == (
        "deferred", False, 2, 4, 1,
    )  # fmt: skip
    assert (run.finished_at, run.error) == (None, "")
    assert run.resume_at is not None
    assert abs(run.resume_at - timezone.now() - dt.timedelta(seconds=30)) < dt.timedelta(seconds=20)


def again(given: Delivery, settlement: Any, **values: Any) -> Delivery:
    """The next delivery of a job that was postponed."""
    values = {"start": given.start + 1, "data": json.loads(settlement.data), **values}
    return delivery(
        **{
            "job_name": NAME,
            "attempt": given.attempt,
            "max_attempts": given.max_attempts,
            "losses": given.losses,
            "created_at_ms": given.created_at_ms,
            **values,
        }
    )


def first(run_one: RunOne) -> tuple[Delivery, Any]:
    given = delivery(job_name=NAME, data=META, max_attempts=3)
    return given, run_one(returns, given)


def test_who_goes_on_and_who_begins_anew(run_one: RunOne) -> None:
    """Design 6: not after a loss, another attempt, or with nonsense of another client."""
    given, settlement = first(run_one)
    run = JobRun.objects.get()
    found = carried(again(given, settlement))
    assert found is not None
    assert (found.run_id, found.start, found.defers, found.lines) == (run.id, 1, 1, 0)
    # Parked in between: fetched more often, and nothing else.
    assert carried(again(given, settlement, start=7)) == found
    for values in ({"losses": 1}, {"attempt": 2}, {"start": 1}):
        assert carried(again(given, settlement, **values)) is None, values
    data = json.loads(settlement.data)
    nonsense: list[Any] = [
        {"_run": None}, {"_run": "x"}, {"_run": {**data["_run"], "id": "x"}}, {"_runStart": True},
        {"_runStart": -1}, {"_runStart": "1"}, {"_runStart": 10**30}, {"_run": {}},
    ]  # fmt: skip
    for broken in nonsense:
        assert carried(again(given, settlement, data={**data, **broken})) is None, broken
    assert carried(again(given, settlement, data=[data])) is None


def fails(payload: Any, ctx: JobContext) -> Any:
    raise ValueError("no")


@pytest.mark.parametrize(
    ("handler", "expected", "interrupt"),
    [(fails, Retry, False), (returns, GiveBack, True)],
)
def test_what_is_settled_otherwise_forgets_the_run_but_not_the_count(
    handler: Any, expected: type[Retry | GiveBack], interrupt: bool, run_one: RunOne
) -> None:
    """B197: the counter never falls; a retry and a redelivery are runs of their own."""
    data = {**META, "_deferCount": 1, "_limitDeferCount": 5, "_runStart": 1, "_unknownSince": 9,
            "_run": {"id": "00000000-0000-7000-8000-000000000000", "attempt": 1, "losses": 0,
                     "defers": 1, "lines": 2}}  # fmt: skip
    given = delivery(job_name=NAME, data=data, max_attempts=3, start=2)
    settlement = run_one(handler, given, interrupt=interrupt)
    assert isinstance(settlement, expected)
    assert settlement.data is not None
    assert json.loads(settlement.data) == {**META, "_deferCount": 1, "_limitDeferCount": 5}


def test_a_job_that_was_never_deferred_keeps_its_data(run_one: RunOne) -> None:
    settlement = run_one(fails, delivery(job_name=NAME, data=META, max_attempts=3))
    assert isinstance(settlement, Retry)
    assert settlement.data is None


@pytest.mark.parametrize("data", [{**META, "_deferCount": 2}, {**META, "_deferCount": 3}])
def test_over_the_budget_the_job_fails_for_good(data: Any, run_one: RunOne) -> None:
    """B196: the third of two; an unrecoverable error that says so, and no retry."""
    settlement = run_one(
        returns, delivery(job_name=NAME, data=data, max_attempts=5), retries=4, max_defers=2
    )
    assert isinstance(settlement, Fail)
    run = JobRun.objects.get()
    assert (run.status, run.final, run.attempt) == ("failed", True, 1)
    assert f"deferred {data['_deferCount']} times already; max_defers=2" in run.error


@pytest.mark.parametrize(("before", "expected"), [(99, Postpone), (100, Fail)])
def test_without_a_budget_of_its_own_a_job_may_be_deferred_a_hundred_times(
    before: int, expected: type, run_one: RunOne
) -> None:
    """B014: the default is applied where the run ends, not only shown by the definition."""
    given = delivery(job_name=NAME, data={**META, "_deferCount": before})
    assert isinstance(run_one(returns, given), expected)


def test_the_counter_is_its_own(run_one: RunOne) -> None:
    """B203: over-limit parking counts under another key; nonsense counts as nothing."""
    data = {**META, "_deferCount": "many", "_limitDeferCount": 100}
    settlement = run_one(returns, delivery(job_name=NAME, data=data), max_defers=1)
    assert isinstance(settlement, Postpone)
    counted = json.loads(settlement.data)
    assert (counted["_deferCount"], counted["_limitDeferCount"]) == (1, 100)


def test_none_may_be_allowed(run_one: RunOne) -> None:
    """P10: 0 is a budget."""
    assert isinstance(run_one(returns, delivery(job_name=NAME), max_defers=0), Fail)


WRONG = [0, -1, -0.5, True, "5", None, float("nan"), float("inf"), 10**400, dt.timedelta(0),
         dt.timedelta(days=400)]  # fmt: skip


@pytest.mark.parametrize("delay", WRONG, ids=lambda delay: repr(delay)[:20])
def test_a_wrong_delay_names_job_and_value(delay: Any, run_one: RunOne) -> None:
    """B193: checked before anything else."""

    def defers(payload: Any, ctx: JobContext) -> Any:
        return ctx.defer(delay)

    assert isinstance(run_one(defers, delivery(job_name=NAME, queued=False)), Fail)
    error = JobRun.objects.get().error
    assert error.startswith(f"ValueError: {NAME}: ctx.defer() takes a timedelta or seconds")
    assert repr(delay)[:50] in error


def test_a_job_outside_of_a_queue_cannot_wait(run_one: RunOne) -> None:
    """B194, B201: a boot gate, say."""
    seen: list[BaseException] = []

    def defers(payload: Any, ctx: JobContext) -> Any:
        try:
            return ctx.defer(1)
        except KumikoError as error:
            seen.append(error)
            return "went on"

    settlement = run_one(defers, delivery(job_name=NAME, queued=False))
    assert settlement == Complete("went on")
    assert "cannot be deferred" in str(seen[0])


def test_called_only_it_does_nothing_and_says_so(
    run_one: RunOne, caplog: pytest.LogCaptureFixture
) -> None:
    """B195, B201, P97."""

    def forgets(payload: Any, ctx: JobContext) -> Any:
        ctx.defer(1)
        return "done"

    assert run_one(forgets) == Complete("done")
    run = JobRun.objects.get()
    assert (run.status, run.deferrals) == ("completed", 0)
    ((level, message),) = [(line.level, line.message) for line in run.logs.all()]
    assert level == "warn"
    assert "return ctx.defer(...)" in message
    assert message in caplog.text


@pytest.mark.parametrize(
    ("fate", "status"), [(Fate.VOID, "lost"), (Fate.GONE, "cancelled"), (Fate.UNTOLD, "running")]
)
def test_a_deferral_that_the_queue_does_not_take(fate: Fate, status: str, run_one: RunOne) -> None:
    """B242, P95: nothing is counted that has not happened; the record says what became of it."""
    run_one(returns, delivery(job_name=NAME), fate=fate)
    run = JobRun.objects.get()
    assert (run.status, run.resume_at) == (status, None)


def test_what_the_context_brings_cannot_be_shadowed(run_one: RunOne) -> None:
    """B144, P96: built-ins win, whatever an application puts on the context."""
    seen: list[str] = []

    def shadows(payload: Any, ctx: JobContext) -> Any:
        try:
            ctx.defer = lambda delay: "mine"  # type: ignore[method-assign, assignment, return-value]
        except AttributeError as error:
            seen.append(type(error).__name__)
        return ctx.defer(1)

    assert isinstance(run_one(shadows, delivery(job_name=NAME)), Postpone)
    assert seen == ["FrozenInstanceError"]
