"""``@accepts_personal_data`` and the option of jobs: what they take, what they refuse (B173)."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from kumiko_django import DefinitionError, JobDefinition, accepts_personal_data
from kumiko_django.types import ambient

pytestmark = pytest.mark.once


def nothing(payload: Any, ctx: Any) -> None: ...


def test_a_view_stays_what_it_was() -> None:
    @accepts_personal_data("sign-up")
    def view(request: object) -> str | None:
        """The view's docstring."""
        return ambient.accepts_personal_data.get()

    @accepts_personal_data("sign-up")
    async def aview(request: object) -> None: ...

    assert view(None) == "sign-up"
    assert ambient.accepts_personal_data.get() is None, "nothing of it stays"
    assert (view.__name__, view.__doc__) == ("view", "The view's docstring.")
    assert inspect.iscoroutinefunction(aview)


def test_an_error_of_the_view_ends_it_too() -> None:
    @accepts_personal_data("sign-up")
    def view() -> None:
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        view()
    assert ambient.accepts_personal_data.get() is None


REASONS: list[Any] = ["", "  ", None, 5, "two\nlines", "x" * 256]


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_is_needed(reason: Any) -> None:
    with pytest.raises(DefinitionError, match="Write @accepts_personal_data"):
        accepts_personal_data(reason)
    if reason is not None:
        with pytest.raises(DefinitionError, match="accepts_personal_data: a reason is"):
            JobDefinition(handler=nothing, accepts_personal_data=reason)


def test_the_reason_is_kept() -> None:
    assert JobDefinition(handler=nothing).accepts_personal_data is None
    given = JobDefinition(handler=nothing, accepts_personal_data=" sign-up ")
    assert given.accepts_personal_data == "sign-up"


def test_it_is_for_functions_only() -> None:
    with pytest.raises(DefinitionError, match="has no reason"):
        accepts_personal_data(nothing)  # type: ignore[arg-type]

    class View: ...

    with pytest.raises(DefinitionError, match="method_decorator"):
        accepts_personal_data("sign-up")(View)


WRONG_FIELDS: dict[str, tuple[Any, str]] = {
    "text": ("customer_id", r"write \('customer_id',\)"),
    "number": (5, "must be a tuple of fields"),
    "no name": ((5,), "5 is none"),
    "empty": (("",), "'' is none"),
    "gap": (("a..b",), "'a..b' is none"),
    "metadata": (("_tenantId",), "'_tenantId' is none"),
    "twice": (("a", "a"), "'a' twice"),
}


@pytest.mark.parametrize("name", WRONG_FIELDS)
def test_wrong_subject_fields_are_refused(name: str) -> None:
    fields, message = WRONG_FIELDS[name]
    with pytest.raises(DefinitionError, match=message):
        JobDefinition(handler=nothing, subject_fields=fields)


def test_subject_fields_are_kept_as_a_tuple() -> None:
    given: Any = ["customer_id", "customer.id"]
    definition = JobDefinition(handler=nothing, subject_fields=given)
    assert definition.subject_fields == ("customer_id", "customer.id")
