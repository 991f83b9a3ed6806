"""Values as people read them."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any, Final, NamedTuple

from django.utils import timezone
from django.utils.formats import number_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from kumiko_django.history.clean import clean_text
from kumiko_django.history.models import JobRun, RunStatus
from kumiko_django.types.ids import SYSTEM

NOTHING: Final = "-"
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


class Shown(NamedTuple):
    """A text that may have been cut for display, and the notice that says so."""

    text: str
    notice: str = ""


def name(job_name: str) -> SafeString:
    """A job's name that breaks at its colons where a column is narrow."""
    return format_html_join(SafeString(":<wbr>"), "{}", ((part,) for part in job_name.split(":")))


def tenant(tenant_id: str) -> SafeString:
    """A tenant's id; the tenant of work that belongs to none is called by name."""
    if tenant_id == SYSTEM:
        return format_html('<span class="kumiko-quiet" title="{}">{}</span>', SYSTEM, _("system"))
    return format_html("{}", tenant_id)


def attempt(run: JobRun) -> SafeString:
    """``2/3``, and which start it was where a redelivery makes that another number."""
    if run.start <= run.attempt:
        return format_html("{}/{}", run.attempt, run.max_attempts)
    start = _("start %(number)s") % {"number": run.start}
    return format_html(
        '{}/{} <span class="kumiko-quiet">({})</span>', run.attempt, run.max_attempts, start
    )


def local(value: dt.datetime) -> dt.datetime:
    """``value`` on the clock of whoever looks."""
    return timezone.localtime(value) if timezone.is_aware(value) else value


def moment(value: dt.datetime | None, *, precise: bool = False) -> SafeString:
    """A point in time to the second, or to the millisecond and with its zone."""
    if value is None:
        return format_html("{}", NOTHING)
    here = local(value)
    clock = f"{here:%H:%M:%S}"
    if precise:
        clock = f"{clock}.{here.microsecond // 1000:03} {here.tzname() or ''}".rstrip()
    return format_html(
        '<time datetime="{}"><span class="kumiko-nowrap">{}</span> '
        '<span class="kumiko-nowrap">{}</span></time>',
        here.isoformat(),
        here.date().isoformat(),
        clock,
    )


def clock(value: dt.datetime, day: dt.date) -> SafeString:
    """The time of a log line; its date too where that is not ``day``."""
    here = local(value)
    text = f"{here:%H:%M:%S}.{here.microsecond // 1000:03}"
    if here.date() != day:
        text = f"{here.date().isoformat()} {text}"
    return format_html('<time datetime="{}">{}</time>', here.isoformat(), text)


def duration(milliseconds: int | None) -> str:
    """``340 ms``, ``2.5 s``, ``3 min 20 s``, ``1 h 05 min`` or ``2 d 3 h``, in one line."""
    if milliseconds is None:
        return NOTHING
    return _duration(milliseconds).replace(" ", "\N{NO-BREAK SPACE}")


def _duration(milliseconds: int) -> str:
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    seconds = round(milliseconds / 1_000)
    if milliseconds < 9_950:
        return f"{number_format(milliseconds / 1_000, 1)} s"
    if seconds < _MINUTE:
        return f"{seconds} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE} min {seconds % _MINUTE:02} s"
    if seconds < _DAY:
        return f"{seconds // _HOUR} h {seconds % _HOUR // _MINUTE:02} min"
    return f"{seconds // _DAY} d {seconds % _DAY // _HOUR} h"


def run_duration(run: JobRun) -> str:
    """How long ``run`` took; while it runs, how long it has taken so far."""
    if run.status == RunStatus.RUNNING and run.finished_at is None:
        so_far = max(timezone.now() - run.started_at, dt.timedelta())
        return _("%(duration)s so far") % {"duration": duration(_milliseconds(so_far))}
    return duration(run.duration_ms)


def _milliseconds(delta: dt.timedelta) -> int:
    return delta // dt.timedelta(milliseconds=1)


def json_text(value: Any, limit: int) -> Shown:
    """JSON, indented; its beginning where it is longer than ``limit``."""
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False)
    except RecursionError:
        return Shown("", _("It is nested too deeply to be shown."))
    return beginning(text, limit)


def json_line(value: Any, limit: int) -> Shown:
    """JSON in one line; its beginning where it is longer than ``limit``."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return Shown("", _("It is nested too deeply to be shown."))
    return beginning(text, limit)


def beginning(text: str, limit: int) -> Shown:
    """``text``, or its first ``limit`` characters."""
    if len(text) <= limit:
        return Shown(clean_text(text))
    return Shown(
        clean_text(text[:limit]),
        _("Shown are the first %(shown)s of %(total)s characters.") % _numbers(limit, len(text)),
    )


def end(text: str, limit: int) -> Shown:
    """``text``, or its last ``limit`` characters."""
    if len(text) <= limit:
        return Shown(clean_text(text))
    return Shown(
        clean_text(text[-limit:]),
        _("Shown are the last %(shown)s of %(total)s characters.") % _numbers(limit, len(text)),
    )


def _numbers(shown: int, total: int) -> dict[str, str]:
    return {"shown": number(shown), "total": number(total)}


def number(value: int) -> str:
    """An integer with its thousands set apart."""
    return number_format(value, 0, use_l10n=True, force_grouping=True)
