"""The page of a run in the admin."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape

from kumiko_django.history.detail import MAX_LINE_CHARS, MAX_TEXT_CHARS
from kumiko_django.history.models import JobRun, JobRunLog, RunStatus
from tests.unit.history.admin_rows import make_log, make_run, make_runs

pytestmark = pytest.mark.django_db

MAX_QUERIES = 10


def address(run: JobRun) -> str:
    return reverse("admin:kumiko_jobrun_change", args=[run.pk])


def page(client: Client, run: JobRun) -> str:
    response = client.get(address(run))
    assert response.status_code == 200
    return response.content.decode()


def text_of(html: str) -> str:
    text = re.sub(r"<wbr>|(<[^>]+>)", lambda tag: " " if tag[1] else "", html)
    return " ".join(text.replace("&nbsp;", " ").split())  # no-break spaces too


def facts(html: str) -> dict[str, str]:
    found = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", html, re.DOTALL)
    return {text_of(label): text_of(value) for label, value in found}


def rows(html: str, table: str) -> list[str]:
    body = html.partition(f'id="kumiko-{table}"')[2].partition("<tbody>")[2]
    return [text_of(row) for row in body.partition("</tbody>")[0].split("</tr>")[:-1]]


def block(html: str, key: str) -> str:
    return html.partition(f'<pre id="kumiko-{key}"')[2].partition(">")[2].partition("</pre>")[0]


PARENT, BEFORE = uuid4(), uuid4()
STARTED = dt.datetime(2026, 11, 29, 12, 0, 0, 250_000, tzinfo=dt.UTC)
WHOLE: dict[str, Any] = {
    "job_name": "billing:job:send-reminders",
    "queue_job_id": "job-1",
    "queue_created_at": STARTED - dt.timedelta(minutes=5),
    "attempt": 2,
    "start": 4,
    "tenant_id": "globex",
    "status": RunStatus.FAILED,
    "final": True,
    "error": "Refused: no",
    "fingerprint": "f" * 40,
    "triggered_by_id": "42",
    "trigger": "order-paid",
    "object_ref": "billing.invoice:4711",
    "correlation_id": "chain-1",
    "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
    "retried_from": BEFORE,
    "parent": PARENT,
    "enqueued_at": STARTED - dt.timedelta(minutes=1),
    "started_at": STARTED,
    "finished_at": STARTED + dt.timedelta(seconds=75),
    "wait_ms": 59_750,
    "duration_ms": 75_000,
    "worker": "host-1:4711:abcd",
    "release": "2026.11",
}


def test_it_shows_all_facts(admin_client: Client) -> None:
    run = make_run(**WHOLE)

    assert facts(page(admin_client, run)) == {
        "Job": "billing:job:send-reminders",
        "Tenant": "globex",
        "Lane": "worker",
        "Object": "billing.invoice:4711",
        "Id of the run": str(run.id),
        "Error group": "f" * 40,
        "Enqueued": "2026-11-29 12:59:00.250 CET",
        "Waited": "1 min 00 s",
        "Started": "2026-11-29 13:00:00.250 CET",
        "Finished": "2026-11-29 13:01:15.250 CET",
        "Duration": "1 min 15 s",
        "Attempt": "2 of 3",
        "Start": "4, redeliveries included",
        "Final": "yes",
        "Triggered by": "42",
        "Event": "order-paid",
        "Correlation": "chain-1",
        "Trace": "4bf92f3577b34da6a3ce929d0e0e4736",
        "Retry of": str(BEFORE),
        "Parent run": str(PARENT),
        "Id in the queue": "job-1",
        "Created in the queue": "2026-11-29 12:55:00.250 CET",
        "Worker": "host-1:4711:abcd",
        "Release": "2026.11",
    }


def test_what_has_nothing_to_say_is_left_out(admin_client: Client) -> None:
    run = make_run(status=RunStatus.RUNNING, wait_ms=None, payload=None, correlation_id="")
    html = page(admin_client, run)

    assert not {
        "Object", "Error group", "Waited", "Finished", "Final", "Event", "Correlation", "Trace",
        "Retry of", "Parent run", "Release",
    } & set(facts(html))  # fmt: skip
    assert "so far" in facts(html)["Duration"]
    assert not [key for key in ("payload", "result", "traceback") if f'"kumiko-{key}"' in html]
    assert "The run has logged nothing." in html


@pytest.mark.parametrize("status", RunStatus)
def test_every_status_has_a_page(admin_client: Client, status: RunStatus) -> None:
    run = make_run(status=status, final=True, reason="because")
    head = page(admin_client, run).partition('class="kumiko-head">')[2].partition("</p>")[0]

    assert text_of(head)[2:] == f"{status.label} because"


def test_facts_lead_to_lists_of_their_like(admin_client: Client) -> None:
    run = make_run(object_ref="billing.invoice:4711", correlation_id="chain 1")
    html = page(admin_client, run)
    links = re.findall(r'<dd><a href="([^"]+)">', html)
    root = reverse("admin:kumiko_jobrun_changelist")

    assert links == [
        f"{root}?job=testapp%3Ajob%3Arecord",
        f"{root}?tenant=acme",
        f"{root}?lane=worker",
        f"{root}?q=billing.invoice%3A4711",
        f"{root}?q=chain+1",
    ]
    for link in links:
        assert f"/{run.id}/change/" in admin_client.get(link).content.decode()


def test_payload_and_result_are_readable_json(admin_client: Client) -> None:
    run = make_run(payload={"ids": [1, 2], "name": "Müller"}, result=[None, True])
    html = page(admin_client, run)

    assert block(html, "payload") == escape(
        '{\n  "ids": [\n    1,\n    2\n  ],\n  "name": "Müller"\n}'
    )
    assert block(html, "result") == "[\n  null,\n  true\n]"


HOSTILE = "</pre></script><script>alert('x')</script>\"><img src=x onerror=alert(1)>"


def test_what_a_run_contains_is_escaped(admin_client: Client) -> None:
    """Everything in a row may come from a user of the host's, or from another producer."""
    texts = (
        "job_name", "queue_job_id", "tenant_id", "reason", "error", "fingerprint", "traceback",
        "triggered_by_id", "trigger", "object_ref", "correlation_id", "trace_id", "worker",
    )  # fmt: skip
    run = make_run(
        **{
            name: HOSTILE[: JobRun._meta.get_field(name).max_length]  # type: ignore[union-attr]
            for name in texts
        },
        status=RunStatus.FAILED,
        payload={HOSTILE: HOSTILE},
        result=HOSTILE,
        progress={"done": 1, "total": 2, "message": HOSTILE},
    )
    make_log(run, 1, message=HOSTILE, data={HOSTILE: HOSTILE})
    html = page(admin_client, run)

    assert "<script>alert" not in html
    assert "<img src=x" not in html
    assert html.count(escape("<script>alert('x')</script>")) >= len(texts)


