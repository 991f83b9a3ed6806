"""The definition of one handler: its name, its function, and who may call it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from django.db import connections

from kumiko_django.definitions import names
from kumiko_django.definitions.handler import check_handler, innermost, place, runs_on_loop
from kumiko_django.definitions.schema import PayloadSchema
from kumiko_django.exceptions import DefinitionError

Kind: TypeAlias = Literal["write", "query"]
KINDS: Final[tuple[Kind, ...]] = ("write", "query")


@dataclass(frozen=True, eq=False)
class HandlerDefinition:
    """What a handler is called, what it runs, and for whom.

    Attributes:
        kind: ``write`` or ``query``.
        function: Takes ``(payload, ctx)``. A write is a ``def``; a query may be an ``async def``.
        name: Short name in kebab-case; by default the function's own.
        roles: Who may call it; one of them is enough. Nobody else may (default deny).
        app_label: The app that it belongs to; by default the app whose package has the function.
        schema: A pydantic model, dataclass or TypedDict that payloads must fit.
        using: The database whose transaction a write runs in; None for the default database.
        description: A sentence; by default the first line of the function's docstring.

    Raises:
        DefinitionError: A value is wrong; the message names it and the fix.
    """

    kind: Kind
    function: Callable[..., Any]
    name: str = ""
    roles: frozenset[str] = frozenset()
    app_label: str | None = None
    schema: Any = None
    using: str | None = None
    description: str = ""
    payload_schema: PayloadSchema | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        where = self.where
        check_handler(self.function, where)
        if self.kind == "write" and self.is_async:
            raise DefinitionError(
                f"{where}: a write runs in a transaction, which Django has for sync code only. "
                "Write it as a def; async code calls it with awrite()."
            )
        self._set("name", self._short_name())
        self._set("roles", _check_roles(self.roles, where))
        self._check_using()
        if self.schema is not None:
            self._set("payload_schema", PayloadSchema(self.schema, where))
        if not self.description:
            doc = inspect.getdoc(innermost(self.function)) or ""
            self._set("description", doc.strip().split("\n", 1)[0])

    @property
    def where(self) -> str:
        """How messages call it."""
        return f"{self.kind} handler {'.'.join(place(self.function))}"

    @cached_property
    def is_async(self) -> bool:
        """Whether it runs on an event loop."""
        return runs_on_loop(self.function)

    @cached_property
    def qualified_name(self) -> str:
        """``<app-label>:write:<name>`` or ``<app-label>:query:<name>``.

        Raises:
            DefinitionError: The app is not known yet, or its label has no kebab-case form.
        """
        if self.app_label is None:
            raise DefinitionError(f"{self.where} belongs to no app yet; give app_label=.")
        return names.qualify(self.app_label, self.name, self.where, kind=self.kind)

    def assign_app(self, label: str) -> None:
        """Fill in the app of a definition that was made without one. The registry does this."""
        self._set("app_label", label)

    def _short_name(self) -> str:
        if self.name != "":
            return names.check_short_name(self.name, self.where)
        return names.name_after(getattr(self.function, "__name__", ""), self.where)

    def _check_using(self) -> None:
        if self.using is None:
            return
        if self.kind == "query":
            raise DefinitionError(f"{self.where}: a query has no transaction; drop using=.")
        if not isinstance(self.using, str) or self.using not in connections:
            raise DefinitionError(
                f"{self.where}: using={self.using!r} is not in DATABASES, which has "
                f"{', '.join(map(repr, connections))}."
            )

    def _set(self, attribute: str, value: object) -> None:
        object.__setattr__(self, attribute, value)


def _check_roles(roles: object, where: str) -> frozenset[str]:
    if isinstance(roles, str):
        raise DefinitionError(f"{where}: roles must be a list of names; write [{roles!r}].")
    if not isinstance(roles, Iterable):
        raise DefinitionError(f"{where}: roles must be a list of names, not {roles!r}.")
    given = list(roles)
    if not given:
        raise DefinitionError(
            f"{where}: roles says who may call it, and nobody may. Give names of groups, 'system' "
            "for jobs, or 'anonymous' for everybody."
        )
    for role in given:
        if not isinstance(role, str) or not role or role != role.strip():
            raise DefinitionError(
                f"{where}: a role is the name of a group, 'system' or 'anonymous', not {role!r}."
            )
    return frozenset(given)
