"""Dispatching with a real queue and a real database."""

from __future__ import annotations
