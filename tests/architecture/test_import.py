"""Importing the package, as a settings module or a script without Django does."""

from __future__ import annotations

import subprocess
import sys

import pytest

import kumiko_django
from tests.architecture.sources import ROOT

pytestmark = pytest.mark.once


def run_python(code: str) -> str:
    """Run code in a process that has no settings and give back what it writes."""
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-W",
            "error",
            "-c",
            f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}",
        ],
        cwd=ROOT,
        env={},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_import_needs_no_django_setup_and_loads_neither_apps_nor_broker() -> None:
    loaded = run_python(
        "import kumiko_django\nsys.stdout.write(' '.join(sorted(sys.modules)))"
    ).split()

    assert "kumiko_django" in loaded
    assert not {"bullmq", "redis", "pydantic", "django.db.models"} & set(loaded)


def test_without_django_setup_every_public_name_is_listed() -> None:
    listed = run_python(
        "import kumiko_django\nsys.stdout.write(' '.join(dir(kumiko_django)))"
    ).split()

    assert set(kumiko_django.__all__) <= set(listed)


def test_names_that_need_no_apps_are_there_without_django_setup() -> None:
    """A settings module needs none of them, but a plain script may catch our errors."""
    out = run_python(
        "from kumiko_django import SYSTEM, KumikoError, SettingsError, Unrecoverable\n"
        "sys.stdout.write(SYSTEM)"
    )

    assert out == kumiko_django.SYSTEM


@pytest.mark.parametrize(
    "first",
    [
        "",
        "import kumiko_django.dispatching.dispatcher",
        "import kumiko_django.dispatching.results",
        "import kumiko_django.run.context",
    ],
)
def test_every_public_name_is_what_it_says_whatever_was_imported_first(first: str) -> None:
    """A room that is called like a public function would take its place once it is imported."""
    out = run_python(
        "from django.conf import settings\n"
        "import django\n"
        "settings.configure(INSTALLED_APPS=['django.contrib.contenttypes', 'django.contrib.auth',"
        " 'kumiko_django'], KUMIKO={'REDIS_URL': 'redis://localhost/0'})\n"
        "django.setup()\n"
        f"{first}\n"
        "import kumiko_django, types\n"
        "for name in kumiko_django.__all__:\n"
        "    namespace = {}\n"
        "    exec(f'from kumiko_django import {name}', namespace)\n"
        "    if isinstance(namespace[name], types.ModuleType):\n"
        "        sys.stdout.write(name + ' ')"
    )

    assert out == ""


def test_every_public_name_loads_and_a_misspelt_one_is_an_attribute_error() -> None:
    for name in kumiko_django.__all__:
        assert getattr(kumiko_django, name) is not None

    with pytest.raises(AttributeError, match="has no attribute 'dispach'"):
        kumiko_django.dispach  # noqa: B018
