"""The facts on the page of a run, in groups; what has nothing to say is left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from kumiko_django.history import display
from kumiko_django.history.models import JobRun, RunStatus


class Fact(NamedTuple):
    """One labelled value. ``value`` is escaped by the template unless it is safe already."""

    label: str
    value: str | SafeString


class Group(NamedTuple):
    """Facts that belong together."""

    title: str
    facts: list[Fact]


@dataclass(frozen=True, slots=True)
class Links:
    """Addresses within one admin site."""

    site: str

    def run(self, run_id: UUID) -> str:
        """The page of a run."""
        return self._reverse("change", run_id)

    def filtered(self, **parameters: str) -> str:
        """The list, filtered."""
        return f"{self._reverse('changelist')}?{urlencode(parameters)}"

    def search(self, text: str) -> str:
        """The list of what is found for ``text``."""
        return self.filtered(q=text)

    def _reverse(self, page: str, *arguments: Any) -> str:
        return reverse(f"admin:kumiko_jobrun_{page}", args=arguments, current_app=self.site)


def groups(run: JobRun, links: Links) -> Iterator[Group]:
    """All facts about ``run`` that are short."""
    for title, facts in (
        (_("Run"), _about(run, links)),
        (_("Time"), _times(run)),
        (_("Attempt"), _attempts(run)),
        (_("Origin"), _origin(run, links)),
        (_("Queue"), _place(run)),
    ):
        present = [Fact(label, value) for label, value in facts if value]
        if present:
            yield Group(title, present)


_Facts = Iterator[tuple[str, "str | SafeString"]]


def _about(run: JobRun, links: Links) -> _Facts:
    yield _("Job"), _link(links.filtered(job=run.job_name), display.name(run.job_name))
    yield _("Tenant"), _link(links.filtered(tenant=run.tenant_id), display.tenant(run.tenant_id))
    yield _("Lane"), _link(links.filtered(lane=run.lane), run.lane)
    yield _("Object"), _searched(links, run.object_ref)
    yield _("Id of the run"), _code(str(run.id))
    yield _("Error group"), _code(run.fingerprint)


def _times(run: JobRun) -> _Facts:
    yield _("Enqueued"), display.moment(run.enqueued_at, precise=True)
    if run.wait_ms is not None:
        yield _("Waited"), display.duration(run.wait_ms)
    yield _("Started"), display.moment(run.started_at, precise=True)
    if run.finished_at is not None:
        yield _("Finished"), display.moment(run.finished_at, precise=True)
    if run.resume_at is not None:
        yield _("Goes on"), display.moment(run.resume_at, precise=True)
    if run.status == RunStatus.RUNNING or run.duration_ms is not None:
        yield _("Duration"), display.run_duration(run)


def _attempts(run: JobRun) -> _Facts:
    yield (
        _("Attempt"),
        _("%(number)s of %(total)s") % {"number": run.attempt, "total": run.max_attempts},
    )
    yield _("Start"), _("%(number)s, redeliveries included") % {"number": run.start}
    if run.deferrals:
        yield _("Deferred"), _("%(number)s times") % {"number": run.deferrals}
    if run.finished_at is not None:
        yield _("Final"), _("yes") if run.final else _("no, the job was to run again")


def _origin(run: JobRun, links: Links) -> _Facts:
    yield _("Triggered by"), run.triggered_by_id or ""
    yield _("Event"), run.trigger
    yield _("Correlation"), _searched(links, run.correlation_id)
    yield _("Trace"), _code(run.trace_id)
    for label, run_id in ((_("Retry of"), run.retried_from), (_("Parent run"), run.parent)):
        yield label, "" if run_id is None else _link(links.run(run_id), str(run_id))


def _place(run: JobRun) -> _Facts:
    yield _("Id in the queue"), _code(run.queue_job_id)
    if run.queue_created_at != run.enqueued_at:
        yield _("Created in the queue"), display.moment(run.queue_created_at, precise=True)
    yield _("Worker"), _code(run.worker)
    yield _("Release"), _code(run.release)


def _link(url: str, text: str | SafeString) -> SafeString:
    return format_html('<a href="{}">{}</a>', url, text)


def _searched(links: Links, text: str) -> str | SafeString:
    return _link(links.search(text), text) if text else ""


def _code(text: str) -> str | SafeString:
    return format_html("<code>{}</code>", text) if text else ""
