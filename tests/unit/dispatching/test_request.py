"""What a call of ``dispatch`` becomes: payload, metadata and options of the job, or an error."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import time
import uuid
from collections.abc import Iterator
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import SynchronousOnlyOperation
from django.utils import timezone
from django.utils.functional import SimpleLazyObject
from pytest_django import Settings

from kumiko_django import (
    SYSTEM,
    Backoff,
    JobDefinition,
    PayloadError,
    PayloadTooLarge,
    TenantRequired,
    UnknownJobError,
    registry,
    system_scope,
    tenant_scope,
)
from kumiko_django.broker.producer import NewJob
from kumiko_django.dispatching.request import Request, build, build_each, find_definition
from kumiko_django.types import ambient
from kumiko_django.types.ambient import TraceContext
from kumiko_django.types.origin import WriteOrigin
from tests.app.jobs import api_echo, flaky, record, system_job, typed
from tests.app.models import Order

pytestmark = pytest.mark.once


def new_job(payload: Any = None, *, job: Any = record, **request: Any) -> NewJob:
    return build(find_definition(job), payload, Request(**{"tenant_id": "acme", **request}))


# ---------------------------------------------------------------------------------- which job


@pytest.fixture
def renamed() -> Iterator[JobDefinition]:
    with registry.isolated() as jobs:
        yield jobs.register(
            JobDefinition(
                handler=lambda payload, ctx: None,
                name="renamed",
                app_label="testapp",
                aliases=("old", "otherapp:job:older"),
            )
        )


def test_names_aliases_functions_and_definitions(renamed: JobDefinition) -> None:
    """B015, B038, design 3: all ways lead to the one definition, whose present name is used."""
    for job in ("testapp:job:renamed", "testapp:job:old", "otherapp:job:older", renamed):
        assert find_definition(job) is renamed
        assert new_job(job=job).name == "testapp:job:renamed"
    assert find_definition(record) is record.definition


@pytest.mark.parametrize("job", ["testapp:job:nothing", "record", "", len, 7, None, object()])
def test_an_unknown_job_is_refused_by_name(job: Any) -> None:
    """B038: at once, whatever it is that is no job."""
    with pytest.raises(UnknownJobError):
        find_definition(job)


def test_the_lane_is_that_of_the_definition() -> None:
    """B005, B033: never that of the process that dispatches."""
    assert (new_job(job=api_echo).lane, new_job(job=record).lane) == ("api", "worker")


# ------------------------------------------------------------------------------------- payload


def test_no_payload_is_an_empty_one() -> None:
    """B049."""
    assert new_job().data == new_job({}).data == {"_tenantId": "acme", "_v": 1}


def test_values_are_encoded() -> None:
    """P33: as JSON values, before anything is sent."""
    payload = {
        "when": dt.datetime(2026, 3, 29, 1, 30, tzinfo=dt.UTC),
        "day": dt.date(2026, 3, 29),
        "amount": decimal.Decimal("1.50"),
        "id": uuid.UUID(int=1),
        "list": (1, {"deep": dt.timedelta(minutes=1)}),
    }
    data = new_job(payload).data
    assert data["when"] == "2026-03-29T01:30:00Z"
    assert (data["day"], data["amount"]) == ("2026-03-29", "1.50")
    assert data["id"] == "00000000-0000-0000-0000-000000000001"
    assert data["list"] == [1, {"deep": "P0DT00H01M00S"}]
    assert payload["amount"] == decimal.Decimal("1.50"), "the caller's object is left alone"


REFUSED: dict[str, tuple[Any, str]] = {
    "text": ("text", "payload"),
    "list": ([1], "payload"),
    "number": (7, "payload"),
    "object": ({"a": object()}, "payload.a"),
    "nan": ({"a": {"b": [1, float("nan")]}}, "payload.a.b[1]"),
    "set": ({"a": {1}}, "payload.a"),
    "bytes": ({"a": b"x"}, "payload.a"),
    "function": ({"a": len}, "payload.a"),
    "reserved": ({"_tenantId": "globex"}, "payload._tenantId"),
    "reserved unknown": ({"_": 1}, "payload._"),
    "number as key": ({1: 2}, "payload"),
}


@pytest.mark.parametrize("kind", list(REFUSED))
def test_what_cannot_travel_is_refused_with_its_place(kind: str) -> None:
    """P33, P67, P69, user-needs 38: at dispatch, naming the job and the path."""
    payload, path = REFUSED[kind]
    with pytest.raises(PayloadError, match=r"^testapp:job:record: ") as raised:
        new_job(payload)
    assert raised.value.path.startswith(path)
    with pytest.raises(PayloadError, match=r"^testapp:job:record: payloads\[2\]: ") as raised:
        list(build_each(record.definition, [{}, {}, payload, {}], Request("acme")))
    assert raised.value.path.startswith(path.replace("payload", "payloads[2]", 1))


RESERVED = [
    "_tenantId", "_triggeredById", "_payload", "_triggerName", "_triggerEvent", "_traceContext",
    "_correlationId", "_writeOrigin", "_traceparent", "_deferCount", "_limitDeferCount",
    "_runStart", "_v", "_anything",
]  # fmt: skip


@pytest.mark.parametrize("key", RESERVED)
def test_a_payload_never_carries_metadata(key: str) -> None:
    """B045, B048, B075, P67, P69: a user's data cannot name the tenant, and no key vanishes
    silently."""
    with pytest.raises(PayloadError, match="reserved for metadata") as raised:
        new_job({"fine": 1, key: "globex"})
    assert raised.value.path == f"payload.{key}"


def test_below_the_top_underscores_are_free() -> None:
    """P69: only the top level shares its names with metadata."""
    assert new_job({"row": {"_id": 1}}).data["row"] == {"_id": 1}


def test_a_plain_tenant_id_in_the_payload_is_just_a_value() -> None:
    """P67, design (not B076): it never names the tenant."""
    data = new_job({"tenantId": "globex"}).data
    assert (data["tenantId"], data["_tenantId"]) == ("globex", "acme")
    with pytest.raises(TenantRequired):
        new_job({"tenantId": "globex", "tenant_id": "globex"}, tenant_id=None)


def test_the_schema_is_applied_at_dispatch() -> None:
    """P71, user-needs 38: wrong values are refused, right ones get their defaults and JSON form."""
    good = {"when": timezone.now(), "amount": "1.5", "reference": uuid.uuid4()}
    data = new_job(good, job=typed).data
    assert data["colour"] == "red"
    assert isinstance(data["reference"], str)
    with pytest.raises(PayloadError, match=r"^testapp:job:typed: .*payload\.amount") as raised:
        new_job({**good, "amount": "much"}, job=typed)
    assert raised.value.path == "payload.amount"
    assert "much" not in str(raised.value), "a value may be personal"
    with pytest.raises(PayloadError, match=r"payloads\[1\]"):
        list(build_each(typed.definition, [good, {}], Request("acme")))


def test_the_size_is_limited_to_the_byte(settings: Settings) -> None:
    """bullmq-python 1.21, user-needs 6: what is stored, metadata and umlauts included."""
    overhead = len(b'{"text":"","_tenantId":"acme","_v":1}')
    settings.KUMIKO = {**settings.KUMIKO, "MAX_PAYLOAD_BYTES": 100}
    assert new_job({"text": "x" * (100 - overhead)}).data["text"]
    with pytest.raises(PayloadTooLarge, match=r"testapp:job:record: .*101 bytes.*allows 100"):
        new_job({"text": "x" * (101 - overhead)})
    # An umlaut is stored as \\u00e4.
    assert new_job({"text": "ä" + "x" * (94 - overhead)}).data["text"]
    with pytest.raises(PayloadTooLarge, match="101 bytes"):
        new_job({"text": "ä" + "x" * (95 - overhead)})
    with pytest.raises(PayloadTooLarge, match=r"payloads\[1\]"):
        list(build_each(record.definition, [{}, {"text": "x" * 100}], Request("acme")))


# ------------------------------------------------------------------------------------ metadata


def test_without_surroundings_nothing_is_stamped() -> None:
    """B236: absent, not null."""
    assert set(new_job({"a": 1}).data) == {"a", "_tenantId", "_v"}


def test_the_surroundings_are_stamped() -> None:
    """B046, B047, B168, B170: trace, correlation, user and gated origin follow the work."""
    values: dict[Any, Any] = {
        ambient.trace: TraceContext("t" * 32, "s" * 16),
        ambient.correlation_id: "request-7",
        ambient.user_id: "42",
        ambient.write_origin: WriteOrigin("anonymous", via_job="testapp:job:first"),
    }
    with ambient.entered(values):
        data = new_job({"a": 1}).data
    assert data["_traceContext"] == {"traceId": "t" * 32, "spanId": "s" * 16}
    assert (data["_correlationId"], data["_triggeredById"]) == ("request-7", "42")
    assert data["_writeOrigin"] == {"root": "anonymous", "viaJob": "testapp:job:first"}


@pytest.mark.parametrize("root", ["user", "system"])
def test_an_origin_that_bars_nothing_does_not_travel(root: Any) -> None:
    """B170: only anonymous roots are gated."""
    with ambient.entered({ambient.write_origin: WriteOrigin(root)}):
        assert "_writeOrigin" not in new_job().data


BAD_IDS = ["", "a\nb", "a\r\nX-Header: 1", "a\x00", "a\x1b[31m", "x" * 129, "\u2028", 7, None]


@pytest.mark.parametrize("value", BAD_IDS)
def test_a_correlation_id_that_is_unfit_for_logs_is_dropped(value: Any) -> None:
    """P92: no line breaks, no control characters, no novels."""
    with ambient.entered({ambient.correlation_id: value}):
        assert "_correlationId" not in new_job().data


def test_a_long_or_foreign_correlation_id_travels() -> None:
    """P92: what is printable is nobody's harm."""
    for value in ("x" * 128, "Grüße 1", "{uuid}/1:2"):
        with ambient.entered({ambient.correlation_id: value}):
            assert new_job().data["_correlationId"] == value


