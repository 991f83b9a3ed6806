"""Handlers as a job calls them: as whom it acts, as whom it may, and what is on record."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections
from pytest_django import Settings

from kumiko_django import (
    AccessDenied,
    JobContext,
    ScopeError,
    UnknownHandlerError,
    system_scope,
    tenant_scope,
)
from kumiko_django.broker.delivery import Complete, Delivery, Fail
from kumiko_django.handlers import aquery, awrite, query, system_user, write
from kumiko_django.handlers.in_run import MemberReader
from kumiko_django.handlers.registry import handlers
from kumiko_django.history.models import JobRun, JobRunLog
from kumiko_django.types import ambient
from kumiko_django.types.hatches import HatchUse
from kumiko_django.types.ids import SYSTEM, SYSTEM_USER_ID
from kumiko_django.types.origin import WriteOrigin
from tests.unit.handlers.kit import Seen, defines, user, uses_told
from tests.unit.run.deliveries import NAME, RunOne, delivery

pytestmark = pytest.mark.django_db(transaction=True)

GRANT = {"system_identity": "writes letters in the name of users"}
ANONYMOUS = {"_writeOrigin": {"root": "anonymous"}}


@pytest.fixture(autouse=True)
def _no_others() -> Iterator[None]:
    with handlers.isolated():
        yield


@pytest.fixture
def told() -> Iterator[list[HatchUse]]:
    """Give what is reported of escape hatches."""
    with uses_told() as uses:
        yield uses


@pytest.fixture
def seen() -> Seen:
    """Give the contexts that the handlers were given: ``OF_SYSTEM``, ``OF_STAFF``, ``ASKED``."""
    kept = Seen()
    defines("write", kept, name="of-system", roles=["system"])
    defines("write", kept, name="of-staff", roles=["staff"])
    defines("query", kept, name="asked", roles=["staff"])
    return kept


OF_SYSTEM, OF_STAFF, ASKED = (
    "testapp:write:of-system", "testapp:write:of-staff", "testapp:query:asked",
)  # fmt: skip


def caused_by(who: Any, **data: Any) -> Delivery:
    user_id = None if who is None else str(getattr(who, "pk", who))
    given = {"_tenantId": "acme", "_correlationId": "chain-1", **data}
    return delivery(job_name=NAME, data=given | ({"_triggeredById": user_id} if user_id else {}))


def error() -> str:
    return JobRun.objects.get().error


# ---------------------------------------------------------------------------------------- ctx.write


def writes(payload: Any, ctx: JobContext) -> Any:
    return ctx.write(OF_SYSTEM, {"a": 1})


async def awrites(payload: Any, ctx: JobContext) -> Any:
    return await ctx.awrite(OF_SYSTEM, {"a": 1})


@pytest.mark.parametrize("job", [writes, awrites])
def test_a_job_writes_as_the_system_user_of_its_tenant(
    run_one: RunOne, seen: Seen, told: list[HatchUse], job: Any
) -> None:
    """B163, B168, B174, B238: with the origin, user and correlation of the run, without a grant."""
    run_one(job, caused_by(7, **ANONYMOUS))

    (ctx,) = seen
    assert (ctx.user.kind, ctx.user.id, ctx.user.tenant_id) == ("system", SYSTEM_USER_ID, "acme")
    assert (ctx.tenant_id, ctx.correlation_id, ctx.job_name) == ("acme", "chain-1", NAME)
    assert ctx.write_origin == WriteOrigin("anonymous", NAME)
    assert told == []


def test_who_has_caused_it_is_on_record_beside_who_acts(
    run_one: RunOne, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    """P102: both, in the context, in the run's log (once each) and in the log of the process."""

    def twice(payload: Any, ctx: JobContext) -> None:
        ctx.write(OF_SYSTEM)
        ctx.write(OF_SYSTEM)

    with caplog.at_level("INFO", "kumiko_django.handlers"):
        run_one(twice, caused_by(7))

    assert [ctx.caller_id for ctx in seen] == ["7", "7"]
    lines = [line.message for line in JobRunLog.objects.filter(level="info")]
    assert [line for line in lines if "write" in line] == [
        f"{OF_SYSTEM} as the system user, caused by 7"
    ]
    assert f"{OF_SYSTEM} by the system user, caused by 7, in job {NAME}" in caplog.text


@pytest.mark.parametrize("job", [writes, awrites])
def test_a_job_may_have_to_act_as_who_has_caused_it(
    run_one: RunOne, seen: Seen, settings: Settings, job: Any
) -> None:
    """P102: a customer's event must not cause what only the system may write."""
    settings.KUMIKO = {**settings.KUMIKO, "JOBS_WRITE_AS": "caller"}

    settlement = run_one(job, caused_by(user("customers")))

    assert isinstance(settlement, Fail)
    assert f"{OF_SYSTEM} is for the roles system; user" in error()
    assert seen == []


