"""``@job``: what it accepts, what it leaves behind, what it refuses (P10)."""

from __future__ import annotations

import asyncio
import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction

from kumiko_django import DefinitionError, Dispatched, JobDefinition, KumikoError, dispatching, job
from kumiko_django.definitions import decorator
from kumiko_django.definitions.decorator import Job, dispatcher_port
from kumiko_django.definitions.registry import Registry
from kumiko_django.dispatching import dispatcher

pytestmark = pytest.mark.once


def test_a_plain_decorator_is_enough(jobs: Registry) -> None:
    """It needs the app of the function, which a test module does not have."""

    def send_reminders(payload: Any, ctx: Any) -> str:
        return f"{payload}, {ctx}"

    send_reminders.__module__ = "tests.app.jobs"

    assert job(send_reminders).definition.qualified_name == "testapp:job:send-reminders"


@pytest.mark.parametrize("options", [{}, {"name": "other", "lane": "api", "retries": 2}])
def test_the_function_stays_what_it_was(jobs: Registry, options: dict[str, Any]) -> None:
    def send(payload: int, ctx: str = "none", *more: float) -> str:
        """Send."""
        return f"{payload}, {ctx}"

    decorated = job(app_label="shop", **options)(send)

    assert decorated is send
    assert decorated(1, "ctx") == "1, ctx"
    assert inspect.signature(decorated) == inspect.signature(send)
    assert (decorated.__name__, decorated.__doc__) == ("send", "Send.")
    assert decorated.definition is jobs.for_handler(send)
    assert decorated.definition.handler is send


async def test_an_async_function_stays_one(jobs: Registry) -> None:
    @job(app_label="shop")
    async def send(payload: int, ctx: None) -> int:
        await asyncio.sleep(0)
        return payload

    assert await send(3, None) == 3
    assert send.definition.is_async


