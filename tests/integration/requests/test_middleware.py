"""``RequestScopeMiddleware``: what is ambient in a view, and that none of it stays (issue 5, 2)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import AsyncClient, Client, RequestFactory
from pytest_django import Settings

from kumiko_django import SYSTEM, ScopeError, SettingsError, current_tenant_id, tenant_scope
from kumiko_django.tenancy.checks import MIDDLEWARE
from kumiko_django.tenancy.middleware import RequestScopeMiddleware
from tests.helpers.fixtures import QueueStateFactory
from tests.integration.requests import views
from tests.integration.requests.views import NOTHING, facts

pytestmark = pytest.mark.django_db(transaction=True)

HERE = "tests.integration.requests.views"


@pytest.fixture(autouse=True)
def site(settings: Settings) -> Iterator[None]:
    """The middleware, and a check that nothing of a request is left in this thread."""
    settings.ROOT_URLCONF = HERE
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    settings.KUMIKO = {**settings.KUMIKO, "REQUEST_TENANT": f"{HERE}.tenant_of"}
    views.afterwards.clear()
    assert facts() == NOTHING
    yield
    assert facts() == NOTHING


class Site:
    """One client for both ways in; a user may be logged in."""

    def __init__(self, is_async: bool, user: User | None = None) -> None:
        self._async = AsyncClient(raise_request_exception=False)
        self._sync = Client(raise_request_exception=False)
        self.is_async = is_async
        if user is not None:
            for client in (self._async, self._sync):
                client.force_login(user)

    def get(self, path: str, headers: dict[str, str] | None = None) -> Any:
        if not self.is_async:
            return self._sync.get(path, headers=headers)
        return async_to_sync(self._get)(path, headers)

    async def _get(self, path: str, headers: dict[str, str] | None) -> Any:
        response = await self._async.get(path, headers=headers)
        assert facts() == NOTHING, "nor in the task"
        return response


@pytest.fixture(params=[False, True], ids=["wsgi", "asgi"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def anonymous(is_async: bool) -> Site:
    return Site(is_async)


@pytest.fixture
def user() -> User:
    return User.objects.create_user("mia")


@pytest.fixture
def known(is_async: bool, user: User) -> Site:
    return Site(is_async, user)


@pytest.mark.parametrize("view", ["look", "alook"])
def test_a_view_knows_tenant_user_ids_and_origin(view: str, known: Site, user: User) -> None:
    """Sync views under ASGI run in a thread, async ones call into threads: the scope is there."""
    response = known.get(f"/acme/{view}")

    seen = response.json()
    assert seen.pop("thread", True)
    assert (seen["tenant"], seen["user"], seen["origin"]) == ("acme", str(user.pk), "user")
    assert UUID(seen["request_id"]).version == 4
    assert seen["correlation_id"] == seen["request_id"]
    assert response["X-Request-ID"] == seen["request_id"]
    assert response["X-Correlation-ID"] == seen["correlation_id"]
    assert known.get(f"/acme/{view}")["X-Request-ID"] != seen["request_id"]


@pytest.mark.parametrize("view", ["look", "alook"])
def test_nobody_is_anonymous_and_no_tenant_is_none(view: str, anonymous: Site) -> None:
    seen = anonymous.get(f"/nobody/{view}").json()

    assert (seen["tenant"], seen["user"], seen["origin"]) == (None, None, "anonymous")


def test_without_authentication_everybody_is_anonymous(known: Site, settings: Settings) -> None:
    settings.MIDDLEWARE = [MIDDLEWARE]

    seen = known.get("/acme/look").json()

    assert (seen["tenant"], seen["user"], seen["origin"]) == ("acme", None, "anonymous")


@pytest.mark.parametrize("view", ["look", "alook"])
def test_the_tenant_may_be_asked_for_by_a_coroutine(
    view: str, anonymous: Site, settings: Settings
) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "REQUEST_TENANT": views.atenant_of}

    assert anonymous.get(f"/globex/{view}").json()["tenant"] == "globex"


def test_without_the_setting_or_tenancy_there_is_no_tenant(
    anonymous: Site, settings: Settings
) -> None:
    kumiko = {**settings.KUMIKO, "REQUEST_TENANT": None}
    settings.KUMIKO = kumiko
    assert anonymous.get("/acme/look").json()["tenant"] is None
    settings.KUMIKO = {**kumiko, "TENANTS": None, "REQUEST_TENANT": views.tenant_of}
    assert anonymous.get("/acme/look").json()["tenant"] is None


# ------------------------------------------------------------------------------------------ ids


@pytest.mark.parametrize("sent", ["0e1f", "req_1.2:3/4+5=6@7-8", "A" * 128])
def test_ids_of_the_client_are_taken_and_sent_back(sent: str, anonymous: Site) -> None:
    response = anonymous.get(
        "/acme/look", {"X-Request-ID": sent, "X-Correlation-ID": f"{sent[:64]}-chain"}
    )

    seen = response.json()
    assert (seen["request_id"], seen["correlation_id"]) == (sent, f"{sent[:64]}-chain")
    assert (response["X-Request-ID"], response["X-Correlation-ID"]) == (
        sent, f"{sent[:64]}-chain",
    )  # fmt: skip


@pytest.mark.parametrize(
    "sent",
    ["", " ", "a b", "a\tb", "a" * 129, "<script>", 'a"b', "a;b", "a,b", "ä", "a%0a", "\x85"],
)
def test_other_ids_are_not(sent: str, anonymous: Site) -> None:
    """P92: they would stand in logs, pages and headers; a fresh one does."""
    response = anonymous.get("/acme/look", {"X-Request-ID": sent, "X-Correlation-ID": sent})

    seen = response.json()
    assert UUID(seen["request_id"]).version == 4
    assert seen["correlation_id"] == seen["request_id"]
    assert response["X-Correlation-ID"] == seen["request_id"]


def test_the_request_id_of_a_proxy_begins_the_chain(anonymous: Site) -> None:
    seen = anonymous.get("/acme/look", {"X-Request-ID": "proxy-1"}).json()

    assert (seen["request_id"], seen["correlation_id"]) == ("proxy-1", "proxy-1")


def test_a_view_may_say_ids_of_its_own(anonymous: Site) -> None:
    assert anonymous.get("/acme/own-ids")["X-Request-ID"] == "the view's"


# --------------------------------------------------------------------------- what is dispatched


@pytest.mark.parametrize("view", ["dispatches", "adispatches"])
def test_what_nobody_has_started_carries_that_on(
    view: str, anonymous: Site, queue_state: QueueStateFactory
) -> None:
    """B170, B171: a chain with an anonymous root is marked; tenant and ids go along."""
    response = anonymous.get(f"/acme/{view}", {"X-Correlation-ID": "chain-1"})

    data = queue_state("worker").job(response.json()["job"]).data
    assert data["_writeOrigin"] == {"root": "anonymous"}
    assert (data["_tenantId"], data["_correlationId"]) == ("acme", "chain-1")
    assert "_triggeredById" not in data


@pytest.mark.parametrize("view", ["dispatches", "adispatches"])
def test_what_a_user_has_started_names_the_user(
    view: str, known: Site, user: User, queue_state: QueueStateFactory
) -> None:
    """B170: an origin that bars nothing does not travel."""
    response = known.get(f"/acme/{view}")

    data = queue_state("worker").job(response.json()["job"]).data
    assert data["_triggeredById"] == str(user.pk)
    assert "_writeOrigin" not in data


def test_a_login_in_the_middle_does_not_change_who_began(anonymous: Site, user: User) -> None:
    seen = anonymous.get("/acme/logs-in").json()

    assert (seen["user"], seen["origin"]) == (None, "anonymous")
    assert anonymous.get("/acme/look").json()["origin"] == "user", "the next request is theirs"


# --------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("path", "status"),
    [("/acme/fails", 500), ("/acme/nothing", 404), ("/unknown/look", 404), ("/barred/look", 403)],
)
def test_an_error_leaves_nothing_behind(path: str, status: int, anonymous: Site) -> None:
    """Also one of ``REQUEST_TENANT``, which is answered as one of a view."""
    assert anonymous.get(path).status_code == status


@pytest.mark.parametrize(
    ("answer", "error", "part"),
    [
        (lambda request: "", ScopeError, "is empty"),
        (lambda request: request, ScopeError, "A tenant id is text"),
        (lambda request: SYSTEM, ScopeError, "gives SYSTEM"),
        ("tests.app.nothing.tenant", SettingsError, "cannot be imported"),
        (lambda: "acme", SettingsError, "of the request"),
    ],
)
def test_a_tenant_that_makes_no_sense_is_an_error(
    answer: Any, error: type[Exception], part: str, settings: Settings
) -> None:
    """Without a scope the view could do what no tenant may."""
    settings.KUMIKO = {**settings.KUMIKO, "REQUEST_TENANT": answer}

    with pytest.raises(error, match=part):
        Client().get("/acme/look")
    assert facts() == NOTHING


def test_a_request_has_nothing_of_where_it_was_made(is_async: bool, anonymous: Site) -> None:
    """A scope that is left open somewhere in the process does not become a request's."""
    if is_async:
        seen = async_to_sync(_get_in_a_scope)("/nobody/alook")
    else:
        with tenant_scope("globex"):
            seen = anonymous.get("/nobody/look").json()
            assert current_tenant_id() == "globex"

    assert seen["tenant"] is None


