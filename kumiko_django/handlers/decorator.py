"""``@write_handler`` and ``@query_handler``: name what users and jobs may do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kumiko_django.definitions.explained import explained
from kumiko_django.exceptions import DefinitionError
from kumiko_django.handlers.definition import HandlerDefinition, Kind
from kumiko_django.handlers.registry import handlers

F = TypeVar("F", bound=Callable[..., Any])


@explained("@write_handler")
def write_handler(
    name: str = "",
    /,
    *,
    roles: Iterable[str] = (),
    schema: Any = None,
    using: str | None = None,
    app_label: str | None = None,
    description: str = "",
) -> Callable[[F], F]:
    """Register a function as the write ``<app>:write:<name>``. It stays callable as it was.

    It is a ``def`` that takes ``(payload, ctx)`` and runs in a transaction; what it returns has to
    have a JSON form. After the commit an event of its qualified name is emitted.

    Args:
        name: In kebab-case; by default the function's own.
        roles: Who may call it: names of groups, ``system`` (jobs), ``anonymous`` (everybody).
        schema: A pydantic model, dataclass or TypedDict that payloads must fit.
        using: The database of the transaction; by default the default database.
        app_label: By default the app whose package has the function.
        description: A sentence; by default the first line of the docstring.

    Raises:
        DefinitionError: A value is wrong or missing, or the name is taken.
    """
    return _registering(
        "write", name, roles, schema=schema, using=using, app_label=app_label,
        description=description,
    )  # fmt: skip


@explained("@query_handler")
def query_handler(
    name: str = "",
    /,
    *,
    roles: Iterable[str] = (),
    schema: Any = None,
    app_label: str | None = None,
    description: str = "",
) -> Callable[[F], F]:
    """Register a ``def`` or ``async def`` as the query ``<app>:query:<name>``; the rest as above.

    Arguments and errors as :func:`write_handler`. A query calls no writes.
    """
    return _registering(
        "query", name, roles, schema=schema, app_label=app_label, description=description
    )


def _registering(
    kind: Kind, name: object, roles: Iterable[str], **options: Any
) -> Callable[[F], F]:
    if not isinstance(name, str):
        raise DefinitionError(
            f"@{kind}_handler takes a name and roles: write @{kind}_handler('create-order', "
            f"roles=['staff']), not {name!r}."
        )

    def decorate(function: F) -> F:
        handlers.register(
            HandlerDefinition(kind, function, name, roles, **options)  # type: ignore[arg-type]
        )
        return function

    return decorate
