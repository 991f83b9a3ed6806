"""What has been used and how often, as it is kept until it is on record."""

from __future__ import annotations

import datetime as dt
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from uuid import UUID

from kumiko_django.audit.models import MAX_DETAIL_LENGTH, EscapeHatchUse
from kumiko_django.definitions.job import JobDefinition
from kumiko_django.definitions.registry import registry
from kumiko_django.definitions.triggers import Cron, Every
from kumiko_django.exceptions import KumikoError
from kumiko_django.types.hatches import HatchUse
from kumiko_django.types.ids import uuid7

WINDOW: Final = 3600.0
"""Seconds in which uses that are alike are one record. That of a run ends with the run at the
latest, unless a clock started it."""
Key: TypeAlias = tuple[Hashable, ...]
_SEPARATOR: Final = "; "
_MORE: Final = "; …"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A window as it is to be written."""

    window: Window
    count: int
    detail: str
    last_used_at: dt.datetime

    def row(self) -> EscapeHatchUse:
        """The record."""
        window, use = self.window, self.window.use
        return EscapeHatchUse(
            id=window.id,
            kind=_plain(use.kind, 32),
            refused=use.refused,
            job_name=_plain(use.job_name, 200),
            run_id=use.run_id,
            tenant_id=_plain(use.tenant_id, 128),
            actor_id=_plain(use.actor_id, 255),
            caller_id=_plain(use.caller_id or "", 255),
            reason=_plain(use.reason, 500),
            detail=self.detail,
            count=self.count,
            used_at=window.used_at,
            last_used_at=self.last_used_at,
        )


@dataclass(slots=True, eq=False)
class Window:
    """Uses that are alike.

    Attributes:
        use: The first of them.
        opened: When that was, by a clock that only runs forward.
        count: How many there are.
        stored: How many of these are on record; 0 where nothing is (P107).
        tried: Whether it has been written perhaps: the answer may have been lost.
    """

    use: HatchUse
    opened: float
    id: UUID = field(default_factory=uuid7)
    used_at: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))
    last_used_at: dt.datetime = field(init=False)
    count: int = 0
    stored: int = 0
    tried: bool = False
    details: str = ""

    def add(self, use: HatchUse) -> None:
        """Count one more, and note what was done if that is new and there is room."""
        self.count += 1
        self.last_used_at = dt.datetime.now(dt.UTC)
        room = MAX_DETAIL_LENGTH - len(_MORE)
        detail = _plain(use.detail, room)
        if not detail or self.details.endswith(_MORE):
            return
        known = self.details.split(_SEPARATOR) if self.details else []
        longer = _SEPARATOR.join([*known, detail])
        if detail not in known:
            self.details = longer if len(longer) <= room else f"{self.details}{_MORE}"

    def is_over(self, now: float) -> bool:
        """Whether the next use begins another window."""
        return now - self.opened >= WINDOW

    def snapshot(self) -> Snapshot:
        """As it is now."""
        return Snapshot(self, self.count, self.details, self.last_used_at)


def key_of(use: HatchUse) -> Key:
    """What uses that are alike have in common.

    The run is part of it (B140, B152), except where a clock starts a job again and again: what all
    its runs do is one window of the process (B153).
    """
    return (
        None if is_clockwork(use) else use.run_id,
        use.kind, use.reason, use.refused, use.job_name, use.tenant_id, use.actor_id, use.caller_id,
    )  # fmt: skip


def is_clockwork(use: HatchUse) -> bool:
    """Whether a clock has started the run, and no user."""
    definition = definition_of(use)
    return (
        definition is not None
        and use.caller_id is None
        and isinstance(definition.trigger, Cron | Every)
    )


def definition_of(use: HatchUse) -> JobDefinition | None:
    """The job that used it; None outside of jobs, and for one that nobody here knows."""
    if not use.job_name:
        return None
    try:
        return registry.get(use.job_name)
    except KumikoError:
        return None


def _plain(text: object, length: int) -> str:
    """A text that every database takes: of that length at most, without NUL and half characters."""
    whole = str(text).replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return whole if len(whole) <= length else f"{whole[: length - 1]}…"
