"""The helper that brings BullMQ's clients for Node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers import node

pytestmark = pytest.mark.once


def test_it_says_what_npm_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a registry the message names the command, the code and the cause; nothing is left."""
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:1")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "cache"))
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    with pytest.raises(node.NodeError, match=r"`npm ci` failed with code 1(.|\n)*ECONNREFUSED"):
        node._install(tmp_path / "made")
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_the_lock_names_no_registry() -> None:
    """npm asks the registry that it is configured for, on every machine."""
    lock = json.loads((node.FOLDER / "package-lock.json").read_text())
    packages = [package for name, package in lock["packages"].items() if name]
    assert packages
    assert not [package for package in packages if "resolved" in package]
    assert all(package["integrity"].startswith("sha512-") for package in packages)
