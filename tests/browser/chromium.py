"""Finding Chromium and its driver, or installing them."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import NamedTuple

import pytest

PACKAGES = ("chromium", "chromium-driver")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DRIVERS = ("chromedriver",)
INSTALL_SECONDS = 540
APT_GET = ("apt-get", "-q", "-o", "DPkg::Lock::Timeout=300")


class Chromium(NamedTuple):
    """Paths of the two programs."""

    browser: str
    driver: str


def locate() -> Chromium:
    """Give the two programs; as root on a machine with apt they are installed when missing.

    The test fails where they are not to be had: it is not skipped, or nobody would notice.
    """
    found = _look()
    if found is None and os.geteuid() == 0 and shutil.which(APT_GET[0]):
        _install()
        found = _look()
    if found is None:
        pytest.fail(
            "The browser tests need Chromium and chromedriver on the PATH. On Debian and Ubuntu: "
            f"apt-get install {' '.join(PACKAGES)}. To leave them out: pytest -m 'not browser'.",
            pytrace=False,
        )
    return found


def _look() -> Chromium | None:
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    driver = next((path for name in DRIVERS if (path := shutil.which(name))), None)
    return None if browser is None or driver is None else Chromium(browser, driver)


def _install() -> None:
    for command in (
        [*APT_GET, "update"],
        [*APT_GET, "install", "-y", "--no-install-recommends", *PACKAGES],
    ):
        done = subprocess.run(
            command,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
        if done.returncode:
            pytest.fail(f"{' '.join(command)} failed:\n{done.stderr[-2_000:]}", pytrace=False)
