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


@dataclass(slots=True)
class Turn:
    """An event of a run that is deferred, or was: it goes on, is deferred, or ends.

    Attributes:
        run_id: The run.
        start: Where it goes on, or where its record was found: its start.
        ended: The deferral or the end.
        result: What became of it.
    """

    run_id: UUID
    start: RunStarted | None = None
    ended: Ended | None = None
    result: bool | Exception = False


@dataclass
class Batch:
    """Events that have not been written. Turns are written in the order in which they came."""

    starts: dict[UUID, RunStarted] = field(default_factory=dict)
    ends: dict[UUID, Ended] = field(default_factory=dict)
    logs: dict[UUID, list[LogLine]] = field(default_factory=dict)
    progress: dict[UUID, JSON] = field(default_factory=dict)
    flushes: list[Future[None]] = field(default_factory=list)
    """Set when the batch is out of the way: written, or given up."""
    turns: list[Turn] = field(default_factory=list)

    def __bool__(self) -> bool:
        waiting = self.starts, self.ends, self.logs, self.progress, self.flushes, self.turns
        return any(waiting)

    def add_start(self, event: RunStarted) -> None:
        """Note that a run begins, or goes on."""
        if event.deferrals:
            self.turns.append(Turn(event.run_id, start=event))
        else:
            self.starts[event.run_id] = event

    def add_end(self, ended: Ended) -> None:
        """Note that a run ends, or is deferred."""
        run_id = ended.event.run_id
        if ended.event.is_turn:
            self.turns.append(Turn(run_id, ended=ended))
        else:
            self.ends[run_id] = ended

    def add_found(self, start: RunStarted, ended: Ended, lines: list[LogLine]) -> None:
        """Note the record of a run that another worker has left."""
        if not ended.event.is_turn:
            self.starts[start.run_id] = start
        if lines:
            self.logs.setdefault(start.run_id, []).extend(lines)
        self.add_end(ended)

    def all_ended(self) -> list[Ended]:
        """All ends and deferrals."""
        return [*self.ends.values(), *(turn.ended for turn in self.turns if turn.ended)]

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
        self._tell(self.ends[run_id].future, result)

    def settle_turns(self) -> None:
        """Tell who waits for a deferral, or the end of a deferred run, what became of it."""
        for turn in self.turns:
            if turn.ended is not None:
                self._tell(turn.ended.future, turn.result)

    def _tell(self, future: Future[bool], result: bool | Exception) -> None:
        try:
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)
        except InvalidStateError:
            pass  # given up already, by the recorder or by whoever waited

    def refuse(self, error: Exception) -> None:
        """Tell all who wait that their records will not be written."""
        for ended in self.all_ended():
            self._tell(ended.future, error)