def test_a_huge_payload_is_cut_with_a_notice(admin_client: Client) -> None:
    run = make_run(payload={"text": "x" * 400_000})
    html = page(admin_client, run)

    assert len(html) < 150_000
    assert block(html, "payload").startswith(escape('{\n  "text": "xxx'))
    assert "Shown are the first 50,000 of 400,016 characters." in html


def test_a_huge_traceback_keeps_its_end(admin_client: Client) -> None:
    run = make_run(status=RunStatus.FAILED, traceback="first\n" + "x" * 300_000 + "\nlast")
    html = page(admin_client, run)

    assert block(html, "traceback").endswith("x\nlast")
    assert "first" not in block(html, "traceback")
    assert len(block(html, "traceback")) == MAX_TEXT_CHARS
    assert "Shown are the last 50,000 of 300,011 characters." in html


def test_a_huge_error_is_cut_with_a_notice(admin_client: Client) -> None:
    run = make_run(status=RunStatus.FAILED, error="E" * 60_000)

    assert "Shown are the first 50,000 of 60,000 characters." in page(admin_client, run)


def test_the_log_has_levels_times_and_data(admin_client: Client) -> None:
    run = make_run(started_at=dt.datetime(2026, 11, 29, 22, 59, 59, tzinfo=dt.UTC))
    other = make_run()
    make_log(other, 3, message="of another run")
    for number, level, data in (
        (2, "warn", {"invoice": 4711}),
        (1, "info", None),
        (3, "error", []),
    ):
        JobRunLog.objects.create(
            run=run,
            number=number,
            level=level,
            message=f"message {number}",
            data=data,
            created_at=run.started_at + dt.timedelta(milliseconds=400 * number),
        )

    assert rows(page(admin_client, run), "log") == [
        "1 23:59:59.400 info message 1",
        "2 23:59:59.800 warning message 2 {&quot;invoice&quot;: 4711}",
        "3 2026-11-30 00:00:00.200 error message 3",
    ]


def test_a_long_log_shows_both_ends_and_says_what_is_missing(admin_client: Client) -> None:
    run = make_run()
    make_log(run, 1_234)
    lines = rows(page(admin_client, run), "log")

    assert len(lines) == 500 + 1 + 500
    assert (lines[0].split()[0], lines[499].split()[0]) == ("1", "500")
    assert lines[500] == "Lines 501 to 734 are not shown."
    assert (lines[501].split()[0], lines[-1].split()[0]) == ("735", "1234")


@pytest.mark.parametrize("count", [499, 500, 501, 1_000, 1_001])
def test_a_log_of_that_length_shows_each_line_once(admin_client: Client, count: int) -> None:
    run = make_run()
    make_log(run, count)
    lines = rows(page(admin_client, run), "log")
    notice = ["Line 501 is not shown."] if count == 1_001 else []

    assert len(lines) == min(count, 1_000) + len(notice)
    assert [line for line in lines if "shown" in line] == notice
    assert len(set(lines)) == len(lines)


