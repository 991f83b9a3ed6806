"""Sphinx configuration."""

from __future__ import annotations

import tomllib
from pathlib import Path

_project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]

project = "Kumiko for Django"
author = "kumiko_django contributors"
copyright = f"2026, {author}"
release = version = _project["version"]

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = project
exclude_patterns = ["_build"]
