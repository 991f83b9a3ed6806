"""``listjobs``: what is defined here, for people and for programs."""

from __future__ import annotations

import json
import re
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pydantic import BaseModel

from kumiko_django import Backoff, Cron, JobContext, JobDefinition, On
from kumiko_django.definitions.registry import registry

pytestmark = pytest.mark.once


class Sized(BaseModel):
    size: int = 1


@pytest.fixture(autouse=True)
def _jobs() -> Any:
    def plain(payload: Any, ctx: JobContext) -> None:
        """Do nothing, plainly."""

    def busy(payload: Any, ctx: JobContext) -> None: ...

    with registry.isolated():
        registry.register(JobDefinition(handler=plain, app_label="shop_floor"))
        registry.register(
            JobDefinition(
                handler=busy, app_label="shop_floor", lane="api", tenant="system", retries=3,
                backoff=Backoff.exponential(2, max_seconds=60), priority="low", schema=Sized,
                aliases=["lazy"], boot_gate="one-at-a-time",
            )
        )  # fmt: skip
        yield


def listed(*arguments: str) -> str:
    out = StringIO()
    call_command("listjobs", *arguments, stdout=out, no_color=True)
    return out.getvalue()


def names(*arguments: str) -> list[str]:
    return [job["name"] for job in json.loads(listed("--json", *arguments))]


def test_a_line_a_job_with_what_is_special() -> None:
    lines = listed("--app", "shop_floor").splitlines()
    assert lines[0].split() == ["name", "lane", "trigger", "options"]
    assert lines[1].startswith("shop-floor:job:busy   api     manual   tenant=system, retries=3,")
    assert "priority=low" in lines[1]
    assert "boot_gate=one-at-a-time" in lines[1]
    assert lines[2] == "shop-floor:job:plain  worker  manual"


def test_programs_get_json() -> None:
    busy, plain = json.loads(listed("--json", "--app", "shop-floor"))
    assert busy == {
        "name": "shop-floor:job:busy",
        "lane": "api",
        "trigger": "manual",
        "trigger_details": {},
        "options": {
            "tenant": "system",
            "retries": 3,
            "backoff": {"kind": "exponential", "seconds": 2, "jitter": 0.0, "max_seconds": 60},
            "priority": "low",
            "schema": f"{__name__}.Sized",
            "aliases": ["lazy"],
            "boot_gate": "one-at-a-time",
        },
        "description": "",
    }
    assert (plain["options"], plain["description"]) == ({}, "Do nothing, plainly.")


def test_filters() -> None:
    assert names("floor:job:b") == ["shop-floor:job:busy"]
    assert names("--app", "shop_floor", "--lane", "worker") == ["shop-floor:job:plain"]
    assert names("--app", "shop-floor", "--trigger", "Manual") == [
        "shop-floor:job:busy", "shop-floor:job:plain",
    ]  # fmt: skip
    assert names("--app", "shop-floor", "--trigger", "cron") == []
    assert "testapp:job:record" in names()


def test_no_match_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert listed("no-such-job") == ""
    assert "None of the" in capsys.readouterr().err
    listed("--app", "zzz")
    assert re.search(r"No job is of the app 'zzz'; .*: .*shop-floor", capsys.readouterr().err)
    listed("--trigger", "foo", "--app", "shop_floor")
    told = capsys.readouterr().err
    assert re.search(r"No job has a trigger 'foo'; triggers: .*manual", told)
    assert "of the app" not in told
    with pytest.raises(CommandError, match="invalid choice"):
        call_command("listjobs", "--lane", "both")


def test_triggers_in_words() -> None:
    """Events without brackets and quotes, and nothing for a filter that there is not."""
    for name, trigger in (
        ("one", On("invoice.created")), ("many", On("a.b", "c.d", where={"kind": "k", "n": 1})),
        ("daily", Cron("@daily")),
    ):  # fmt: skip
        handler = lambda payload, ctx: None  # noqa: E731
        registry.register(
            JobDefinition(
                handler=handler, name=name, app_label="shop_floor", trigger=trigger, tenant="system"
            )
        )
    lines = [re.split(" {2,}", line) for line in listed("--app", "shop_floor").splitlines()]
    triggers = {line[0]: line[2] for line in lines}
    assert triggers["shop-floor:job:one"] == "on invoice.created"
    assert triggers["shop-floor:job:many"] == "on a.b, c.d kind=k, n=1"
    assert triggers["shop-floor:job:daily"] == "cron 0 0 * * *"
