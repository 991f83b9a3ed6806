"""Adding jobs to queues, from sync and async code, one or many (design 2: two clients, one script).

An id that Redis already holds makes an add a no-op, so every add may be repeated.
"""

from __future__ import annotations

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

CHUNK: Final = 500
"""Jobs that go to Redis together."""


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
        return _checked(script(keys=call.keys, args=call.args), job)


def add_many(jobs: Sequence[NewJob]) -> list[str]:
    """Queue many jobs, in their order, in as few round trips as is good.

    Raises:
        BrokerUnavailable: Redis did not take them all. Adding the same jobs again is harmless.
    """
    added: list[str] = []
    with sync_client() as client:
        for chunk in _chunks(jobs):
            pipeline = client.pipeline(transaction=False)
            for job in chunk:
                call = job.call()
                script = client.register_script(script_text(call.script))
                script(keys=call.keys, args=call.args, client=pipeline)
            answers = pipeline.execute()
            added += [_checked(answer, job) for answer, job in zip(answers, chunk, strict=True)]
    return added


async def aadd(job: NewJob) -> str:
    """Queue one job from async code; see :func:`add`.

    Raises:
        BrokerUnavailable: Redis did not take it.
    """
    call = job.call()
    async with async_client() as client:
        script = client.register_script(script_text(call.script))
        return _checked(await script(keys=call.keys, args=call.args), job)


async def aadd_many(jobs: Sequence[NewJob]) -> list[str]:
    """Queue many jobs from async code; see :func:`add_many`.

    Raises:
        BrokerUnavailable: Redis did not take them all. Adding the same jobs again is harmless.
    """
    added: list[str] = []
    for chunk in _chunks(jobs):
        async with async_client() as client:  # its time limit holds a chunk
            pipeline = client.pipeline(transaction=False)
            for job in chunk:
                call = job.call()
                script = client.register_script(script_text(call.script))
                await script(keys=call.keys, args=call.args, client=pipeline)
            answers = await pipeline.execute()
        added += [_checked(answer, job) for answer, job in zip(answers, chunk, strict=True)]
    return added


def _chunks(jobs: Sequence[NewJob]) -> Iterator[Sequence[NewJob]]:
    for first in range(0, len(jobs), CHUNK):
        yield jobs[first : first + CHUNK]


def _checked(answer: Any, job: NewJob) -> str:
    # The package does not look at the answers of bulk adds (bullmq-python 1.16).
    if isinstance(answer, int) and answer < 0:
        raise BrokerUnavailable(f"Redis refused to queue {job.name} ({job.job_id}): code {answer}.")
    return str(answer)
