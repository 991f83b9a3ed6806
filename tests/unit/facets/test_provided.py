"""Facets are made on first use, once a run, in the tenant's scope; what is not there says so."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.utils.asyncio import async_unsafe
from pytest_django import Settings

from kumiko_django import (
    SYSTEM,
    FacetMissing,
    KumikoError,
    SettingsError,
    current_tenant_id,
    system_scope,
    tenant_scope,
)
from kumiko_django.facets.provided import Facets

pytestmark = pytest.mark.once

NAMES = ["files", "derivatives", "notify", "config", "secrets"]

Configure = Callable[..., None]


@pytest.fixture
def configure(settings: Settings) -> Configure:
    def change(**values: Any) -> None:
        settings.KUMIKO = {**settings.KUMIKO, **values}

    return change


def facets(tenant: str = "acme") -> Facets:
    return Facets(tenant, "testapp:job:record", "7", "chain-1")


@pytest.mark.parametrize("name", NAMES)
def test_a_factory_is_asked_once_for_the_runs_tenant(name: str, configure: Configure) -> None:
    """B151, B155, B156, B238: tenant, the system user as actor, and who caused it."""
    asked: list[Any] = []

    def factory(request: Any) -> Any:
        asked.append(request)
        return {"made": len(asked)}

    configure(**{name.upper(): factory})
    of_a_run = facets()
    assert not asked, "nothing is made before it is asked for"
    assert of_a_run.get(name) is of_a_run.get(name)
    (request,) = asked
    assert (request.tenant_id, request.job_name) == ("acme", "testapp:job:record")
    assert request.user_id == "00000000-0000-0000-0000-000000000000"
    assert (request.triggered_by_id, request.correlation_id) == ("7", "chain-1")
    facets("globex").get(name)
    assert [request.tenant_id for request in asked] == ["acme", "globex"], "each run has its own"


@pytest.mark.parametrize("name", NAMES)
def test_a_facet_that_is_not_there_names_its_setting(name: str, configure: Configure) -> None:
    """B169, design 3: one clear error, also an AttributeError."""
    off = None if name in ("config", "derivatives") else False
    configure(**{name.upper(): off})
    with pytest.raises(FacetMissing, match=rf'testapp:job:record.*KUMIKO\["{name.upper()}"\]') as e:
        facets().get(name)
    assert isinstance(e.value, KumikoError)
    assert isinstance(e.value, AttributeError)
    assert e.value.name == name


@pytest.mark.parametrize("inner", ["in the tenant", "in the system", "in none"])
def test_a_factory_runs_in_the_tenants_scope_wherever_the_handler_is(
    inner: str, configure: Configure
) -> None:
    """P104: no system scope reaches a factory, so what it reads is the tenant's."""
    seen: list[str | None] = []

    def factory(request: Any) -> Any:
        seen.append(current_tenant_id())
        return {}

    def zone(tenant_id: str) -> str:
        seen.append(current_tenant_id())
        return "Asia/Tokyo"

    configure(CONFIG=factory, TIME_ZONE=zone)
    of_a_run = facets()
    if inner == "in the tenant":
        with tenant_scope("acme"):
            of_a_run.get("config")
            assert str(of_a_run.tz) == "Asia/Tokyo"
    elif inner == "in the system":
        with system_scope("for once"):
            of_a_run.get("config")
            assert str(of_a_run.tz) == "Asia/Tokyo"
            assert current_tenant_id() == SYSTEM
    else:
        of_a_run.get("config")
        assert str(of_a_run.tz) == "Asia/Tokyo"
        assert current_tenant_id() is None
    assert seen == ["acme", "acme"]


def test_a_factory_may_build_on_other_facets(configure: Configure) -> None:
    configure(
        CONFIG=lambda request: {"key": request.secrets.get("KEY", "none"), "files": request.files},
    )
    of_a_run = facets()
    assert of_a_run.get("config")["key"] == "none"
    assert of_a_run.get("config")["files"] is of_a_run.get("files")


def test_a_factory_that_needs_itself_is_told(configure: Configure) -> None:
    configure(
        CONFIG=lambda request: {"a": request.secrets["A"]},
        SECRETS=lambda request: {"a": request.config["a"]},
    )
    with pytest.raises(SettingsError, match=r"needs ctx\.config itself.*config and secrets"):
        facets().get("config")


def test_what_a_factory_needs_and_is_not_there_is_named(configure: Configure) -> None:
    configure(FILES=False, DERIVATIVES={"upper": bytes.upper})
    with pytest.raises(FacetMissing, match=r'KUMIKO\["FILES"\]'):
        facets().get("derivatives")


def test_the_mistake_of_a_factory_does_not_look_like_a_missing_facet(configure: Configure) -> None:
    """``hasattr`` would be False, and the handler would go on without it."""
    configure(CONFIG=lambda request: request.tennant_id)
    with pytest.raises(SettingsError, match=r'KUMIKO\["CONFIG"\] cannot make.*tennant_id'):
        facets().get("config")


def test_an_error_of_a_factory_is_raised_and_it_is_asked_again(configure: Configure) -> None:
    asked: list[Any] = []

    def factory(request: Any) -> Any:
        asked.append(request)
        if len(asked) == 1:
            raise OSError("away")
        return {}

    configure(CONFIG=factory)
    of_a_run = facets()
    with pytest.raises(OSError, match="away"):
        of_a_run.get("config")
    assert of_a_run.get("config") == {}


def test_threads_of_a_handler_share_one(configure: Configure) -> None:
    """All eight see that there is none, and the one that makes it waits until they have."""
    asked: list[Any] = []
    looks = itertools.count(1)
    all_have_looked = threading.Event()

    class Made(dict[str, Any]):
        def __contains__(self, key: object) -> bool:
            found = super().__contains__(key)
            if next(looks) == 8 + 1:  # and the maker once more
                all_have_looked.set()
            return found

    def factory(request: Any) -> Any:
        asked.append(request)
        assert all_have_looked.wait(10)
        return {}

    configure(CONFIG=factory)
    of_a_run = facets()
    of_a_run._made = Made()
    with ThreadPoolExecutor(8) as pool:
        first, *others = pool.map(lambda number: of_a_run.get("config"), range(8))
    assert all(other is first for other in others)
    assert len(asked) == 1


async def test_a_factory_that_asks_the_database_says_what_to_write(configure: Configure) -> None:
    configure(CONFIG=lambda request: async_unsafe(dict)())

    class Context:
        config = property(lambda self: of_a_run.get("config"))

    of_a_run = facets()
    with pytest.raises(
        SynchronousOnlyOperation, match=r'sync_to_async\(getattr\)\(ctx, "config"\)'
    ):
        of_a_run.get("config")
    assert await sync_to_async(getattr)(Context(), "config") == {}
    assert of_a_run.get("config") == {}, "it is there from then on"
