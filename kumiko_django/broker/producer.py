"""Adding jobs to queues, from sync and async code, one or many (design 2: two clients, one script).

An id that Redis already holds makes an add a no-op, so every add may be repeated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import redis
import redis.asyncio
from redis.exceptions import NoScriptError

from kumiko_django.broker import door
from kumiko_django.broker.bullmq import ScriptCall, queue_scripts
from kumiko_django.broker.connection import async_client, sync_client
from kumiko_django.broker.door import Decision
from kumiko_django.broker.envelope import Envelope, as_json
from kumiko_django.broker.exchange import Command, aexchange, exchange
from kumiko_django.broker.keys import queue_name
from kumiko_django.broker.options import JobOptions
from kumiko_django.broker.rules import Rules
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
    text: str = ""
    rules: Rules | None = None

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
        rules: Rules | None = None,
    ) -> NewJob:
        """Encode an envelope.

        Raises:
            PayloadError: It cannot travel, or is too large.
        """
        data, text = envelope.encode()
        return cls(lane, name, job_id, data, options, timestamp_ms, text, rules)

    def call(self) -> ScriptCall:
        """The script call that queues it, through the door where there are rules (design 4)."""
        call = queue_scripts(queue_name(self.lane)).add(
            self.name,
            self.text or as_json(self.data),
            self.options.to_bullmq(self.job_id, self.timestamp_ms),
        )
        if self.rules is None:
            return call
        return door.admitting(call, self.lane, self.job_id, self.options.delay_ms, self.rules)


def add(job: NewJob) -> Decision:
    """Queue one job, if the door lets it in.

    Raises:
        BrokerUnavailable: Redis did not take it.
    """
    calls = [job.call()]
    with sync_client() as client:
        answers = _run(client, calls)
    return _checked(answers[0], job)


def add_many(jobs: Sequence[NewJob], added: list[Decision] | None = None) -> list[Decision]:
    """Queue many jobs, in their order, in as few round trips as is good.

    Args:
        jobs: The jobs.
        added: Filled with what was decided, as Redis takes them; also when it does not take all.

    Raises:
        BrokerUnavailable: Redis did not take them all; the message says how many it took. Adding
            the same jobs again is harmless.
    """
    added = [] if added is None else added
    for chunk in _chunks(jobs):
        with _counted(added, jobs), sync_client() as client:
            answers = _run(client, chunk)
        added += _all_checked(answers, jobs, len(added))
    return added


async def aadd(job: NewJob) -> Decision:
    """Queue one job from async code; see :func:`add`.

    Raises:
        BrokerUnavailable: Redis did not take it.
    """
    calls = [job.call()]
    async with async_client() as client:
        answers = await _arun(client, calls)
    return _checked(answers[0], job)


async def aadd_many(jobs: Sequence[NewJob]) -> list[Decision]:
    """Queue many jobs from async code; see :func:`add_many`.

    Raises:
        BrokerUnavailable: Redis did not take them all.
    """
    added: list[Decision] = []
    for chunk in _chunks(jobs):
        with _counted(added, jobs):
            async with async_client() as client:
                answers = await _arun(client, chunk)
        added += _all_checked(answers, jobs, len(added))
    return added


def known_ids(lane: Lane, job_ids: Sequence[str]) -> set[str]:
    """Which of these jobs are in a lane's queue, in whatever state.

    Raises:
        BrokerUnavailable: Redis does not answer.
    """
    base = queue_scripts(queue_name(lane)).keys[""]
    keys = [f"{base}{job_id}" for job_id in job_ids]
    if not keys:
        return set()
    with sync_client() as client:
        (count,) = _unless_failed(exchange(client, [("EXISTS", *keys)]))
        if not count:
            return set()
        answers = _unless_failed(exchange(client, [("EXISTS", key) for key in keys]))
    return {job_id for job_id, is_there in zip(job_ids, answers, strict=True) if is_there}


def _run(client: redis.Redis, calls: Sequence[ScriptCall]) -> list[Any]:
    commands = [_command(call) for call in calls]
    answers = exchange(client, commands)
    if any(isinstance(answer, NoScriptError) for answer in answers):
        exchange(client, _loads(calls))
        # All of them: in their order, and an add may be repeated.
        answers = exchange(client, commands)
    return _unless_failed(answers)


async def _arun(client: redis.asyncio.Redis, calls: Sequence[ScriptCall]) -> list[Any]:
    commands = [_command(call) for call in calls]
    answers = await aexchange(client, commands)
    if any(isinstance(answer, NoScriptError) for answer in answers):
        await aexchange(client, _loads(calls))
        answers = await aexchange(client, commands)
    return _unless_failed(answers)


def _command(call: ScriptCall) -> Command:
    return ("EVALSHA", call.code.sha, len(call.keys), *call.keys, *call.args)


def _loads(calls: Sequence[ScriptCall]) -> list[Command]:
    return [("SCRIPT", "LOAD", text) for text in {call.code.text for call in calls}]


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


@contextlib.contextmanager
def _counted(added: Sequence[Decision], jobs: Sequence[NewJob]) -> Iterator[None]:
    """Say in an error how many of several jobs are safe."""
    try:
        yield
    except BrokerUnavailable as error:
        if len(jobs) == 1:
            raise
        told = f"{error} {len(added):,} of {len(jobs):,} jobs had been queued."
        raise BrokerUnavailable(told) from error.__cause__


def _unless_failed(answers: list[Any]) -> list[Any]:
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return answers


def _all_checked(answers: list[Any], jobs: Sequence[NewJob], first: int) -> list[Decision]:
    return [_checked(answer, jobs[first + number]) for number, answer in enumerate(answers)]


def _checked(answer: Any, job: NewJob) -> Decision:
    # The package does not look at the answers of bulk adds (bullmq-python 1.16).
    code = door.refusal_of(answer)
    if code is not None:
        raise BrokerUnavailable(f"Redis refused to queue {job.name} ({job.job_id}): code {code}.")
    return Decision(job.job_id) if job.rules is None else door.decision_of(answer, job.job_id)
