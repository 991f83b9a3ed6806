"""Fixtures of the tests that run single deliveries."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kumiko_django import JobDefinition
from kumiko_django.broker.delivery import Delivery, Fate, Settlement
from kumiko_django.definitions.registry import registry
from kumiko_django.history.recorder import Recorder
from kumiko_django.run.runner import Runner
from tests.unit.run.deliveries import NAME, Meanwhile, RunOne, delivery


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """Give an open recorder."""
    opened = Recorder()
    opened.open()
    yield opened
    opened.close(5)


@pytest.fixture
def run_one(recorder: Recorder) -> Iterator[RunOne]:
    """Run a handler for a delivery, once in a test: ``run_one(handler, retries=2)``."""
    with registry.isolated():

        def run(
            handler: Any,
            given: Delivery | None = None,
            interrupt: bool = False,
            fate: Fate = Fate.AGREED,
            meanwhile: Meanwhile | None = None,
            **options: Any,
        ) -> Settlement:
            registry.register(
                JobDefinition(handler=handler, app_label="testapp", name="under-test", **options)
            )

            async def main() -> Settlement:
                runner = Runner(recorder, "worker-1", lambda delivery: None)
                if interrupt:
                    runner.interrupt()
                try:
                    if meanwhile is not None:
                        loop = asyncio.get_running_loop()
                        threading.Thread(
                            target=lambda: meanwhile(loop, runner), daemon=True
                        ).start()
                    verdict = await runner.run(given or delivery(job_name=NAME))
                    await verdict.told(fate)
                    return verdict.settlement
                finally:
                    runner.close()

            settlement = asyncio.run(main())
            recorder.close(5)  # the end of a run waits for company
            return settlement

        yield run
