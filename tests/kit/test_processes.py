"""Processes that a test starts see what the test sees."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from pytest_django import Settings

from tests.app.models import Order
from tests.app.tenants import active_tenants
from tests.helpers import kumiko_settings
from tests.helpers.processes import run_django, run_python

SHOW = """
import json, django
django.setup()
from django.conf import settings
from tests.app.models import Order
orders = list(Order.objects.values_list("number", flat=True))
print(json.dumps({"kumiko": settings.KUMIKO, "orders": orders}))
"""


@pytest.mark.django_db(transaction=True)
def test_a_child_sees_the_test_database_and_the_overridden_settings(settings: Settings) -> None:
    Order.objects.create(tenant_id="acme", number="A-1")
    settings.KUMIKO = {**settings.KUMIKO, "CONCURRENCY": 3, "COMPLETED_AGE": dt.timedelta(hours=1)}
    result = run_python(SHOW)
    assert result.returncode == 0, result.stderr
    shown = json.loads(result.stdout)
    assert shown["orders"] == ["A-1"]
    assert shown["kumiko"] == {**settings.KUMIKO, "COMPLETED_AGE": 3600}


@pytest.mark.once
@pytest.mark.django_db(transaction=True)
def test_a_child_that_hangs_is_ended_and_shown() -> None:
    with pytest.raises(AssertionError, match=r"still running after 1 s:\nso far"):
        run_python("import time; print('so far', flush=True); time.sleep(60)", timeout=1)


def test_settings_survive_the_way_through_the_environment() -> None:
    kumiko = {
        "REDIS_URL": "redis://:p%40ss@somewhere:1/2",
        "QUEUE_PREFIX": "p",
        "KEY_PREFIX": "k",
        "LOCK_SECONDS": 1.5,
        "GRACE": 3.0,
        "MAX_PAYLOAD_BYTES": 1000,
        "TENANTS": "tests.app.tenants.active_tenants",
    }
    environment = kumiko_settings.to_environment({**kumiko, "TENANTS": active_tenants})
    assert kumiko_settings.from_environment(environment) == kumiko


def test_tenancy_can_be_left_out() -> None:
    environment = kumiko_settings.to_environment({"REDIS_URL": "redis://x"})
    assert "TENANTS" not in kumiko_settings.from_environment(environment)


def test_an_unknown_setting_is_not_lost_on_the_way() -> None:
    with pytest.raises(AssertionError, match="does not know KUMIKO\\['NEW'\\]"):
        kumiko_settings.to_environment({"NEW": 1})


@pytest.mark.once
def test_no_migration_of_the_test_app_is_missing() -> None:
    result = run_django("makemigrations", "testapp", "--check", "--dry-run")
    assert result.returncode == 0, result.stdout + result.stderr