async def _get_in_a_scope(path: str) -> Any:
    async with tenant_scope("globex"):
        seen = (await AsyncClient().get(path)).json()
        assert current_tenant_id() == "globex"
        return seen


def test_what_a_view_leaves_behind_is_put_back(anonymous: Site) -> None:
    assert anonymous.get("/acme/leaves").status_code == 200
    assert anonymous.get("/nobody/look").json()["tenant"] is None


# -------------------------------------------------------------------------------------- streams


@pytest.mark.parametrize("view", ["streams", "astreams"])
@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
def test_a_streamed_answer_is_made_in_the_scope(view: str, known: Site, user: User) -> None:
    """Each part, in whichever way Django has it made, and between the parts nothing is ambient."""
    response = known.get(f"/acme/{view}")

    content = async_to_sync(_collect)(response) if known.is_async else _collected(response)
    assert content == [f"acme {user.pk}\n"] * 3
    (at_the_end,) = views.afterwards
    assert (at_the_end["tenant"], at_the_end["origin"]) == ("acme", "user")


def _collected(response: Any) -> list[str]:
    parts = []
    for part in response:
        assert facts() == NOTHING
        parts.append(part.decode())
    return parts


async def _collect(response: Any) -> list[str]:
    parts = []
    async for part in response:
        assert facts() == NOTHING
        parts.append(part.decode())
    return parts