@pytest.mark.parametrize(
    ("data", "kind"), [({}, "system"), (ANONYMOUS, "anonymous")], ids=["clock", "anonymous"]
)
def test_what_nobody_known_has_caused(
    run_one: RunOne, settings: Settings, data: dict[str, Any], kind: str
) -> None:
    """P102: work of the system stays it; an anonymous request does not become the system."""
    settings.KUMIKO = {**settings.KUMIKO, "JOBS_WRITE_AS": "caller"}
    seen = Seen()
    name = defines("write", seen, roles=["system", "anonymous"])

    run_one(lambda payload, ctx: ctx.write(name), caused_by(None, **data))

    assert [ctx.user.kind for ctx in seen] == [kind]


def test_a_caller_who_is_gone_writes_no_more(
    run_one: RunOne, seen: Seen, settings: Settings
) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "JOBS_WRITE_AS": "caller"}

    run_one(writes, caused_by(999_999))

    assert "AccessDenied: There is no user '999999'" in error()
    assert seen == []


def test_what_is_missing_is_told_when_it_is_called(run_one: RunOne) -> None:
    """B166: the job fails with what is missing; it runs until it calls, and is retryable."""
    reached: list[str] = []

    def calls(payload: Any, ctx: JobContext) -> None:
        reached.append("here")
        ctx.write("testapp:write:nothing")

    run_one(calls, caused_by(None))

    assert reached == ["here"]
    assert "No write handler is called 'testapp:write:nothing'" in error()


METHODS: list[tuple[str, tuple[Any, ...]]] = [
    ("write", ()), ("write_as", (7,)), ("query_as", (7,)), ("query_as_member", (7,)),
]  # fmt: skip


@pytest.mark.parametrize(("method", "arguments"), METHODS, ids=lambda value: str(value))
def test_in_an_async_handler_the_sync_ones_are_refused(
    run_one: RunOne, method: str, arguments: tuple[Any, ...]
) -> None:
    """B166: and each async twin raises when awaited."""

    async def calls(payload: Any, ctx: JobContext) -> None:
        with pytest.raises(SynchronousOnlyOperation, match=rf"await ctx\.a{method}\(\)"):
            getattr(ctx, method)(*arguments, "testapp:write:nothing")
        coroutine = getattr(ctx, f"a{method}")(*arguments, "testapp:write:nothing")
        with pytest.raises(UnknownHandlerError, match="'testapp:write:nothing'"):
            await coroutine

    assert run_one(calls, caused_by(None)) == Complete(None)


# --------------------------------------------------------------------------- somebody else (B164)


def writes_as(payload: Any, ctx: JobContext) -> Any:
    return ctx.write_as(payload["user"], OF_STAFF, {"a": 1})


async def awrites_as(payload: Any, ctx: JobContext) -> Any:
    return await ctx.awrite_as(payload["user"], OF_STAFF, {"a": 1})


def queries_as(payload: Any, ctx: JobContext) -> Any:
    return ctx.query_as(payload["user"], ASKED, {"a": 1})


async def aqueries_as(payload: Any, ctx: JobContext) -> Any:
    return await ctx.aquery_as(payload["user"], ASKED, {"a": 1})


def by_the_way_round(payload: Any, ctx: JobContext) -> Any:
    return write(OF_STAFF, user=payload["user"])


def asks_the_way_round(payload: Any, ctx: JobContext) -> Any:
    return query(ASKED, user=payload["user"])


async def by_the_async_way_round(payload: Any, ctx: JobContext) -> Any:
    return await awrite(OF_STAFF, user=payload["user"])


async def asks_the_async_way_round(payload: Any, ctx: JobContext) -> Any:
    return await aquery(ASKED, user=payload["user"])


def says_it_is_the_system(payload: Any, ctx: JobContext) -> Any:
    with tenant_scope("globex"):
        return write(OF_SYSTEM, user=system_user("because"))


def acts_elsewhere(payload: Any, ctx: JobContext) -> Any:
    with tenant_scope("globex"):
        return write(OF_SYSTEM)


SWITCHES = [
    writes_as, awrites_as, queries_as, aqueries_as,
    by_the_way_round, asks_the_way_round, by_the_async_way_round, asks_the_async_way_round,
]  # fmt: skip


