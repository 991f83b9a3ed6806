"""The door of the queues: admission as single steps in Redis (design 4).

What is kept there is said in ``scripts/lib.lua``. Which rules hold for a job is said by the room
``admission``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, TypeAlias

from kumiko_django.broker.bullmq import QueueScripts, ScriptCall
from kumiko_django.broker.connection import sync_client
from kumiko_django.broker.delivery import (
    Complete,
    Delivery,
    Fail,
    GiveBack,
    Retry,
    Settlement,
)
from kumiko_django.broker.lua import composed
from kumiko_django.broker.rules import Rules
from kumiko_django.conf import get_settings
from kumiko_django.definitions.options import Lane
from kumiko_django.types.results import Dispatched, Status

MARK: Final = "kumiko"
"""Field of a job that has come through the door; the turn it was given, where it needs one."""
_VOID: Final = "void"
_PARKED_MS: Final = 24 * 3600 * 1000
_FETCH: Final = "moveToActive-11.lua"

Plan: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Decision:
    """What the door has decided about a new job."""

    job_id: str
    status: Status = "queued"
    reason: str | None = None

    @property
    def is_accepted(self) -> bool:
        """Whether the job is in the queue."""
        return bool(Dispatched(self.status, self.job_id))


@dataclass(frozen=True, slots=True)
class Claim:
    """Whether a fetched job may run.

    Attributes:
        verdict: ``run``; ``parked``: it is out of our hands again; ``skipped``: it has to be ended
            unrun; ``lost``: it is another worker's by now.
        reason: Why it is skipped.
        fence: Rises with every slot that is claimed; 0 without one.
    """

    verdict: Literal["run", "parked", "skipped", "lost"]
    reason: str = ""
    fence: int = 0


def seen(delivery: Delivery, data: Mapping[str, str]) -> Delivery:
    """A delivery, with what its job's fields say about how it has come in."""
    is_tick, has_passed = "rjk" in data, MARK in data
    if not is_tick and not has_passed:
        return delivery
    return replace(delivery, is_tick=is_tick, has_passed=has_passed)


def is_void(data: Mapping[str, str]) -> bool:
    """Whether a later dispatch has taken the place of a fetched job."""
    return data.get(MARK) == _VOID


def admitting(call: ScriptCall, lane: Lane, job_id: str, delay_ms: int, rules: Rules) -> ScriptCall:
    """The call that adds a job, behind the door.

    Args:
        call: The package's call.
        lane: Where it goes.
        job_id: Its id.
        delay_ms: By how much its dispatch delays it.
        rules: What holds for it.
    """
    plan = _plan(rules, lane, job_id) | {"delay": delay_ms, "add": _all_of(call)}
    script = composed("lib", "door", add=call.script)
    return ScriptCall(call.script, call.keys, [*call.args, _json(plan)], own=script)


def decision_of(answer: Any, job_id: str) -> Decision:
    """What a call of :func:`admitting` has answered, refusals apart."""
    status, reason = answer
    return Decision(job_id, status, reason or None)


def refusal_of(answer: Any) -> str | None:
    """The code with which Redis has refused a job, if it has."""
    if isinstance(answer, int) and answer < 0:
        return str(answer)
    if isinstance(answer, list) and answer[0] == "refused":
        return str(answer[1])
    return None


def claiming(scripts: QueueScripts, delivery: Delivery, token: str, rules: Rules) -> ScriptCall:
    """The call that claims for a fetched job what it needs to run, or parks it."""
    postponing = scripts.park(delivery.job_id, _PARKED_MS, token)
    plan = _plan(rules, delivery.lane, delivery.job_id) | {
        "token": token,
        "tick": delivery.is_tick,
        "postpone": _all_of(postponing),
    }
    script = composed("lib", "claim", postpone=postponing.script)
    return ScriptCall(
        postponing.script, postponing.keys, [*postponing.args, _json(plan)], own=script
    )


def claim_of(answer: Any) -> Claim:
    """What a call of :func:`claiming` has answered."""
    match answer:
        case ["run", fence]:
            return Claim("run", fence=int(fence))
        case ["skipped", reason]:
            return Claim("skipped", reason=str(reason))
        case ["parked"]:
            return Claim("parked")
        case _:
            return Claim("lost")


