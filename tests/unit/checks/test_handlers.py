"""System checks of handlers, each id by one test, with a hint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core import checks
from django.core.checks import CheckMessage
from pytest_django import Settings

from kumiko_django import JobDefinition, On
from kumiko_django import checks as kumiko_checks
from kumiko_django.definitions.registry import registry
from kumiko_django.handlers.registry import handlers
from tests.unit.handlers.kit import defines

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def _no_others() -> Iterator[None]:
    with handlers.isolated(), registry.isolated():
        yield


def handler(payload: Any, ctx: Any) -> None: ...


def found(*events: str) -> list[CheckMessage]:
    for number, event in enumerate(events):
        registry.register(
            JobDefinition(
                handler=handler, app_label="testapp", name=f"listens-{number}", trigger=On(event)
            )
        )
    return [m for m in checks.run_checks(tags=[kumiko_checks.TAG]) if m.id and not m.is_silenced()]


def test_e020_a_job_listens_to_a_handler_that_is_not_there() -> None:
    """Surroundings 3; names of other forms are events, which nobody has to declare."""
    defines("write", handler, name="create-order")
    defines("query", handler, name="orders")

    misspelt, query = found(
        "testapp:write:create-oder", "testapp:query:orders",
        "testapp:write:create-order", "order.placed", "a:b:c", "testapp:job:record",
    )  # fmt: skip

    assert {misspelt.id, query.id} == {"kumiko.E020"}
    assert "testapp:job:listens-0 listens to 'testapp:write:create-oder'" in misspelt.msg
    assert misspelt.hint == "Did you mean 'testapp:write:create-order'?"
    assert "which is a query, and queries send no events" in query.msg
    assert query.hint


async def later(one: Any, tenant_id: str) -> list[str]:
    return []


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("tests.app.nothing.roles", "cannot be imported"),
        (lambda one: [], "of a user and a tenant id"),
        (later, "async def; nobody awaits it"),
    ],
    ids=["path", "arguments", "async"],
)
def test_e021_roles_cannot_be_asked(settings: Settings, source: Any, part: str) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "ROLES": source}

    (message,) = found()

    assert (message.id, part in message.msg, bool(message.hint)) == ("kumiko.E021", True, True)


def test_w020_an_app_that_is_not_installed() -> None:
    registry.register(JobDefinition(handler=handler, app_label="testap"))
    defines("write", handler, name="create-order", app_label="nope")

    job, write = found()

    assert (job.id, write.id) == ("kumiko.W020", "kumiko.W020")
    assert job.msg == "testap:job:handler belongs to the app 'testap', which is not installed."
    assert str(job.hint).startswith("Did you mean app_label='testapp'? Silence it")
    assert str(write.hint).startswith("Silence it")


def test_what_is_right_is_not_told(settings: Settings) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "ROLES": lambda one, tenant_id: []}

    assert found() == []
