"""What a dispatch is made of, before anything is sent."""

from __future__ import annotations
