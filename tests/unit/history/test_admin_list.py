"""The list of runs in the admin."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape
from pytest_django import Settings

from kumiko_django import registry
from kumiko_django.history.models import JobRun, RunStatus
from kumiko_django.types.ids import SYSTEM
from tests.unit.history.admin_rows import make_run, make_runs

pytestmark = pytest.mark.django_db

PAGE_SIZE = 50
MAX_QUERIES = 10


def listed(client: Client, **parameters: object) -> str:
    return get(client, f"?{urlencode(parameters)}")


def get(client: Client, query_string: str) -> str:
    response = client.get(reverse("admin:kumiko_jobrun_changelist") + query_string)
    assert response.status_code == 200
    return response.content.decode()


def ids(html: str) -> list[str]:
    """The runs that the list shows, from top to bottom."""
    return re.findall(r'<th class="field-job"><a href="/admin/kumiko/jobrun/([^/]+)/change/', html)


def link(html: str, text: str) -> str | None:
    """Where the link ``text`` below the list leads."""
    pages = html.partition('class="paginator kumiko-pages"')[2]
    found = re.search(rf'<a href="([^"]+)"[^>]*>[^<]*{text}[^<]*</a>', pages)
    return found and found[1].replace("&amp;", "&")


def test_a_row_shows_what_the_run_was(admin_client: Client) -> None:
    """P76: the tenant of the run among them."""
    make_run(
        job_name="billing:job:send-reminders",
        tenant_id="globex",
        lane="api",
        status=RunStatus.FAILED,
        final=True,
        attempt=2,
        start=4,
        error="Refused: no more\nand a second line",
        started_at=dt.datetime(2026, 11, 29, 12, 0, 30, tzinfo=dt.UTC),
        enqueued_at=dt.datetime(2026, 11, 28, 23, 30, tzinfo=dt.UTC),
        finished_at=dt.datetime(2026, 11, 29, 12, 3, 50, tzinfo=dt.UTC),
        duration_ms=200_000,
    )
    row = text_of(listed(admin_client).partition("<tbody>")[2].partition("</tbody>")[0])

    assert row == (
        "✕ failed billing:job:send-reminders globex api 2/3 (start 4) 2026-11-29 13:00:30"
        " 3 min 20 s Refused: no more 2026-11-29 00:30:00 2026-11-29 13:03:50"
    )


def text_of(html: str) -> str:
    text = re.sub(r"<wbr>|(<[^>]+>)", lambda tag: " " if tag[1] else "", html)
    return " ".join(text.replace("&nbsp;", " ").split())


def test_a_failure_that_is_not_final_looks_less_grave(admin_client: Client) -> None:
    make_run(status=RunStatus.FAILED, final=False)
    make_run(status=RunStatus.FAILED, final=True)
    html = listed(admin_client)

    assert re.findall(r'kumiko-badge kumiko-(\w+)">', html) == ["bad", "warning"]
    assert "failed, retried" in html


def test_a_running_run_shows_how_long_it_has_taken_so_far(admin_client: Client) -> None:
    make_run(status=RunStatus.RUNNING, started_at=timezone.now() - dt.timedelta(hours=3))

    assert "3\N{NO-BREAK SPACE}h\N{NO-BREAK SPACE}00\N{NO-BREAK SPACE}min so far" in listed(
        admin_client
    )


def test_pages_show_every_run_once_newest_first(admin_client: Client) -> None:
    """P82."""
    runs = [str(run.id) for run in reversed(make_runs(2 * PAGE_SIZE + 7))]
    first = listed(admin_client)
    second = get(admin_client, link(first, "Older") or "")
    third = get(admin_client, link(second, "Older") or "")

    assert [*ids(first), *ids(second), *ids(third)] == runs
    assert (link(first, "Newer"), link(third, "Older")) == (None, None)
    assert ids(get(admin_client, link(third, "Newer") or "")) == ids(second)
    assert ids(get(admin_client, link(second, "Newer") or "")) == ids(first)
    assert ids(get(admin_client, link(third, "Newest") or "")) == ids(first)


def test_runs_that_arrive_meanwhile_do_not_shift_the_next_page(admin_client: Client) -> None:
    runs = [str(run.id) for run in reversed(make_runs(PAGE_SIZE + 5))]
    first = listed(admin_client)
    make_runs(20, started_at=timezone.now() + dt.timedelta(seconds=1))
    second = get(admin_client, link(first, "Older") or "")

    assert ids(second) == runs[PAGE_SIZE:]
    assert len(ids(get(admin_client, link(second, "Newer") or ""))) == PAGE_SIZE


def test_a_full_last_page_has_no_next_one(admin_client: Client) -> None:
    make_runs(PAGE_SIZE)

    assert link(listed(admin_client), "Older") is None


@pytest.mark.parametrize("place", ["older-", "newer-nonsense", "7", "sideways-" + str(uuid4())])
def test_a_place_that_is_none_is_the_beginning(admin_client: Client, place: str) -> None:
    run = make_run()

    assert ids(listed(admin_client, p=place)) == [str(run.id)]


FILTERS: dict[str, tuple[str, dict[str, Any]]] = {
    "status": ("failed", {"status": RunStatus.FAILED}),
    "lane": ("api", {"lane": "api"}),
    "job": ("other:job:thing", {"job_name": "other:job:thing"}),
    "tenant": ("globex", {"tenant_id": "globex"}),
    "since": ("24h", {"started_at": timezone.now() - dt.timedelta(hours=23)}),
}
LONG_AGO = timezone.now() - dt.timedelta(days=2)


@pytest.mark.parametrize("name", FILTERS)
def test_a_filter_shows_only_what_it_says(admin_client: Client, name: str) -> None:
    """User-needs 50, P76."""
    value, matching = FILTERS[name]
    make_run(started_at=LONG_AGO)
    wanted = make_run(**{"started_at": LONG_AGO, **matching})

    assert ids(listed(admin_client, **{name: value})) == [str(wanted.id)]


def test_filters_combine_and_stay_in_the_links(admin_client: Client) -> None:
    both = {"tenant_id": "globex", "status": RunStatus.FAILED}
    make_runs(3, tenant_id="globex")
    make_runs(3, status=RunStatus.FAILED)
    wanted = make_runs(PAGE_SIZE + 1, **both)
    html = listed(admin_client, tenant="globex", status="failed")

    assert ids(html) == [str(run.id) for run in reversed(wanted)][:PAGE_SIZE]
    assert ids(get(admin_client, link(html, "Older") or "")) == [str(wanted[0].id)]
    assert '<input type="hidden" name="status" value="failed">' in html
    assert 'href="?status=failed"' in html, "the link that drops the tenant keeps the status"


def test_changing_a_filter_goes_to_the_beginning(admin_client: Client) -> None:
    make_runs(PAGE_SIZE + 1)
    html = get(admin_client, link(listed(admin_client), "Older") or "")

    assert ids(html)
    assert 'href="?status=failed"' in html


@pytest.mark.parametrize(
    "name",
    [
        "worker",
        "payload__key",
        "error__icontains",
        "status__in",
        "logs__message",
        "tenant_id",
        "id",
    ],
)
def test_no_other_column_can_be_filtered_by(admin_client: Client, name: str) -> None:
    """What has no index is refused, whatever address is typed."""
    url = reverse("admin:kumiko_jobrun_changelist")

    assert admin_client.get(url, {name: "a"}).status_code == 400


@pytest.mark.parametrize("parameters", [{"since": "forever"}, {"since": "\0"}])
def test_an_unknown_period_leads_back_to_the_list(
    admin_client: Client, parameters: dict[str, str]
) -> None:
    url = reverse("admin:kumiko_jobrun_changelist")

    assert admin_client.get(url, parameters)["Location"] == f"{url}?e=1"


@pytest.mark.parametrize("name", ["status", "lane", "job", "tenant", "q"])
@pytest.mark.parametrize("value", ["nonsense", "a\0b", "%", "x" * 5_000, "'; DROP TABLE x"])
def test_a_value_that_no_run_has_shows_none(admin_client: Client, name: str, value: str) -> None:
    make_run()
    html = listed(admin_client, **{name: value})

    # Django refuses the character NUL in the search before it reaches us.
    assert bool(ids(html)) == (name == "q" and "\0" in value)


@pytest.mark.parametrize("order", ["1", "-3", "5.-2", "nonsense"])
def test_the_order_cannot_be_changed(admin_client: Client, order: str) -> None:
    """An order without an index would sort the whole table."""
    runs = [str(run.id) for run in reversed(make_runs(3))]
    html = listed(admin_client, o=order)

    assert ids(html) == runs
    assert 'class="sortable' not in html


def test_the_search_finds_exact_ids_and_objects(admin_client: Client) -> None:
    """User-needs 50: did the job for this object run?"""
    correlation, job_id = str(uuid4()), "nightly-42"
    one = make_run(queue_job_id=job_id, correlation_id=correlation)
    other = make_run(correlation_id=correlation, object_ref="billing.invoice:4711")
    make_run()

    for text, found in {
        str(one.id): [one],
        f"  {str(one.id).upper()} ": [one],
        one.id.hex: [one],
        job_id: [one],
        correlation: [other, one],
        "billing.invoice:4711": [other],
        str(one.id)[:-1]: [],
        "nightly": [],
        "billing.invoice:471": [],
    }.items():
        assert ids(listed(admin_client, q=text)) == [str(run.id) for run in found], text
    assert len(ids(listed(admin_client, q="   "))) == 3


def test_the_search_stays_within_the_filters(admin_client: Client) -> None:
    failed = make_run(queue_job_id="a", status=RunStatus.FAILED, attempt=1)
    make_run(queue_job_id="a", attempt=2)
    html = listed(admin_client, q="a", status="failed")

    assert ids(html) == [str(failed.id)]
    assert '<input type="hidden" name="status" value="failed">' in html


def choices(html: str, title: str) -> list[str]:
    part = html.partition(f'data-filter-title="{title}"')[2].partition("</details>")[0]
    return [text.strip() for text in re.findall(r"<a [^>]*>([^<]*)</a>", part)]


def test_jobs_to_choose_from_are_the_defined_the_recent_and_the_chosen(
    admin_client: Client,
) -> None:
    make_run(job_name="gone:job:old")
    html = listed(admin_client, job="typed:job:in")
    defined = {definition.qualified_name for definition in registry.all()}

    assert len(defined) > 5
    assert choices(html, "job") == ["All", *sorted(defined | {"gone:job:old", "typed:job:in"})]


def test_a_tenant_is_typed_in_and_recent_ones_are_suggested(admin_client: Client) -> None:
    make_run(tenant_id="acme")
    make_run(tenant_id="glob&ex")
    make_run(tenant_id=SYSTEM)
    html = listed(admin_client, tenant="acme", lane="worker", q="")
    field = re.search(r'<input type="text" id="kumiko-tenant"[^>]*>', html)

    assert choices(html, "tenant") == ["All", "system"]
    assert re.findall(r'<option value="([^"]*)">', html) == ["acme", "glob&amp;ex"]
    assert field is not None
    assert 'value="acme"' in field[0]
    assert '<label for="kumiko-tenant">' in html
    assert '<input type="hidden" name="lane" value="worker">' in html


def test_without_tenants_there_is_no_filter_by_tenant(
    admin_client: Client, settings: Settings
) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": None}
    make_run(tenant_id=SYSTEM)

    assert 'id="kumiko-tenant"' not in listed(admin_client)
    assert 'id="kumiko-tenant"' in listed(admin_client, tenant=SYSTEM)


def test_the_number_of_queries_does_not_depend_on_the_number_of_rows(
    admin_client: Client,
) -> None:
    def queries() -> list[str]:
        with CaptureQueriesContext(connection) as captured:
            html = listed(admin_client)
        shown.append(len(ids(html)))
        return [query["sql"] for query in captured]

    shown: list[int] = []
    make_run()
    with_one = queries()
    make_runs(199)
    with_many = queries()

    assert shown == [1, PAGE_SIZE]
    assert len(with_one) == len(with_many) <= MAX_QUERIES
    assert not [sql for sql in with_many if "COUNT(" in sql.upper()]


def test_large_columns_are_not_fetched(admin_client: Client) -> None:
    """User-needs 49."""
    make_runs(3)
    with CaptureQueriesContext(connection) as captured:
        listed(admin_client)
    asked = [query["sql"] for query in captured if "kumiko_jobrun" in query["sql"]]

    assert asked
    for column in ("payload", "result", "traceback", "progress"):
        assert not [sql for sql in asked if f'"{column}"' in sql]


def test_what_a_run_contains_is_escaped(admin_client: Client) -> None:
    hostile = "<script>alert('x')</script>"
    make_run(job_name=hostile, tenant_id=hostile, status=RunStatus.FAILED, error=hostile)
    html = listed(admin_client)

    assert hostile not in html
    assert escape(hostile) in html


@pytest.mark.parametrize(
    ("query_string", "message"),
    [
        ("", "Nothing has run yet."),
        ("?status=lost", "No run matches."),
        ("?q=nothing", "No run matches."),
        (f"?p=older-{uuid4()}", "There are no older runs."),
    ],
)
def test_an_empty_list_says_why(admin_client: Client, query_string: str, message: str) -> None:
    html = get(admin_client, query_string)

    assert message in html
    assert not JobRun.objects.exists()


def test_counts_beside_the_filters_cannot_be_asked_for(admin_client: Client) -> None:
    """Django would count the table once for every choice."""
    make_run()
    with CaptureQueriesContext(connection) as captured:
        html = listed(admin_client, _facets="True")

    assert "Show counts" not in html
    assert not [query for query in captured if "COUNT(" in query["sql"].upper()]
