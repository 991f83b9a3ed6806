"""``kumiko_django.testing.drain``."""

from __future__ import annotations