@pytest.mark.parametrize("job", [*SWITCHES, says_it_is_the_system, acts_elsewhere])
def test_an_ordinary_job_acts_as_nobody_else(
    run_one: RunOne, seen: Seen, told: list[HatchUse], job: Any
) -> None:
    """B164, P103: the refusal names the job and the grant, and is on record as well."""
    mia = user("staff")

    settlement = run_one(job, caused_by(7, user=mia.pk))

    assert isinstance(settlement, Fail)
    message = error()
    assert f"AccessDenied: {NAME} may not act as another user" in message
    assert "it lacks the grant 'system_identity'. Add escape_hatches={" in message
    assert seen == []
    (use,) = (use for use in told if use.kind == "system_identity")
    assert (use.kind, use.refused, use.job_name) == ("system_identity", True, NAME)
    assert (use.tenant_id, use.actor_id, use.caller_id) == ("acme", SYSTEM_USER_ID, "7")


@pytest.mark.parametrize("job", SWITCHES)
def test_a_job_with_the_grant_does_and_it_is_on_record(
    run_one: RunOne, seen: Seen, told: list[HatchUse], job: Any
) -> None:
    """B164, B174, B239, P103: reason, actor, caller, run; with the run's write origin."""
    mia = user("staff")

    assert run_one(job, caused_by(7, user=mia.pk, **ANONYMOUS), escape_hatches=GRANT) == Complete(
        None
    )

    (ctx,), (use,) = seen, told
    assert (ctx.user.kind, ctx.user.id) == ("user", str(mia.pk))
    assert ctx.write_origin == WriteOrigin("anonymous", NAME)
    assert ({use.kind: use.reason}, use.refused) == (GRANT, False)
    assert (use.tenant_id, use.actor_id, use.caller_id) == ("acme", SYSTEM_USER_ID, "7")
    assert (use.job_name, use.run_id) == (NAME, JobRun.objects.get().pk)
    assert f"as user {mia.pk}" in use.detail


def test_a_grant_gives_the_user_no_role(run_one: RunOne, seen: Seen) -> None:
    run_one(writes_as, caused_by(7, user=user("sales").pk), escape_hatches=GRANT)

    assert "is for the roles staff; user" in error()
    assert seen == []


