"""How a status looks: a text, a sign and a colour, so that none of them stands alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from kumiko_django.history.models import JobRun, RunStatus
from kumiko_django.history.visible_models import TenantVisibleRun


@dataclass(frozen=True, slots=True)
class Badge:
    """Attributes: tone: the colour (a class in ``history.css``); sign: repeats it as a shape."""

    tone: str
    sign: str


BADGES: Final[dict[RunStatus, Badge]] = {
    RunStatus.RUNNING: Badge("active", "▶"),
    RunStatus.DEFERRED: Badge("waiting", "…"),
    RunStatus.COMPLETED: Badge("good", "✓"),
    RunStatus.FAILED: Badge("bad", "✕"),
    RunStatus.INTERRUPTED: Badge("warning", "↺"),
    RunStatus.LOST: Badge("bad", "?"),
    RunStatus.CANCELLED: Badge("quiet", "■"),
    RunStatus.SKIPPED: Badge("quiet", "»"),
    RunStatus.QUARANTINED: Badge("warning", "!"),
}
_RETRIED: Final = Badge("warning", "↻")
_UNKNOWN: Final = Badge("quiet", "·")


def badge(run: JobRun | TenantVisibleRun) -> SafeString:
    """The status of ``run``; a failure that another attempt follows looks less grave."""
    label = run.get_status_display()
    look = BADGES[RunStatus(run.status)] if run.status in RunStatus else _UNKNOWN
    if run.status == RunStatus.FAILED and not run.final:
        look, label = _RETRIED, _("failed, retried")
    return format_html(
        '<span class="kumiko-badge kumiko-{}"><span aria-hidden="true">{}</span>&nbsp;{}</span>',
        look.tone,
        look.sign,
        label,
    )
