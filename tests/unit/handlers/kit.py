"""Shortcuts of the tests of handlers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import Group, User

from kumiko_django.handlers import HandlerContext, aquery, awrite, query, write
from kumiko_django.handlers.definition import HandlerDefinition
from kumiko_django.handlers.registry import handlers
from kumiko_django.types.hatches import HatchUse, hatch_port


class Define(Protocol):
    """The fixtures ``writes`` and ``queries``."""

    def __call__(self, function: Any = ..., **options: Any) -> str: ...


class Seen(list[HandlerContext]):
    """A handler that keeps the contexts that it was given."""

    __name__ = "seen"

    def __call__(self, payload: Any, ctx: HandlerContext) -> None:
        self.append(ctx)


def defines(kind: Any, function: Any, **options: Any) -> str:
    """Register a handler of the test app and give its qualified name."""
    options = {"app_label": "testapp", "name": "under-test", "roles": ["staff"], **options}
    return handlers.register(HandlerDefinition(kind, function, **options)).qualified_name


def user(*groups: str, name: str = "mia", **fields: Any) -> User:
    """A user in some groups."""
    created = User.objects.create_user(name, **fields)
    created.groups.set([Group.objects.get_or_create(name=group)[0] for group in groups])
    return created


def _sync_write(*args: Any, **kwargs: Any) -> Any:
    return async_to_sync(awrite)(*args, **kwargs)


def _sync_query(*args: Any, **kwargs: Any) -> Any:
    return async_to_sync(aquery)(*args, **kwargs)


both_writes = pytest.mark.parametrize("call", [write, _sync_write], ids=["sync", "async"])
both_queries = pytest.mark.parametrize("call", [query, _sync_query], ids=["sync", "async"])
both_kinds = pytest.mark.parametrize(
    ("kind", "call"),
    [("write", write), ("write", _sync_write), ("query", query), ("query", _sync_query)],
    ids=["write", "awrite", "query", "aquery"],
)


@contextmanager
def uses_told() -> Iterator[list[HatchUse]]:
    """What is reported of escape hatches within the block."""
    told: list[HatchUse] = []
    before = hatch_port.sink
    hatch_port.sink = told.append
    try:
        yield told
    finally:
        hatch_port.sink = before
