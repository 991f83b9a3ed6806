"""What is public stands in the documentation: a name that is missing there fails here."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

import kumiko_django
from kumiko_django import signals
from kumiko_django.broker.depth import STATES
from kumiko_django.conf import Settings
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.models import (
    EscapeHatchUse,
    HatchKind,
    JobRun,
    JobRunLog,
    RunStatus,
    TenantVisibleFailure,
    TenantVisibleRun,
)
from kumiko_django.observability import names
from kumiko_django.observability.logs import FIELDS
from tests.architecture.sources import PACKAGE, ROOT, sources

pytestmark = pytest.mark.once

REFERENCE = ROOT / "docs" / "reference"
CHECK_ID = re.compile(r"kumiko\.[EWI]\d{3}")


def page(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text(encoding="utf-8")


def check_ids() -> list[str]:
    """Every check id that the package's code has, once for each time it is written."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("checks*.py"))]
    return CHECK_ID.findall("\n".join(texts))


def test_every_setting_is_documented_with_its_default() -> None:
    text = page("settings")
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| ([^|]+) \|", text, re.MULTILINE))

    assert set(rows) == {field.name.upper() for field in fields(Settings)}
    for field in fields(Settings):
        stated = rows[field.name.upper()].strip().strip("`").replace(",", "")
        if isinstance(field.default, str):
            assert stated == field.default
        elif isinstance(field.default, bool):
            assert stated == str(field.default), field.name
        elif isinstance(field.default, int | float):
            assert float(stated) == field.default, field.name
        else:
            assert field.default is None
            assert stated == "none"


def test_every_option_of_a_definition_is_documented() -> None:
    options = {f.name for f in fields(JobDefinition) if f.init} - {"handler"}
    documented = re.findall(r"^\| `([a-z_]+)` \|", page("definitions"), re.MULTILINE)

    assert sorted(documented) == sorted(options)


def test_every_check_id_is_unique_and_documented() -> None:
    ids = check_ids()
    documented = re.findall(r"^\| `(kumiko\.[EWI]\d{3})` \|", page("checks"), re.MULTILINE)

    assert ids
    assert len(ids) == len(set(ids))
    assert sorted(documented) == sorted(ids)


def exit_codes() -> set[int]:
    """Every named exit code: members of an ``ExitCode`` enumeration or ``EXIT_...`` constants."""
    codes: set[int] = set()
    for source in sources("kumiko_django/worker", "kumiko_django/management"):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef) and node.name == "ExitCode":
                codes |= set(_int_constants(node.body))
        codes |= set(_int_constants(source.tree.body, prefix="EXIT_"))
    return codes


def _int_constants(body: list[ast.stmt], prefix: str = "") -> Iterator[int]:
    for node in body:
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        named = isinstance(target, ast.Name) and target.id.startswith(prefix)
        if named and isinstance(node.value, ast.Constant) and isinstance(node.value.value, int):
            yield node.value.value


def test_every_exit_code_is_documented() -> None:
    documented = re.findall(r"^\| (\d+) \|", page("runjobs"), re.MULTILINE)
    of_argparse = {2}

    assert exit_codes()
    assert {int(code) for code in documented} == exit_codes() | of_argparse


def test_every_signal_is_documented() -> None:
    names = {name for name in vars(signals) if name.startswith(("job_", "dispatch_", "escape_"))}
    documented = set(re.findall(r"^\| `([a-z_]+)` \|", page("signals"), re.MULTILINE))

    assert names
    assert documented == names


def test_every_metric_span_and_log_field_is_documented() -> None:
    text = page("metrics")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| ([^|]+) \|", text, re.MULTILINE)
    documented = {name: (kind, re.findall(r"`(\w+)`", labels)) for name, kind, labels in rows}
    spans = re.findall(r"^\| `(job\.\w+)` \|", text, re.MULTILINE)
    log_fields = re.findall(r"^\| `(\w+_id|\w+_name)` \|", text, re.MULTILINE)

    declared = {metric.name: (metric.kind, [*metric.labels]) for metric in names.METRICS}
    assert {name: documented.get(name) for name in declared} == declared
    assert sorted(spans) == sorted([names.DISPATCH, names.EXECUTE])
    assert log_fields == list(FIELDS)
    assert not [state for state in STATES if f"`{state}`" not in text]


def test_every_column_and_status_of_the_history_is_documented() -> None:
    text = page("history")
    columns = {field.name for model in (JobRun, JobRunLog) for field in model._meta.concrete_fields}

    assert not {name for name in columns | set(RunStatus.values) if f"`{name}`" not in text}


def test_every_column_of_the_uses_of_escape_hatches_is_documented() -> None:
    text = page("escape-hatches")
    columns = {field.name for field in EscapeHatchUse._meta.concrete_fields}

    assert not {name for name in columns | set(HatchKind.values) if f"`{name}`" not in text}


def test_every_column_that_tenants_see_is_documented() -> None:
    text = page("tenant-visible")
    models = (TenantVisibleRun, TenantVisibleFailure)
    columns = {field.name for model in models for field in model._meta.concrete_fields}

    assert not {name for name in columns if f"`{name}`" not in text}


def test_every_public_name_is_documented() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in REFERENCE.glob("*.md"))

    assert not [name for name in kumiko_django.__all__ if not re.search(rf"`{name}\b", text)]


def test_the_table_of_names_is_complete() -> None:
    """It names the errors together, and the models, which a star import does not bring."""
    table = page("index").split("## Names in `kumiko_django`")[1].split("## ")[0]
    named = set(re.findall(r"`(\w+)`", table))
    errors = {
        name
        for name in kumiko_django.__all__
        if isinstance(getattr(kumiko_django, name), type)
        and issubclass(getattr(kumiko_django, name), kumiko_django.KumikoError)
    }

    assert set(kumiko_django.__all__) - errors <= named


def test_the_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert project["version"] == kumiko_django.__version__


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_between_our_own_files_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", path.read_text(encoding="utf-8"))

    assert not [link for link in links if not (path.parent / link).exists()]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_have_a_text(path: Path) -> None:
    """Sphinx would put in the title; whoever reads the file itself would see nothing."""
    assert "[](" not in path.read_text(encoding="utf-8")


def examples() -> Iterator[tuple[str, ast.Module]]:
    """Every Python example in the documentation, parsed, with the page it stands on."""
    for path in PAGES:
        for block in re.findall(
            r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL
        ):
            code = compile(
                block, path.name, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            )
            yield path.name, code


def test_examples_import_only_what_there_is() -> None:
    imports = [
        (page_name, node.module, alias.name)
        for page_name, code in examples()
        for node in ast.walk(code)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kumiko_django")
        for alias in node.names
    ]

    assert imports
    for page_name, module, name in imports:
        assert hasattr(import_module(module or ""), name), f"{page_name}: {module}.{name}"


def test_examples_give_only_options_and_settings_that_there_are() -> None:
    options = {f.name for f in fields(JobDefinition) if f.init}
    keys = {field.name.upper() for field in fields(Settings)}

    for page_name, code in examples():
        for node in ast.walk(code):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"job", "JobDefinition"}:
                assert {keyword.arg for keyword in node.keywords} <= options, page_name
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "KUMIKO":
                assert isinstance(node.value, ast.Dict)
                assert {ast.literal_eval(key) for key in node.value.keys if key} <= keys, page_name
