"""The doorway to the bullmq package: its scripts with the arguments that it builds itself.

The package's ``Queue`` is bound to one event loop and blocks for minutes while Redis is away
(bullmq-python 1.5, 1.6). So we let the package *build* each script call and send it ourselves, over
a synchronous or an asynchronous client.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha1
from typing import Any, Final

import msgpack
from bullmq.job import Job
from bullmq.redis_connection import SCRIPT_DEFINITIONS, loadScript
from bullmq.scripts import Scripts, raw2NextJobData

from kumiko_django.conf import get_settings

PUT_BACK_SCRIPT = "moveJobFromActiveToWait-9.lua"
"""Shipped with the package, but not offered by its classes."""


_DATA: Final = 1
"""Where the data stands among the arguments of the scripts that add a job."""


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """One call of a Lua script, ready to send.

    Attributes:
        script: File name of the package's script.
        keys: Its keys.
        args: Its arguments.
        rewrite: A job's key, and its data from now on, where the script itself has no room for
            it; written in the same step if the script does not refuse.
        own: One of our scripts that runs instead, with the package's within it.
    """

    script: str
    keys: Sequence[str]
    args: list[Any]
    rewrite: tuple[str, str] | None = None
    own: Script | None = None

    @property
    def code(self) -> Script:
        """What is to be run."""
        return self.own or script_of(self.script)


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the name that Redis knows it by."""

    text: str
    sha: str

    @classmethod
    def of(cls, text: str) -> Script:
        """A script of this text."""
        return cls(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


class _Capture:
    """Stands where the package expects registered scripts, and notes calls without making them."""

    def __getitem__(self, name: str) -> Callable[..., ScriptCall]:
        def note(
            keys: Sequence[str] = (), args: Sequence[Any] = (), client: object = None
        ) -> ScriptCall:
            return ScriptCall(SCRIPT_DEFINITIONS[name], list(keys), list(args))

        return note


class _NoConnection:
    """What ``Scripts`` wants of a connection when it only builds arguments."""

    conn = None
    commands = _Capture()


class QueueScripts:
    """Builds script calls for one queue."""

    def __init__(self, queue: str, prefix: str) -> None:
        self._scripts = Scripts(prefix, queue, _NoConnection())
        self.keys: dict[str, str] = self._scripts.keys
        # The two attributes that the package's Job reads of its queue.
        self.backend = self
        self.qualifiedName = f"{prefix}:{queue}"

    def add(
        self, name: str, data: str, options: dict[str, Any], scheduler_id: str | None = None
    ) -> ScriptCall:
        """The call that ``Queue.add`` would make; ``data`` is JSON.

        With ``scheduler_id``, the job is the next one of this scheduler.
        """
        job = Job(self, name, None, options)
        job.repeatJobKey = scheduler_id
        if options.get("delay"):
            call = self._scripts.addDelayedJob(job, options["delay"])
        elif options.get("priority"):
            call = self._scripts.addPrioritizedJob(job, options["priority"])
        else:
            call = self._scripts.addStandardJob(job, job.timestamp)
        made = _as_call(call)
        if made.args[_DATA] != "null":  # what the package has made of no data
            raise TypeError("bullmq has changed where the data of a job stands")
        made.args[_DATA] = data
        return made

    def extend_locks(self, job_ids: list[str], tokens: list[str], lock_ms: int) -> ScriptCall:
        """The call that renews the locks of running jobs and answers the ids that it could not."""
        return _as_call(self._scripts.extendJobLocks(job_ids, tokens, lock_ms))

    def complete(self, job: Job, result: Any, keep: Any, token: str, *, fetch: bool) -> ScriptCall:
        """The call that completes a running job and, with ``fetch``, takes the next one."""
        keys, args = self._scripts.moveToCompletedArgs(job, result, keep, token, fetch)
        return ScriptCall(SCRIPT_DEFINITIONS["moveToFinished"], keys, args)

    def fail(
        self, job: Job, fields: dict[str, str], keep: Any, token: str, *, fetch: bool
    ) -> ScriptCall:
        """The call that fails a running job for good; ``fields`` has the reason and the trace."""
        keys, args = self._scripts.moveToFailedArgs(
            job, fields["failedReason"], keep, token, fetch, fields
        )
        return ScriptCall(SCRIPT_DEFINITIONS["moveToFinished"], keys, args)

    def delay(
        self, job: Job, delay_ms: int, token: str, fields: dict[str, str], *, skip_attempt: bool
    ) -> ScriptCall:
        """The call that queues a running job again after a pause.

        Args:
            job: The job.
            delay_ms: How long.
            token: Its lock.
            fields: Of the job, written in the same step, before it is moved.
            skip_attempt: Whether it uses no attempt.
        """
        now_ms = round(time.time() * 1000)
        options = {"fieldsToUpdate": fields, "skipAttempt": skip_attempt}
        keys, args = self._scripts.moveToDelayedArgs(job.id, now_ms, token, delay_ms, options)
        return ScriptCall(SCRIPT_DEFINITIONS["moveToDelayed"], keys, args)

    def retry(self, job: Job, token: str, fields: dict[str, str]) -> ScriptCall:
        """The call that queues a running job again at once; it uses an attempt."""
        lifo = bool(job.opts.get("lifo"))
        keys, args = self._scripts.retryJobArgs(job.id, lifo, token, {"fieldsToUpdate": fields})
        return ScriptCall(SCRIPT_DEFINITIONS["retryJob"], keys, args)

    def park(self, job_id: str, delay_ms: int, token: str) -> ScriptCall:
        """The call that delays a running job, as it is; it uses no attempt."""
        now_ms = round(time.time() * 1000)
        options = {"skipAttempt": True}
        keys, args = self._scripts.moveToDelayedArgs(job_id, now_ms, token, delay_ms, options)
        return ScriptCall(SCRIPT_DEFINITIONS["moveToDelayed"], keys, args)

    def fetch(self, script: str, token: str, lock_ms: int) -> ScriptCall:
        """The call that takes the next job, as ``Worker`` makes it."""
        names = (
            "wait", "active", "prioritized", "events", "stalled", "limiter", "delayed", "paused",
            "meta", "pc", "marker",
        )  # fmt: skip
        options = {"token": token, "lockDuration": lock_ms, "limiter": None}
        packed = msgpack.packb(options, use_bin_type=True)
        keys = [self.keys[name] for name in names]
        return ScriptCall(script, keys, [self.keys[""], round(time.time() * 1000), packed])

    def put_back(self, job_id: str, token: str, data: str | None = None) -> ScriptCall:
        """The call that returns a running job to the front of the queue; it uses no attempt.

        Args:
            job_id: The job.
            token: Its lock.
            data: Its data from now on, as JSON; None where it stays.
        """
        names = (
            "active", "wait", "stalled", "paused", "meta", "limiter", "prioritized", "marker",
            "events",
        )  # fmt: skip
        keys = [self.keys[name] for name in names]
        key = f"{self.keys['']}{job_id}"
        rewrite = None if data is None else (key, data)
        return ScriptCall(PUT_BACK_SCRIPT, keys, [job_id, token, key], rewrite)


def queue_scripts(queue: str) -> QueueScripts:
    """The script builder of a queue in the current key space."""
    return _queue_scripts(queue, get_settings().key_prefix)


@lru_cache(maxsize=32)
def _queue_scripts(queue: str, prefix: str) -> QueueScripts:
    return QueueScripts(queue, prefix)


def fetched_of(answer: Any) -> tuple[dict[str, str], str | None, int]:
    """What a script has fetched: the job's fields, its id, and when the next delayed one is due.

    Nothing is None as id, also where the script answers with a bare 0 (bullmq-python 5).
    """
    data, job_id, _, due = raw2NextJobData(answer if isinstance(answer, list) else None)
    return data or {}, None if not job_id else str(job_id), int(due or 0)


@lru_cache(maxsize=64)
def script_text(file_name: str) -> str:
    """The Lua text of one of the package's scripts."""
    text: str = loadScript(file_name)
    return text


@lru_cache(maxsize=64)
def script_of(file_name: str) -> Script:
    """One of the package's scripts, with its name."""
    return Script.of(script_text(file_name))


def _as_call(value: Any) -> ScriptCall:
    if not isinstance(value, ScriptCall):  # the package changed how it builds calls
        raise TypeError(f"bullmq built {type(value).__name__} instead of a script call")
    return value
