"""Making values fit for every database, so that a record is never the reason to fail a run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from django.db import models

from kumiko_django.history.models import JobRun, JobRunLog

# PostgreSQL takes neither NUL nor lone surrogates, in text or in JSON.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_REPLACEMENT = "\ufffd"


def clean_text(text: str, limit: int | None = None) -> str:
    """``text`` that every database stores, cut to ``limit`` characters."""
    text = _UNSTORABLE.sub(_REPLACEMENT, text)
    return text if limit is None else text[:limit]


def clean_row(values: Mapping[str, Any]) -> dict[str, Any]:
    """Column values with unstorable characters replaced and texts cut to their column's width."""
    limits = _limits()
    return {
        name: clean_text(value, limits.get(name)) if isinstance(value, str) else _clean_json(value)
        for name, value in values.items()
    }


def _clean_json(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_clean_json(item) for item in value]
    if isinstance(value, dict):
        return {clean_text(key): _clean_json(item) for key, item in value.items()}
    return value


@lru_cache(maxsize=1)
def _limits() -> dict[str, int]:
    return {
        field.name: field.max_length
        for model in (JobRun, JobRunLog)
        for field in model._meta.get_fields()
        if isinstance(field, models.CharField) and field.max_length
    }
