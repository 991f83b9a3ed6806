"""The page of a run: facts, texts, the log, the other runs of its job."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from django.utils.formats import number_format
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from kumiko_django.history import display
from kumiko_django.history.badges import badge
from kumiko_django.history.display import Shown
from kumiko_django.history.facts import Group, Links, groups
from kumiko_django.history.models import JobRun, JobRunLog, LogLevel
from kumiko_django.history.queries import LogExcerpt, log_excerpt, runs_of_same_job

MAX_TEXT_CHARS: Final = 50_000
MAX_LINE_CHARS: Final = 2_000
_TOO_LARGE: Final = 1e15


class Text(NamedTuple):
    """A long text under a heading."""

    key: str
    title: str
    shown: Shown


class Line(NamedTuple):
    """One line of the log."""

    number: int
    time: SafeString
    level: str
    tone: str
    message: Shown
    data: Shown


class SiblingRun(NamedTuple):
    """A run of the same job."""

    url: str
    attempt: SafeString
    is_this: bool
    badge: SafeString
    started: SafeString
    duration: str
    error: str


class Progress(NamedTuple):
    """How far the run is: a share where ``done`` and ``total`` are known, and words."""

    done: float | None
    total: float | None
    text: str


@dataclass(frozen=True, slots=True)
class RunPage:
    """Everything on the page of one run, fetched with three queries at most."""

    badge: SafeString
    error: Shown
    reason: str
    progress: Progress | None
    groups: list[Group]
    texts: list[Text]
    log_first: list[Line]
    log_gap: str
    log_last: list[Line]
    traceback: Shown
    siblings: list[SiblingRun]
    older_siblings_url: str

    @classmethod
    def of(cls, run: JobRun, site: str, tenant_id: str | None = None) -> RunPage:
        """The page of ``run``.

        Args:
            run: With all its columns.
            site: Name of the admin site, whose pages are linked.
            tenant_id: The tenant whose runs alone are shown; None for all.
        """
        links = Links(site)
        log = log_excerpt(run)
        day = display.local(run.started_at).date()
        siblings = runs_of_same_job(run, tenant_id)
        return cls(
            badge=badge(run),
            error=display.beginning(run.error, MAX_TEXT_CHARS),
            reason=run.reason,
            progress=progress(run.progress),
            groups=list(groups(run, links)),
            texts=list(_texts(run)),
            log_first=_lines(log.first, day),
            log_gap=_gap(log),
            log_last=_lines(log.last, day),
            traceback=display.end(run.traceback, MAX_TEXT_CHARS),
            siblings=[_sibling(row, row.id == run.id, links) for row in siblings.runs],
            older_siblings_url=links.search(run.queue_job_id) if siblings.has_more else "",
        )


def _texts(run: JobRun) -> Iterator[Text]:
    for key, title, value in (
        ("payload", _("Payload"), run.payload),
        ("result", _("Result"), run.result),
    ):
        if value is not None:
            yield Text(key, title, display.json_text(value, MAX_TEXT_CHARS))


def progress(value: Any) -> Progress | None:
    """What ``ctx.progress()`` was given last; None where it was never called."""
    if value is None:
        return None
    if not isinstance(value, dict):
        return Progress(None, None, display.json_line(value, MAX_LINE_CHARS).text)
    message = display.beginning(str(value.get("message") or ""), MAX_LINE_CHARS).text
    done, total = _number(value.get("done")), _number(value.get("total"))
    if done is None or not total or total < 0:
        amount = "" if done is None else number_format(done)
        text = " · ".join(part for part in (amount, message) if part)
        return Progress(None, None, text) if text else None
    share = min(max(done / total, 0), 1)
    text = _("%(done)s of %(total)s (%(percent)s %%)") % {
        "done": number_format(done),
        "total": number_format(total),
        "percent": int(share * 100),
    }
    return Progress(share * total, total, f"{text} · {message}" if message else text)


def _number(value: Any) -> int | float | None:
    """``value`` if it is a number that can be drawn."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < _TOO_LARGE else None


_LEVEL_TONES: Final = {
    LogLevel.INFO.value: "quiet",
    LogLevel.WARN.value: "warning",
    LogLevel.ERROR.value: "bad",
}


def _lines(rows: Iterable[JobRunLog], day: dt.date) -> list[Line]:
    return [
        Line(
            number=row.number,
            time=display.clock(row.created_at, day),
            level=row.get_level_display(),
            tone=_LEVEL_TONES.get(row.level, "quiet"),
            message=display.beginning(row.message, MAX_LINE_CHARS),
            data=display.json_line(row.data, MAX_LINE_CHARS) if row.data else Shown(""),
        )
        for row in rows
    ]


def _gap(log: LogExcerpt) -> str:
    if log.gap is None:
        return ""
    first, last = log.gap
    return ngettext(
        "Line %(first)s is not shown.",
        "Lines %(first)s to %(last)s are not shown.",
        last - first + 1,
    ) % {"first": display.number(first), "last": display.number(last)}


def _sibling(run: JobRun, is_this: bool, links: Links) -> SiblingRun:
    return SiblingRun(
        url=links.run(run.id),
        attempt=display.attempt(run),
        is_this=is_this,
        badge=badge(run),
        started=display.moment(run.started_at),
        duration=display.run_duration(run),
        error=run.short_error or run.reason,
    )
