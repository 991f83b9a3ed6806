"""What a job is: options, names, registry, schemas."""

from __future__ import annotations
