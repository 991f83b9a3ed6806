"""The KUMIKO setting."""

from __future__ import annotations
