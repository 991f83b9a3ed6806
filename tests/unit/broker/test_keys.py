"""Names of queues and ids of jobs, to the letter."""

from __future__ import annotations

import hashlib

import pytest
from pytest_django import Settings

from kumiko_django.broker.keys import boot_id, child_id, queue_name, scheduler_id

pytestmark = pytest.mark.once


def test_queue_names(settings: Settings) -> None:
    """B031: prefix and lane; by default ``kumiko-jobs-worker`` and ``kumiko-jobs-api``."""
    settings.KUMIKO = {"REDIS_URL": "redis://h"}
    assert (queue_name("worker"), queue_name("api")) == ("kumiko-jobs-worker", "kumiko-jobs-api")
    settings.KUMIKO = {"REDIS_URL": "redis://h", "QUEUE_PREFIX": "other"}
    assert (queue_name("worker"), queue_name("api")) == ("other-worker", "other-api")


def test_ids_of_schedulers_and_boot_jobs() -> None:
    """B095, B096, B102: no colon, which BullMQ splits its keys at."""
    name = "publicstatus:job:uptime-probe"
    assert scheduler_id(name) == "scheduler-publicstatus-job-uptime-probe"
    assert boot_id(name) == "boot-publicstatus-job-uptime-probe"


def test_ids_of_children() -> None:
    """B065, B066: from wrapper and tenant alone, so a repeated fan-out adds nothing."""
    assert child_id("w.1:2", "acme") == "child-w-1-2-acme"
    assert child_id("w1", "tenant_7-A") == "child-w1-tenant_7-A"
    assert child_id("w1", "acme") == child_id("w1", "acme")


@pytest.mark.parametrize("tenant", ["a.b", "a:b", "a b", "ä", "a/b", "日本", "a-b\n"])
def test_ids_of_children_of_unusual_tenants(tenant: str) -> None:
    """B065, P40: ``a.b`` and ``a-b`` are two tenants; a hash of the raw pair tells them apart."""
    told_apart = child_id("w1", tenant)
    digest = hashlib.sha256(f"w1\0{tenant}".encode()).hexdigest()[:8]
    assert told_apart.endswith(f"-{digest}")
    assert ":" not in told_apart
    assert "." not in told_apart
    assert told_apart not in (child_id("w1", "a-b"), child_id("w1", "a-b-"))
