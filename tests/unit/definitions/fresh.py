"""Small Django projects of real files, started in interpreters of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


class Project:
    """A folder with apps, and scripts that run in it.

    ::

        project.app("shop", jobs="...")
        assert project.run("import django; django.setup()").returncode == 0
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.apps: list[str] = []

    def app(self, package: str, **modules: str) -> None:
        """Add an app: ``jobs="..."`` is its ``jobs.py``, ``init`` its ``__init__.py``."""
        if package not in self.apps:
            self.apps.append(package)
        folder = self.folder.joinpath(*package.split("."))
        folder.mkdir(parents=True, exist_ok=True)
        modules.setdefault("init", "")
        for module, code in modules.items():
            name = "__init__" if module == "init" else module
            folder.joinpath(f"{name}.py").write_text(textwrap.dedent(code), encoding="utf-8")

    def setup(self, code: str = "", *, installed: list[str] | None = None) -> str:
        """Set Django up, run some code and give back what it wrote; fail if it failed."""
        done = self.run(self.configured(code, installed))
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def setup_error(self, code: str = "", *, installed: list[str] | None = None) -> str:
        """Do the same, and give back the last line of the error that it must end with."""
        done = self.run(self.configured(code, installed))
        assert done.returncode == 1, (done.stdout, done.stderr)
        return done.stderr.strip().splitlines()[-1]

    def configured(self, code: str, installed: list[str] | None) -> str:
        """Give the code that sets Django up before ``code``."""
        apps = ["kumiko_django", *self.apps] if installed is None else installed
        return (
            "from django.conf import settings\n"
            f"settings.configure(INSTALLED_APPS={apps!r}, DATABASES={{}}, USE_TZ=True,"
            " KUMIKO={'REDIS_URL': 'redis://localhost/0'})\n"
            "import django\n"
            "django.setup()\n"
            "from kumiko_django import registry\n"
            f"{textwrap.dedent(code)}"
        )

    def run(self, code: str) -> subprocess.CompletedProcess[str]:
        """Run a script in a fresh interpreter, with no settings unless it makes them."""
        return subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            cwd=self.folder,
            env={"PYTHONPATH": f"{ROOT}:{self.folder}", "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
