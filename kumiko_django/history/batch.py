"""Events of runs that wait to be written together."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from uuid import UUID

from kumiko_django.history.events import LogLine, RunEnded, RunStarted
from kumiko_django.types.jsonable import JSON


@dataclass(slots=True)
class Ended:
    """The end of a run, and who wants to know that it is on record.

    Attributes:
        event: The end.
        future: Set when the record is safe: whether this end stands in it, or why not.
        record: The whole record as a text (:mod:`kumiko_django.history.record`), if there is one.
    """

    event: RunEnded
    future: Future[bool]
    record: str = ""


@dataclass
class Batch:
    """Events that have not been written."""

    starts: dict[UUID, RunStarted] = field(default_factory=dict)
    ends: dict[UUID, Ended] = field(default_factory=dict)
    logs: dict[UUID, list[LogLine]] = field(default_factory=dict)
    progress: dict[UUID, JSON] = field(default_factory=dict)
    flushes: list[Future[None]] = field(default_factory=list)
    """Set when the batch is out of the way: written, or given up."""

    def __bool__(self) -> bool:
        return bool(self.starts or self.ends or self.logs or self.progress or self.flushes)

    def end_of(self, run_id: UUID) -> RunEnded | None:
        """The end of a run, if it is in this batch."""
        ended = self.ends.get(run_id)
        return None if ended is None else ended.event

    def log_lines(self) -> Iterator[tuple[UUID, LogLine]]:
        """All log lines, each with its run."""
        for run_id, lines in self.logs.items():
            for line in lines:
                yield run_id, line

    def settle(self, run_id: UUID, result: bool | Exception) -> None:
        """Tell who waits for the end of a run what became of it; the first word counts."""
        future = self.ends[run_id].future
        try:
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
        except InvalidStateError:
            pass  # given up already, by the recorder or by whoever waited

    def refuse(self, error: Exception) -> None:
        """Tell all who wait that their records will not be written."""
        for run_id in self.ends:
            self.settle(run_id, error)
