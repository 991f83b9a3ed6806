"""Modules that are only type-checked: what a user's editor and mypy see (never run)."""

from __future__ import annotations
