"""All drains of a run, interleaved, and their lines of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import redis

from benchmarks import celery_side, variants
from benchmarks.drain import Drained, drain
from benchmarks.figures import Bound, Spread, ratios
from benchmarks.options import Options
from benchmarks.progress import Say
from benchmarks.report import Line
from benchmarks.variants import Variant

Results = Mapping[Variant, Sequence[Drained]]

BOUNDS = {("noop", "async"): 1.1, ("noop", "sync"): 0.9}
INSERT_BOUND, CELERY_BOUND = 0.8, 1.5
MEGABYTE = 1024 * 1024


def measure(options: Options, client: redis.Redis, say: Say) -> list[Line]:
    """Every variant once a round, each next to what it is compared with."""
    celery = _fastest_celery(options, client, say) if "celery" in options.parts else None
    order = variants.round_of(list(options.drained), celery)
    results: dict[Variant, list[Drained]] = {variant: [] for variant in order}
    for number in range(1, options.rounds + 1):
        for variant in order:
            found = drain(variant, options.jobs_of(variant), client)
            results[variant].append(found)
            say(f"round {number}: {variant.name}: {_told(found)}")
    return [*_rates(options, results, celery), *_costs(options, results)]


def _told(found: Drained) -> str:
    memory = found.memory / MEGABYTE
    return f"{found.rate:,.0f}/s, {found.cpu:.2f} CPU s per 1,000 jobs, {memory:.0f} MB"


def _fastest_celery(options: Options, client: redis.Redis, say: Say) -> Variant:
    celery_side.install()
    celery_side.migrate()
    found: dict[Variant, float] = {}
    for pool in celery_side.POOLS:
        variant = Variant("celery", "insert", "sync", celery_side.CONCURRENCY, "postgres", pool)
        found[variant] = drain(variant, options.jobs_of(variant), client).rate
        say(f"trying {variant.name}: {found[variant]:,.0f}/s")
    return max(found, key=lambda variant: found[variant])


def _rates(options: Options, results: Results, celery: Variant | None) -> list[Line]:
    lines = []
    for variant in options.drained:
        lines.append(_rate(variant, results, variant.raw(), "raw bullmq", _bound(variant)))
        if celery and variants.is_beside(variant, celery):
            name = f"Celery ({celery.pool})"
            lines.append(_rate(variant, results, celery, name, Bound(CELERY_BOUND)))
    return lines


def _bound(variant: Variant) -> Bound | None:
    if variant.concurrency != 16 or variant.database != "postgres":
        return None
    return Bound(BOUNDS.get((variant.job, variant.mode), INSERT_BOUND))


def _rate(
    variant: Variant, results: Results, other: Variant, beside: str, bound: Bound | None
) -> Line:
    ours, theirs = ([found.rate for found in results[each]] for each in (variant, other))
    ratio = Spread.of(ratios(ours, theirs))
    what = f"drain: {variant.label}"
    return Line(what, Spread.of(ours), "/s", beside, Spread.of(theirs), ratio, bound)


def _costs(options: Options, results: Results) -> list[Line]:
    """CPU and memory, where it was measured at the concurrency that the bounds are for."""
    lines = []
    for variant in options.drained:
        if variant.concurrency != 16 or variant.database != "postgres":
            continue
        ours, raw = results[variant], results[variant.raw()]
        cpu = [[found.cpu for found in side] for side in (ours, raw)]
        memory = [[found.memory / MEGABYTE for found in side] for side in (ours, raw)]
        lines += [
            _cost(f"CPU per 1,000 jobs: {variant.label}", "s", *cpu),
            _cost(f"peak memory: {variant.label}", "MB", *memory),
        ]
    return lines


def _cost(what: str, unit: str, ours: list[float], raw: list[float]) -> Line:
    ratio = Spread.of(ratios(ours, raw))
    return Line(what, Spread.of(ours), unit, "raw bullmq", Spread.of(raw), ratio)
