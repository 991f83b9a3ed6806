"""The filters of what tenants see. Every one is served by an index."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice, product
from typing import Any, ClassVar, Final

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from kumiko_django.history.filters import ColumnFilter, DeclaringJobFilter, YesNoFilter
from kumiko_django.types.visible import VERSION, SubjectError, subject_of

_MOST_KEYS: Final = 64


class SubjectFilter(ColumnFilter):
    """By subject, typed in as ``field=value``, several with commas; or its key."""

    title = gettext_lazy("subject")
    parameter_name = "subject"
    column = "subject_key"
    template = "admin/kumiko/subject_filter.html"

    hidden_inputs: list[tuple[str, str]]

    def lookups(
        self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]
    ) -> list[tuple[str, str]]:
        """None: there are too many."""
        return []

    def has_output(self) -> bool:
        """Always: it is typed in."""
        return True

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The records of that subject, whatever types its values have."""
        value = (self.value() or "").strip()
        if not value:
            return queryset
        return queryset.filter(subject_key__in=list(keys_of(value)))

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """The link to all; the form keeps what else the list is filtered by."""
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
        return self.value() or ""


class ResolvedFilter(YesNoFilter):
    """By whether a later run has succeeded."""

    title = gettext_lazy("resolved")
    parameter_name = "resolved"
    labels: ClassVar[dict[str, Any]] = {
        "no": gettext_lazy("Not resolved"),
        "yes": gettext_lazy("Resolved"),
    }
    condition = Q(resolved_at__isnull=False)


class VisibleRunJobFilter(DeclaringJobFilter):
    """By job, of those that declare a run to be seen."""

    option = "tenant_visible_run"


class VisibleFailureJobFilter(DeclaringJobFilter):
    """By job, of those that declare a failure to be seen."""

    option = "tenant_visible_failure"


def keys_of(text: str) -> Iterator[str]:
    """Keys of the subjects that somebody may mean: ``7`` may be a number or a text."""
    if text.startswith((f"{VERSION}:", f"{VERSION}#")):
        yield text
        return
    pairs = [part.partition("=")[::2] for part in text.split(",")]
    names = [name.strip() for name, _ in pairs]
    meant = [list(_values(value.strip())) for _, value in pairs]
    for values in islice(product(*meant), _MOST_KEYS):
        try:
            yield subject_of(dict(zip(names, values, strict=True)), names).key
        except SubjectError:
            continue  # a number like 1e999


def _values(text: str) -> Iterator[Any]:
    yield text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return
    if value is None or isinstance(value, str | int | float):
        yield value
    if type(value) is int and abs(value) < 2**53:
        yield float(value)
