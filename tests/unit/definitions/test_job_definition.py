"""Every option of a definition, right and wrong (B001-B007, B015, P10, P40)."""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import pickle
from typing import Any

import pytest

from kumiko_django import Backoff, DefinitionError, JobDefinition, Manual

pytestmark = pytest.mark.once


def handler(payload: Any, ctx: Any) -> None:
    """Send what is due.

    A second paragraph.
    """


def defined(**options: Any) -> JobDefinition:
    return JobDefinition(**{"handler": handler, "app_label": "shop", **options})


def test_the_defaults() -> None:
    """B001, B002, B005, B014: a handler is enough; it is started by hand and runs on the worker
    lane."""
    definition = JobDefinition(handler=handler)

    assert definition.name == "handler"
    assert definition.app_label is None
    assert definition.trigger == Manual()
    assert definition.lane == "worker"
    assert definition.tenant == "required"
    assert definition.per_tenant is False
    assert definition.spread is None
    assert definition.retries is None
    assert definition.backoff is None
    assert definition.timeout is None
    assert definition.timeout_seconds is None
    assert definition.max_defers == 100
    assert definition.priority == "normal"
    assert definition.schema is None
    assert definition.payload_schema is None
    assert definition.aliases == ()
    assert definition.description == "Send what is due."
    assert definition.is_async is False


