"""``drain()``: run all that is pending, in the process of the test, and raise what went wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.asyncio import async_unsafe

from kumiko_django import signals
from kumiko_django.audit import recorder as audit_recorder
from kumiko_django.broker import queues
from kumiko_django.broker.consumer import Consumer
from kumiko_django.broker.delivery import Delivery, Verdict
from kumiko_django.broker.hasten import hasten
from kumiko_django.broker.rules import Rules
from kumiko_django.definitions.options import LANES, Lane
from kumiko_django.history.recorder import Recorder
from kumiko_django.run.mailbox import Mailbox
from kumiko_django.run.outcome import Failed
from kumiko_django.run.runner import Runner
from kumiko_django.types.runinfo import RunInfo
from kumiko_django.worker import loop
from kumiko_django.worker.written import WrittenRecords

logger = logging.getLogger("kumiko_django.testing")

POLL_SECONDS = 0.005
CONNECT_SECONDS = 5.0
SETTLE_SECONDS = 5.0
_NAME = "kumiko-drain"


@async_unsafe("drain() would block the event loop - await adrain() instead.")
def drain(
    *,
    lanes: Sequence[Lane] = LANES,
    later: bool = False,
    timeout: float = 30.0,
    raise_failures: bool = True,
) -> list[RunInfo]:
    """Run everything that is pending, here and now, until nothing is left.

    Follow-up jobs run too, and retries without their pause. One job of a lane runs at a time. What
    is planned for later or deferred stays, unless ``later`` says otherwise; the next tick of a
    schedule always does.

    Handlers run as in a worker, in threads with database connections of their own. So the test
    needs real transactions: ``@pytest.mark.django_db(transaction=True)`` or a
    ``TransactionTestCase``.

    Args:
        lanes: The lanes whose jobs are run.
        later: Also run what is planned for later, at once.
        timeout: Seconds that all of it may take.
        raise_failures: Raise what handlers of jobs that failed for good have raised.

    Returns:
        The runs in the order in which they ended, failed attempts included.

    Raises:
        BaseException: What the handler of the one job that failed for good has raised.
        BaseExceptionGroup: Those of several jobs.
        TimeoutError: It took too long; the message says what was left.
        ImproperlyConfigured: A transaction is open here, whose rows handlers could not see.
        BrokerUnavailable: Redis is not reached.
        SynchronousOnlyOperation: Called from async code; use :func:`adrain`.
    """
    _refuse_open_transaction()
    ran = loop.run(_Drain(lanes, later=later).run(timeout))
    if raise_failures and ran.errors:
        raise _raisable(ran.errors)
    return ran.runs


async def adrain(
    *,
    lanes: Sequence[Lane] = LANES,
    later: bool = False,
    timeout: float = 30.0,  # noqa: ASYNC109  (handed on: it bounds the runs, not the call)
    raise_failures: bool = True,
) -> list[RunInfo]:
    """Run everything that is pending, from an async test; arguments and errors as :func:`drain`."""
    _refuse_open_transaction()
    return await asyncio.to_thread(
        drain, lanes=lanes, later=later, timeout=timeout, raise_failures=raise_failures
    )


def _refuse_open_transaction() -> None:
    for connection in connections.all(initialized_only=True):
        if connection.in_atomic_block:
            raise ImproperlyConfigured(
                f"A transaction is open on the database {connection.alias!r}. Jobs run in threads "
                "with connections of their own and would not see what it has written. Mark the "
                "test with @pytest.mark.django_db(transaction=True), or use a TransactionTestCase."
            )


def _raisable(errors: list[BaseException]) -> BaseException:
    if len(errors) == 1:
        return errors[0]
    return BaseExceptionGroup(f"{len(errors)} jobs failed", errors)


class _Ran:
    """What came of the jobs that one drain has run."""

    def __init__(self) -> None:
        self.runs: list[RunInfo] = []
        self.errors: list[BaseException] = []
        self._job_ids: set[str] = set()

    def expect(self, delivery: Delivery) -> None:
        """A run of ours begins; other workers of this process have their own."""
        self._job_ids.add(delivery.job_id)

    def note(self, *, run: RunInfo, outcome: Any, **_: Any) -> None:
        """Receive the signal of an end."""
        if run.job_id not in self._job_ids:
            return
        self.runs.append(run)
        if isinstance(outcome, Failed) and outcome.final and outcome.exception is not None:
            outcome.exception.add_note(f"In the job {run.job_name} ({run.job_id}).")
            self.errors.append(outcome.exception)


class _Desk:
    """The runner, with a note of what it is given."""

    def __init__(self, runner: Runner, ran: _Ran) -> None:
        self._runner, self._ran = runner, ran
        self.begun = 0

    def rules(self, delivery: Delivery) -> Rules | None:
        return self._runner.rules(delivery)

    async def skip(self, delivery: Delivery, reason: str) -> Verdict:
        return await self._runner.skip(delivery, reason)

    async def run(self, delivery: Delivery) -> Verdict:
        self.begun += 1
        self._ran.expect(delivery)
        return await self._runner.run(delivery)

    def has_room(self) -> bool:
        return self._runner.has_room()


class _Drain:
    """One drain."""

    def __init__(self, lanes: Sequence[Lane], *, later: bool) -> None:
        self._lanes = lanes
        self._later = later
        self._ran = _Ran()
        self._consumers: dict[Lane, Consumer] = {}
        self._consuming: list[asyncio.Task[None]] = []

    async def run(self, seconds: float) -> _Ran:
        client = await queues.connect(CONNECT_SECONDS)
        recorder = Recorder(Mailbox(asyncio.get_running_loop()).post)
        written = WrittenRecords(self._consumers)
        runner = Runner(recorder, _NAME, written.note)
        recorder.open()
        ends = (signals.job_completed, signals.job_failed)
        for signal in ends:
            signal.connect(self._ran.note, weak=False)
        try:
            desk = _Desk(runner, self._ran)
            self._consume(desk)
            await self._until_empty(client, desk, seconds)
        finally:
            runner.interrupt()
            await self._stop()
            await asyncio.to_thread(recorder.close, SETTLE_SECONDS)
            await asyncio.to_thread(audit_recorder.flush, SETTLE_SECONDS)
            written.tell()
            for consumer in self._consumers.values():
                await consumer.close()
            runner.close()
            await client.aclose()
            for signal in ends:
                signal.disconnect(self._ran.note)
        return self._ran

    def _consume(self, desk: _Desk) -> None:
        for lane in self._lanes:
            consumer = self._consumers[lane] = Consumer(lane, desk, concurrency=1, name=_NAME)
            self._consuming.append(asyncio.create_task(consumer.run()))

    async def _until_empty(self, client: queues.Client, desk: _Desk, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not await self._is_empty(client, desk):
                    await asyncio.sleep(POLL_SECONDS)
                    for task in self._consuming:
                        if task.done():
                            task.result()
        except TimeoutError:
            found = zip(self._lanes, await queues.counts_of(client, self._lanes), strict=True)
            counts = [f"{lane}: {of_lane}" for lane, of_lane in found]
            told = f"Not drained within {seconds:g} s. Left are {'; '.join(counts)}."
            raise TimeoutError(told) from None

    async def _is_empty(self, client: queues.Client, desk: _Desk) -> bool:
        if any(consumer.running for consumer in self._consumers.values()):
            return False
        begun = desk.begun
        counts = await queues.counts_of(client, self._lanes)
        busy = any(c.waiting or c.prioritized or c.active or c.due for c in counts)
        if busy or desk.begun > begun:
            return False
        return not sum([await hasten(lane, later=self._later) for lane in self._lanes])

    async def _stop(self) -> None:
        for consumer in self._consumers.values():
            consumer.stop_fetching()
        for task in self._consuming:
            with suppress(Exception):
                await task
        for consumer in self._consumers.values():
            consumer.leave()
            if await consumer.drain(SETTLE_SECONDS):
                logger.warning("A job of lane %s does not end and is left", consumer.lane)
