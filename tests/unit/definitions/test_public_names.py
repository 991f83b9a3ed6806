"""What ``kumiko_django`` exports, with and without a Django that is set up."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path

import pytest

import kumiko_django
from kumiko_django import exceptions
from tests.unit.definitions.fresh import Project

pytestmark = pytest.mark.once

# Design section 3, "Names, exactly": those whose work is done.
EXPECTED = {
    "job", "registry", "JobDefinition", "Manual", "On", "Cron", "Every", "Backoff", "dispatch",
    "adispatch", "dispatch_many", "adispatch_many", "emit", "aemit", "bind_signal", "Dispatched",
    "JobContext", "tenant_scope", "system_scope",
    "current_tenant_id", "SYSTEM", "KumikoError", "DefinitionError", "SettingsError",
    "UnknownJobError", "PayloadError", "PayloadTooLarge", "TenantRequired", "ScopeError",
    "BrokerUnavailable", "Unrecoverable", "FacetMissing", "pending_count", "apending_count",
    "VisibleFailure", "VisibleRun", "accepts_personal_data",
    "write_handler", "query_handler", "AccessDenied", "UnknownHandlerError",
}  # fmt: skip
# Public as well, but no model can be made before Django's apps are there, as a star import would.
MODELS = {"TenantModel", "TenantMixin"}
LATER = {
    "RateLimit",
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_exactly_these_names_are_public() -> None:
    assert set(kumiko_django.__all__) == EXPECTED
    assert len(kumiko_django.__all__) == len(EXPECTED)
    assert set(dir(kumiko_django)) >= EXPECTED | MODELS
    assert set(kumiko_django._HOMES) - EXPECTED == MODELS


def test_what_is_not_built_yet_is_not_there() -> None:
    for name in LATER:
        assert not hasattr(kumiko_django, name), name


def test_every_error_is_public_and_a_kumiko_error() -> None:
    errors = {
        name: value
        for name, value in vars(exceptions).items()
        if inspect.isclass(value) and value.__module__ == exceptions.__name__
    }

    for name, error in errors.items():
        assert issubclass(error, kumiko_django.KumikoError)
        assert getattr(kumiko_django, name) is error


def test_names_that_load_later_are_those_that_type_checkers_see() -> None:
    """Both lists are written by hand, one for Python and one for type checkers."""
    tree = ast.parse(Path(kumiko_django.__file__).read_text(encoding="utf-8"))
    typed = {
        alias.name: node.module
        for branch in tree.body
        if isinstance(branch, ast.If)
        for node in branch.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    assert typed == {name: f"kumiko_django.{home}" for name, home in kumiko_django._HOMES.items()}
    for name, home in typed.items():
        module = importlib.import_module(home or "")
        assert getattr(module, name) is getattr(kumiko_django, name)


def test_a_star_import_gives_them_all_without_any_settings(project: Project) -> None:
    done = project.run(
        "import kumiko_django\n"
        "from kumiko_django import *\n"
        "missing = [name for name in kumiko_django.__all__ if name not in globals()]\n"
        "assert not missing, missing\n"
        "assert kumiko_django.job is job and kumiko_django.dispatch is dispatch\n"
    )

    assert done.returncode == 0, done.stderr


def test_each_name_can_be_the_first_that_is_imported(project: Project) -> None:
    """No name needs another to be loaded before it, nor settings."""
    done = project.run(
        "import os, sys\n"
        f"for name in {sorted(EXPECTED)}:\n"
        "    if (child := os.fork()) == 0:\n"
        "        try:\n"
        "            exec(f'from kumiko_django import {name}')\n"
        "        except BaseException as error:\n"
        "            os.write(1, f'{name}: {error!r}\\n'.encode())\n"
        "            os._exit(1)\n"
        "        os._exit(0)\n"
        "    assert os.waitpid(child, 0)[1] == 0, name\n"
    )

    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (
            "dispatch('shop:job:send')",
            "KumikoError: Jobs are looked up or dispatched before Django",
        ),
        ("dispatch(len)", "KumikoError: Jobs are looked up or dispatched before Django"),
        ("registry.get('shop:job:send')", "KumikoError: Jobs are looked up or dispatched before"),
        (
            "job(name='a')(lambda payload, ctx: 1)",
            "ImproperlyConfigured: Requested setting INSTALLED",
        ),
        ("current_tenant_id()", "ImproperlyConfigured: Requested setting KUMIKO, but settings are"),
        ("tenant_scope('a').__enter__()", "ImproperlyConfigured: Requested setting KUMIKO"),
    ],
)
def test_used_before_django_is_set_up_they_say_so(use: str, message: str, project: Project) -> None:
    done = project.run(f"from kumiko_django import *\n{use}")

    assert message in done.stderr.strip().splitlines()[-1]


def test_a_lookup_before_the_setup_does_not_spoil_the_setup(project: Project) -> None:
    """It used to freeze the registry: the setup then refused every job as too late."""
    project.app("shop", jobs="from kumiko_django import job\n@job\ndef send(payload, ctx): ...")
    early = (
        "from kumiko_django import KumikoError, registry\n"
        "try:\n"
        "    registry.get('shop:job:send')\n"
        "except KumikoError:\n"
        "    pass\n"
    )
    done = project.run(
        early + project.configured("print(registry.get('shop:job:send').name)", None)
    )

    assert (done.returncode, done.stdout.strip()) == (0, "send"), done.stderr


def test_a_misspelt_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'kumiko_django' has no attribute 'Cronn'"):
        kumiko_django.Cronn  # noqa: B018
    with pytest.raises(ImportError):
        exec("from kumiko_django import Nothing")  # noqa: S102  (a literal)


def test_the_version_is_there() -> None:
    assert kumiko_django.__version__.count(".") == 2
