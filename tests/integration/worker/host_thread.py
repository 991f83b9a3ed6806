"""A worker host in a thread of the test's process, so that signals and handlers can be spied on."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar
from uuid import UUID

from bullmq import Queue

from kumiko_django import JobDefinition
from kumiko_django.definitions.options import Lane
from kumiko_django.history.models import JobRun
from kumiko_django.worker.config import HostConfig
from kumiko_django.worker.host import Host
from tests.helpers.waiting import wait_until

T = TypeVar("T")
RETENTION = {"removeOnComplete": {"age": 60}, "removeOnFail": {"age": 60}}


class HostThread:
    """``Host`` on an event loop of its own. Tests get it from the fixture ``host``."""

    def __init__(self, config: HostConfig) -> None:
        self.config = config
        self.loop: asyncio.AbstractEventLoop | None = None
        self.finished: bool | None = None
        self.retired = False
        self.error: BaseException | None = None
        self._host: Host | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="test-host", daemon=True)

    def start(self) -> HostThread:
        self._thread.start()
        assert self._ready.wait(10), "the host has no event loop"
        return self

    def stop(self, timeout: float = 30) -> bool | None:
        """Ask it to stop, wait for its end, and say whether every handler had ended by itself."""
        self.ask_to_stop()
        return self.wait(timeout)

    def ask_to_stop(self) -> None:
        """Ask it to stop, and do not wait for it."""
        assert self.loop is not None
        assert self._host is not None
        if self._thread.is_alive() and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._host.request_stop)

    def wait(self, timeout: float = 30) -> bool | None:
        self._thread.join(timeout)
        assert not self._thread.is_alive(), f"the host still runs after {timeout:g} s"
        if self.error is not None:
            raise AssertionError(f"the host broke: {self.error!r}") from self.error
        return self.finished

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def seen(self) -> str:
        """What goes on in it: for whoever reads of a wait that was in vain."""
        lines = [f"--- {self._thread.name}: runs {self.running}, error {self.error!r}"]
        if (host := self._host) is not None:
            recorder = host._recorder
            lines.append(
                f"recorder: thread {recorder._thread.is_alive()}, unwritten {recorder._unwritten}, "
                f"batch {bool(recorder._batch)}, being written {bool(recorder._being_written)}, "
                f"away {recorder._database_is_away}, due at {recorder._due} of {time.monotonic()}"
            )
            for lane, consumer in host._consumers.items():
                channel, due = consumer._worker.channel, consumer._worker._next_due_ms
                lines.append(
                    f"{lane}: {consumer.running} slots, idle {consumer._idle is not None}, away "
                    f"{consumer._away}, stopping {consumer._stopping}, faults {consumer._faults}, "
                    f"calls {len(channel._waiting)} and {len(channel._exchanges)}, due {due}"
                )
        lines.append(self._tasks())
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            lines += [f"thread {names.get(ident)}:", *traceback.format_stack(frame)[-3:]]
        return "\n".join(lines)

    def _tasks(self) -> str:
        stacks, done = io.StringIO(), threading.Event()

        def collect() -> None:
            for task in asyncio.all_tasks(self.loop):
                task.print_stack(limit=4, file=stacks)
            done.set()

        if self.loop is None or not self.running:
            return "no event loop"
        self.loop.call_soon_threadsafe(collect)
        return stacks.getvalue() if done.wait(3) else "its event loop does not answer"

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - shown by wait(), if the test comes so far
            self.error = error
            traceback.print_exc()

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._host = Host(self.config)
        self._ready.set()
        self.finished = await self._host.run()
        self.retired = self._host.retired


class StartHost(Protocol):
    """``host``"""

    def __call__(
        self,
        *lanes: Lane,
        concurrency: int = 5,
        grace: float = 5,
        drain: bool = False,
    ) -> HostThread: ...


class Define(Protocol):
    """``define``"""

    def __call__(self, handler: Callable[..., Any], **options: Any) -> JobDefinition: ...


def ended_runs(job_id: str, count: int = 1, timeout: float = 15) -> list[JobRun]:
    """Wait until so many runs of a job have ended, and give all its runs in their order."""

    def runs() -> list[JobRun] | None:
        rows = list(JobRun.objects.filter(queue_job_id=job_id).order_by("start", "id"))
        ended = [run for run in rows if run.status != "running"]
        return rows if len(ended) >= count else None

    description = f"{count} runs of {job_id} have ended"
    return found(wait_until(runs, description=description, timeout=timeout))


def found(value: T | None) -> T:
    """The value, which is there."""
    assert value is not None
    return value


def ended_run(job_id: str, timeout: float = 15) -> JobRun:
    """Wait for the one run of a job."""
    (run,) = ended_runs(job_id, timeout=timeout)
    return run


def add_raw(
    redis_url: str, queue: str, jobs: Iterable[tuple[str, Any, dict[str, Any]]]
) -> list[str]:
    """Add jobs as another BullMQ client does, with the package's own ``Queue``; give their ids."""

    async def add() -> list[str]:
        client = Queue(queue, {"connection": redis_url})
        try:
            return [
                str((await client.add(name, data, {**RETENTION, **options})).id)
                for name, data, options in jobs
            ]
        finally:
            await client.close()

    return asyncio.run(add())


def lines_of(run_id: UUID) -> list[tuple[str, str]]:
    """The stored log of a run: level and message."""
    run = JobRun.objects.get(id=run_id)
    return [(line.level, line.message) for line in run.logs.all()]
