"""Events and signals, without a queue."""

from __future__ import annotations
