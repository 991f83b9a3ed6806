"""What has to hold for the house as a whole: its size, its doorways, its wheel and its docs."""

from __future__ import annotations
