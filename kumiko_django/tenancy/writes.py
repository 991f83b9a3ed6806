"""One function that every write of Django's ORM passes, whatever model and path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from django.db.models import Model

from kumiko_django.privacy.gate import refuse_personal

WriteOperation: TypeAlias = Literal["insert", "update", "delete"]
WriteGuard: TypeAlias = Callable[[type[Model], Sequence[str], WriteOperation, Sequence[Any]], None]

guards: list[WriteGuard] = [refuse_personal]
"""Asked in turn before a statement is made; one that raises refuses the write."""


def before_write(
    model: type[Model],
    fields: Sequence[str],
    operation: WriteOperation,
    rows: Sequence[Any] = (),
) -> None:
    """Ask the guards whether rows may be written.

    It is called for plain models too (those of migrations excepted), once for each table that a
    statement writes: the parents of a model with several tables, and through tables, are asked
    about apart.

    Args:
        model: Whose table is written.
        fields: The names of the fields that get a value; none when rows are deleted.
        operation: What is done.
        rows: The instances that are inserted.
    """
    for guard in guards:
        guard(model, fields, operation, rows)
