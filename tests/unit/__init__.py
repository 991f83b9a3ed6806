"""Tests of single rooms, without worker processes."""

from __future__ import annotations
