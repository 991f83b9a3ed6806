"""Who may call a handler, in which tenant, and as whom: everything that is not given is denied."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied, SynchronousOnlyOperation
from pytest_django import Settings

from kumiko_django import (
    SYSTEM,
    AccessDenied,
    ScopeError,
    TenantRequired,
    UnknownHandlerError,
    system_scope,
    tenant_scope,
)
from kumiko_django.handlers import HandlerContext, Principal, query, system_user, write
from kumiko_django.types import ambient
from kumiko_django.types.hatches import HatchUse
from kumiko_django.types.ids import SYSTEM_USER_ID
from kumiko_django.types.origin import WriteOrigin
from tests.app.models import Label
from tests.unit.handlers.kit import Seen, both_kinds, both_writes, defines, user

pytestmark = pytest.mark.django_db


@both_kinds
def test_a_user_with_one_of_the_roles_may(kind: str, call: Any) -> None:
    """And its context says who acts, for whom, and in which tenant."""
    seen = Seen()
    name = defines(kind, seen, roles=["staff", "boss"])
    mia = user("staff")

    with tenant_scope("acme"), ambient.entered({ambient.correlation_id: "chain-1"}):
        for given in (mia, mia.pk, str(mia.pk)):
            call(name, {}, user=given)

    assert len(seen) == 3
    ctx = seen[0]
    assert (ctx.handler_name, ctx.tenant_id, ctx.correlation_id) == (name, "acme", "chain-1")
    assert (ctx.user.id, ctx.user.tenant_id, ctx.job_name) == (str(mia.pk), "acme", None)


@both_kinds
def test_nobody_else_may(kind: str, call: Any) -> None:
    """B164: the refusal names the handler, its roles and who acts; nothing has run."""
    seen = Seen()
    name = defines(kind, seen, roles=["staff"])
    others = [user("sales"), AnonymousUser(), None, user(name="root", is_superuser=True)]

    with tenant_scope("acme"):
        for other in others:
            with pytest.raises(AccessDenied, match=rf"{name} is for the roles staff; .* 'acme'"):
                call(name, {}, user=other)
        with pytest.raises(PermissionDenied):  # which Django answers with 403
            call(name, {}, user=others[0])
        with pytest.raises(AccessDenied):
            call(name, {}, user=system_user("to see whether it is a way around"))
    assert seen == []


def test_access_is_settled_before_the_payload_is_read() -> None:
    """What a handler takes is nobody's business who may not call it."""
    name = defines("write", Seen())

    with tenant_scope("acme"), pytest.raises(AccessDenied):
        write(name, object(), user=AnonymousUser())


@both_kinds
def test_the_role_anonymous_is_for_everybody_but_the_system(kind: str, call: Any) -> None:
    seen = Seen()
    name = defines(kind, seen, roles=["anonymous"])

    with tenant_scope("acme"):
        call(name)
        call(name, user=AnonymousUser())
        call(name, user=user("sales"))
        with pytest.raises(AccessDenied, match="the system user has in tenant 'acme': system"):
            call(name, user=system_user("nightly"))
    assert [ctx.user.kind for ctx in seen] == ["anonymous", "anonymous", "user"]


@both_kinds
def test_without_a_user_the_request_s_acts(kind: str, call: Any) -> None:
    seen = Seen()
    name = defines(kind, seen)
    mia = user("staff")

    with tenant_scope("acme"), ambient.entered({ambient.user_id: str(mia.pk)}):
        call(name)
        mia.groups.clear()
        with pytest.raises(AccessDenied):  # at once: roles are not kept
            call(name)
    assert [ctx.user.id for ctx in seen] == [str(mia.pk)]


# ---------------------------------------------------------------------------------------- tenant


