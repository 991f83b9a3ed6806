"""The commands; each only parses, and calls a room."""

from __future__ import annotations
