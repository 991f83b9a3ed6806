"""The registry: names, aliases, collisions, freezing (B015, B038, B115, P10)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from kumiko_django import DefinitionError, JobDefinition, UnknownJobError, registry
from kumiko_django.definitions.registry import Registry
from tests.app import jobs as app_jobs
from tests.app.effects import leave

pytestmark = pytest.mark.once

HERE = __name__.replace(".", r"\.")


def first(payload: Any, ctx: Any) -> None: ...


def second(payload: Any, ctx: Any) -> None: ...


def definition(handler: Callable[..., Any] = first, **options: Any) -> JobDefinition:
    return JobDefinition(**{"handler": handler, "app_label": "shop", **options})


def test_what_is_registered_is_found_by_name_alias_and_handler(jobs: Registry) -> None:
    """B015, B038."""
    registered = jobs.register(definition(aliases=["old", "billing:job:older"]))

    assert jobs.get("shop:job:first") is registered
    assert jobs.get("shop:job:old") is registered
    assert jobs.get("billing:job:older") is registered
    assert jobs.for_handler(first) is registered


def test_registering_gives_the_same_definition_back_with_its_app(jobs: Registry) -> None:
    """What the caller holds is what is registered, also where the app was filled in."""
    made = JobDefinition(handler=leave, name="by-hand")

    assert jobs.register(made) is made
    assert made.qualified_name == "testapp:job:by-hand"


def test_the_app_is_that_of_the_handler_inside_a_partial(jobs: Registry) -> None:
    made = jobs.register(JobDefinition(handler=partial(leave), name="by-hand"))

    assert made.app_label == "testapp"


def test_a_job_outside_of_all_apps_is_refused(jobs: Registry) -> None:
    with pytest.raises(DefinitionError, match=rf"{HERE}\.first is in no installed app.*app_label="):
        jobs.register(JobDefinition(handler=first))


@pytest.mark.parametrize("thing", [first, "shop:job:first", None, 5])
def test_only_definitions_are_registered(jobs: Registry, thing: Any) -> None:
    with pytest.raises(DefinitionError, match=r"takes a JobDefinition, not .*@job"):
        jobs.register(thing)


def test_two_jobs_of_one_name_are_refused_with_both_places(jobs: Registry) -> None:
    """Surroundings 3: the original overwrites the first in silence."""
    jobs.register(definition(name="send"))

    with pytest.raises(
        DefinitionError,
        match=rf"name 'shop:job:send' of {HERE}\.second is already taken by the job of "
        rf"{HERE}\.first \(shop:job:send\)",
    ):
        jobs.register(definition(second, name="send"))


def test_two_apps_whose_labels_read_alike_share_no_name(jobs: Registry) -> None:
    """P40: ``my_shop`` and ``MyShop`` are both ``my-shop``; the second job of a name is refused."""
    jobs.register(definition(app_label="my_shop", name="send"))

    with pytest.raises(DefinitionError, match=r"'my-shop:job:send' .* is already taken"):
        jobs.register(definition(second, app_label="MyShop", name="send"))


COLLISIONS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a new name is an alias": (
        {"name": "a", "aliases": ["b"]},
        {"name": "b"},
        "The name 'shop:job:b'",
    ),
    "a new alias is a name": (
        {"name": "a"},
        {"name": "b", "aliases": ["a"]},
        "The alias 'shop:job:a'",
    ),
    "two aliases": (
        {"name": "a", "aliases": ["old"]},
        {"name": "b", "aliases": ["old"]},
        "The alias 'shop:job:old'",
    ),
    "short and qualified": (
        {"name": "a", "aliases": ["old"]},
        {"name": "b", "app_label": "billing", "aliases": ["shop:job:old"]},
        "The alias 'shop:job:old'",
    ),
}


@pytest.mark.parametrize(("one", "two", "message"), COLLISIONS.values(), ids=COLLISIONS.keys())
def test_aliases_collide_like_names(
    jobs: Registry, one: dict[str, Any], two: dict[str, Any], message: str
) -> None:
    jobs.register(definition(**one))

    with pytest.raises(DefinitionError, match=message):
        jobs.register(definition(second, **two))

    assert [job.name for job in jobs.all() if job.app_label in ("shop", "billing")] == ["a"]


@pytest.mark.parametrize("alias", ["send", "shop:job:send"])
def test_a_jobs_own_name_is_no_alias(jobs: Registry, alias: str) -> None:
    with pytest.raises(DefinitionError, match="is the job's own name; drop it"):
        jobs.register(definition(name="send", aliases=[alias]))


def test_one_definition_is_registered_once(jobs: Registry) -> None:
    made = jobs.register(definition())

    with pytest.raises(DefinitionError, match=r"\(shop:job:first\) is registered already"):
        jobs.register(made)


@pytest.mark.parametrize(
    "use",
    [
        lambda jobs: jobs.get("testapp:job:record"),
        lambda jobs: jobs.for_handler(app_jobs.record),
        lambda jobs: jobs.freeze(),
    ],
    ids=["get", "for_handler", "freeze"],
)
def test_the_first_use_freezes_it(jobs: Registry, use: Callable[[Registry], Any]) -> None:
    """P10: a job that appears later is one that some processes know and some do not."""
    use(jobs)

    with pytest.raises(
        DefinitionError,
        match=rf"job {HERE}\.first comes too late.*jobs\.py module or in AppConfig\.ready\(\)",
    ):
        jobs.register(definition())


def test_listing_all_jobs_does_not_freeze_it(jobs: Registry) -> None:
    before = len(jobs.all())
    jobs.register(definition())

    assert len(jobs.all()) == before + 1


def test_all_jobs_stand_in_the_order_of_registration(jobs: Registry) -> None:
    """B115."""
    names = ["zebra", "ant", "mule"]
    for name in names:
        jobs.register(definition(name=name))

    assert [job.name for job in jobs.all()][-3:] == names


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("testapp:job:recrod", "Did you mean 'testapp:job:record'"),
        ("testapp:job:sleepy-asinc", "Did you mean 'testapp:job:sleepy-async'"),
        ("record", "Give the qualified name, e.g. 'testapp:job:"),
        ("unknown:job:nothing-like-it", "Is its app in INSTALLED_APPS and the job in its jobs.py"),
        ("", "Give the qualified name"),
        (None, "No job is called None"),
    ],
)
def test_an_unknown_name_is_answered_with_help(jobs: Registry, name: Any, message: str) -> None:
    """B038."""
    with pytest.raises(UnknownJobError, match=message):
        jobs.get(name)


def test_an_unknown_job_is_also_a_lookup_error(jobs: Registry) -> None:
    with pytest.raises(LookupError):
        jobs.get("testapp:job:nothing")


@pytest.mark.parametrize("thing", [second, len, 5, {}, []], ids=str)
def test_a_function_that_is_no_job_is_answered_with_help(jobs: Registry, thing: Any) -> None:
    with pytest.raises(UnknownJobError, match="is not a registered job"):
        jobs.for_handler(thing)


def test_the_handler_of_several_jobs_names_none_of_them(jobs: Registry) -> None:
    """Which one would be dispatched must not depend on the order of registration."""
    jobs.register(definition(name="daily"))
    jobs.register(definition(name="weekly"))

    with pytest.raises(UnknownJobError, match=r"several jobs \(shop:job:daily, shop:job:weekly\)"):
        jobs.for_handler(first)
    assert jobs.get("shop:job:weekly").name == "weekly"


@dataclass
class Unhashable:
    greeting: str

    def __call__(self, payload: Any, ctx: Any) -> None: ...


def test_a_handler_that_cannot_be_hashed_is_registered_whole_or_not_at_all(jobs: Registry) -> None:
    """It used to be half registered: its name was taken, and the error said nothing."""
    handler = Unhashable("hello")
    registered = jobs.register(definition(handler, name="greet"))

    assert jobs.get("shop:job:greet") is registered
    with pytest.raises(UnknownJobError, match="not a registered job"):
        jobs.for_handler(handler)


class Greeter:
    def greet(self, payload: Any, ctx: Any) -> None: ...


def test_a_bound_method_is_found_again(jobs: Registry) -> None:
    greeter = Greeter()
    registered = jobs.register(definition(greeter.greet, name="greet"))

    assert jobs.for_handler(greeter.greet) is registered
    with pytest.raises(UnknownJobError):
        jobs.for_handler(Greeter().greet)


def test_isolated_forgets_and_restores() -> None:
    """For tests: what was there before is there again, also after an error and when nested."""
    known, reminder = registry.all(), registry.get("testapp:job:record")

    def use_and_fail() -> None:
        with registry.isolated() as jobs:
            jobs.register(definition(aliases=["old"]))
            with jobs.isolated():
                inner = jobs.register(definition(second))
                assert jobs.get("shop:job:second") is inner
            assert len(jobs.all()) == len(known) + 1
            jobs.register(definition(second, name="third"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use_and_fail()

    assert registry.all() == known
    assert registry.get("testapp:job:record") is reminder
    for name in ("shop:job:first", "shop:job:old", "shop:job:second"):
        with pytest.raises(UnknownJobError):
            registry.get(name)
    with pytest.raises(UnknownJobError):
        registry.for_handler(first)
    with pytest.raises(DefinitionError, match="comes too late"):
        registry.register(definition())


def test_of_threads_that_register_one_name_one_succeeds(jobs: Registry) -> None:
    barrier = threading.Barrier(8)
    outcomes: list[str] = []

    def register(number: int) -> None:
        barrier.wait()
        try:
            jobs.register(definition(partial(first), name="raced"))
        except DefinitionError:
            outcomes.append("refused")
        else:
            outcomes.append("registered")

    threads = [threading.Thread(target=register, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcomes) == ["refused"] * 7 + ["registered"]
