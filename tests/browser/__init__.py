"""The admin in a real browser."""

from __future__ import annotations
