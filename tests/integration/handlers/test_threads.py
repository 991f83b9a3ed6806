"""A job's threads, in a worker of its own: what is outside of the run acts as nobody."""

from __future__ import annotations

import pytest

from tests.app.handlers import steps_out_of_its_run
from tests.app.models import Effect
from tests.helpers.fixtures import RunJobsFactory
from tests.unit.handlers.kit import user

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_bare_thread_is_no_way_around_the_grant(runjobs: RunJobsFactory) -> None:
    """P103, P106: nor around its record; one with the job's context is in the job."""
    mia = user("staff")
    steps_out_of_its_run.dispatch({"user": mia.pk}, tenant_id="acme")

    assert runjobs("worker", "--drain", ready=False).wait() == 0

    found = Effect.objects.get(key="found").value
    assert found is not None
    assert found["bare"].startswith("AccessDenied: testapp:write:note: called in a worker")
    assert (found["copied"], found["run"]) == (f"user {mia.pk}", "the system user")