@both_kinds
def test_it_runs_in_the_tenant_of_the_scope_and_there_is_no_way_to_another(
    kind: str, call: Any
) -> None:
    seen = Seen()
    name = defines(kind, seen)
    mia = user("staff")

    with tenant_scope("acme"):
        call(name, {"tenant_id": "globex", "tenantId": "globex"}, user=mia)
        with pytest.raises(TypeError, match="tenant_id"):
            call(name, {}, user=mia, tenant_id="globex")
        with pytest.raises(ScopeError, match="of tenant 'globex', and cannot act in 'acme'"):
            call(name, {}, user=Principal("user", str(mia.pk), "globex", frozenset({"staff"})))
    with system_scope("reference data"):
        call(name, {}, user=mia)
    with pytest.raises(TenantRequired, match=rf"{name} needs a tenant.*RequestScopeMiddleware"):
        call(name, {}, user=mia)

    assert [ctx.tenant_id for ctx in seen] == ["acme", SYSTEM]


@both_writes
def test_a_handler_sees_and_writes_the_rows_of_its_tenant_alone(call: Any) -> None:
    """Issue 5: whatever the handler asks for, and whoever acts."""

    def takes_all(payload: Any, ctx: HandlerContext) -> list[str]:
        Label.objects.filter(name__startswith="l").update(name="taken")
        with pytest.raises(ScopeError):
            Label.objects.create(name="l4", tenant_id="globex")
        Label.objects.create(name="l5")
        return list(Label.objects.values_list("name", flat=True))

    name = defines("write", takes_all, roles=["system"])
    for tenant in ("acme", "globex"):
        with tenant_scope(tenant):
            Label.objects.create(name=f"l-{tenant}")

    with tenant_scope("acme"):
        assert sorted(call(name, user=system_user("a test"))) == ["l5", "taken"]
    with tenant_scope("globex"):
        assert [label.name for label in Label.objects.all()] == ["l-globex"]


def test_without_tenancy_everything_is_systems(settings: Settings) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": None}
    seen = Seen()

    write(defines("write", seen), user=user("staff"))

    assert seen[0].tenant_id == SYSTEM


# ------------------------------------------------------------------------------- claims of others


@both_kinds
def test_roles_are_never_taken_from_what_a_caller_gives(kind: str, call: Any) -> None:
    name = defines(kind, Seen())
    sales = user("sales")
    forged = Principal("user", str(sales.pk), "acme", frozenset({"staff"}))

    with tenant_scope("acme"), pytest.raises(AccessDenied, match="is for the roles staff"):
        call(name, {}, user=forged)


@both_kinds
@pytest.mark.parametrize(
    "claim",
    [
        Principal("system", SYSTEM_USER_ID, "acme", frozenset({"system"})),
        SYSTEM_USER_ID,
        SYSTEM,
        "system",
    ],
    ids=["principal", "id", "tenant", "role"],
)
def test_nobody_becomes_the_system_by_saying_so(
    kind: str, call: Any, claim: Any, told: list[HatchUse]
) -> None:
    """What a view passes on may come from a request."""
    name = defines(kind, Seen(), roles=["system"])

    with tenant_scope("acme"), pytest.raises(AccessDenied):
        call(name, {}, user=claim)
    assert told == []


def test_to_act_as_the_system_is_on_record_with_the_reason(told: list[HatchUse]) -> None:
    """Issue 5, 4: every exception is declared, justified and on record, with who caused it."""
    seen = Seen()
    name = defines("write", seen, roles=["system"])

    with tenant_scope("acme"), ambient.entered({ambient.user_id: "7"}):
        write(name, user=system_user("imports"))

    assert told == [
        HatchUse(
            "system_identity", "imports", "acme", SYSTEM_USER_ID, "7",
            detail=f"{name} as the system user",
        )
    ]  # fmt: skip
    assert (seen[0].user.kind, seen[0].caller_id) == ("system", "7")


# -------------------------------------------------------------------------- handlers that call on


