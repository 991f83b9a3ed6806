"""The work itself: the same insert on every side."""

from __future__ import annotations

from typing import Any

from benchmarks.project.models import Row


def fields(data: dict[str, Any]) -> dict[str, Any]:
    """What of a job's data goes into the row; a queue may have added metadata of its own."""
    return {name: data[name] for name in ("number", "name", "amount")}


def insert(data: dict[str, Any]) -> None:
    """One ORM insert, in autocommit: one commit."""
    Row.objects.create(**fields(data))


async def ainsert(data: dict[str, Any]) -> None:
    """One ORM insert through Django's async interface."""
    await Row.objects.acreate(**fields(data))
