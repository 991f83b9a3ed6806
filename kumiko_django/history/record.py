"""A run's whole record as one text: what waits beside the queue, and what PostgreSQL is given.

The first line is the row of ``JobRun``, columns by name; values of JSON columns are texts within
it, so that every database takes them as they are. A second line has the run's log lines, where
there are any.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final, get_type_hints
from uuid import UUID

from kumiko_django.history.clean import MAX_DEPTH, clean_row, column_limits
from kumiko_django.history.events import LogLine, RunEnded, RunStarted
from kumiko_django.types.visible import Visible

_APART: Final = {"run_id", "losses", "deferrals", "resume_at", "visible"}
"""What is no column, or written only of runs that are deferred."""
START_FIELDS: Final = tuple(f.name for f in fields(RunStarted) if f.name not in _APART)
END_FIELDS: Final = tuple(f.name for f in fields(RunEnded) if f.name not in _APART)
_JSON_COLUMNS: Final = ("payload", "result", "progress")
_TIMES: Final = ("queue_created_at", "started_at", "enqueued_at", "finished_at")
_COUNTS: Final = ("attempt", "max_attempts", "start", "losses")
_NAMES: Final = ("job_name", "lane", "queue_job_id", "tenant_id", "status")
_NUL: Final = "\\u0000"

_dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class UnreadableRecord(ValueError):
    """The text is no record of ours."""


def encode(start: RunStarted, ended: RunEnded | None, lines: Sequence[LogLine] = ()) -> str:
    """The record of a run, with everything in it that no database stores already replaced."""
    values = {name: getattr(start, name) for name in START_FIELDS}
    values["losses"] = start.losses
    if start.deferrals:
        values["deferrals"] = start.deferrals
    if ended is None:
        values["status"] = "running"
    else:
        for name in END_FIELDS:
            values[name] = getattr(ended, name)
        if ended.resume_at is not None:
            values["resume_at"] = ended.resume_at.isoformat()
        if ended.visible is not None:
            values["visible"] = ended.visible.to_json()
    row = _row(start.run_id, values)
    return row if not lines else f"{row}\n{_lines(lines)}"


def decode(text: str) -> tuple[RunStarted, RunEnded, list[LogLine]]:
    """The events of an ended run's record.

    Raises:
        UnreadableRecord: It is none.
    """
    row, _, lines = text.partition("\n")
    try:
        values: dict[str, Any] = json.loads(row)
        for name in _JSON_COLUMNS:
            if values[name] is not None:
                values[name] = json.loads(values[name])
        for name in _TIMES:
            values[name] = _time(values[name])
        _refuse_other_kinds(values)
        run_id = UUID(values["id"])
        values["parent"] = None if values.get("parent") is None else UUID(values["parent"])
        resume_at, deferrals = values.get("resume_at"), values.get("deferrals", 0)
        if type(deferrals) is not int:
            raise TypeError("deferrals is no int")  # noqa: TRY301  (below it becomes ours)
        visible = _visible(values)
        start = RunStarted(
            run_id,
            losses=values["losses"],
            deferrals=deferrals,
            visible=visible,
            **{name: values[name] for name in START_FIELDS},
        )
        ended = RunEnded(
            run_id,
            deferrals=deferrals + (resume_at is not None),
            resume_at=None if resume_at is None else _time(resume_at),
            visible=visible,
            **{name: values[name] for name in END_FIELDS},
        )
        return start, ended, [_line(values) for values in json.loads(lines or "[]")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableRecord(f"this is no record of a run: {error}") from error


def _visible(values: dict[str, Any]) -> Visible | None:
    said = values.get("visible")
    if said is None:
        return None
    return Visible.from_json(said, values["tenant_id"], values["job_name"], values["started_at"])


def row_of(text: str) -> str:
    """The row within a record."""
    end = text.find("\n")
    return text if end < 0 else text[:end]


def _row(run_id: UUID, values: dict[str, Any]) -> str:
    for name, limit in column_limits().items():
        value = values.get(name)
        if value is not None and len(value) > limit:
            values[name] = value[:limit]
    try:
        text = _dumps(_plain(run_id, values))
        text.encode()
        if _NUL not in text and not _is_deep(text, values):
            return text
    except (ValueError, RecursionError):
        pass  # a lone surrogate, a number that JSON has not, an endless structure
    return _dumps(_plain(run_id, clean_row(values)))


def _is_deep(text: str, values: dict[str, Any]) -> bool:
    """Whether it is nested deeper than the history keeps, so that not every thread can read it."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False  # most are
    level = [value for name in _JSON_COLUMNS if isinstance(value := values.get(name), list | dict)]
    for _ in range(MAX_DEPTH + 1):
        level = [
            item
            for value in level
            for item in (value.values() if isinstance(value, dict) else value)
            if isinstance(item, (list, dict))  # faster than with |
        ]
        if not level:
            return False
    return True


def _time(text: str) -> dt.datetime:
    time = dt.datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("a time has no zone")
    return time


def _refuse_other_kinds(values: dict[str, Any]) -> None:
    """What is compared and looked for must be of the right kind; the rest is the database's."""
    for names, kind in ((_COUNTS, int), (_NAMES, str)):
        for name in names:
            if type(values[name]) is not kind:
                raise TypeError(f"{name} is no {kind.__name__}")


def _plain(run_id: UUID, values: dict[str, Any]) -> dict[str, Any]:
    plain = {"id": str(run_id), **values}
    for name in _JSON_COLUMNS:
        value = plain.get(name)
        if value is not None:
            plain[name] = _dumps(value)
    for name in _TIMES:
        value = plain.get(name)
        if value is not None:
            plain[name] = value.isoformat()
    if plain["parent"] is not None:
        plain["parent"] = str(plain["parent"])
    return plain


def _lines(lines: Sequence[LogLine]) -> str:
    plain = [
        clean_row({name: getattr(line, name) for name in _LINE_FIELDS})
        | {"created_at": line.created_at.isoformat()}
        for line in lines
    ]
    return _dumps(plain)


_LINE_FIELDS: Final = tuple(get_type_hints(LogLine))


def _line(values: dict[str, Any]) -> LogLine:
    return LogLine(**{**values, "created_at": dt.datetime.fromisoformat(values["created_at"])})
