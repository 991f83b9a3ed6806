"""Making values fit for every database, so that a record is never the reason to fail a run."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from django.db import models

from kumiko_django.history.models import JobRun, JobRunLog

# PostgreSQL takes neither NUL nor lone surrogates, in text or in JSON.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT = "\ufffd"
MAX_DEPTH = 100
"""SQLite reads JSON that is nested up to 1,000 levels deep, and Python not even that."""
_MAX_BITS = 4096
"""Python does not write longer numbers as text (it stops at 4,300 digits)."""


def clean_text(text: str, limit: int | None = None) -> str:
    """``text`` that every database stores, cut to ``limit`` characters."""
    text = _UNSTORABLE.sub(_REPLACEMENT, text)
    return text if limit is None else text[:limit]


def is_altered(text: str, column: str) -> bool:
    """Whether the text of a column may be another than the one that was to be stored there."""
    return _REPLACEMENT in text or len(text) >= column_limits()[column]


def clean_row(values: Mapping[str, Any]) -> dict[str, Any]:
    """Column values with unstorable characters replaced and texts cut to their column's width."""
    limits = column_limits()
    return {
        name: clean_text(value, limits.get(name))
        if isinstance(value, str)
        else _clean_json(value, 0)
        for name, value in values.items()
    }


def _clean_json(value: Any, depth: int) -> Any:
    """What Python's JSON has and JSON has not becomes text: another producer may have sent it."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return f"(a number of {value.bit_length()} bits)"
    if isinstance(value, list | dict) and depth > MAX_DEPTH:
        return f"(nested more than {MAX_DEPTH} levels deep)"
    if isinstance(value, list):
        return [_clean_json(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {clean_text(key): _clean_json(item, depth + 1) for key, item in value.items()}
    return value


@lru_cache(maxsize=1)
def column_limits() -> dict[str, int]:
    """Widths of the columns that hold text of a bounded length."""
    return {
        field.name: field.max_length
        for model in (JobRun, JobRunLog)
        for field in model._meta.get_fields()
        if isinstance(field, models.CharField) and field.max_length
    }
