"""The German texts of the admin's pages are complete, compiled and used."""

from __future__ import annotations

import ast
import gettext
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import reverse
from django.utils import translation
from pytest_django import Settings

import kumiko_django
from kumiko_django.history.models import RunStatus
from tests.unit.history.admin_rows import make_log, make_run

PACKAGE = Path(kumiko_django.__file__).parent
MESSAGES = PACKAGE / "locale/de/LC_MESSAGES"
PLACEHOLDERS = re.compile(r"%\((\w+)\)s")
MARKS = {"_", "gettext", "gettext_lazy", "ngettext"}


def texts_of_the_code() -> Iterator[str]:
    """Every text that the models and the admin mark for translation."""
    rooms = [*(PACKAGE / "history").glob("*.py"), *(PACKAGE / "audit").glob("*.py")]
    for path in [*rooms, PACKAGE / "apps.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                first = node.args[0] if node.args else None
                if node.func.id in MARKS and isinstance(first, ast.Constant):
                    yield str(first.value)


def texts_of_the_templates() -> Iterator[str]:
    for path in (PACKAGE / "templates").rglob("*.html"):
        found = re.findall(r"{% translate (['\"])(.*?)\1", path.read_text(encoding="utf-8"))
        yield from (text for _quote, text in found)


Catalog = dict[str, set[str]]
"""Texts and their translations; the translations of a plural stand with its singular."""


def compiled(folder: Path) -> Catalog:
    """What Django uses."""
    with (folder / "django.mo").open("rb") as file:
        entries = vars(gettext.GNUTranslations(file))["_catalog"]
    found: Catalog = {}
    for key, text in entries.items():
        found.setdefault(key[0] if isinstance(key, tuple) else key, set()).add(text)
    return found


def written() -> Catalog:
    """What translators write."""
    found: Catalog = {}
    for entry in (MESSAGES / "django.po").read_text(encoding="utf-8").split("\n\n"):
        statements = re.findall(r'^(msg\w+)(?:\[\d\])?((?: ?".*"\n?)+)', entry, re.MULTILINE)
        texts = [
            (name, "".join(ast.literal_eval(line) for line in quoted.split("\n") if line))
            for name, quoted in statements
        ]
        key = next(text for name, text in texts if name == "msgid")
        found[key] = {text for name, text in texts if name == "msgstr"}
    return found


def test_every_text_has_a_translation() -> None:
    texts = {*texts_of_the_code(), *texts_of_the_templates()}
    of_django = compiled(Path(admin.__file__).parent / "locale/de/LC_MESSAGES")

    assert len(texts) > 100
    assert not texts - set(compiled(MESSAGES)) - set(of_django)


def test_no_translation_is_left_over_or_not_compiled() -> None:
    """After a change: ``django-admin compilemessages`` in the package's folder."""
    of_templates_with_plurals = {
        "",
        "%(count)s run on this page",
        "%(count)s record on this page",
    }

    assert written() == compiled(MESSAGES)
    assert set(written()) - of_templates_with_plurals <= {
        *texts_of_the_code(),
        *texts_of_the_templates(),
    }


def test_placeholders_are_the_same_in_both_languages() -> None:
    for key, texts in compiled(MESSAGES).items():
        # The plural of a text that names a range has one more than its singular.
        names = {"first", "last"} if "%(first)s" in key else set(PLACEHOLDERS.findall(key))
        for text in texts:
            assert set(PLACEHOLDERS.findall(text)) <= names, key
        assert set(PLACEHOLDERS.findall(" ".join(texts))) == names, key


@pytest.mark.django_db
def test_the_pages_speak_german(admin_client: Client, settings: Settings) -> None:
    settings.LANGUAGE_CODE = "de"
    run = make_run(status=RunStatus.FAILED, error="no", final=True, duration_ms=2_500)
    make_log(run, 1_200)
    with translation.override("de"):
        runs = admin_client.get(reverse("admin:kumiko_jobrun_changelist")).content.decode()
        page = admin_client.get(reverse("admin:kumiko_jobrun_change", args=[run.pk]))
    html = page.content.decode()

    for text in ("Hintergrundjobs", "Job-Läufe", "Mandant", "fehlgeschlagen", "Letzte Stunde",
                 "1 Lauf auf dieser Seite", "2,5"):  # fmt: skip
        assert text in runs, text
    for text in ("Läufe dieses Jobs", "Protokoll", "1 von 3", "ID in der Queue",
                 "Die Zeilen 501 bis 700 werden nicht gezeigt."):  # fmt: skip
        assert text in html, text
