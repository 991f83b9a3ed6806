"""What is compared with what, and in which order (design 9: interleaved rounds)."""

from __future__ import annotations

import pytest

from benchmarks import variants
from benchmarks.variants import Variant

pytestmark = pytest.mark.once

CELERY = Variant("celery", "insert", "sync", 16, "postgres", "threads 16")


def test_every_combination_is_drained() -> None:
    """Issue "History that costs almost nothing", build 6."""
    assert len(set(variants.ours())) == 16


def test_a_no_op_of_the_raw_worker_is_one_whatever_our_database_and_handler() -> None:
    of_no_ops = {variant.raw() for variant in variants.ours(("noop",))}
    of_inserts = {variant.raw() for variant in variants.ours(("insert",))}

    assert of_no_ops == {Variant("raw", "noop", "async", c, "postgres") for c in (5, 16)}
    assert len(of_inserts) == 4
    assert {variant.mode for variant in of_inserts} == {"sync"}


def test_in_a_round_the_raw_worker_and_celery_stand_once_and_next_to_ours() -> None:
    ours = variants.ours(("insert",), (5, 16), ("postgres",))

    order = variants.round_of(ours, CELERY)

    assert [(variant.side, variant.concurrency) for variant in order] == [
        ("raw", 5), ("ours", 5), ("ours", 5),
        ("raw", 16), ("ours", 16), ("celery", 16), ("ours", 16),
    ]  # fmt: skip


def test_celery_is_left_out_where_nothing_of_ours_does_the_same() -> None:
    assert CELERY not in variants.round_of(variants.ours(("noop",)), CELERY)


def test_our_worker_is_the_command_that_users_run() -> None:
    command = Variant("ours", "noop", "sync", 16, "sqlite").worker_command()

    assert " ".join(command[2:]) == "django runjobs --lane worker --concurrency 16 -v 0"
