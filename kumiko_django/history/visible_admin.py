"""What tenants see of their runs, in the admin: for operators, and for a tenant's own staff."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from kumiko_django.history import display
from kumiko_django.history.badges import badge
from kumiko_django.history.changelist import KeyedList
from kumiko_django.history.filters import StatusFilter, TenantFilter
from kumiko_django.history.seen_by import TenantBound
from kumiko_django.history.visible_filters import (
    ResolvedFilter,
    SubjectFilter,
    VisibleFailureJobFilter,
    VisibleRunJobFilter,
)
from kumiko_django.history.visible_models import (
    SubjectRecord,
    TenantVisibleFailure,
    TenantVisibleRun,
)

_MAX_SUBJECT = 500


class _SubjectRecordAdmin(TenantBound):
    list_display_links = ("job",)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeyedList]:
        """The list that pages without counting."""
        return KeyedList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only the filters: Django would let an address filter by every column (no index)."""
        filters: Any = self.list_filter
        return lookup in {filter_class.parameter_name for filter_class in filters}

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """All that is to be seen; a link to the run for whoever may follow it."""
        fields = [str(name) for name in self.fields or ()]
        may_follow = request.user.has_perm("kumiko.view_jobrun")
        return [*fields, "run" if may_follow else "id_of_run"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """All of them."""
        return self.get_fields(request, obj)

    @admin.display(description=_("job"))
    def job(self, record: SubjectRecord) -> SafeString:
        """Its job."""
        return display.name(record.job_name)

    @admin.display(description=_("tenant"))
    def tenant(self, record: SubjectRecord) -> SafeString:
        """Its tenant."""
        return display.tenant(record.tenant_id)

    @admin.display(description=_("subject"))
    def about(self, record: SubjectRecord) -> SafeString:
        """Its subject, as a link to all records of it."""
        if not record.subject:
            return format_html("{}", display.NOTHING)
        pairs = [
            (name, display.json_line(value, _MAX_SUBJECT).text)
            for name, value in record.subject.items()
        ]
        shown = format_html_join(", ", "{} = {}", pairs)
        page = f"admin:{record._meta.app_label}_{record._meta.model_name}_changelist"
        url = reverse(page, current_app=self.admin_site.name)
        query = urlencode({SubjectFilter.parameter_name: record.subject_key})
        return format_html('<a href="{}?{}">{}</a>', url, query, shown)

    @admin.display(description=_("run"))
    def run(self, record: Any) -> SafeString:
        """The run that it tells of."""
        run_id: UUID = record.run_id
        url = reverse("admin:kumiko_jobrun_change", args=[run_id], current_app=self.admin_site.name)
        return format_html('<a href="{}"><code>{}</code></a>', url, run_id)

    @admin.display(description=_("run"))
    def id_of_run(self, record: Any) -> SafeString:
        """The same without a link."""
        return format_html("<code>{}</code>", record.run_id)

    @admin.display(description=_("started"))
    def started(self, record: Any) -> SafeString:
        """When the run started."""
        return display.moment(record.started_at)


class TenantVisibleRunAdmin(_SubjectRecordAdmin):
    """For everybody with the permission ``kumiko.view_tenantvisiblerun``."""

    list_display = ("status_badge", "job", "about", "tenant", "started", "finished")
    list_filter = (StatusFilter, SubjectFilter, TenantFilter, VisibleRunJobFilter)
    fields = ("status_badge", "job", "about", "tenant", "started", "finished")

    @admin.display(description=_("status"))
    def status_badge(self, record: TenantVisibleRun) -> SafeString:
        """The status of the run."""
        return badge(record)

    @admin.display(description=_("finished"))
    def finished(self, record: TenantVisibleRun) -> SafeString:
        """When it ended."""
        return display.moment(record.finished_at)


class TenantVisibleFailureAdmin(_SubjectRecordAdmin):
    """For everybody with the permission ``kumiko.view_tenantvisiblefailure``."""

    list_display = ("state", "job", "about", "message", "tenant", "failed", "resolved")
    list_filter = (ResolvedFilter, SubjectFilter, TenantFilter, VisibleFailureJobFilter)
    fields = ("state", "job", "about", "message", "tenant", "started", "failed", "resolved")

    @admin.display(description=_("state"))
    def state(self, record: TenantVisibleFailure) -> SafeString:
        """Whether it is resolved."""
        tone, sign, label = (
            ("good", "✓", gettext("resolved"))
            if record.is_resolved
            else ("bad", "✕", gettext("not resolved"))
        )
        return format_html(
            '<span class="kumiko-badge kumiko-{}"><span aria-hidden="true">{}</span>&nbsp;{}'
            "</span>",
            tone,
            sign,
            label,
        )

    @admin.display(description=_("message"))
    def message(self, record: TenantVisibleFailure) -> SafeString:
        """The key of what the tenant is told."""
        return format_html("<code>{}</code>", record.message_key)

    @admin.display(description=_("failed"))
    def failed(self, record: TenantVisibleFailure) -> SafeString:
        """When it failed for good."""
        return display.moment(record.failed_at)

    @admin.display(description=_("resolved"))
    def resolved(self, record: TenantVisibleFailure) -> SafeString:
        """When a later run succeeded."""
        return display.moment(record.resolved_at)
