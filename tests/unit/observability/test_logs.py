"""The run on log records."""

from __future__ import annotations

import logging
import logging.config
from typing import Any

import pytest

from kumiko_django.observability.logs import FIELDS, RunContextFilter
from kumiko_django.types import ambient
from kumiko_django.types.ambient import RunIds, Scope
from kumiko_django.types.ids import uuid7

pytestmark = pytest.mark.once


def fields_of(**extra: Any) -> dict[str, Any]:
    record = logging.makeLogRecord({"msg": "m", **extra})
    assert RunContextFilter().filter(record)
    return {field: getattr(record, field) for field in FIELDS}


def test_outside_of_everything_the_fields_are_empty() -> None:
    assert fields_of() == dict.fromkeys(FIELDS, "")


def test_in_a_run_they_are_its_own() -> None:
    run_id = uuid7()
    values: dict[Any, Any] = {
        ambient.run: RunIds(run_id, "job-1"),
        ambient.handler: "billing:job:remind",
        ambient.scope: Scope("acme", "tenant"),
        ambient.correlation_id: "chain",
        ambient.request_id: "request",
    }
    with ambient.entered(values):
        assert fields_of() == {
            "run_id": str(run_id),
            "job_name": "billing:job:remind",
            "job_id": "job-1",
            "tenant_id": "acme",
            "correlation_id": "chain",
            "request_id": "request",
        }
        assert fields_of(tenant_id="globex", run_id="r") == {
            **fields_of(), "tenant_id": "globex", "run_id": "r",
        }  # fmt: skip
    assert fields_of() == dict.fromkeys(FIELDS, "")


def test_the_configuration_in_the_documentation_works(capsys: pytest.CaptureFixture[str]) -> None:
    """As Django's ``LOGGING`` is applied."""
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "filters": {"run": {"()": "kumiko_django.observability.logs.RunContextFilter"}},
            "formatters": {"line": {"format": "%(message)s job=%(job_name)s/%(job_id)s"}},
            "handlers": {
                "stderr": {
                    "class": "logging.StreamHandler", "formatter": "line", "filters": ["run"],
                }
            },
            "loggers": {"tests.observability": {"handlers": ["stderr"], "propagate": False}},
        }
    )  # fmt: skip
    logger = logging.getLogger("tests.observability")
    with ambient.entered({ambient.run: RunIds(uuid7(), "7"), ambient.handler: "a:job:b"}):
        logger.warning("inside")
    logger.warning("outside")
    logger.handlers.clear()
    assert capsys.readouterr().err == "inside job=a:job:b/7\noutside job=/\n"
