"""The facets of a handler's context."""

from __future__ import annotations
