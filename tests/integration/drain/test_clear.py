"""``clear()``: nothing of a test's queues is left for the next one."""

from __future__ import annotations

import pytest
import redis
from django.core.exceptions import ImproperlyConfigured, SynchronousOnlyOperation
from pytest_django import Settings

from kumiko_django import Cron, JobDefinition, dispatch, registry
from kumiko_django.testing import aclear, clear, drain
from tests.app.jobs import api_echo, record
from tests.app.models import Effect

pytestmark = pytest.mark.django_db(transaction=True)


def test_nothing_is_left(queue_prefix: str, raw_redis: redis.Redis) -> None:
    """Both lanes, what is planned, modes and schedules; and the queues work on."""
    with registry.isolated():
        alone = registry.register(
            JobDefinition(
                handler=lambda payload, ctx: None, name="alone", app_label="testapp",
                trigger=Cron("@daily"), tenant="system", concurrency="skip",
            )
        )  # fmt: skip
        record.dispatch({}, tenant_id="acme")
        drain()
        record.dispatch({}, tenant_id="acme", delay=60)
        api_echo.dispatch({}, tenant_id="acme")
        dispatch(alone)
        assert clear() > 0
        assert raw_redis.keys(f"*{queue_prefix}*") == []
        assert clear() == 0
        assert dispatch(alone), "it waits no more, so it is let in"
    Effect.objects.all().delete()
    clear()
    record.dispatch({}, tenant_id="acme")
    assert [run.job_name for run in drain()] == ["testapp:job:record"]
    assert Effect.objects.count() == 1


def test_other_prefixes_are_left_alone(
    queue_prefix: str, raw_redis: redis.Redis, settings: Settings
) -> None:
    """Also one that begins like ours."""
    theirs = {**settings.KUMIKO, "QUEUE_PREFIX": f"{queue_prefix}-worker-2"}
    ours, settings.KUMIKO = settings.KUMIKO, theirs
    record.dispatch({}, tenant_id="acme")
    settings.KUMIKO = ours
    record.dispatch({}, tenant_id="acme")

    clear()

    assert raw_redis.keys(f"*:{queue_prefix}-worker:*") == []
    assert len(raw_redis.keys(f"*:{queue_prefix}-worker-2-worker:wait")) == 1


def test_the_default_prefix_is_refused(settings: Settings) -> None:
    """On a developer's machine it is the site's."""
    settings.KUMIKO = {**settings.KUMIKO, "QUEUE_PREFIX": "kumiko-jobs"}
    with pytest.raises(ImproperlyConfigured, match="Give tests a QUEUE_PREFIX of their own"):
        clear()


async def test_from_an_async_test() -> None:
    with pytest.raises(SynchronousOnlyOperation, match="await aclear"):
        clear()
    await record.adispatch({}, tenant_id="acme")
    assert await aclear() > 0
