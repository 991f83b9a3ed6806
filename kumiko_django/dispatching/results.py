"""What a dispatch comes to; defined below the rooms that pass it on."""

from __future__ import annotations

from kumiko_django.types.results import Dispatched, Status

__all__ = ["Dispatched", "Status"]
