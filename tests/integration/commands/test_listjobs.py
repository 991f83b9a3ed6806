"""``listjobs``: what is defined here, for people and for programs."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pydantic import BaseModel

from kumiko_django import Backoff, JobContext, JobDefinition
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
    with pytest.raises(CommandError, match="invalid choice"):
        call_command("listjobs", "--lane", "both")
