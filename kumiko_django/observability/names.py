"""Every metric and span by name: what it says, and which labels it has.

A label's values are few by design: lanes, states, outcomes, and the names of registered jobs. None
is a tenant, of which there may be thousands (spans and log records have it).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

EXECUTE: Final = "job.execute"
"""The span of a run (B137)."""
DISPATCH: Final = "job.dispatch"
"""The span of a dispatch, or of an event that starts jobs."""

NO_JOB: Final = "unknown"
"""The label ``job`` of runs whose job nobody here knows: their names are not ours to count."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        name: Its name.
        kind: What it is.
        labels: The labels that every series of it has.
        help: What it says.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


QUEUE_DEPTH: Final = Metric(
    "kumiko_job_queue_depth", "gauge", ("lane", "state"), "Jobs of a lane's queue in a state."
)
OLDEST_AGE: Final = Metric(
    "kumiko_job_oldest_waiting_age_seconds",
    "gauge",
    ("lane",),
    "For how long the job that waits longest could have run; 0 where none waits.",
)
POLL_ERRORS: Final = Metric(
    "kumiko_job_queue_poll_errors_total",
    "counter",
    (),
    "Times that a worker could not look at its queues, or at the history.",
)
DISPATCHED: Final = Metric(
    "kumiko_job_dispatched_total",
    "counter",
    ("job", "status"),
    "Jobs that were dispatched, by what became of it; failed ones too that nobody is told of.",
)
RUNS: Final = Metric(
    "kumiko_job_runs_total", "counter", ("job", "lane", "outcome"), "Runs, by what they came to."
)
DURATION: Final = Metric(
    "kumiko_job_duration_seconds",
    "histogram",
    ("job", "lane"),
    "From the preparation of a run to the end of its handler.",
)
WAIT: Final = Metric(
    "kumiko_job_wait_seconds",
    "histogram",
    ("job", "lane"),
    "From the time when a job was due to its first start.",
)
LAST_SUCCESS: Final = Metric(
    "kumiko_job_last_success_timestamp_seconds",
    "gauge",
    ("job",),
    "When the job was last completed, in seconds since 1970; 0 if it never was.",
)
PUT_BACK: Final = Metric(
    "kumiko_job_unknown_name_total",
    "counter",
    ("lane",),
    "Times that a job was put back because nobody here knows its name.",
)
HATCHES: Final = Metric(
    "kumiko_escape_hatch_uses_total",
    "counter",
    ("kind", "outcome"),
    "Times that an escape hatch was used, or was refused.",
)

METRICS: Final = (
    QUEUE_DEPTH,
    OLDEST_AGE,
    POLL_ERRORS,
    DISPATCHED,
    RUNS,
    DURATION,
    WAIT,
    LAST_SUCCESS,
    PUT_BACK,
    HATCHES,
)
