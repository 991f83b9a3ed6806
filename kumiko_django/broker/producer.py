"""Adding jobs to queues, from sync and async code, one or many (design 2: two clients, one script).

An id that Redis already holds makes an add a no-op, so every add may be repeated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kumiko_django.broker.bullmq import ScriptCall, queue_scripts, script_text
from kumiko_django.broker.connection import async_client, sync_client
from kumiko_django.broker.envelope import Envelope
from kumiko_django.broker.keys import queue_name
from kumiko_django.broker.options import JobOptions
from kumiko_django.definitions.options import Lane
from kumiko_django.exceptions import BrokerUnavailable
from kumiko_django.types.jsonable import JSON

CHUNK_JOBS: Final = 250
CHUNK_BYTES: Final = 1024 * 1024
"""How many jobs go to Redis together, and how large these may be: each exchange has a time limit,
which also a slow machine with many of them at once must be able to keep."""


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job that is ready to be queued: encoded, validated, with its id."""

    lane: Lane
    name: str
    job_id: str
    data: dict[str, JSON]
    options: JobOptions
    timestamp_ms: int

    @classmethod
    def of(
        cls,
        envelope: Envelope,
        *,
        lane: Lane,
        name: str,
        job_id: str,
        options: JobOptions,
        timestamp_ms: int,
    ) -> NewJob:
        """Encode an envelope.

        Raises:
            PayloadError: It cannot travel, or is too large.
        """
        return cls(lane, name, job_id, envelope.to_data(), options, timestamp_ms)

    def call(self) -> ScriptCall:
        """The script call that queues it."""
        return queue_scripts(queue_name(self.lane)).add(
            self.name, self.data, self.options.to_bullmq(self.job_id, self.timestamp_ms)
        )


def add(job: NewJob) -> str:
    """Queue one job and give its id back.

    Raises:
        BrokerUnavailable: Redis did not take it.
    """
    call = job.call()
    with sync_client() as client:
        script = client.register_script(script_text(call.script))
        answer = script(keys=call.keys, args=call.args)
    return _checked(answer, job)


def add_many(jobs: Sequence[NewJob], added: list[str] | None = None) -> list[str]:
    """Queue many jobs, in their order, in as few round trips as is good.

    Args:
        jobs: The jobs.
        added: Filled with their ids as Redis takes them, also when it does not take them all.

    Raises:
        BrokerUnavailable: Redis did not take them all; the message says how many it took. Adding
            the same jobs again is harmless.
    """
    added = [] if added is None else added
    for chunk in _chunks(jobs):
        with _counted(added, jobs), sync_client() as client:
            pipeline = client.pipeline(transaction=False)
            scripts = _Scripts(client)
            for call in chunk:
                scripts[call.script](keys=call.keys, args=call.args, client=pipeline)
            answers = _unless_failed(pipeline.execute(raise_on_error=False))
        added += _all_checked(answers, jobs, len(added))
    return added


async def aadd(job: NewJob) -> str:
    """Queue one job from async code; see :func:`add`.

    Raises:
        BrokerUnavailable: Redis did not take it.
    """
    call = job.call()
    async with async_client() as client:
        script = client.register_script(script_text(call.script))
        answer = await script(keys=call.keys, args=call.args)
    return _checked(answer, job)


async def aadd_many(jobs: Sequence[NewJob]) -> list[str]:
    """Queue many jobs from async code; see :func:`add_many`.

    Raises:
        BrokerUnavailable: Redis did not take them all.
    """
    added: list[str] = []
    for chunk in _chunks(jobs):
        with _counted(added, jobs):
            async with async_client() as client:
                pipeline = client.pipeline(transaction=False)
                scripts = _Scripts(client)
                for call in chunk:
                    await scripts[call.script](keys=call.keys, args=call.args, client=pipeline)
                answers = _unless_failed(await pipeline.execute(raise_on_error=False))
        added += _all_checked(answers, jobs, len(added))
    return added


def _chunks(jobs: Sequence[NewJob]) -> Iterator[list[ScriptCall]]:
    """The jobs' calls in portions, built before the clock of an exchange starts."""
    chunk: list[ScriptCall] = []
    size = 0
    for job in jobs:
        call = job.call()
        more = sum(len(arg) for arg in call.args if isinstance(arg, str | bytes))
        if chunk and (len(chunk) == CHUNK_JOBS or size + more > CHUNK_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(call)
        size += more
    if chunk:
        yield chunk


class _Scripts(dict[str, Any]):
    """One script object per script: a pipeline asks Redis about each object that it is given."""

    def __init__(self, client: Any) -> None:
        super().__init__()
        self._client = client

    def __missing__(self, file_name: str) -> Any:
        script = self[file_name] = self._client.register_script(script_text(file_name))
        return script


@contextlib.contextmanager
def _counted(added: Sequence[str], jobs: Sequence[NewJob]) -> Iterator[None]:
    """Say in an error how many of several jobs are safe."""
    try:
        yield
    except BrokerUnavailable as error:
        if len(jobs) == 1:
            raise
        told = f"{error} {len(added):,} of {len(jobs):,} jobs had been queued."
        raise BrokerUnavailable(told) from error.__cause__


def _unless_failed(answers: list[Any]) -> list[Any]:
    # Left to itself a pipeline puts the failed command into the message, and with it the payload.
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


def _all_checked(answers: list[Any], jobs: Sequence[NewJob], first: int) -> list[str]:
    return [_checked(answer, jobs[first + number]) for number, answer in enumerate(answers)]


def _checked(answer: Any, job: NewJob) -> str:
    # The package does not look at the answers of bulk adds (bullmq-python 1.16).
    if isinstance(answer, int) and answer < 0:
        raise BrokerUnavailable(f"Redis refused to queue {job.name} ({job.job_id}): code {answer}.")
    return str(answer)
