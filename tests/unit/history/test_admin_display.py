"""Values as the admin's pages show them."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pytest
from django.template.loader import get_template
from django.utils import timezone, translation
from pytest_django import Settings

import kumiko_django
from kumiko_django.history import badges, display
from kumiko_django.history.badges import BADGES, badge
from kumiko_django.history.models import LogLevel, RunStatus
from kumiko_django.history.queries import Position, first_id_at
from kumiko_django.types.ids import SYSTEM, uuid7
from tests.unit.history.admin_rows import unsaved_run

PACKAGE = Path(kumiko_django.__file__).parent
CSS = (PACKAGE / "static/kumiko/history.css").read_text(encoding="utf-8")


def test_every_status_has_a_badge_of_its_own() -> None:
    """A new status must be shown too."""
    assert set(BADGES) == set(RunStatus)
    assert len({look.sign for look in BADGES.values()}) == len(RunStatus)
    for status in RunStatus:
        html = badge(unsaved_run(status=status, final=True))
        assert str(status.label) in html
        assert BADGES[status].sign in html


def test_every_colour_of_a_badge_is_defined_for_light_and_dark() -> None:
    tones = {look.tone for look in BADGES.values()}
    tones |= {look.tone for look in vars(badges).values() if isinstance(look, badges.Badge)}

    for tone in tones:
        assert f"--kumiko-{tone}-fg); background: var(--kumiko-{tone}-bg)" in CSS
        # Light; dark by the system's preference; dark by choice.
        assert len(re.findall(rf"--kumiko-{tone}-fg: #[0-9a-f]{{6}};", CSS)) == 3


def test_a_status_that_this_version_does_not_know_is_shown_as_it_is() -> None:
    """A newer version may have written it."""
    html = badge(unsaved_run(status="vanished"))

    assert "vanished" in html
    assert "kumiko-quiet" in html


def test_every_level_of_the_log_has_a_colour() -> None:
    from kumiko_django.history.detail import _LEVEL_TONES

    assert set(_LEVEL_TONES) == set(LogLevel.values)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, "-"),
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1.0 s"),
        (2_512, "2.5 s"),
        (9_949, "9.9 s"),
        (9_950, "10 s"),
        (59_499, "59 s"),
        (59_500, "1 min 00 s"),
        (200_000, "3 min 20 s"),
        (3_599_999, "1 h 00 min"),
        (3_900_000, "1 h 05 min"),
        (86_400_000, "1 d 0 h"),
        (183_600_000, "2 d 3 h"),
    ],
)
def test_durations_are_short_and_stay_on_one_line(milliseconds: int | None, text: str) -> None:
    assert display.duration(milliseconds) == text.replace(" ", "\N{NO-BREAK SPACE}")


def test_numbers_follow_the_language() -> None:
    with translation.override("de"):
        assert display.duration(2_500) == "2,5\N{NO-BREAK SPACE}s"
        assert display.number(1_234_567) == "1.234.567"


def test_times_are_those_of_the_reader() -> None:
    moment = dt.datetime(2026, 7, 1, 22, 30, 15, 123_456, tzinfo=dt.UTC)

    with timezone.override("Europe/Berlin"):
        text = display.moment(moment, precise=True)
    assert 'datetime="2026-07-02T00:30:15.123456+02:00"' in text
    assert ">2026-07-02<" in text
    assert ">00:30:15.123 CEST<" in text


def test_times_without_zones_are_shown_as_they_are(settings: Settings) -> None:
    settings.USE_TZ = False

    assert ">12:00:00<" in display.moment(dt.datetime(2026, 7, 1, 12))  # noqa: DTZ001


def test_the_tenant_of_no_tenant_is_called_by_name() -> None:
    assert re.sub(r"<[^>]+>", "", display.tenant(SYSTEM)) == "system"
    assert SYSTEM in display.tenant(SYSTEM)
    assert display.tenant("<acme>") == "&lt;acme&gt;"


def test_texts_that_cannot_be_sent_are_mended() -> None:
    """A lone surrogate in a payload, which SQLite stores, must not break the page."""
    assert display.json_text({"a": "\ud800"}, 100).text.encode()
    assert display.beginning("\ud800" * 10, 5).text == "\N{REPLACEMENT CHARACTER}" * 5


def test_a_value_nested_too_deeply_is_no_error() -> None:
    """Another producer may have sent it; the page must still show everything else."""
    value: Any = "core"
    for _ in range(100_000):
        value = [value]

    for shown in (display.json_text(value, 100), display.json_line(value, 100)):
        assert shown == display.Shown("", "It is nested too deeply to be shown.")


def test_a_place_in_the_list_survives_the_address() -> None:
    for position in (Position(uuid7()), Position(uuid7(), newer=True)):
        assert Position.parse(str(position)) == position


def test_the_first_id_of_a_moment_stands_before_all_of_it_and_after_all_before() -> None:
    before = uuid7()
    moment = timezone.now() + dt.timedelta(milliseconds=1)
    first = first_id_at(moment)

    assert before < first
    assert first.version == 7
    assert first.int >> 80 == int(moment.timestamp() * 1_000)


def test_templates_can_be_overridden_in_parts() -> None:
    """A host puts its own file before ours and fills one block."""
    source = get_template("admin/kumiko/jobrun/change_form.html").template.source  # type: ignore[attr-defined]

    assert set(re.findall(r"{% block (kumiko_\w+) %}", source)) == {
        "kumiko_head", "kumiko_facts", "kumiko_siblings", "kumiko_log", "kumiko_texts",
    }  # fmt: skip


def test_no_template_has_a_script_or_a_style_of_its_own() -> None:
    """For a content security policy without 'unsafe-inline'."""
    templates = sorted((PACKAGE / "templates").rglob("*.html"))

    assert templates
    for template in templates:
        text = template.read_text(encoding="utf-8")
        assert not re.search(r"<script|<style|\bstyle=|\bon\w+=|\|safe\b", text), template.name
