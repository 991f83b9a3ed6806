"""``class Personal: fields = (...)`` inside a model: which of its columns hold personal data.

A mark sits on the column, by the names of table and column, and not on the class: it is personal by
whatever model a row is written, be it a parent, a proxy or an unmanaged twin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db.models import ManyToManyField, Model
from django.db.models.signals import class_prepared

from kumiko_django.exceptions import DefinitionError

_marked: dict[str, dict[str, str]] = {}
"""By table: its personal columns, and what they are called in messages."""
_many_to_many: set[tuple[type[Model], str]] = set()
_waiting: list[Callable[[], None]] = []
_EXAMPLE = "class Personal: fields = ('email',)"


def when_marked(action: Callable[[], None]) -> None:
    """Call ``action`` once there is a model with personal fields: now, or when one is made."""
    if _marked or _many_to_many:
        action()
    else:
        _waiting.append(action)


def personal_columns(table: str) -> Mapping[str, str]:
    """The personal columns of a table, each with its field as ``app.Model.field``."""
    return _marked.get(table, {})


def personal_relation(table: str) -> str | None:
    """The personal many-to-many field whose table this is, as ``app.Model.field``."""
    return _through_tables().get(table)


def any_marks() -> bool:
    """Whether there is a model with personal fields."""
    return bool(_marked or _many_to_many)


@cache
def _through_tables() -> dict[str, str]:
    # Not when a class is prepared: the other end, or its own through model, may not be there yet.
    found: dict[str, str] = {}
    for model, name in _many_to_many:
        field: Any = model._meta.get_field(name)
        found[field.remote_field.through._meta.db_table] = f"{model._meta.label}.{name}"
    return found


def named_fields(model: type[Model]) -> tuple[str, ...]:
    """What ``Personal`` of a model and of its parents names, each once.

    Raises:
        DefinitionError: One of them says it wrongly.
    """
    names: dict[str, None] = {}
    for parent in reversed(model.__mro__):
        mark = parent.__dict__.get("Personal")
        if isinstance(mark, type):
            names.update(dict.fromkeys(_fields_of(mark, f"{parent.__module__}.{parent.__name__}")))
    return tuple(names)


def _fields_of(mark: type, where: str) -> Iterable[str]:
    # Its own only: a Personal that is derived from another model's adds to that.
    given: Any = [
        value for each in reversed(mark.__mro__) if (value := each.__dict__.get("fields", mark))
        is not mark
    ]  # fmt: skip
    if not given:
        raise DefinitionError(f"{where}: Personal says no fields. Write {_EXAMPLE}, or drop it.")
    for value in given:
        if isinstance(value, str):
            raise DefinitionError(
                f"{where}: Personal.fields is a tuple of names; write fields = ({value!r},)."
            )
        if not isinstance(value, Sequence | set | frozenset) or not value:
            raise DefinitionError(
                f"{where}: Personal.fields must be a tuple of names of fields, not {value!r}. "
                f"Write {_EXAMPLE}."
            )
    return [name for value in given for name in value]


def _prepare(sender: type[Model], **_: Any) -> None:
    """Note the marks of a model, once Django has made the class."""
    if sender._meta.abstract or sender.__module__ == "__fake__":  # of a migration
        return
    for name in named_fields(sender):
        field = _field(sender, name)
        if isinstance(field, ManyToManyField):
            # It is inherited with its table.
            if field.model._meta.concrete_model is sender._meta.concrete_model:
                _many_to_many.add((field.model, name))
        else:
            owner = (field.model._meta.concrete_model or field.model)._meta
            _marked.setdefault(owner.db_table, {})[field.column] = f"{owner.label}.{name}"
    _through_tables.cache_clear()
    if _waiting and any_marks():
        waiting, _waiting[:] = list(_waiting), []
        for action in waiting:
            action()


def _field(model: type[Model], name: object) -> Any:
    label = model._meta.label
    try:
        field: Any = model._meta.get_field(name) if isinstance(name, str) else None
    except FieldDoesNotExist:
        field = None
    own = (*model._meta.concrete_fields, *model._meta.many_to_many)
    if field is None or field not in own:
        known = ", ".join(sorted(each.name for each in own))
        raise DefinitionError(
            f"{label}.Personal names {name!r}, which is no column or many-to-many field of its. "
            f"It has: {known}."
        )
    if field.name != name:
        raise DefinitionError(
            f"{label}.Personal names {name!r}, the column of a relation. Name the field: "
            f"{field.name!r}."
        )
    if field.primary_key:
        raise DefinitionError(
            f"{label}.Personal names {name!r}, the primary key, without which no row can be added. "
            "Mark the other fields, and give the row a key that says nothing."
        )
    return field


class_prepared.connect(_prepare, dispatch_uid="kumiko_django.privacy.marks.prepare")
