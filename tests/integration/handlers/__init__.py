"""Handlers: who may call what, in whose name, and what becomes of it."""

from __future__ import annotations
