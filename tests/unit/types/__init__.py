"""JSON conversion, scrubbing, ambient variables, ids."""

from __future__ import annotations
