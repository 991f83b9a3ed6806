"""The filters of the list of runs. Every one is served by an index, and so are their choices."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, ClassVar, Final

from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from kumiko_django.conf import get_settings
from kumiko_django.definitions.options import LANES
from kumiko_django.definitions.registry import registry
from kumiko_django.history.models import JobRun, RunStatus
from kumiko_django.history.queries import Recent, first_id_at, recent_names
from kumiko_django.history.seen_by import only_tenant
from kumiko_django.types.ids import SYSTEM

_SUGGESTED_TENANTS: Final = 50
_PERIODS: Final = {
    "1h": (gettext_lazy("Last hour"), dt.timedelta(hours=1)),
    "24h": (gettext_lazy("Last 24 hours"), dt.timedelta(hours=24)),
    "7d": (gettext_lazy("Last 7 days"), dt.timedelta(days=7)),
}


class ColumnFilter(admin.SimpleListFilter):
    """Rows whose ``column`` is exactly the chosen value."""

    column: ClassVar[str]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows that match."""
        value = self.value()
        if value is None:
            return queryset
        if "\0" in value:
            # No row has it, and PostgreSQL refuses even to compare it.
            return queryset.none()
        return queryset.filter(**{self.column: value})


class StatusFilter(ColumnFilter):
    """By status."""

    title = gettext_lazy("status")
    parameter_name = column = "status"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        """Every status."""
        return [(status.value, str(status.label)) for status in RunStatus]


class LaneFilter(ColumnFilter):
    """By lane."""

    title = gettext_lazy("lane")
    parameter_name = column = "lane"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        """Every lane."""
        return [(lane, lane) for lane in LANES]


class JobFilter(ColumnFilter):
    """By job."""

    title = gettext_lazy("job")
    parameter_name = "job"
    column = "job_name"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        """Jobs that are defined here, those of the latest runs, and the chosen one."""
        names = {definition.qualified_name for definition in registry.all()}
        names.update(_recent(request, model_admin).jobs)
        if chosen := self.value():
            names.add(chosen)
        return [(name, name) for name in sorted(names)]


class DeclaringJobFilter(JobFilter):
    """By job, of those whose definitions have an ``option``, and the chosen one."""

    option: ClassVar[str]

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        """Their names."""
        names = {each.qualified_name for each in registry.all() if getattr(each, self.option)}
        if chosen := self.value():
            names.add(chosen)
        return [(name, name) for name in sorted(names)]


class YesNoFilter(admin.SimpleListFilter):
    """Rows of which ``condition`` holds, or does not."""

    labels: ClassVar[dict[str, Any]]
    """What ``yes`` and ``no`` are called, in the order in which they are shown."""
    condition: ClassVar[Q]

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, Any]]:
        """Both."""
        return list(self.labels.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows of which it does, or does not."""
        value = self.value()
        if value is None:
            return queryset
        if value not in self.labels:
            raise IncorrectLookupParameters(f"{self.parameter_name}={value!r}")
        return queryset.filter(self.condition if value == "yes" else ~self.condition)


class StartedFilter(admin.SimpleListFilter):
    """By the time of the start, which a run's id contains: the primary key's index serves it."""

    title = gettext_lazy("start")
    parameter_name = "since"

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        """Some periods up to now."""
        return [(key, str(label)) for key, (label, _length) in _PERIODS.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[JobRun]) -> QuerySet[JobRun]:
        """The runs that started within the period."""
        value = self.value()
        if value is None:
            return queryset
        if value not in _PERIODS:
            raise IncorrectLookupParameters(f"{self.parameter_name}={value!r}")
        _label, length = _PERIODS[value]
        return queryset.filter(id__gte=first_id_at(timezone.now() - length))


class TenantFilter(ColumnFilter):
    """By tenant, typed in: there may be more than any list could show."""

    title = gettext_lazy("tenant")
    parameter_name = "tenant"
    column = "tenant_id"
    template = "admin/kumiko/jobrun/tenant_filter.html"

    suggestions: list[str]
    is_bound: bool
    hidden_inputs: list[tuple[str, str]]

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        """Work that belongs to no tenant; tenants of the latest runs are suggestions."""
        self.is_bound = only_tenant(request, model_admin) is not None
        names = _recent(request, model_admin)
        recent = [tenant for tenant in names.tenants if tenant != SYSTEM]
        self.suggestions = recent[:_SUGGESTED_TENANTS]
        return [(SYSTEM, _("system"))]

    def has_output(self) -> bool:
        """Without tenants, or for whoever sees one only, there is nothing to choose."""
        if self.is_bound:
            return False
        chosen = self.value() is not None
        return chosen or bool(self.suggestions) or get_settings().tenancy_enabled

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Links to all and to SYSTEM; the form keeps what else the list is filtered by."""
        self.hidden_inputs = [
            (key, value)
            for key, values in changelist.filter_params.items()
            if key != self.parameter_name
            for value in values
        ]
        return super().choices(changelist)

    @property
    def typed(self) -> str:
        """What the text field shows."""
        value = self.value()
        return "" if value is None or value == SYSTEM else value


def _recent(request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> Recent:
    """Asked once a page, by two filters."""
    known: Recent | None = getattr(request, "_kumiko_recent_names", None)
    if known is None:
        known = recent_names(only_tenant(request, model_admin))
        request._kumiko_recent_names = known  # type: ignore[attr-defined]
    return known