@dataclasses.dataclass
class Customer:
    pk: Any


USERS: list[tuple[Any, str | None]] = [
    (User(pk=7), "7"),
    (SimpleLazyObject(lambda: User(pk=7)), "7"),
    (Customer(uuid.UUID(int=7)), str(uuid.UUID(int=7))),
    ("7", "7"),
    (7, "7"),
    (uuid.UUID(int=7), str(uuid.UUID(int=7))),
    (AnonymousUser(), None),
    (SimpleLazyObject(AnonymousUser), None),
    ("", None),
]


@pytest.mark.parametrize(("user", "key"), USERS)
def test_the_user_as_object_or_key(user: Any, key: str | None) -> None:
    """B045, B077: an anonymous user is none, also inside a request of somebody else's."""
    with ambient.entered({ambient.user_id: "ambient"}):
        assert new_job(triggered_by=user).data.get("_triggeredById") == key
        assert new_job(triggered_by=None).data["_triggeredById"] == "ambient"
    assert "_triggeredById" not in new_job().data


@pytest.mark.parametrize("user", [True, 1.5, {"id": 7}, [7], object()])
def test_no_user_at_all_is_refused(user: Any) -> None:
    """B045: instead of being written down as text."""
    with pytest.raises(ValueError, match=r"testapp:job:record: triggered_by must be a user"):
        new_job(triggered_by=user)


