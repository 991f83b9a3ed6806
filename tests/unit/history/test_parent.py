"""The run that a run comes from, on its way into the history (P43)."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from kumiko_django.history.models import JobRun
from kumiko_django.history.queries import ended_children
from kumiko_django.history.record import decode, encode
from kumiko_django.history.writer import write
from tests.unit.history.events import CREATED, batch, ended, started

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("parent", [None, uuid4()])
def test_a_record_keeps_the_parent(parent: object) -> None:
    start = started(parent=parent)
    assert decode(encode(start, ended(start.run_id)))[0] == start


def test_a_record_of_a_version_that_knew_no_parent_is_read() -> None:
    """What a worker of the version before has left beside the queue, during a deploy."""
    start = started()
    values = json.loads(encode(start, ended(start.run_id)))
    del values["parent"]
    assert decode(json.dumps(values))[0] == start


def test_the_parent_is_on_record_of_lost_runs_too() -> None:
    """The row that is written for a run that nobody has recorded is a child of the same parent."""
    parent = uuid4()
    write("default", batch(started(parent=parent, start=2, losses=1)))
    runs = JobRun.objects.order_by("start")
    assert [(run.status, run.parent) for run in runs] == [("lost", parent), ("running", parent)]


def test_which_children_have_ended() -> None:
    """P41: final runs only, of this lane, and not those of an older job of the same id."""
    earlier = started("wrapper", queue_created_at=CREATED.replace(second=1))
    this = started("wrapper", queue_created_at=CREATED)
    children = {
        "final": started("final", parent=this.run_id),
        "unnamed": started("unnamed"),
        "unknown-parent": started("unknown-parent", parent=uuid4()),
        "again": started("again", parent=this.run_id),
        "earlier": started("earlier", parent=earlier.run_id),
        "old": started("old", enqueued_at=CREATED.replace(year=2020)),
        "other-lane": started("other-lane", lane="api"),
    }
    ends = [
        ended(child.run_id, **{"again": {"status": "failed", "final": False}}.get(name, {}))
        for name, child in children.items()
    ]
    running = started("running")
    write("default", batch(earlier, this, running, *children.values(), ends=tuple(ends)))
    found = ended_children(
        "worker", [*children, "running", "nobody"], CREATED, wrapper_id="wrapper", queued_at=CREATED
    )
    assert found == {"final", "unnamed", "unknown-parent"}
