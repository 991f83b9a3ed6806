"""The runs in the admin: a list and a page for each. Nothing can be changed there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
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

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[JobRun]
else:
    _ModelAdmin = admin.ModelAdmin

_FILTERS = (StatusFilter, StartedFilter, TenantFilter, LaneFilter, JobFilter)


class JobRunAdmin(_ModelAdmin):
    """The run history, for everybody with the permission ``kumiko.view_jobrun``."""

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
    list_per_page = 50
    # Looked for by ``search``, whatever stands here; the names say what there is an index for.
    search_fields = ("id", "queue_job_id", "correlation_id", "object_ref")
    search_help_text = _(
        "The whole id of a run or of a job in the queue, a correlation id, or an object."
    )
    # A table of runs is large: nothing is counted, and only the indexed order is offered.
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    sortable_by = ()
    actions = None

    class Media:
        """The pages' own style."""

        css = {"all": ("kumiko/history.css",)}

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Runs are recorded by workers."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: JobRun | None = None) -> bool:
        """What happened stays as it is."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: JobRun | None = None) -> bool:
        """Likewise."""
        return False

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

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The list; it takes no input."""
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        return super().changelist_view(request, extra_context)

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
            context["run_page"] = RunPage.of(obj, self.admin_site.name)
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
