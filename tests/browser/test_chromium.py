"""A machine without a browser is told what it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.chromium import locate

pytestmark = pytest.mark.once


def test_without_chromium_the_message_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Without apt-get on the path nothing can be installed, not even as root.
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium chromium-driver"):
        locate()


def test_with_chromium_both_programs_are_found() -> None:
    found = locate()

    assert Path(found.browser).is_file()
    assert Path(found.driver).is_file()