@pytest.mark.parametrize(
    "options",
    [
        {"name": "send-reminders"},
        {"name": "a"},
        {"name": "v2-import-3"},
        {"trigger": Manual()},
        {"lane": "api"},
        {"lane": "worker"},
        {"tenant": "required"},
        {"tenant": "system"},
        {"retries": 0},
        {"retries": 100_000},
        {"retries": 1, "backoff": Backoff.fixed(1)},
        {"retries": 3, "backoff": Backoff.exponential(0.5, jitter=0.2, max_seconds=60)},
        {"timeout": 0.5},
        {"timeout": dt.timedelta(minutes=5)},
        {"timeout": 31_536_000},
        {"max_defers": 0},
        {"max_defers": 1_000_000},
        {"priority": "high"},
        {"priority": "low"},
        {"priority": 0},
        {"priority": 1},
        {"priority": 2_097_152},
        {"aliases": ["old"]},
        {"aliases": ("old", "billing:job:older")},
        {"aliases": iter(["old"])},
        {"description": "What operators read."},
    ],
    ids=str,
)
def test_a_right_option_is_kept(options: dict[str, Any]) -> None:
    """P10: what is right is accepted as it was given."""
    definition = defined(**options)

    for option, value in options.items():
        kept = getattr(definition, option)
        assert kept == (value if option != "aliases" else tuple(kept))
        assert kept or value == 0


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"handler": None}, "handler must be a function taking"),
    ({"handler": "billing.jobs.send"}, "handler must be a function taking"),
    ({"name": "Send"}, "must be kebab-case.*Try 'send'"),
    ({"name": "sendReminders"}, "Try 'send-reminders'"),
    ({"name": "send_reminders"}, "Try 'send-reminders'"),
    ({"name": "send.reminders"}, "Try 'send-reminders'"),
    ({"name": "send--reminders"}, "Try 'send-reminders'"),
    ({"name": "-send"}, "Try 'send'"),
    ({"name": "send-"}, "Try 'send'"),
    ({"name": "send "}, "Try 'send'"),
    ({"name": "send\n"}, "Try 'send'"),
    ({"name": "2send"}, "must be kebab-case"),
    ({"name": "größe"}, "must be kebab-case"),
    ({"name": "send reminders"}, "must be kebab-case"),
    ({"name": "billing:job:send"}, r"already qualified.*'send'.*label is put before it"),
    ({"name": "job:send"}, "already qualified"),
    ({"name": 5}, "name must be a text"),
    ({"name": None}, "name must be a text"),
    ({"name": "a" * 200}, "longer than 200 characters"),
    ({"app_label": ""}, "app label '' has no kebab-case form"),
    ({"app_label": 5}, "app label 5 has no kebab-case form"),
    ({"app_label": "a:b"}, "has no kebab-case form"),
    ({"app_label": "größe"}, "has no kebab-case form"),
    ({"trigger": Manual}, r"trigger must be Manual\(\)"),
    ({"trigger": None}, r"trigger must be Manual\(\)"),
    ({"trigger": "manual"}, r"trigger must be Manual\(\)"),
    ({"timeout": 0}, "timeout must be a timedelta or seconds, above 0 and at most a year, not 0"),
    ({"timeout": -1}, "timeout must be .* not -1"),
    ({"timeout": True}, "timeout must be .* not True"),
    ({"timeout": "5"}, "timeout must be .* not '5'"),
    ({"timeout": float("inf")}, "timeout must be .* not inf"),
    ({"timeout": dt.timedelta(days=400)}, "timeout must be .* Leave it out for none"),
    ({"max_defers": -1}, "max_defers must be a whole number from 0 to 1,000,000, not -1"),
    ({"max_defers": 1.5}, "max_defers must be .* not 1.5"),
    ({"max_defers": True}, "max_defers must be .* not True"),
    ({"max_defers": None}, "max_defers must be .* 0 refuses every deferral"),
    ({"lane": "both"}, "lane='both' is unknown; use 'api' or 'worker'"),
    ({"lane": None}, "lane=None is unknown"),
    ({"lane": ["api"]}, r"lane=\['api'\] is unknown"),
    ({"tenant": "none"}, "tenant='none' is unknown; use 'required' or 'system'"),
    ({"tenant": True}, "tenant=True is unknown"),
    ({"retries": -1}, "retries must be a whole number"),
    ({"retries": 1.0}, "retries must be a whole number"),
    ({"retries": True}, "retries must be a whole number"),
    ({"retries": "3"}, "retries must be a whole number"),
    ({"retries": 100_001}, "retries must be a whole number from 0 to 100,000"),
    ({"backoff": Backoff.fixed(1)}, "backoff= has no effect without retries="),
    ({"retries": 0, "backoff": Backoff.fixed(1)}, "has no effect without retries="),
    ({"retries": 1, "backoff": 5}, r"backoff must be Backoff.fixed\(seconds\)"),
    ({"retries": 1, "backoff": "exponential"}, "backoff must be Backoff"),
    ({"priority": "urgent"}, "priority must be 'high', 'normal', 'low'"),
    ({"priority": -1}, "priority must be"),
    ({"priority": 2_097_153}, "priority must be"),
    ({"priority": True}, "priority must be"),
    ({"priority": 1.0}, "priority must be"),
    ({"priority": None}, "priority must be"),
    ({"schema": int}, "schema must be a pydantic model, a dataclass or a TypedDict"),
    ({"aliases": "old"}, r"aliases must be a list of names; write \['old'\]"),
    ({"aliases": 5}, "aliases must be a list of names"),
    ({"aliases": ["Old"]}, "aliases: name='Old' must be kebab-case"),
    ({"aliases": [5]}, "aliases: name must be a text"),
    ({"aliases": [""]}, "aliases: name must be a text"),
    ({"aliases": ["old\n"]}, "must be kebab-case"),
    ({"aliases": ["billing:old"]}, "neither a short name nor of the form"),
    ({"aliases": ["billing:event:old"]}, "neither a short name nor of the form"),
    ({"aliases": ["billing:job:old\n"]}, "neither a short name nor of the form"),
    ({"aliases": [f"billing:job:{'a' * 200}"]}, "at most 200 characters"),
    ({"aliases": ["old", "old"]}, "alias 'old' is given twice"),
    ({"description": 5}, "description must be text"),
    ({"description": None}, "description must be text"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_option_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    """B006, P10: refused when the definition is made, with what is wrong, where, and the fix.

    That replaces B132: nothing wrong is left for a run to find.
    """
    with pytest.raises(DefinitionError, match=message) as caught:
        defined(**options)

    assert str(caught.value).startswith("job "), "the message begins with the job"


@pytest.mark.parametrize("retries", [None, 0, 1, 7])
def test_attempts_are_one_more_than_retries(retries: int | None) -> None:
    """B079."""
    assert defined(retries=retries).attempts == (retries or 0) + 1


def test_retries_without_a_backoff_wait_one_second() -> None:
    """B006, B080, P37: no definition retries at once, and hammers what has just failed."""
    assert defined(retries=3).effective_backoff == Backoff.fixed(1)
    assert defined(retries=3, backoff=Backoff.fixed(9)).effective_backoff == Backoff.fixed(9)


@pytest.mark.parametrize(
    ("app_label", "name", "qualified"),
    [
        ("billing", "send-reminders", "billing:job:send-reminders"),
        ("my_shop", "import", "my-shop:job:import"),
        ("MyShop", "import", "my-shop:job:import"),
        ("shop2", "import", "shop2:job:import"),
        ("HTTPTools", "import", "http-tools:job:import"),
    ],
)
def test_the_qualified_name(app_label: str, name: str, qualified: str) -> None:
    """B015; surroundings 3: the app's label in kebab-case, underscores and capitals included."""
    assert defined(app_label=app_label, name=name).qualified_name == qualified


def test_short_aliases_belong_to_the_jobs_app() -> None:
    definition = defined(app_label="my_shop", aliases=["old", "billing:job:older"])

    assert definition.qualified_aliases == ("my-shop:job:old", "billing:job:older")


def test_a_definition_without_an_app_has_no_qualified_name_yet() -> None:
    definition = JobDefinition(handler=handler, aliases=["old"])

    for name in ("qualified_name", "qualified_aliases"):
        with pytest.raises(DefinitionError, match=r"belongs to no app yet. Register it"):
            getattr(definition, name)


def test_an_app_is_assigned_once() -> None:
    definition = JobDefinition(handler=handler)
    definition.assign_app("shop")

    assert definition.qualified_name == "shop:job:handler"
    with pytest.raises(DefinitionError, match="belongs to the app 'shop'"):
        definition.assign_app("billing")


@pytest.mark.parametrize("option", [f.name for f in dataclasses.fields(JobDefinition)])
def test_a_definition_is_immutable(option: str) -> None:
    """B001: what has been checked stays as it was checked."""
    definition = defined()

    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(definition, option, "other")


def test_a_changed_copy_is_checked_again() -> None:
    definition = defined(name="first")

    assert dataclasses.replace(definition, name="second").qualified_name == "shop:job:second"
    with pytest.raises(DefinitionError, match="lane='both' is unknown"):
        dataclasses.replace(definition, lane="both")  # type: ignore[arg-type]


def test_copies_are_the_definition_itself_and_pickling_keeps_its_options() -> None:
    """It is known by identity: the copy of an object that refers to it must not lose its job."""
    definition = defined(retries=2, aliases=["old"])

    assert copy.copy(definition) is definition
    assert copy.deepcopy({"job": definition})["job"] is definition
    again = pickle.loads(pickle.dumps(definition))  # noqa: S301  (our own)
    assert again.qualified_name == definition.qualified_name
    assert (again.handler, again.retries, again.aliases) == (handler, 2, ("old",))


def test_a_misspelt_option_is_answered_with_the_nearest() -> None:
    """P10: as with @job, not by a TypeError of Python's."""
    with pytest.raises(
        DefinitionError, match=r"JobDefinition has no option 'retires'. .* 'retries'"
    ):
        defined(retires=3)
    with pytest.raises(DefinitionError, match=r"JobDefinition: missing a required .*'handler'"):
        JobDefinition(name="nothing")  # type: ignore[call-arg]
