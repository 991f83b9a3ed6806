"""The doorway to the bullmq package: its scripts with the arguments that it builds itself.

The package's ``Queue`` is bound to one event loop and blocks for minutes while Redis is away
(bullmq-python 1.5, 1.6). So we let the package *build* each script call and send it ourselves, over
a synchronous or an asynchronous client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from bullmq.job import Job
from bullmq.redis_connection import SCRIPT_DEFINITIONS, loadScript
from bullmq.scripts import Scripts

from kumiko_django.conf import get_settings

PUT_BACK_SCRIPT = "moveJobFromActiveToWait-9.lua"
"""Shipped with the package, but not offered by its classes."""


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """One call of a Lua script, ready to send."""

    script: str
    keys: Sequence[str]
    args: Sequence[Any]


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

    def add(self, name: str, data: Any, options: dict[str, Any]) -> ScriptCall:
        """The call that ``Queue.add`` would make."""
        job = Job(self, name, data, options)
        if options.get("delay"):
            call = self._scripts.addDelayedJob(job, options["delay"])
        elif options.get("priority"):
            call = self._scripts.addPrioritizedJob(job, options["priority"])
        else:
            call = self._scripts.addStandardJob(job, job.timestamp)
        return _as_call(call)

    def extend_locks(self, job_ids: list[str], tokens: list[str], lock_ms: int) -> ScriptCall:
        """The call that renews the locks of running jobs and answers the ids that it could not."""
        return _as_call(self._scripts.extendJobLocks(job_ids, tokens, lock_ms))

    def put_back(self, job_id: str, token: str) -> ScriptCall:
        """The call that returns a running job to the front of the queue; it uses no attempt."""
        names = (
            "active", "wait", "stalled", "paused", "meta", "limiter", "prioritized", "marker",
            "events",
        )  # fmt: skip
        keys = [self.keys[name] for name in names]
        return ScriptCall(PUT_BACK_SCRIPT, keys, [job_id, token, f"{self.keys['']}{job_id}"])


def queue_scripts(queue: str) -> QueueScripts:
    """The script builder of a queue in the current key space."""
    return _queue_scripts(queue, get_settings().key_prefix)


@lru_cache(maxsize=32)
def _queue_scripts(queue: str, prefix: str) -> QueueScripts:
    return QueueScripts(queue, prefix)


@lru_cache(maxsize=64)
def script_text(file_name: str) -> str:
    """The Lua text of one of the package's scripts."""
    text: str = loadScript(file_name)
    return text


def _as_call(value: Any) -> ScriptCall:
    if not isinstance(value, ScriptCall):  # the package changed how it builds calls
        raise TypeError(f"bullmq built {type(value).__name__} instead of a script call")
    return value
