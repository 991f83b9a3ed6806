"""``escape_hatches`` and system-scoped apps: what a job may do is declared, and stays so."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from django.apps import apps

from kumiko_django import DefinitionError, JobDefinition
from kumiko_django.definitions.grants import Grants, is_system_scoped
from kumiko_django.definitions.summary import summary

pytestmark = pytest.mark.once


def handler(payload: Any, ctx: Any) -> None: ...


def defined(**options: Any) -> JobDefinition:
    return JobDefinition(**{"handler": handler, "app_label": "shop", **options})


def test_without_the_option_there_is_no_grant() -> None:
    definition = defined()

    assert definition.escape_hatches == {}
    assert "escape_hatches" not in summary(definition).options


def test_a_grant_has_a_reason_and_operators_see_both() -> None:
    """Design 7: every exception is declared and justified."""
    definition = defined(escape_hatches={"system_identity": "  letters for users "})

    assert definition.escape_hatches == {"system_identity": "letters for users"}
    assert definition.escape_hatches.get("unsafe_raw") is None
    assert summary(definition).options["escape_hatches"] == {"system_identity": "letters for users"}
    assert pickle.loads(pickle.dumps(definition)).escape_hatches == definition.escape_hatches  # noqa: S301


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"system_idenity": "x"}, "unknown grant 'system_idenity'. Did you mean 'system_identity'"),
        ({"root": "x"}, "unknown grant 'root'. Known: "),
        ({5: "x"}, "unknown grant 5"),
        ({"system_identity": ""}, "needs a reason that says why, not ''"),
        ({"system_identity": "  "}, "needs a reason"),
        ({"system_identity": None}, "needs a reason"),
        ({"system_identity": True}, "needs a reason"),
        ({"system_identity": "x" * 501}, "longer than 500 characters"),
        ("system_identity", "must map grants to reasons"),
        (["system_identity"], "must map grants to reasons"),
        (None, "must map grants to reasons"),
    ],
    ids=str,
)
def test_what_is_no_grant_is_refused(given: Any, message: str) -> None:
    """P10."""
    with pytest.raises(DefinitionError, match=f"test_grants.handler: .*{message}"):
        defined(escape_hatches=given)


def test_no_code_gives_itself_a_grant_at_run_time() -> None:
    """P103: neither through the definition nor through the mapping that it was made of."""
    given = {"system_identity": "why"}
    definition = defined(escape_hatches=given)
    given["unsafe_raw"] = "because I can"

    assert list(definition.escape_hatches) == ["system_identity"]
    assert isinstance(definition.escape_hatches, Grants)
    grants: Any = definition.__dict__["escape_hatches"]
    with pytest.raises(TypeError):
        grants["unsafe_raw"] = "because I can"
    with pytest.raises(AttributeError):
        grants.more = {}


@pytest.mark.parametrize(
    ("value", "expected"), [(True, True), (False, False), ("yes", False), (1, False)]
)
def test_system_scope_is_the_apps(
    monkeypatch: pytest.MonkeyPatch, value: Any, expected: bool
) -> None:
    """B016: the same job in a system-scoped app is system-scoped, in another app not."""
    config = apps.get_app_config("testapp")
    monkeypatch.setattr(config, "kumiko_system_scope", value, raising=False)

    assert is_system_scoped(defined(app_label="testapp")) is expected
    assert is_system_scoped(defined(app_label="auth")) is False
    assert is_system_scoped(defined(app_label="not-installed")) is False
