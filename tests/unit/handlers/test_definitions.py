"""Handlers as they are defined: names, roles, kinds, and what is refused (surroundings 3)."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from kumiko_django import DefinitionError, UnknownHandlerError, query_handler, write_handler
from kumiko_django.handlers.definition import HandlerDefinition
from kumiko_django.handlers.registry import handlers
from tests.unit.definitions.fresh import Project

pytestmark = pytest.mark.once


def create_order(payload: Any, ctx: Any) -> None:
    """Create an order.

    More of it.
    """


async def on_loop(payload: Any, ctx: Any) -> None: ...


@pytest.mark.parametrize("decorator", [write_handler, query_handler])
def test_a_misspelt_option_is_answered_with_the_nearest(decorator: Any) -> None:
    """P10: as with @job, not by a TypeError of Python's."""
    with pytest.raises(DefinitionError, match=r"@\w+_handler has no option 'role'. Did .* 'roles'"):
        decorator(role=["staff"])
    with pytest.raises(DefinitionError, match=r"@\w+_handler: too many positional arguments"):
        decorator("create-order", ["staff"])


def added() -> list[HandlerDefinition]:
    """What a test has registered, beside what the test app has."""
    return [one for one in handlers.all() if one.app_label != "testapp"]


def test_names_are_qualified_by_app_and_kind() -> None:
    """B015 for handlers: ``<app>:write:<name>``, ``<app>:query:<name>``; the function stays."""
    decorated = write_handler("create-order", roles=["staff"], app_label="web_shop")(create_order)
    query_handler(roles=("staff", "system"), app_label="web_shop")(on_loop)

    assert decorated is create_order
    written, asked = added()
    assert written.qualified_name == "web-shop:write:create-order"
    assert written.roles == {"staff"}
    assert written.description == "Create an order."
    assert (asked.qualified_name, asked.is_async) == ("web-shop:query:on-loop", True)


def test_one_name_may_be_a_write_and_a_query() -> None:
    for decorator in (write_handler, query_handler):
        decorator("orders", roles=["staff"], app_label="shop")(create_order)

    assert handlers.get("shop:write:orders", "write") is added()[0]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"roles": ()}, "roles says who may call it, and nobody may"),
    ({"roles": "staff"}, r"roles must be a list of names; write \['staff'\]"),
    ({"roles": None}, "roles must be a list of names, not None"),
    ({"roles": [5]}, "a role is the name of a group, 'system' or 'anonymous', not 5"),
    ({"roles": [""]}, "a role is the name of a group"),
    ({"roles": [" staff"]}, "a role is the name of a group"),
    ({"name": "Create"}, "kebab-case.*Try 'create'"),
    ({"name": "shop:write:create"}, "already qualified"),
    ({"name": "a" * 200}, "longer than 200 characters"),
    ({"function": None}, "must be a function"),
    ({"function": lambda payload: None}, "must be callable as handler"),
    ({"function": functools.partial(create_order), "name": ""}, "no name of its own"),
    ({"function": on_loop}, "a write runs in a transaction.*Write it as a def"),
    ({"schema": 5}, "schema must be a pydantic model"),
    ({"using": "elsewhere"}, "using='elsewhere' is not in DATABASES, which has 'default'"),
    ({"using": 5}, "using=5 is not in DATABASES"),
    ({"kind": "query", "using": "default"}, "a query has no transaction; drop using="),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=str)
def test_what_is_wrong_is_refused_with_the_fix(options: dict[str, Any], message: str) -> None:
    """P10; access is denied by default: a handler that nobody may call is a mistake."""
    given = {
        "kind": "write", "function": create_order, "name": "create", "roles": ["staff"],
        "app_label": "shop", **options,
    }  # fmt: skip
    with pytest.raises(DefinitionError, match=f"(?s){message}"):
        handlers.register(HandlerDefinition(**given))
    assert added() == []


def test_the_decorators_without_roles_or_parentheses_are_refused() -> None:
    with pytest.raises(DefinitionError, match="nobody may"):
        write_handler("create")(create_order)
    with pytest.raises(DefinitionError, match=r"write @query_handler\('create-order', roles="):
        query_handler(create_order)  # type: ignore[arg-type]


def test_a_name_is_taken_once_and_in_time() -> None:
    """B167: nothing is attached later, so no process knows other handlers than another."""
    write_handler("create", roles=["staff"], app_label="shop")(create_order)

    with pytest.raises(
        DefinitionError, match=r"'shop:write:create' of .*lambda.* is already taken"
    ):
        write_handler("create", roles=["x"], app_label="shop")(lambda payload, ctx: None)
    with pytest.raises(DefinitionError, match="is in no installed app"):
        write_handler("other", roles=["staff"])(create_order)
    handlers.freeze()
    with pytest.raises(DefinitionError, match=r"create_order comes too late"):
        write_handler("late", roles=["staff"], app_label="shop")(create_order)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("shop:write:creat", "write", "Did you mean 'shop:write:create'"),
        ("shop:write:create", "query", r"is a write handler; call it with write\(\)"),
        ("nothing", "write", "Give the qualified name, e.g. 'shop:write:create-order'"),
        ("else:query:nothing", "query", "INSTALLED_APPS and the handler in its handlers.py"),
        (None, "write", "No write handler is called None"),
        ({}, "write", "No write handler is called {}"),
    ],
)
def test_what_is_not_there_is_named(name: Any, kind: Any, message: str) -> None:
    """B166: what is missing is named, with the way to bring it."""
    write_handler("create", roles=["staff"], app_label="shop")(create_order)

    with pytest.raises(UnknownHandlerError, match=message):
        handlers.get(name, kind)


HANDLERS = """
    from kumiko_django import query_handler, write_handler

    @write_handler("create", roles=["staff"])
    def create(payload, ctx): ...

    @query_handler(roles=["staff"])
    def newest_orders(payload, ctx): ...
"""


def test_the_handlers_of_every_app_are_found(tmp_path: Path) -> None:
    """In ``handlers.py``, and in what ``jobs.py`` imports; an error inside is raised."""
    project = Project(tmp_path)
    project.app("shop", handlers=HANDLERS)
    project.app("mail", jobs="import mail.more", more=HANDLERS)
    show = (
        "from kumiko_django.handlers.registry import handlers\n"
        "print(sorted(one.qualified_name for one in handlers.all()))"
    )

    assert project.setup(show) == (
        "['mail:query:newest-orders', 'mail:write:create', 'shop:query:newest-orders',"
        " 'shop:write:create']"
    )
    project.app("shop", handlers="1 / 0")
    assert project.setup_error().startswith("ZeroDivisionError")
    project.app("shop", handlers=HANDLERS, models="import shop.handlers")
    assert "shop:write:create" in project.setup(show)
    early = "from shop import handlers\nfrom kumiko_django import write_handler"
    project.app("shop", handlers=HANDLERS, init=early, models="")
    assert "before Django has loaded its apps" in project.setup_error()
