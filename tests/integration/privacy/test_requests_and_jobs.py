"""From an anonymous request into jobs and theirs: who may write personal fields (B170-B175)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.test import AsyncClient, Client
from pytest_django import Settings

from kumiko_django import (
    AccessDenied,
    JobContext,
    accepts_personal_data,
    dispatch,
    registry,
    system_scope,
)
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.handlers.registry import handlers
from kumiko_django.history.models import JobRun
from kumiko_django.tenancy.checks import MIDDLEWARE
from kumiko_django.testing import drain
from kumiko_django.types import ambient
from kumiko_django.types.origin import WriteOrigin
from tests.app.models import Contact
from tests.helpers.fixtures import QueueStateFactory
from tests.unit.handlers.kit import defines

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def site(settings: Settings) -> None:
    settings.ROOT_URLCONF = "tests.integration.privacy.views"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]


def get(path: str, *, asgi: bool, user: User | None = None) -> Any:
    if asgi:
        client = AsyncClient()
        if user is not None:
            client.force_login(user)

        async def main() -> Any:
            return await client.get(path)

        return async_to_sync(main)()
    sync_client = Client()
    if user is not None:
        sync_client.force_login(user)
    return sync_client.get(path)


@pytest.mark.parametrize("asgi", [False, True], ids=["wsgi", "asgi"])
@pytest.mark.parametrize("view", ["function", "async", "class", "async-class"])
def test_a_view_for_nobody_writes_no_personal_field(
    view: str, asgi: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """B170, B173: 403, and the log says which field, which view and what would allow it."""
    assert get(f"/refused/{view}", asgi=asgi).status_code == 403
    assert not Contact.objects.exists()
    told = "\n".join(str(record.exc_info and record.exc_info[1]) for record in caplog.records)
    assert f"testapp.Contact.email holds personal data, and the view refused-{view} is" in told
    assert '@accepts_personal_data("...")' in told


@pytest.mark.parametrize("asgi", [False, True], ids=["wsgi", "asgi"])
@pytest.mark.parametrize(
    "view", ["function", "async", "class", "async-class", "as-view", "async-as-view"]
)
def test_a_view_that_accepts_it_may(view: str, asgi: bool) -> None:
    """B173."""
    assert get(f"/accepted/{view}", asgi=asgi).status_code == 200
    assert Contact.objects.get().email


@pytest.mark.parametrize("asgi", [False, True], ids=["wsgi", "asgi"])
def test_a_view_for_a_user_may(asgi: bool) -> None:
    user = User.objects.create_user("mia")
    assert get("/refused/async", asgi=asgi, user=user).status_code == 200


@pytest.fixture
def jobs(queue_state: QueueStateFactory) -> Iterator[None]:
    """Jobs that write a personal field, or have another one do it."""

    def writes(payload: Any, ctx: JobContext) -> None:
        Contact.objects.create(nickname=ctx.job_id, email="x@example.org")

    async def writes_async(payload: Any, ctx: JobContext) -> None:
        await Contact.objects.acreate(nickname=ctx.job_id, email="x@example.org")

    @accepts_personal_data("a trick")
    def tricks(payload: Any, ctx: JobContext) -> None:
        writes(payload, ctx)

    def as_system(payload: Any, ctx: JobContext) -> None:
        with system_scope("a trick"):
            writes(payload, ctx)

    def chains(payload: Any, ctx: JobContext) -> None:
        ctx.dispatch("testapp:job:writes")

    def by_handler(payload: Any, ctx: JobContext) -> None:
        ctx.write("testapp:write:make-contact")

    def make_contact(payload: Any, ctx: Any) -> None:
        Contact.objects.create(nickname="made", email="x@example.org")

    with registry.isolated(), handlers.isolated():
        defines("write", make_contact, name="make-contact", roles=["system"])
        for handler in (writes, writes_async, tricks, as_system, chains, by_handler):
            registry.register(JobDefinition(handler=handler, app_label="testapp"))
        for handler in (writes, writes_async, chains):
            registry.register(
                JobDefinition(
                    handler=handler,
                    name=f"accepting-{handler.__name__.replace('_', '-')}",
                    app_label="testapp",
                    accepts_personal_data="people register themselves",
                )
            )
        yield


REFUSED = [
    "writes", "writes-async", "tricks", "as-system", "by-handler", "chains", "accepting-chains",
]  # fmt: skip


@pytest.mark.parametrize("job", REFUSED)
@pytest.mark.parametrize("view", ["dispatches", "accepted/dispatches"])
def test_nor_does_any_job_of_the_chain(jobs: None, job: str, view: str) -> None:
    """B171, B173, B174, B175: also if the view, or the job before it, accepts personal data."""
    assert get(f"/{view}/{job}", asgi=False).status_code == 200
    drain(raise_failures=False)
    assert not Contact.objects.exists()
    last = JobRun.objects.order_by("id").last()
    assert last is not None
    assert (last.status, last.error.split(":")[0]) == ("failed", AccessDenied.__name__)
    assert f"the job {last.job_name} works for an anonymous request" in last.error


@pytest.mark.parametrize("job", ["accepting-writes", "accepting-writes-async"])
def test_a_job_that_accepts_it_may(jobs: None, job: str) -> None:
    """B173."""
    get(f"/dispatches/{job}", asgi=False)
    drain()
    assert Contact.objects.count() == 1


@pytest.mark.parametrize("job", ["writes", "writes-async", "by-handler", "chains"])
def test_the_same_jobs_of_a_user_may(jobs: None, job: str) -> None:
    """B170."""
    user = User.objects.create_user("mia")
    get(f"/dispatches/{job}", asgi=False, user=user)
    drain()
    assert Contact.objects.count() == 1


def test_what_accepts_it_ends_with_the_run(jobs: None) -> None:
    """B175: a view that runs jobs itself keeps what it is; a run has what its definition says."""
    with ambient.entered(
        {ambient.write_origin: WriteOrigin("anonymous"), ambient.accepts_personal_data: "view"}
    ):
        dispatch("testapp:job:writes", tenant_id="acme")
        drain(raise_failures=False)
        assert ambient.accepts_personal_data.get() == "view"
    assert not Contact.objects.exists()
