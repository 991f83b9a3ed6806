"""The wheel: built from the checkout, with everything in it that an installed app needs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

from tests.architecture.sources import PACKAGE, ROOT

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, open."""
    target = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (built,) = target.glob("*.whl")
    return zipfile.ZipFile(built)


def _metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return Parser().parsestr(wheel.read(name).decode())


def test_every_file_of_the_package_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    """Type marker, migrations, templates, static files, translations and scripts included."""
    expected = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert "kumiko_django/py.typed" in expected
    assert any(name.startswith("kumiko_django/migrations/0001_") for name in expected)
    assert any(name.startswith("kumiko_django/templates/admin/kumiko/") for name in expected)
    assert expected <= set(wheel.namelist())


def test_nothing_else_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    roots = {Path(name).parts[0] for name in wheel.namelist()}

    assert roots == {"kumiko_django", "kumiko_django-0.1.0.dist-info"}


def test_the_metadata_names_the_ranges_that_are_tested(wheel: zipfile.ZipFile) -> None:
    metadata = _metadata(wheel)
    requirements = {line.split(";")[0].strip() for line in metadata.get_all("Requires-Dist", [])}

    assert metadata["Requires-Python"] == ">=3.11"
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert {"django>=5.2", "bullmq<3.5,>=3.4.4", "redis<9,>=6.2"} <= requirements
