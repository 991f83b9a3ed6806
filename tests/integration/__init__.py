"""Rooms together, with a real Redis and a real database."""

from __future__ import annotations
