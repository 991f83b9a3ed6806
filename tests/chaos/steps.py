"""Where a worker process kills itself: before or after a step of its first run.

The table at the end is all that knows the product's inner names. A process with
``KUMIKO_TEST_STEP`` set wraps the methods of that step when Django has started, and sends itself
SIGKILL, or ``KUMIKO_TEST_STEP_SIGNAL``, when it gets there for the first time. A name that is gone
fails the process at its start, and so the test.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import signal
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from kumiko_django.broker import channel
from kumiko_django.broker.consumer import Consumer
from kumiko_django.broker.lane_worker import LaneWorker
from kumiko_django.history import recorder, writer
from kumiko_django.history.batch import Batch
from kumiko_django.history.recorder import Recorder
from kumiko_django.run.runner import Runner

Install: TypeAlias = Callable[[], None]
When: TypeAlias = Callable[..., bool]

_reached = threading.Event()


def install(step: str) -> None:
    """Wrap what the step needs."""
    STEPS[step]()


def die(*_: object) -> None:
    """End as the kernel ends a process when memory runs out; with SIGSTOP, stand still for once."""
    if _reached.is_set():
        return
    _reached.set()
    number = signal.Signals[os.environ.get("KUMIKO_TEST_STEP_SIGNAL") or "SIGKILL"]
    os.kill(os.getpid(), number)
    if number == signal.SIGKILL:
        signal.pause()  # the signal may take a moment; nothing more must be done here


def dies_before(owner: Any, name: str) -> Install:
    """Die when the method is called."""
    return lambda: _wrap(owner, name, before=die)


def dies_after(owner: Any, name: str, when: When | None = None) -> Install:
    """Die when the method has returned; with ``when``, if it holds for the result and arguments."""

    def die_if(result: object, *args: object) -> None:
        if when is None or when(result, *args):
            die()

    return lambda: _wrap(owner, name, after=die_if)


def dies_before_commit(of: Callable[[Batch], object]) -> Install:
    """Die when the first batch that has ``of`` is all but committed.

    Where a batch is one statement that commits by itself, that is just before the statement.
    """
    writing = threading.local()  # handlers commit too, in other threads

    def begin(alias: str, batch: Batch, *_: object) -> None:
        writing.now = bool(of(batch))

    def at_commit(*_: object) -> None:
        if getattr(writing, "now", False):
            die()

    def at_statement(alias: str, *_: object) -> None:
        if getattr(writing, "now", False) and connections[alias].get_autocommit():
            die()

    return together(
        lambda: _wrap(recorder, "write", before=begin),
        lambda: _wrap(BaseDatabaseWrapper, "_commit", before=at_commit),
        lambda: _wrap(writer, "upsert", before=at_statement),
    )


def dies_after_commit(of: Callable[[Batch], object]) -> Install:
    """Die when the first batch that has ``of`` has been committed."""
    return dies_after(recorder, "write", when=lambda result, alias, batch: bool(of(batch)))


def never_begins(owner: Any, name: str) -> Install:
    """Hold up the coroutine method for ever: what it does must not happen before the death."""

    async def hold(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    return lambda: setattr(owner, _existing(owner, name), hold)


def together(*installs: Install) -> Install:
    """Do all of these."""

    def wrap() -> None:
        for each in installs:
            each()

    return wrap


def _nothing(*_: object) -> None:
    pass


def _wrap(
    owner: Any,
    name: str,
    *,
    before: Callable[..., None] = _nothing,
    after: Callable[..., None] = _nothing,
) -> None:
    """Call ``before`` with the arguments, ``after`` with the result and the arguments."""
    original = getattr(owner, _existing(owner, name))

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        before(*args)
        result = original(*args, **kwargs)
        after(result, *args)
        return result

    @functools.wraps(original)
    async def wrapped_async(*args: Any, **kwargs: Any) -> Any:
        before(*args)
        result = await original(*args, **kwargs)
        after(result, *args)
        return result

    setattr(owner, name, wrapped_async if inspect.iscoroutinefunction(original) else wrapped)


def did(command: str) -> When:
    """Whether an exchange with Redis has done this command to the hash of records.

    A script that stores one has settled a job; ``HDEL`` drops records that are in the history.
    """

    def has_done(answers: list[Any], client: object, asked: list[tuple[Any, ...]]) -> bool:
        return any(
            words[0] == command
            and any(str(word).endswith(":unrecorded") for word in words)
            and not isinstance(answer, Exception)
            for words, answer in zip(asked, answers, strict=True)
        )

    return has_done


def _existing(owner: Any, name: str) -> str:
    if not hasattr(owner, name):
        raise AssertionError(f"tests/chaos/steps.py wraps {owner!r}.{name}, which is gone")
    return name


STEPS: dict[str, Install] = {
    "fetched": dies_before(Consumer, "_begin"),
    "start-noted": dies_after(Recorder, "run_started"),
    "start-written": together(
        never_begins(Runner, "_execute"), dies_after_commit(lambda batch: batch.starts)
    ),
    "start-written-in-handler": dies_after_commit(lambda batch: batch.starts),
    "handler-returned": dies_before(LaneWorker, "settle"),
    "queue-told": dies_after(channel, "aexchange", when=did("EVALSHA")),
    "settled": dies_after(LaneWorker, "settle"),
    "end-noted": dies_after(Recorder, "run_ended"),
    "end-before-commit": dies_before_commit(lambda batch: batch.ends),
    "end-committed": dies_after_commit(lambda batch: batch.ends),
    "record-dropped": dies_after(channel, "aexchange", when=did("HDEL")),
}
