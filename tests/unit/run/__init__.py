"""The room that runs one job."""

from __future__ import annotations
