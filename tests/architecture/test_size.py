"""The size budget: a module or function that outgrows it is split, or named here with a reason."""

from __future__ import annotations

import pytest

from tests.architecture.sources import Source, sources

pytestmark = pytest.mark.once

MODULE_LINES = 300
TEST_MODULE_LINES = 500
FUNCTION_LINES = 40

# "kumiko_django/room/module.py" or "kumiko_django/room/module.py:Class.function" -> the reason.
EXCEPTIONS: dict[str, str] = {}


def oversized() -> dict[str, str]:
    """Everything that is larger than its budget, with its size."""
    found: dict[str, str] = {}
    for source in sources("kumiko_django", "example_project", "benchmarks", "tests"):
        if source.is_migration:
            continue
        limit = TEST_MODULE_LINES if source.name.startswith("tests/") else MODULE_LINES
        if source.line_count > limit:
            found[source.name] = f"{source.line_count} lines of {limit}"
        found |= _long_functions(source)
    return found


def _long_functions(source: Source) -> dict[str, str]:
    return {
        f"{source.name}:{name}": f"{length} lines of {FUNCTION_LINES}"
        for name, length in source.functions()
        if length > FUNCTION_LINES
    }


def test_nothing_outgrows_its_budget_unnamed() -> None:
    unnamed = {name: size for name, size in oversized().items() if name not in EXCEPTIONS}

    assert not unnamed


def test_every_exception_is_still_needed_and_has_a_reason() -> None:
    needed = oversized()

    assert not [name for name, why in EXCEPTIONS.items() if name not in needed or not why]