async def test_two_streams_in_one_task_keep_apart() -> None:
    responses: list[Any] = [
        await AsyncClient().get(f"/{tenant}/astreams") for tenant in ("acme", "globex")
    ]
    streams = [aiter(response.streaming_content) for response in responses]
    seen = [(await anext(stream)).decode() for _ in range(3) for stream in streams]

    assert seen == ["acme None\n", "globex None\n"] * 3
    assert facts() == NOTHING


def test_a_stream_that_is_broken_off_ends_in_the_scope() -> None:
    """The client has gone; what the generator does in its ``finally`` is still the tenant's."""
    response: Any = Client().get("/acme/streams")
    assert next(iter(response.streaming_content)) == b"acme None\n"

    response.close()

    assert [seen["tenant"] for seen in views.afterwards] == ["acme"]


def test_a_stream_that_fails_leaves_nothing_behind() -> None:
    stream = iter(Client().get("/acme/stream-fails"))
    assert next(stream) == b"acme\n"
    with pytest.raises(ValueError, match="the stream's"):
        next(stream)
    assert facts() == NOTHING


def test_a_file_is_still_sent_as_a_file() -> None:
    """Servers have a fast way for those (``wsgi.file_wrapper``)."""
    middleware = RequestScopeMiddleware(lambda request: views.sends_file(request, "acme"))

    response: Any = middleware(RequestFactory().get("/acme/file"))

    assert response.file_to_stream is not None
    assert b"".join(response).startswith(b'"""Views')
    assert response["X-Request-ID"]
    response.close()


# ------------------------------------------------------------------------------ threads and tasks


def test_a_thread_of_a_view_has_nothing_unless_it_copies_the_context(known: Site) -> None:
    seen = known.get("/acme/threads").json()

    assert seen["plain"] == NOTHING
    assert seen["copied"] == seen["view"]
    assert seen["view"]["tenant"] == "acme"


async def test_a_hundred_requests_at_once_keep_apart() -> None:
    """P106: two tenants, sync and async views, on one loop."""
    client = AsyncClient()

    async def ask(number: int) -> bool:
        tenant = ("acme", "globex")[number % 2]
        view = ("look", "alook")[number // 2 % 2]
        response = await client.get(f"/{tenant}/{view}", headers={"X-Request-ID": f"r-{number}"})
        seen = response.json()
        return (seen["tenant"], seen["request_id"]) == (tenant, f"r-{number}")

    assert all(await asyncio.gather(*map(ask, range(100))))
    assert facts() == NOTHING