def leaving(
    settling: ScriptCall,
    delivery: Delivery,
    token: str,
    settlement: Settlement,
    *,
    record: tuple[str, str, str] | None,
    fetch: ScriptCall | None,
) -> ScriptCall:
    """The call that settles a job which came through the door.

    Args:
        settling: The package's call; it fetches nothing.
        delivery: The job, with its rules.
        token: The lock it was fetched under.
        settlement: What became of it.
        record: Key, field and text of its run's record.
        fetch: The package's call that takes the next job.
    """
    plan = _plan(delivery.rules, delivery.lane, delivery.job_id)
    plan |= {"token": token, "ends": _ends(settlement), "settle": _all_of(settling)}
    keys, args = list(settling.keys), list(settling.args)
    if fetch is not None:
        first_key, first_arg = len(keys) + 1, len(args) + 1
        keys += fetch.keys
        args += fetch.args
        plan |= {"fetches": True, "fetch": [first_key, len(keys), first_arg, len(args)]}
    text, data = "", ""
    if record is not None:
        plan |= {"records": record[0], "field": record[1]}
        text = record[2]
    if settling.rewrite is not None:
        plan["rewritten"], data = settling.rewrite
    script = composed("lib", "leave", "settle", settle=settling.script, fetch=_FETCH)
    return ScriptCall(settling.script, keys, [*args, data, text, _json(plan)], own=script)


def fetching(scripts: QueueScripts, token: str, lock_ms: int) -> ScriptCall:
    """The call that takes the next job."""
    return scripts.fetch(_FETCH, token, lock_ms)


def releasing(delivery: Delivery, token: str, settlement: Settlement) -> ScriptCall:
    """The call that gives back what a job held that was settled by other means."""
    plan = _plan(delivery.rules, delivery.lane, delivery.job_id)
    plan |= {"token": token, "ends": _ends(settlement)}
    return ScriptCall("leave", [], [_json(plan)], own=composed("lib", "leave", "release"))


def sweep(age_ms: int, lock_ms: int, most: int, fewer: int) -> tuple[int, int]:
    """Look after keys with parked work, and with places; see ``scripts/sweep.lua``.

    Args:
        age_ms: Only keys that nobody has looked at for so long.
        lock_ms: Length of a lock.
        most: Keys with parked work at a time.
        fewer: Keys with places at a time.

    Returns:
        How many keys with parked work were looked at, and how many slots were granted.

    Raises:
        BrokerUnavailable: Redis does not answer.
    """
    plan = _bases() | {"age": age_ms, "lock": lock_ms, "most": most, "fewer": fewer}
    script = composed("lib", "sweep")
    # By one worker of all, now and then: not worth asking whether the server knows the script.
    with sync_client() as client:
        answer: Any = client.eval(script.text, 0, _json(plan))
    return int(answer[0]), int(answer[1])


def _ends(settlement: Settlement) -> str:
    match settlement:
        case Complete() | Fail():
            return "end"
        case GiveBack() | Retry(delay_ms=0):
            return "keep"  # it is the next one
        case _:
            return "turn"


def _plan(rules: Rules | None, lane: Lane, job_id: str) -> Plan:
    plan = _bases() | {"ref": f"{lane}:{job_id}"}
    if rules is not None:
        values = ((field.name, getattr(rules, field.name)) for field in fields(rules))
        plan["rules"] = {name: value for name, value in values if value}
    return plan


def base() -> str:
    """What all keys of the door begin with."""
    settings = get_settings()
    return f"{settings.key_prefix}:{settings.queue_prefix}:kumiko:admission:"


def _bases() -> Plan:
    settings = get_settings()
    return {"base": base(), "queues": f"{settings.key_prefix}:{settings.queue_prefix}-"}


def _all_of(call: ScriptCall) -> list[int]:
    """Keys and arguments of a call that stand first among those of the whole."""
    return [1, len(call.keys), 1, len(call.args)]


def _json(plan: Plan) -> str:
    return json.dumps(plan, separators=(",", ":"))
