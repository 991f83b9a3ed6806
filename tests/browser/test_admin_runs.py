"""The run history in the admin as an operator uses it, in a real browser.

Every page is served with a content security policy that allows nothing inline, and each test fails
on any warning or error in the browser's console (see ``conftest.py``).
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from selenium.webdriver.common.keys import Keys

from kumiko_django.history.models import JobRun, JobRunLog, RunStatus
from tests.browser.pages import PHONE, Admin
from tests.helpers.waiting import wait_until
from tests.unit.history.admin_rows import make_log, make_run, make_runs

pytestmark = pytest.mark.once

ERROR = "Refused: the mail server said no"
TRACEBACK = f"""Traceback (most recent call last):
  File "/srv/shop/billing/jobs.py", line 48, in send_reminders
    invoice.remind(template=payload["template"])
{ERROR}
"""


@pytest.fixture
def failed(transactional_db: None) -> JobRun:
    """Give a run that failed after two others of its job, with a log and a large payload."""
    job = {"queue_job_id": "job-1", "job_name": "billing:job:send-reminders"}
    make_run(**job, attempt=1, status=RunStatus.FAILED, error=ERROR)
    make_run(**job, attempt=2, status=RunStatus.LOST, reason="the worker died")
    run = make_run(
        **job,
        attempt=3,
        tenant_id="globex",
        status=RunStatus.FAILED,
        final=True,
        error=ERROR,
        traceback=TRACEBACK,
        progress={"done": 31, "total": 120, "message": "reminding"},
        payload={"customers": [{"id": number} for number in range(100)]},
    )
    make_log(run, 40)
    JobRunLog.objects.filter(run=run, number=40).update(level="error", message=ERROR)
    return run


@pytest.fixture
def operator(admin_page: Admin) -> Admin:
    """Give the admin in the browser with an operator logged in."""
    User.objects.create_superuser("operator", password="let me in")
    admin_page.log_in("operator", "let me in")
    return admin_page


def list_address(admin: Admin, query_string: str = "") -> str:
    return f"{admin.base_url}{reverse('admin:kumiko_jobrun_changelist')}{query_string}"


def run_address(admin: Admin, run: JobRun) -> str:
    return f"{admin.base_url}{reverse('admin:kumiko_jobrun_change', args=[run.pk])}"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_failure_is_found_and_read(operator: Admin, failed: JobRun, theme: Any) -> None:
    make_runs(3)
    operator.prefer(theme)
    operator.open_list()
    assert len(operator.texts("#result_list tbody tr")) == 6

    operator.click("#changelist-filter a[href$='status=failed']", then="#result_list")
    assert operator.texts("#result_list .field-status_badge") == ["✕ failed", "↻ failed, retried"]

    operator.click("#result_list tbody tr:first-child th a", then="#kumiko-traceback")
    assert operator.driver.current_url.startswith(run_address(operator, failed))
    assert operator.find("#kumiko-traceback").text.strip() == TRACEBACK.strip()
    assert operator.find(".kumiko-error").text == ERROR
    log = operator.texts("#kumiko-log tbody tr")
    assert len(log) == 40
    assert "info line number 1" in log[0].replace("\n", " ")
    assert ERROR in log[-1]
    assert len(operator.texts("#kumiko-siblings tbody tr")) == 3

    operator.click("#kumiko-siblings tbody tr:first-child a", then="#kumiko-siblings")
    assert "1 of 3" in operator.texts(".kumiko-groups dd")


def test_the_list_is_paged_forth_and_back(operator: Admin) -> None:
    make_runs(60)
    operator.driver.get(list_address(operator))
    first = operator.texts("#result_list .field-started")
    operator.click(".kumiko-pages a[rel=next]", then=".kumiko-pages a[rel=prev]")
    assert len(operator.texts("#result_list tbody tr")) == 10

    operator.click(".kumiko-pages a[rel=prev]", then=".kumiko-pages a[rel=next]")
    assert operator.texts("#result_list .field-started") == first


def test_a_tenant_is_typed_in_and_other_filters_stay(operator: Admin, failed: JobRun) -> None:
    make_run(tenant_id="globex")
    operator.driver.get(list_address(operator, "?status=failed"))
    operator.find("#kumiko-tenant").send_keys("globex")
    operator.click(".kumiko-tenant-filter [type=submit]", then="#result_list")

    assert operator.texts("#result_list .field-tenant") == ["globex"]
    assert operator.texts("#result_list .field-status_badge") == ["✕ failed"]


CONTRASTS = """
const channel = (value) => {
  const share = value / 255;
  return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
};
const luminance = (color) => {
  const [red, green, blue] = color.match(/[\\d.]+/g).map(Number).map(channel);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
return [...document.querySelectorAll(".kumiko-badge, .kumiko-error")].map((badge) => {
  const style = getComputedStyle(badge);
  const [dark, light] = [luminance(style.color), luminance(style.backgroundColor)].sort(
    (one, other) => one - other
  );
  return [badge.innerText, style.backgroundColor, (light + 0.05) / (dark + 0.05)];
});
"""


@pytest.mark.parametrize(
    ("system", "chosen"),
    [("light", "auto"), ("dark", "auto"), ("light", "dark"), ("dark", "light")],
)
def test_badges_are_readable_in_every_theme(
    operator: Admin, failed: JobRun, system: Any, chosen: str
) -> None:
    """WCAG 2.2, 1.4.3: a contrast of at least 4.5."""
    for status in RunStatus:
        make_run(status=status, final=True)
    JobRunLog.objects.filter(run=failed, number=2).update(level="warn")
    operator.prefer(system)
    operator.driver.get(list_address(operator))
    operator.driver.execute_script(f"localStorage.setItem('theme', '{chosen}')")
    found = []
    for address in (list_address(operator), run_address(operator, failed)):
        operator.driver.get(address)
        found += operator.driver.execute_script(CONTRASTS)

    assert len({text for text, _, _ in found}) >= len(RunStatus) + 4
    assert not [entry for entry in found if entry[2] < 4.5]
    # Not the same colours in both.
    is_dark = "dark" in (chosen if chosen != "auto" else system)
    completed = next(color for text, color, _ in found if "completed" in text)
    assert completed == ("rgb(15, 58, 32)" if is_dark else "rgb(223, 245, 229)")


def test_on_a_phone_the_pages_are_no_wider_than_the_screen(operator: Admin, failed: JobRun) -> None:
    """What is wide scrolls in its own box."""
    make_run(job_name=f"billing:job:{'very-long-name-' * 10}", tenant_id="t" * 128)
    operator.resize(PHONE)
    for address in (list_address(operator), run_address(operator, failed)):
        operator.driver.get(address)
        operator.wait_for("#content-main")
        width, room = operator.driver.execute_script(
            "const page = document.documentElement; return [page.scrollWidth, page.clientWidth];"
        )
        assert room == PHONE[0]
        assert width <= room, address


def test_long_boxes_are_reached_and_scrolled_with_the_keyboard(
    operator: Admin, failed: JobRun
) -> None:
    """WCAG 2.2, 2.1.1."""
    operator.driver.get(run_address(operator, failed))
    operator.find("#kumiko-siblings tbody a").send_keys(Keys.NULL)
    reached = []
    for _ in range(12):
        active = operator.driver.switch_to.active_element
        reached.append(active.get_attribute("aria-labelledby") or active.tag_name)
        if active.get_attribute("id") == "kumiko-payload":
            break
        active.send_keys(Keys.TAB)

    assert [name for name in reached if name.startswith("kumiko-")] == [
        "kumiko-log-title",
        "kumiko-traceback-title",
        "kumiko-payload-title",
    ]
    operator.driver.switch_to.active_element.send_keys(Keys.END)
    wait_until(
        lambda: operator.driver.execute_script(
            "return document.getElementById('kumiko-payload').scrollTop"
        ),
        description="the payload has scrolled",
    )


UNLABELLED = """
const main = document.getElementById("content-main");
const named = (element) => element.labels?.length || element.getAttribute("aria-label")
  || element.getAttribute("aria-labelledby") || element.value && element.type === "submit";
return [
  ...[...main.querySelectorAll("input:not([type=hidden]), progress, [role=region]")]
    .filter((element) => !named(element)),
  ...[...main.querySelectorAll("thead th")].filter((cell) => cell.scope !== "col"),
  ...[...main.querySelectorAll("tbody tr")].filter((row) =>
    row.closest("table").id !== "kumiko-log" && !row.querySelector("th")),
  ...[...main.querySelectorAll("[aria-labelledby]")].filter((element) =>
    !document.getElementById(element.getAttribute("aria-labelledby"))?.innerText.trim()),
].map((element) => element.outerHTML);
"""


def test_fields_tables_and_regions_have_names(operator: Admin, failed: JobRun) -> None:
    """WCAG 2.2, 1.3.1 and 4.1.2."""
    for address in (list_address(operator), run_address(operator, failed)):
        operator.driver.get(address)
        operator.wait_for("#content-main table")
        assert not operator.driver.execute_script(UNLABELLED)


def test_what_a_run_contains_is_not_executed(operator: Admin) -> None:
    hostile = "</pre><script>document.title = 'taken'</script><img src=x onerror=alert(1)>"
    run = make_run(
        job_name=hostile, status=RunStatus.FAILED, error=hostile, traceback=hostile,
        payload={hostile: hostile}, result=hostile, reason=hostile,
    )  # fmt: skip
    make_log(run, 1, message=hostile, data={"text": hostile})
    for address in (list_address(operator), run_address(operator, run)):
        operator.driver.get(address)
        assert operator.driver.title != "taken"
        assert not operator.driver.find_elements("css selector", "#content-main img[src=x]")
    assert hostile in operator.find("#kumiko-traceback").text