def test_a_handler_that_calls_on_acts_as_before(told: list[HatchUse]) -> None:
    """Not as the request's user, and not as the system unless it says why."""
    inner = Seen()
    inner_name = defines("query", inner, name="inner")

    def outer(payload: Any, ctx: HandlerContext) -> None:
        query(inner_name)
        query(inner_name, user=ctx.user)

    name = defines("write", outer, name="outer")
    mia, tom = user("staff"), user("sales", name="tom")

    with tenant_scope("acme"), ambient.entered({ambient.user_id: str(tom.pk)}):
        write(name, user=mia)

    assert [ctx.user.id for ctx in inner] == [str(mia.pk)] * 2
    assert [ctx.caller_id for ctx in inner] == [str(mia.pk)] * 2
    assert told == []


def test_a_handler_that_enters_another_scope_cannot_call_on_there() -> None:
    inner = defines("query", Seen(), name="inner")

    def outer(payload: Any, ctx: HandlerContext) -> None:
        with tenant_scope("globex"):
            query(inner)

    name = defines("write", outer, name="outer")
    with tenant_scope("acme"), pytest.raises(ScopeError, match="acts in tenant 'acme'"):
        write(name, user=user("staff"))


def test_a_query_calls_no_writes() -> None:
    """So what reads for a member (B165) writes nothing in that member's name."""
    written = Seen()
    write_name = defines("write", written, name="inner")
    query_name = defines("query", lambda payload, ctx: write(write_name), name="outer")
    nested = defines("query", lambda payload, ctx: query(query_name), name="outermost")

    with tenant_scope("acme"):
        for name in (query_name, nested):
            with pytest.raises(AccessDenied, match=rf"{query_name} is a query and calls"):
                query(name, user=user("staff", name=name))
    assert written == []


# ---------------------------------------------------------------------------------- what is ambient


def surroundings() -> tuple[Any, ...]:
    return ambient.user_id.get(), ambient.write_origin.get(), ambient.scope.get()


@both_kinds
def test_what_a_handler_dispatches_is_done_by_who_acts_and_nothing_stays(
    kind: str, call: Any
) -> None:
    inside: list[Any] = []
    seen = Seen()

    def handler(payload: Any, ctx: HandlerContext) -> None:
        inside.append(surroundings())
        seen(payload, ctx)

    name = defines(kind, handler, roles=["staff", "anonymous"])
    mia = user("staff")

    with tenant_scope("acme"):
        before = surroundings()
        call(name, user=mia)
        call(name, user=AnonymousUser())
        assert surroundings() == before

    (user_id, origin, _), (nobody, gated, _) = inside
    assert [ctx.write_origin for ctx in seen] == [origin, gated]
    assert (user_id, origin) == (str(mia.pk), WriteOrigin("user"))
    assert (nobody, gated) == (None, WriteOrigin("anonymous"))


@both_kinds
def test_an_origin_that_is_there_stays(kind: str, call: Any) -> None:
    """B170, B174: an anonymous request stays one, whoever acts later."""
    seen = Seen()
    name = defines(kind, seen)
    gated = WriteOrigin("anonymous")

    with tenant_scope("acme"), ambient.entered({ambient.write_origin: gated}):
        call(name, user=user("staff"))
    assert seen[0].write_origin == gated


def test_a_thread_without_a_scope_can_do_nothing() -> None:
    """P106: threads have no scope unless they copy the context."""
    name = defines("write", Seen())
    raised: list[BaseException] = []

    def work() -> None:
        try:
            write(name, user=1)
        except TenantRequired as error:
            raised.append(error)

    with tenant_scope("acme"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(raised) == 1


@pytest.mark.parametrize(("call", "kind"), [(write, "write"), (query, "query")])
def test_on_an_event_loop_the_sync_functions_refuse(call: Any, kind: Any) -> None:
    name = defines(kind, Seen(), roles=["anonymous"])

    async def main() -> None:
        call(name)

    with tenant_scope("acme"), pytest.raises(SynchronousOnlyOperation, match=f"await a{kind}"):
        async_to_sync(main)()


@both_kinds
def test_what_is_not_there_is_told_when_it_is_called(kind: str, call: Any) -> None:
    """B166."""
    with tenant_scope("acme"), pytest.raises(UnknownHandlerError, match=f"No {kind} handler"):
        call(f"testapp:{kind}:nothing")
