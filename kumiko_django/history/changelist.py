"""Lists of the admin: newest first, page by page, without ever counting a table."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest

from kumiko_django.history.models import JobRun, JobRunQuerySet
from kumiko_django.history.queries import Page, Position, page


class KeyedList(ChangeList):
    """Pages are found by the run they begin after, so the last one is as fast as the first.

    The order is that of time, whatever the address says: no other has an index for every filter.
    The place is in Django's own parameter for the page, which it keeps in links back to the list
    and drops where a filter changes.
    """

    page: Page
    key: ClassVar = "run_id"

    def get_results(self, request: HttpRequest) -> None:
        """Fetch one page, and tell the templates that this is all there is to count."""
        position = Position.parse(request.GET.get(PAGE_VAR))
        self.page = page(self.queryset, position, self.list_per_page, self.key)
        self.result_list = self.page.rows
        self.result_count = self.full_result_count = len(self.page.rows)
        self.show_full_result_count = False
        self.show_admin_actions = False
        self.can_show_all = False
        self.multi_page = False

    @property
    def is_filtered(self) -> bool:
        """Whether the list could be empty because of what was asked for."""
        return bool(self.has_active_filters or self.query)

    @property
    def newest_url(self) -> str:
        """The beginning of the list, as it is filtered."""
        return self.get_query_string()

    @property
    def newer_url(self) -> str | None:
        """The page before this one."""
        return self._url(self.page.newer)

    @property
    def older_url(self) -> str | None:
        """The page after this one."""
        return self._url(self.page.older)

    def _url(self, position: Position | None) -> str | None:
        return None if position is None else self.get_query_string({PAGE_VAR: str(position)})


class RunList(KeyedList):
    """The list of runs."""

    key = "id"

    def get_queryset(
        self, request: HttpRequest, exclude_parameters: list[str | None] | None = None
    ) -> QuerySet[JobRun]:
        """The filtered runs without their large columns."""
        runs = super().get_queryset(request, exclude_parameters)
        assert isinstance(runs, JobRunQuerySet)  # noqa: S101  (for the type checker)
        return runs.for_list()
