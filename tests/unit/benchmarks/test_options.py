"""The command line of the benchmarks."""

from __future__ import annotations

import pytest

from benchmarks.options import parse
from benchmarks.variants import Variant

pytestmark = pytest.mark.once


def test_without_options_everything_is_measured_in_five_rounds() -> None:
    """Design 9: at least five interleaved rounds."""
    options = parse([])

    measured = {"drain", "celery", "dispatch", "fan-out", "door", "latency", "scope", "cost"}
    assert options.parts == measured
    assert options.rounds == 5
    assert len(options.drained) == 16


def test_everything_is_estimated_to_take_at_most_twenty_minutes() -> None:
    assert 10 * 60 < parse([]).estimate() <= 20 * 60


def test_a_quick_drain_is_the_one_with_the_first_bound() -> None:
    options = parse(["--quick", "--only", "drain"])

    assert options.rounds == 3
    assert options.drained == (
        Variant("ours", "noop", "async", 16, "postgres"),
        Variant("ours", "noop", "sync", 16, "postgres"),
    )


def test_celery_alone_brings_what_it_is_compared_with() -> None:
    drained = parse(["--only", "celery"]).drained

    assert {(v.job, v.concurrency, v.database) for v in drained} == {("insert", 16, "postgres")}
    assert "celery" not in parse(["--no-celery"]).parts


def test_an_insert_has_fewer_jobs_than_a_no_op() -> None:
    options = parse(["--jobs", "900"])
    jobs = {variant.job: options.jobs_of(variant) for variant in options.drained}

    assert jobs == {"noop": 900, "insert": 300}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--only", "drains"],
        ["--rounds", "0"],
        ["--jobs", "many"],
        ["--write", "--quick"],
        ["--write", "--rounds", "4"],
        ["--write", "--only", "drain"],
        ["--write", "--no-celery"],
    ],
)
def test_what_cannot_be_meant_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)

    assert ended.value.code == 2
    assert "error: " in capsys.readouterr().err