class Recorder:
    """Stands where the dispatch room plugs itself in."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args, kwargs))
            return Dispatched("queued", "1")

        return call


@pytest.mark.parametrize("name", ["dispatch", "adispatch", "dispatch_many", "adispatch_many"])
def test_its_dispatch_methods_pass_on_what_they_are_given(
    jobs: Registry, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    recorder = Recorder()
    monkeypatch.setattr(dispatcher_port, "dispatcher", recorder)

    @job(app_label="shop")
    def send(payload: Any, ctx: Any) -> None: ...

    method = getattr(send, name)

    assert method({"a": 1}, tenant_id="acme", delay=5) == Dispatched("queued", "1")
    assert recorder.calls == [
        (name, (send.definition, {"a": 1}), {"tenant_id": "acme", "delay": 5})
    ]
    assert repr(method) == f"<{name} of shop:job:send>"


def test_before_the_dispatch_room_is_there_a_job_says_why(
    jobs: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher_port, "dispatcher", None)

    @job(app_label="shop")
    def send(payload: Any, ctx: Any) -> None: ...

    with pytest.raises(KumikoError, match=r"'kumiko_django' in INSTALLED_APPS.*django.setup\(\)"):
        send.dispatch()


def test_the_dispatch_room_has_plugged_itself_in() -> None:
    assert dispatcher_port.dispatcher is dispatcher
    assert dispatching.dispatcher is dispatcher


@pytest.mark.parametrize("name", ["dispatch", "adispatch", "dispatch_many", "adispatch_many"])
def test_the_typed_methods_take_what_the_functions_take(name: str) -> None:
    """The types that users see on a job are written beside the functions; they must agree."""
    promised = inspect.signature(getattr(Job, name))
    real = inspect.signature(getattr(dispatcher, name))

    assert list(promised.parameters.values())[1:] == list(real.parameters.values())[1:]
    assert promised.return_annotation == real.return_annotation


def test_the_typed_decorator_takes_every_option() -> None:
    with_options = typing.get_overloads(decorator.job)[1]
    typed = set(inspect.signature(with_options).parameters)

    assert typed == set(inspect.signature(JobDefinition).parameters) - {"handler"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retrys": 3}, "@job has no option 'retrys'. Did you mean 'retries'"),
        ({"alias": ["a"]}, "Did you mean 'aliases'"),
        ({"Lane": "api"}, "Did you mean 'lane'"),
        ({"handler": print}, "@job has no option 'handler'"),
        ({"payload_schema": None}, "@job has no option 'payload_schema'"),
        ({"zzz": 1}, "Known options: name, app_label, trigger, lane, tenant, per_tenant"),
        ({"lane": "api", "queue": "api"}, "@job has no option 'queue'"),
    ],
)
def test_an_unknown_option_is_answered_with_the_nearest(
    jobs: Registry, options: dict[str, Any], message: str
) -> None:
    """P10; before anything is registered."""
    with pytest.raises(DefinitionError, match=message):
        job(**options)


@pytest.mark.parametrize(
    "option",
    [
        "rate_limit",
    ],
)  # fmt: skip
def test_an_option_that_does_not_work_yet_does_not_exist(option: str) -> None:
    """A job that asks for it must not run without it."""
    with pytest.raises(DefinitionError, match=f"@job has no option '{option}'"):
        job(**{option: 1})  # type: ignore[call-overload]


class Handlers:
    @staticmethod
    def static(payload: Any, ctx: Any) -> None: ...

    @classmethod
    def of_class(cls, payload: Any, ctx: Any) -> None: ...

    def bound(self, payload: Any, ctx: Any) -> None: ...

    def __call__(self, payload: Any, ctx: Any) -> None: ...


NO_FUNCTIONS: dict[str, Any] = {
    "class": Handlers,
    "object": Handlers(),
    "bound method": Handlers().bound,
    "class method": Handlers.of_class,
    "static method object": Handlers.__dict__["static"],
    "class method object": Handlers.__dict__["of_class"],
    "partial": functools.partial(Handlers().bound),
    "builtin": isinstance,
    "method of a builtin": dict.setdefault,
    "number": 5,
}


@pytest.mark.parametrize("target", NO_FUNCTIONS.values(), ids=NO_FUNCTIONS.keys())
def test_it_is_for_functions(jobs: Registry, target: Any) -> None:
    """Others lose what the decorator sets on them; and nothing is registered on the way there."""
    before = jobs.all()

    with pytest.raises(DefinitionError, match=r"@job is for functions; .* registry\.register\("):
        job(app_label="shop", name="other")(target)

    assert jobs.all() == before


def test_a_name_given_by_position_is_answered_with_the_right_spelling(jobs: Registry) -> None:
    with pytest.raises(DefinitionError, match=r"write @job\(name='send'\)"):
        job("send")  # type: ignore[call-overload]


def test_a_function_is_a_job_once(jobs: Registry) -> None:
    """The second would take the first one's place on the function."""

    @job(app_label="shop", name="first")
    def send(payload: Any, ctx: Any) -> None: ...

    with pytest.raises(DefinitionError, match=r"send is a job already \(shop:job:first\)"):
        job(app_label="shop", name="second")(send)


def test_a_wrapper_of_a_job_may_be_a_job_of_its_own(jobs: Registry) -> None:
    """``functools.wraps`` copies the attributes of the job that is inside."""

    @job(app_label="shop", name="inner")
    def inner(payload: Any, ctx: Any) -> str:
        return "done"

    @functools.wraps(inner)
    def wrapper(payload: Any, ctx: Any) -> str:
        return f"wrapped {inner(payload, ctx)}"

    outer: Callable[..., str] = job(app_label="shop", name="outer")(wrapper)

    assert outer({}, None) == "wrapped done"
    assert jobs.for_handler(wrapper).name == "outer"
    assert jobs.for_handler(inner).name == "inner"
    assert inner.definition.name == "inner"


def test_a_refused_job_leaves_the_function_alone(jobs: Registry) -> None:
    def send(payload: Any) -> None: ...

    with pytest.raises(DefinitionError, match="too many positional arguments"):
        job(app_label="shop")(send)

    assert not hasattr(send, "dispatch")
    assert "shop:job:send" not in [definition.qualified_name for definition in jobs.all()]


def test_async_methods_are_known_as_coroutine_functions(jobs: Registry) -> None:
    """async_to_sync warns of callables that it cannot tell to be async."""

    @job(app_label="testapp")
    def told(payload: Any, ctx: Any) -> None: ...

    assert iscoroutinefunction(told.adispatch)
    assert iscoroutinefunction(told.adispatch_many)
    assert not iscoroutinefunction(told.dispatch)
    assert not iscoroutinefunction(told.dispatch_many)
