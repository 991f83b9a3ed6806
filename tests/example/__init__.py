"""The example project: its parts in process, its jobs and views in real processes, its demo."""

from __future__ import annotations
