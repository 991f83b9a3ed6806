"""The gate: a chain of work that nobody stands behind does not write personal fields (B173).

It is asked before every statement of the ORM that writes, in views and in jobs, whatever the scope
and whatever has been lifted of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from django.db.models import Field, Model
from django.db.models.expressions import DatabaseDefault

from kumiko_django.exceptions import AccessDenied
from kumiko_django.privacy import marks
from kumiko_django.types import ambient


def refuse_personal(
    model: type[Model],
    fields: Sequence[str],
    operation: Literal["insert", "update", "delete"],
    rows: Sequence[Any] = (),
) -> None:
    """Refuse a write of personal data by a chain of work that began with an anonymous request.

    An update writes the fields that it names, whatever the values. A new row writes those that are
    not empty. To delete is not to write.

    Args:
        model: Whose table is written.
        fields: The fields that get a value.
        operation: What is done.
        rows: The new rows.

    Raises:
        AccessDenied: It may not; the message names model, field, and what would allow it.
    """
    if operation == "delete" or not marks.any_marks():
        return
    origin = ambient.write_origin.get()
    if origin is None or not origin.is_gated or ambient.accepts_personal_data.get():
        return
    table = model._meta.db_table
    relation = marks.personal_relation(table)
    if relation is not None:
        raise _denied(relation)
    personal = marks.personal_columns(table)
    for name in fields if personal else ():
        field: Any = model._meta.get_field(name)
        if field.column not in personal:
            continue
        if operation == "insert" and all(_is_empty(field, row) for row in rows):
            continue
        raise _denied(personal[field.column])


def _is_empty(field: Field[Any, Any], row: Model) -> bool:
    value = getattr(row, field.attname)
    if isinstance(value, DatabaseDefault):
        return True  # nothing that this chain of work knows
    if hasattr(value, "resolve_expression"):
        return False
    return value in list(field.empty_values)


def _denied(what: str) -> AccessDenied:
    job = ambient.handler.get()
    if job is not None:
        return AccessDenied(
            f"{what} holds personal data, and the job {job} works for an anonymous request, which "
            f"may not write it. If it must, say why in its definition: "
            f'accepts_personal_data="...". {_HINT}'
        )
    view = ambient.view_name.get()
    who = "this" if view is None else f"the view {view()}".rstrip()
    return AccessDenied(
        f"{what} holds personal data, and {who} is work for an anonymous request, which may not "
        f'write it. If it must, say why, on the view: @accepts_personal_data("..."). {_HINT}'
    )


_HINT = "A save() writes all fields, save(update_fields=[...]) those that it names."
