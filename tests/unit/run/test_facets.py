"""The facets in a run: on the context, for its tenant, and the time zone that is current in it."""

from __future__ import annotations

import contextvars
import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core import mail
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from kumiko_django import FacetMissing, JobContext, current_tenant_id
from kumiko_django.broker.delivery import Complete, Retry
from kumiko_django.history.models import JobRun
from kumiko_django.types import ambient
from tests.unit.run.deliveries import NAME, RunOne, delivery

pytestmark = pytest.mark.django_db(transaction=True)

TENANT = {"_tenantId": "acme", "_triggeredById": "7"}


@pytest.fixture(autouse=True)
def media(settings: Settings, tmp_path: Path) -> Path:
    settings.MEDIA_ROOT = str(tmp_path)
    return tmp_path


def test_the_facets_that_are_there_from_the_start(run_one: RunOne, media: Path) -> None:
    """B144, B154, B155, B157, B169: files, e-mail, the environment; config and derivatives not."""
    seen: dict[str, bool] = {}

    def handler(payload: Any, ctx: JobContext) -> int:
        names = ("files", "derivatives", "notify", "config", "secrets", "tz")
        seen.update({name: hasattr(ctx, name) for name in names})
        ctx.files.handle("a.txt").write(b"x")
        assert ctx.files is ctx.files
        assert ctx.secrets.get("NOTHING") is None
        with pytest.raises(FacetMissing, match=rf"{NAME}.*ctx\.config.*CONFIG"):
            _ = ctx.config
        return ctx.notify("ready", to=["a@example.com"], subject="s", text="t")

    assert run_one(handler, delivery(job_name=NAME, data=TENANT)) == Complete(1)
    assert seen == {
        "files": True, "derivatives": False, "notify": True, "config": False, "secrets": True,
        "tz": True,
    }  # fmt: skip
    assert (media / "tenants/t-acme/a.txt").read_bytes() == b"x"
    assert len(mail.outbox) == 1


def test_an_async_handler_has_them_too(run_one: RunOne, media: Path, settings: Settings) -> None:
    settings.KUMIKO = {
        **settings.KUMIKO,
        "CONFIG": {"currency": "EUR"},
        "DERIVATIVES": {"upper": bytes.upper},
    }

    async def handler(payload: Any, ctx: JobContext) -> str:
        file = ctx.files.handle("a.txt")
        await file.awrite(b"of acme")
        preview = await ctx.derivatives.aget(file, "upper")
        await ctx.notify.asend("ready", to=["a@example.com"], subject="s", text="t")
        return f"{(await preview.aread()).decode()} {ctx.config['currency']}"

    assert run_one(handler, delivery(job_name=NAME, data=TENANT)) == Complete("OF ACME EUR")
    assert len(mail.outbox) == 1


def test_a_factory_may_ask_the_database_for_the_tenants_values(
    run_one: RunOne, settings: Settings
) -> None:
    """B156: it gets tenant and user, and is asked once, though an async handler takes a detour."""
    asked: list[Any] = []

    def factory(request: Any) -> dict[str, Any]:
        asked.append((request.tenant_id, request.triggered_by_id, request.job_name))
        with connection.cursor() as cursor:
            cursor.execute("SELECT 5")
            return {"limit": cursor.fetchone()[0], "scope": current_tenant_id()}

    settings.KUMIKO = {**settings.KUMIKO, "CONFIG": factory}

    async def handler(payload: Any, ctx: JobContext) -> Any:
        config = await sync_to_async(getattr)(ctx, "config")
        return [config["limit"], config["scope"], ctx.config is config]

    settlement = run_one(handler, delivery(job_name=NAME, data=TENANT))

    assert settlement == Complete([5, "acme", True])
    assert asked == [("acme", "7", NAME)]


def test_a_facet_that_cannot_be_made_fails_the_handler_as_any_error(
    run_one: RunOne, settings: Settings
) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "CONFIG": "tests.app.nothing.config"}

    def handler(payload: Any, ctx: JobContext) -> Any:
        return ctx.config["a"]

    settlement = run_one(handler, delivery(job_name=NAME, data=TENANT, max_attempts=2))

    assert isinstance(settlement, Retry)
    assert 'KUMIKO["CONFIG"] = ' in JobRun.objects.get().error


# ------------------------------------------------------------------------------------ time zone


def zones(tenant_id: str) -> str:
    """Asks the database, as a callable of a project does."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return {"acme": "Asia/Tokyo", "globex": "America/New_York"}[tenant_id]


def now_here(ctx: JobContext) -> list[str]:
    local = timezone.localtime(datetime(2026, 1, 1, 12, tzinfo=timezone.get_default_timezone()))
    return [str(ctx.tz), timezone.get_current_timezone_name(), local.strftime("%H:%M")]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("tenant", "expected"),
    [
        ("acme", ["Asia/Tokyo", "Asia/Tokyo", "20:00"]),
        ("globex", ["America/New_York", "America/New_York", "06:00"]),
        ("initech", ["Europe/Berlin", "Europe/Berlin", "12:00"]),  # its zone cannot be told
    ],
)
def test_the_tenants_time_zone_is_current_in_its_run_and_nowhere_else(
    tenant: str, expected: list[str], is_async: bool, run_one: RunOne, settings: Settings
) -> None:
    """B141, B243, design 4: set before the handler, left clean; one that fails fails no run.

    ``run_one`` runs loop and deliveries in this thread, so what were left behind would be here.
    """
    settings.KUMIKO = {**settings.KUMIKO, "TIME_ZONE": f"{__name__}.zones"}

    def handler(payload: Any, ctx: JobContext) -> list[str]:
        return now_here(ctx)

    async def handler_async(payload: Any, ctx: JobContext) -> list[str]:
        here = now_here(ctx)
        assert await sync_to_async(now_here)(ctx) == here
        return here

    given = delivery(job_name=NAME, data={"_tenantId": tenant})
    settlement = run_one(handler_async if is_async else handler, given)

    assert settlement == Complete([*expected])
    assert timezone.get_current_timezone_name() == "Europe/Berlin"


@pytest.mark.parametrize("is_async", [False, True])
def test_without_the_setting_nothing_is_activated(is_async: bool, run_one: RunOne) -> None:
    def handler(payload: Any, ctx: JobContext) -> list[Any]:
        return [str(ctx.tz), getattr(timezone._active, "value", None)]  # type: ignore[attr-defined]

    async def handler_async(payload: Any, ctx: JobContext) -> list[Any]:
        return handler(payload, ctx)

    settlement = run_one(handler_async if is_async else handler)

    assert settlement == Complete(["Europe/Berlin", None])


# -------------------------------------------------------------------------------------- threads


def test_a_thread_of_a_handler_has_no_scope_unless_it_copies_the_context(run_one: RunOne) -> None:
    """Issue 5, Build 2: so that work is for a tenant only where somebody has said so."""
    seen: dict[str, Any] = {}

    def look(name: str) -> None:
        seen[name] = (current_tenant_id(), ambient.user_id.get(), ambient.write_origin.get())

    def handler(payload: Any, ctx: JobContext) -> None:
        look("handler")
        context = contextvars.copy_context()
        plain = threading.Thread(target=look, args=("plain",))
        copied = threading.Thread(target=context.run, args=(look, "copied"))
        for thread in (plain, copied):
            thread.start()
            thread.join()

    run_one(handler, delivery(job_name=NAME, data=TENANT))

    assert seen == {
        "handler": ("acme", "7", None),
        "plain": (None, None, None),
        "copied": ("acme", "7", None),
    }