def test_long_lines_of_the_log_are_cut(admin_client: Client) -> None:
    run = make_run()
    make_log(run, 1, message="m" * 4_000, data={"d": "d" * 7_000})
    html = page(admin_client, run)

    assert "m" * MAX_LINE_CHARS in html
    assert "m" * (MAX_LINE_CHARS + 1) not in html
    assert "Shown are the first 2,000 of 4,000 characters." in html
    assert "Shown are the first 2,000 of 7,009 characters." in html


def test_the_runs_of_the_same_job_are_linked(admin_client: Client) -> None:
    """P75: a retry is a run of its own, and so is a redelivery."""
    job = {"queue_job_id": "job-1", "queue_created_at": timezone.now()}
    first = make_run(**job, attempt=1, start=1, status=RunStatus.LOST, reason="the worker died")
    again = make_run(**job, attempt=1, start=2, status=RunStatus.FAILED, error="Refused: no")
    last = make_run(**job, attempt=2, start=3)
    make_run(queue_job_id="job-1", lane="api")
    make_run(queue_job_id="job-2")
    html = page(admin_client, again)
    table = html.partition('id="kumiko-siblings"')[2].partition("</table>")[0]

    assert re.findall(r'<a href="([^"]+)">', table) == [address(first), address(last)]
    assert [
        re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "T", row) for row in rows(html, "siblings")
    ] == [
        "1/3 ? lost T 1.0 s the worker died",
        "1/3 (start 2) (this run) ↻ failed, retried T 1.0 s Refused: no",
        "2/3 (start 3) ✓ completed T 1.0 s",
    ]
    assert table.count('aria-current="true"') == 1


def test_many_runs_of_the_same_job_are_cut_to_the_latest(admin_client: Client) -> None:
    runs = [
        make_run(queue_job_id="job/1", attempt=number, queue_created_at=timezone.now())
        for number in range(1, 56)
    ]
    html = page(admin_client, runs[-1])

    assert [row.split("/")[0] for row in rows(html, "siblings")] == [str(n) for n in range(6, 56)]
    assert f'href="{reverse("admin:kumiko_jobrun_changelist")}?q=job%2F1"' in html


@pytest.mark.parametrize(
    ("value", "words", "bar"),
    [
        ({"done": 12, "total": 50, "message": "rows"}, "12 of 50 (24 %) · rows", ("12.0", "50")),
        ({"done": 7.5, "total": 7.5}, "7.5 of 7.5 (100 %)", ("7.5", "7.5")),
        ({"done": 60, "total": 50}, "60 of 50 (100 %)", ("50", "50")),
        ({"done": -1, "total": 50}, "-1 of 50 (0 %)", ("0", "50")),
        ({"done": 3}, "3", None),
        ({"done": 3, "total": 0}, "3", None),
        ({"message": "warming up"}, "warming up", None),
        ({"done": "a", "total": True, "message": "odd"}, "odd", None),
        ({"done": 10**400, "total": 1, "message": "huge"}, "huge", None),
        ([1, 2], "[1, 2]", None),
    ],
)
def test_progress_is_a_bar_or_a_text(
    admin_client: Client, value: Any, words: str, bar: tuple[str, str] | None
) -> None:
    html = page(admin_client, make_run(status=RunStatus.RUNNING, progress=value))
    part = html.partition('class="kumiko-progress">')[2].partition("</p>")[0]
    element = re.search(r'<progress aria-label="Progress" value="([^"]*)" max="([^"]*)">', part)

    assert text_of(part) == words
    assert (element and element.groups()) == bar


@pytest.mark.parametrize("value", [None, {}, {"done": None}])
def test_no_progress_shows_none(admin_client: Client, value: Any) -> None:
    assert "kumiko-progress" not in page(admin_client, make_run(progress=value))


def test_the_number_of_queries_does_not_depend_on_the_number_of_rows(
    admin_client: Client,
) -> None:
    def queries(run: JobRun) -> int:
        with CaptureQueriesContext(connection) as captured:
            page(admin_client, run)
        return len(captured)

    lonely = make_run()
    busy = make_runs(70, queue_job_id="busy")[-1]
    make_log(lonely, 600)
    make_log(busy, 1_500)
    page(admin_client, lonely)  # Django remembers the content type from the first page on

    assert queries(lonely) == queries(busy) <= MAX_QUERIES
    assert queries(make_run()) == queries(lonely) - 1, "a short log has no other end to fetch"


@pytest.mark.parametrize("run_id", [str(uuid4()), "nonsense", "1", "_5F"])
def test_a_run_that_is_not_there_leads_back_to_the_index(admin_client: Client, run_id: str) -> None:
    """A run may have been cleaned away while somebody had a link to it."""
    response = admin_client.get(reverse("admin:kumiko_jobrun_change", args=[run_id]), follow=True)

    assert response.redirect_chain == [(reverse("admin:index"), 302)]
    assert "exist" in response.content.decode()


def test_the_page_has_no_form(admin_client: Client) -> None:
    """Nothing to submit, nothing that looks as if it could be changed."""
    main = page(admin_client, make_run()).partition('id="content-main"')[2].partition("<footer")[0]

    assert main
    assert not re.findall(r"<(?:form|input|textarea|select|button)\b", main)
