"""The arithmetic and the table of the benchmarks."""

from __future__ import annotations