@pytest.mark.parametrize("user", [User(), SimpleLazyObject(User), Order()])
def test_a_user_that_is_not_saved_is_refused(user: Any) -> None:
    """B045: it would be nobody, without a word."""
    with pytest.raises(
        ValueError, match=r"triggered_by is a \w+ that is not saved.* Save it first"
    ):
        new_job(triggered_by=user)


def test_a_lazy_user_in_async_code_is_answered_with_what_to_write() -> None:
    """B045: request.user would ask the database; Django's own message does not name auser()."""

    def ask_the_database() -> Any:
        raise SynchronousOnlyOperation("You cannot call this from an async context")

    with pytest.raises(SynchronousOnlyOperation, match=r"triggered_by=await request\.auser\(\)"):
        new_job(triggered_by=SimpleLazyObject(ask_the_database))


def test_the_tenant_is_stamped() -> None:
    """P67, P68, B231: given or ambient; SYSTEM for work of none."""
    with tenant_scope("globex"):
        assert new_job(tenant_id=None).data["_tenantId"] == "globex"
    with system_scope("test"):
        assert new_job(tenant_id=7).data["_tenantId"] == "7"
        assert new_job(tenant_id=SYSTEM).data["_tenantId"] == SYSTEM
    assert new_job(job=system_job, tenant_id=None).data["_tenantId"] == SYSTEM
    with pytest.raises(TenantRequired, match="testapp:job:record needs a tenant"):
        new_job(tenant_id=None)


# -------------------------------------------------------------------------------- delay, time