def test_a_job_of_a_system_scoped_app_may_as_well(
    run_one: RunOne, seen: Seen, told: list[HatchUse], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B016, B239: with a reason that is made up for it; one that is given wins."""
    monkeypatch.setattr(apps.get_app_config("testapp"), "kumiko_system_scope", True, raising=False)
    mia = user("staff")

    run_one(writes_as, caused_by(7, user=mia.pk))

    assert [use.reason for use in told] == [f"{NAME} is a job of the system-scoped app 'testapp'"]


def test_the_reason_of_the_grant_wins(
    run_one: RunOne, seen: Seen, told: list[HatchUse], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B239."""
    monkeypatch.setattr(apps.get_app_config("testapp"), "kumiko_system_scope", True, raising=False)

    run_one(writes_as, caused_by(7, user=user("staff").pk), escape_hatches=GRANT)

    assert [use.reason for use in told] == list(GRANT.values())


@pytest.mark.parametrize("tenant", ["globex", SYSTEM])
def test_another_tenant_s_scope_is_not_written_to_by_mistake(
    run_one: RunOne, seen: Seen, tenant: str
) -> None:
    """B163: it acts in the tenant of the run, never in another."""

    def strays(payload: Any, ctx: JobContext) -> None:
        with system_scope("lost") if tenant == SYSTEM else tenant_scope(tenant):
            with pytest.raises(ScopeError, match="in the tenant of the run, 'acme'"):
                ctx.write(OF_SYSTEM)
            with pytest.raises(ScopeError, match="in the tenant of the run, 'acme'"):
                ctx.query_as_member(7, ASKED)

    assert run_one(strays, caused_by(None)) == Complete(None)
    assert seen == []


def test_with_the_grant_a_job_of_the_system_writes_for_tenants(
    run_one: RunOne, seen: Seen, told: list[HatchUse]
) -> None:
    run_one(
        acts_elsewhere,
        delivery(job_name=NAME, data={}),
        escape_hatches=GRANT,
        tenant="system",
    )

    assert [(ctx.user.kind, ctx.tenant_id) for ctx in seen] == [("system", "globex")]
    assert [(use.tenant_id, use.refused) for use in told] == [(SYSTEM, False)]


def test_a_bare_thread_of_a_job_keeps_the_run_s_origin_and_tenant(
    run_one: RunOne, seen: Seen
) -> None:
    """P106, B174: what is ambient does not follow into it; what the context does is the run's."""

    def starts_a_thread(payload: Any, ctx: JobContext) -> None:
        def work() -> None:
            ctx.write(OF_SYSTEM)
            connections.close_all()

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    run_one(starts_a_thread, caused_by(7, **ANONYMOUS))

    (ctx,) = seen
    assert (ctx.tenant_id, ctx.caller_id, ctx.job_name) == ("acme", "7", NAME)
    assert ctx.write_origin == WriteOrigin("anonymous", NAME)


# ----------------------------------------------------------------------------------- members (B165)


def asks_members(payload: Any, ctx: JobContext) -> None:
    for one in payload["users"]:
        ctx.query_as_member(one, ASKED)


async def aasks_members(payload: Any, ctx: JobContext) -> None:
    for one in payload["users"]:
        await ctx.aquery_as_member(one, ASKED)


asked_roles: list[tuple[str, str]] = []


def roles_of(one: Any, tenant_id: str) -> list[str] | None:
    asked_roles.append((str(one.pk), tenant_id))
    return ["staff"] if one.username == "mia" and tenant_id == "acme" else None


@pytest.mark.parametrize("job", [asks_members, aasks_members])
def test_a_member_is_asked_as_without_a_grant(
    run_one: RunOne,
    seen: Seen,
    told: list[HatchUse],
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    job: Any,
) -> None:
    """B165, B174: not gated, one reader a run, roles asked once; no origin is told."""
    asked_roles.clear()
    settings.KUMIKO = {**settings.KUMIKO, "ROLES": roles_of}
    made: list[str] = []
    make = MemberReader.__init__

    def counted(reader: MemberReader, tenant_id: str) -> None:
        made.append(tenant_id)
        make(reader, tenant_id)

    monkeypatch.setattr(MemberReader, "__init__", counted)
    mia = user()

    assert run_one(job, caused_by(7, users=[mia.pk, str(mia.pk)], **ANONYMOUS)) == Complete(None)

    assert [ctx.user.id for ctx in seen] == [str(mia.pk)] * 2
    assert [ctx.write_origin for ctx in seen] == [None, None]
    assert made == ["acme"]
    assert asked_roles == [(str(mia.pk), "acme")]
    assert told == []


def test_without_a_member_there_is_no_reader(
    run_one: RunOne, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B165: zero if unused."""
    monkeypatch.setattr(MemberReader, "__init__", lambda *a: pytest.fail("made"))

    assert run_one(writes, caused_by(None)) == Complete(None)


def test_whoever_is_no_member_is_not_asked_as(
    run_one: RunOne, seen: Seen, settings: Settings
) -> None:
    """Not gated, so it must not become a way to be anybody."""
    settings.KUMIKO = {**settings.KUMIKO, "ROLES": roles_of}

    run_one(asks_members, caused_by(7, users=[user("staff", name="tom").pk]))
    assert "is no member of tenant 'acme'" in error()

    assert seen == []


@pytest.mark.parametrize("claim", [SYSTEM_USER_ID, "system"])
def test_nobody_asks_as_the_system_without_a_grant(run_one: RunOne, seen: Seen, claim: str) -> None:
    run_one(asks_members, caused_by(7, users=[claim]))

    assert "AccessDenied: There is no user" in error()


def test_what_a_query_dispatches_stays_gated(run_one: RunOne) -> None:
    """B174 tells the reader no origin; what it does is bound by it all the same (B170)."""
    inside: list[Any] = []
    name = defines("query", lambda p, c: inside.append(ambient.write_origin.get()), roles=["staff"])
    mia = user("staff")

    run_one(lambda p, ctx: ctx.query_as_member(mia, name), caused_by(7, **ANONYMOUS))

    assert inside == [WriteOrigin("anonymous", NAME)]


def test_a_handler_called_by_a_job_does_not_become_the_system(
    run_one: RunOne, told: list[HatchUse]
) -> None:
    """P102: what acts as a user calls on as that user, in a job as well."""
    system = defines("write", Seen(), name="inner", roles=["system"])
    outer = defines("write", lambda p, c: write(system), name="outer", roles=["staff"])
    mia = user("staff")

    run_one(lambda p, ctx: ctx.write_as(mia, outer), caused_by(7), escape_hatches=GRANT)

    assert f"{system} is for the roles system; user {mia.pk}" in error()
    with pytest.raises(AccessDenied), tenant_scope("acme"):
        write(outer, user=mia)


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_queries_of_the_other_kind(run_one: RunOne, is_async: bool) -> None:
    """B165: an async query asked by a sync job, and the other way round, with the ORM in each."""

    async def on_loop(payload: Any, ctx: Any) -> Any:
        return [one.username async for one in User.objects.all()]

    def in_thread(payload: Any, ctx: Any) -> Any:
        return [one.username for one in User.objects.all()]

    async def asks_on_loop(payload: Any, ctx: JobContext) -> Any:
        return await ctx.aquery_as_member(mia, name)

    name = defines("query", in_thread if is_async else on_loop, name="users", roles=["staff"])
    mia = user("staff")
    job = asks_on_loop if is_async else lambda payload, ctx: ctx.query_as_member(mia, name)

    assert run_one(job, caused_by(None)) == Complete(["mia"])
