"""Uses of escape hatches in the admin: a list and a page for each. Nothing can be changed there."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy
from django.utils.translation import gettext_lazy as _

from kumiko_django.audit.models import EscapeHatchUse, HatchKind
from kumiko_django.history import display
from kumiko_django.history.changelist import KeyedList
from kumiko_django.history.filters import (
    ColumnFilter,
    DeclaringJobFilter,
    TenantFilter,
    YesNoFilter,
)
from kumiko_django.history.seen_by import TenantBound


class HatchKindFilter(ColumnFilter):
    """By kind."""

    title = gettext_lazy("kind")
    parameter_name = column = "kind"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        """Every kind."""
        return [(kind.value, str(kind.label)) for kind in HatchKind]


class RefusedFilter(YesNoFilter):
    """By whether it was refused."""

    title = gettext_lazy("refused")
    parameter_name = "refused"
    labels: ClassVar[dict[str, Any]] = {
        "yes": gettext_lazy("Refused"),
        "no": gettext_lazy("Used"),
    }
    condition = Q(refused=True)


class HatchJobFilter(DeclaringJobFilter):
    """By job, of those that have a grant; of others a record's own page has a link."""

    option = "escape_hatches"


_FILTERS = (RefusedFilter, HatchKindFilter, TenantFilter, HatchJobFilter)
_FIELDS = (
    "what", "state", "job", "run", "tenant", "actor", "caller", "reason", "detail", "count", "used",
    "last_used",
)  # fmt: skip


class EscapeHatchUseAdmin(TenantBound):
    """For everybody with the permission ``kumiko.view_escapehatchuse``.

    Of all tenants with ``kumiko.view_all_tenants``, else of one's own.
    """

    list_display = ("what", "state", "job", "tenant", "caller", "reason", "count", "used")
    list_display_links = ("what",)
    list_filter = _FILTERS
    search_fields = ("run_id",)
    search_help_text = _("The whole id of a run.")
    fields = _FIELDS
    readonly_fields = _FIELDS

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeyedList]:
        """The list that pages without counting."""
        return HatchList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only the filters: Django would let an address filter by every column (no index)."""
        return lookup in {filter_class.parameter_name for filter_class in _FILTERS}

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """The uses of one run."""
        text = search_term.strip()
        if not text:
            return queryset, False
        with contextlib.suppress(ValueError):
            return queryset.filter(run_id=UUID(text)), False
        return queryset.none(), False

    @admin.display(description=_("kind"))
    def what(self, use: EscapeHatchUse) -> str:
        """What was used."""
        return use.get_kind_display()

    @admin.display(description=_("state"))
    def state(self, use: EscapeHatchUse) -> SafeString:
        """Whether it was refused."""
        tone, sign, label = (
            ("bad", "✕", gettext("refused")) if use.refused else ("good", "✓", gettext("used"))
        )
        return format_html(
            '<span class="kumiko-badge kumiko-{}"><span aria-hidden="true">{}</span>&nbsp;{}'
            "</span>",
            tone,
            sign,
            label,
        )

    @admin.display(description=_("job"))
    def job(self, use: EscapeHatchUse) -> SafeString:
        """The job, as a link to all its uses."""
        if not use.job_name:
            return format_html("{}", display.NOTHING)
        url = reverse("admin:kumiko_escapehatchuse_changelist", current_app=self.admin_site.name)
        name = display.name(use.job_name)
        return format_html('<a href="{}?job={}">{}</a>', url, use.job_name, name)

    @admin.display(description=_("run"))
    def run(self, use: EscapeHatchUse) -> SafeString:
        """The run, or the first one of those that a clock started."""
        if use.run_id is None:
            return format_html("{}", display.NOTHING)
        url = reverse(
            "admin:kumiko_jobrun_change", args=[use.run_id], current_app=self.admin_site.name
        )
        return format_html('<a href="{}"><code>{}</code></a>', url, use.run_id)

    @admin.display(description=_("tenant"))
    def tenant(self, use: EscapeHatchUse) -> SafeString:
        """Its tenant."""
        return display.tenant(use.tenant_id)

    @admin.display(description=_("actor"))
    def actor(self, use: EscapeHatchUse) -> str:
        """Who acted."""
        return use.actor_id or display.NOTHING

    @admin.display(description=_("caller"))
    def caller(self, use: EscapeHatchUse) -> str:
        """Who has caused it."""
        return use.caller_id or display.NOTHING

    @admin.display(description=_("first use"))
    def used(self, use: EscapeHatchUse) -> SafeString:
        """When it was used first."""
        return display.moment(use.used_at)

    @admin.display(description=_("last use"))
    def last_used(self, use: EscapeHatchUse) -> SafeString:
        """When it was used last."""
        return display.moment(use.last_used_at)


class HatchList(KeyedList):
    """The list of uses."""

    key = "id"
