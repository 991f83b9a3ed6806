"""The runs in the admin: a list and a page for each. Nothing can be changed there."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from kumiko_django.history import display
from kumiko_django.history.badges import badge
from kumiko_django.history.changelist import RunList
from kumiko_django.history.detail import RunPage
from kumiko_django.history.filters import (
    JobFilter,
    LaneFilter,
    StartedFilter,
    StatusFilter,
    TenantFilter,
)
from kumiko_django.history.models import JobRun
from kumiko_django.history.queries import search
from kumiko_django.history.seen_by import TenantBound, only_tenant

_FILTERS = (StatusFilter, StartedFilter, TenantFilter, LaneFilter, JobFilter)


class JobRunAdmin(TenantBound):
    """The run history, for everybody with the permission ``kumiko.view_jobrun``.

    Of all tenants with ``kumiko.view_all_tenants``, else of one's own.
    """

    list_display = (
        "status_badge",
        "job",
        "tenant",
        "lane",
        "attempt_of",
        "started",
        "duration",
        "short_error",
        "enqueued",
        "finished",
    )
    list_display_links = ("job",)
    list_filter = _FILTERS
    # Looked for by ``search``, whatever stands here; the names say what there is an index for.
    search_fields = ("id", "queue_job_id", "correlation_id", "object_ref")
    search_help_text = _(
        "The whole id of a run or of a job in the queue, a correlation id, or an object."
    )

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RunList]:
        """The list that pages without counting."""
        return RunList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only the filters: Django would let an address filter by every column (no index)."""
        return lookup in {filter_class.parameter_name for filter_class in _FILTERS}

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[JobRun], search_term: str
    ) -> tuple[QuerySet[JobRun], bool]:
        """Exact matches of what has an index."""
        return search(queryset, search_term), False

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: JobRun | None = None,
    ) -> HttpResponse:
        """The page of a run, in place of a form."""
        if obj is not None:
            tenant_id = only_tenant(request, self)
            context["run_page"] = RunPage.of(obj, self.admin_site.name, tenant_id)
        return super().render_change_form(request, context, add, change, form_url, obj)

    @admin.display(description=_("status"))
    def status_badge(self, run: JobRun) -> SafeString:
        """Its status."""
        return badge(run)

    @admin.display(description=_("job"))
    def job(self, run: JobRun) -> SafeString:
        """Its job."""
        return display.name(run.job_name)

    @admin.display(description=_("tenant"))
    def tenant(self, run: JobRun) -> SafeString:
        """Its tenant."""
        return display.tenant(run.tenant_id)

    @admin.display(description=_("attempt"))
    def attempt_of(self, run: JobRun) -> SafeString:
        """Which attempt, of how many."""
        return display.attempt(run)

    @admin.display(description=_("enqueued"))
    def enqueued(self, run: JobRun) -> SafeString:
        """When it was queued."""
        return display.moment(run.enqueued_at)

    @admin.display(description=_("started"))
    def started(self, run: JobRun) -> SafeString:
        """When it started."""
        return display.moment(run.started_at)

    @admin.display(description=_("finished"))
    def finished(self, run: JobRun) -> SafeString:
        """When it ended."""
        return display.moment(run.finished_at)

    @admin.display(description=_("duration"))
    def duration(self, run: JobRun) -> str:
        """How long it took, or has taken so far."""
        return display.run_duration(run)

    @admin.display(description=_("error"))
    def short_error(self, run: JobRun) -> str:
        """The beginning of its error, or why it was broken off."""
        return run.short_error or run.reason