def delay_ms(**request: Any) -> int:
    return new_job(**request).options.delay_ms


DELAYS: list[tuple[Any, int]] = [
    (0, 0),
    (0.0, 0),
    (dt.timedelta(0), 0),
    (5, 5000),
    (0.25, 250),
    (0.0004, 0),
    (dt.timedelta(minutes=1, milliseconds=5), 60_005),
    (dt.timedelta(days=365), 365 * 86_400_000),
    (dt.timedelta(days=3650), 3650 * 86_400_000),
]


@pytest.mark.parametrize(("delay", "milliseconds"), DELAYS)
def test_delays(delay: Any, milliseconds: int) -> None:
    """design 3: a timedelta or seconds; milliseconds on the wire."""
    assert delay_ms(delay=delay) == milliseconds


BAD_DELAYS = [
    -1, -0.001, dt.timedelta(seconds=-1), float("nan"), float("inf"), True, "5", [5],
    dt.timedelta(days=3651), 10 * 366 * 86_400, 10**15,
]  # fmt: skip


@pytest.mark.parametrize("delay", BAD_DELAYS)
def test_delays_that_are_none(delay: Any) -> None:
    """P10, design 3: refused by name, also what the queue's scores could not order."""
    with pytest.raises(ValueError, match=r"testapp:job:record: .*delay"):
        delay_ms(delay=delay)


def test_a_moment_in_time() -> None:
    """design 3: run_at is aware, in whatever zone; what has passed is now."""
    in_an_hour = timezone.now() + dt.timedelta(hours=1)
    assert delay_ms(run_at=in_an_hour) == pytest.approx(3_600_000, abs=2000)
    elsewhere = in_an_hour.astimezone(ZoneInfo("Asia/Tokyo"))
    assert delay_ms(run_at=elsewhere) == pytest.approx(3_600_000, abs=2000)
    for passed in (timezone.now(), dt.datetime(1970, 1, 1, tzinfo=dt.UTC)):
        assert delay_ms(run_at=passed) == 0


@pytest.mark.parametrize(
    "run_at",
    [dt.datetime(2099, 1, 1), dt.date(2099, 1, 1), "2099-01-01", 4_070_908_800],  # noqa: DTZ001
)
def test_a_moment_without_zone_is_refused(run_at: Any) -> None:
    """design 3: a naive time means another moment in every process."""
    with pytest.raises(ValueError, match="run_at must be an aware datetime"):
        delay_ms(run_at=run_at)


def test_a_moment_too_far_away_is_refused() -> None:
    with pytest.raises(ValueError, match="more than ten years"):
        delay_ms(run_at=dt.datetime(9999, 12, 31, tzinfo=dt.UTC))


def test_delay_and_moment_together_are_refused() -> None:
    with pytest.raises(ValueError, match="delay= or run_at=, not both"):
        delay_ms(delay=0, run_at=timezone.now())


# ------------------------------------------------------------------------------------ the rest


def test_priority_overrides_the_definition() -> None:
    """B044, design 3."""
    assert new_job().options.priority == "normal"
    for priority in ("high", "low", 1, 0, 2_097_152):
        assert new_job(priority=priority).options.priority == priority
    for wrong in ("urgent", -1, 2_097_153, 1.5, True):
        with pytest.raises(ValueError, match=r"testapp:job:record: priority must be"):
            new_job(priority=wrong)


def test_attempts_and_backoff_are_those_of_the_definition() -> None:
    """B079, B081."""
    options = new_job(job=flaky).options
    assert (options.attempts, options.backoff) == (4, Backoff.fixed(0.1))


def test_ids_are_ours_unique_and_no_integers() -> None:
    """B067, bullmq-python 1.15, user-needs 4: bullmq's own counter can never meet them."""
    jobs = list(build_each(record.definition, ({} for _ in range(1000)), Request("acme")))
    ids = [job.job_id for job in jobs]
    assert len(set(ids)) == 1000
    assert all(uuid.UUID(one).version == 7 and ":" not in one for one in ids)


def test_all_jobs_of_one_call_have_one_time() -> None:
    """P73: the time of creation belongs to the call."""
    before = time.time_ns() // 1_000_000
    jobs = list(build_each(record.definition, [{}, {}], Request("acme", delay=1)))
    assert len({job.timestamp_ms for job in jobs}) == 1
    assert before <= jobs[0].timestamp_ms <= time.time_ns() // 1_000_000
