"""The example's views and jobs: HTTP in, real workers, and what the tenant is told afterwards."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from example_project.billing.providers import CARD_BUSY_TWICE, CARD_DECLINED, CARD_OK
from example_project.demo.client import AdminBrowser, Client
from example_project.demo.order_files import make_order_file
from example_project.demo.processes import Processes
from example_project.demo.redis_server import free_port
from example_project.demo.site import Site, wait_for_web
from example_project.seeds import INVOICE_BY_CARD, LATE_CUSTOMERS
from tests.example.conftest import RUN_SECONDS, EndOf
from tests.helpers.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240), pytest.mark.once]

ORDER = {
    "number": "HAND-1",
    "customer": "Buchhandlung Kästner",
    "email": "laden@example.com",
    "article": "Regal, Eiche",
    "quantity": "2",
    "unit_price": "129.90",
    "ordered_on": "2026-03-01",
}


def invoice_count(client: Client, tenant: str) -> int:
    count: int = client.get(tenant, "billing/invoices/").body["count"]
    return count


def test_an_upload_becomes_orders_and_invoices(client: Client, end_of: EndOf) -> None:
    """A view dispatches in its transaction, the job logs broken rows, a signal dispatches on."""
    file = make_order_file("März.csv", rows=1200, broken=4)
    before = invoice_count(client, "acme")

    answer = client.upload("acme", "orders/imports/", file.name, file.content)

    assert answer.status == 202
    (run,) = end_of("acme", answer.body["job"])
    assert run["result"] == {"imported": 1196, "rejected": 4}
    assert run["progress"] == {"done": 1200, "total": 1200, "message": "rows read"}
    notices = client.get("acme", "notices/").body["runs"]
    about = {"order_import": answer.body["import"]}
    assert {"about": about, "status": "completed"} in notices
    status = client.get("acme", f"orders/imports/{answer.body['import']}/").body
    assert (status["imported"], status["rejected"]) == (1196, 4)
    wait_until(
        lambda: invoice_count(client, "acme") == before + file.customers,
        description="each customer has an invoice",
        timeout=60,
    )


def test_a_file_that_is_uploaded_twice_is_imported_once(client: Client, end_of: EndOf) -> None:
    """What an import has stored stays as it is when the same rows come again."""
    file = make_order_file("April.csv", rows=300, broken=2)
    results = []
    for _ in range(2):
        answer = client.upload("bergmann", "orders/imports/", file.name, file.content)
        results.append(end_of("bergmann", answer.body["job"])[-1]["result"])

    assert results == [{"imported": 298, "rejected": 2}, {"imported": 0, "rejected": 2}]


def test_a_file_that_makes_no_sense_fails_at_once(client: Client, end_of: EndOf) -> None:
    """B086: an unrecoverable error ends the job although attempts are left."""
    answer = client.upload("acme", "orders/imports/", "photo.csv", b"\xff\xd8\xff\xe0 no table")

    (run,) = end_of("acme", answer.body["job"])

    assert (run["status"], run["final"], run["attempt"]) == ("failed", True, 1)


def test_an_order_is_confirmed_by_a_job_of_the_api_lane(client: Client) -> None:
    """``post_save`` dispatches, after the commit, to the lane for short work."""
    assert client.post("nordlicht", "orders/", ORDER).status == 201

    def order() -> dict[str, Any]:
        newest: list[dict[str, Any]] = client.get("nordlicht", "orders/").body["newest"]
        return next(order for order in newest if order["number"] == "HAND-1")

    wait_until(lambda: order()["is_confirmed"], description="the order is confirmed", timeout=60)
    assert order()["amount"] == "259.80"
    assert client.post("nordlicht", "orders/", ORDER).status == 409


def test_a_busy_provider_is_asked_again(client: Client, end_of: EndOf) -> None:
    """B079: two attempts fail, the third completes, and each has a row."""
    job_id = client.post(
        "bergmann", f"billing/invoices/{INVOICE_BY_CARD[CARD_BUSY_TWICE]}/collect/"
    ).body["job"]

    runs = end_of("bergmann", job_id)

    assert [run["status"] for run in runs] == ["failed", "failed", "completed"]
    assert [run["attempt"] for run in runs] == [1, 2, 3]
    assert runs[-1]["result"] == {"reference": f"ch_{job_id}"}


def test_a_declined_card_is_not(client: Client, end_of: EndOf) -> None:
    job_id = client.post(
        "bergmann", f"billing/invoices/{INVOICE_BY_CARD[CARD_DECLINED]}/collect/"
    ).body["job"]

    (run,) = end_of("bergmann", job_id)

    assert (run["status"], run["final"]) == ("failed", True)
    failures = client.get("bergmann", "notices/").body["failures"]
    assert [failure["message"] for failure in failures] == [
        "The customer's card was declined. Please ask for another one."
    ]
    assert client.get("acme", "notices/").body["failures"] == []


def test_reminders_are_sent_by_an_async_job_once_a_day(client: Client, end_of: EndOf) -> None:
    sent = []
    for _ in range(2):
        job_id = client.post("acme", "billing/reminders/").body["job"]
        sent.append(end_of("acme", job_id)[-1]["result"])

    assert sent == [{"reminders": LATE_CUSTOMERS}, {"reminders": 0}]


def test_statements_report_their_progress(site: Site, client: Client, end_of: EndOf) -> None:
    job_id = client.post("nordlicht", "billing/statements/").body["job"]

    (run,) = end_of("nordlicht", job_id)

    assert run["progress"] == {
        "done": LATE_CUSTOMERS,
        "total": LATE_CUSTOMERS,
        "message": "statements rendered",
    }
    stored = site.data_dir / "media/tenants/t-nordlicht" / run["result"]["file"]
    assert stored.read_text().count("\f") == run["result"]["pages"] == LATE_CUSTOMERS


def test_what_reads_across_tenants_is_on_record(site: Site) -> None:
    """Design 7: the operator's own figures, by a grant with its reason."""
    uses = "from kumiko_django.models import EscapeHatchUse as Use; print(*Use.objects.values_list("
    site._manage("dispatchjob", "billing:job:sum-up-payments")

    told = wait_until(
        lambda: site._manage(
            "shell", "-v", "0", "-c", f"{uses}'kind', 'reason', 'detail'))"
        ).strip(),
        description="the use is on record",
        timeout=RUN_SECONDS,
    )
    assert "cross_tenant_reads" in told
    assert "the operator bills a share" in told
    assert "ctx.cross_tenant_reads(billing.Invoice)" in told


def test_a_tenant_sees_and_opens_nothing_of_another(client: Client, end_of: EndOf) -> None:
    job_id = client.post("bergmann", "billing/reminders/").body["job"]
    assert end_of("bergmann", job_id)

    assert client.get("acme", f"jobs/{job_id}/").body["runs"] == []
    assert client.get("acme", f"jobs/{job_id}/", key_of="bergmann").status == 403
    assert client.get("acme", "orders/imports/999999/").status == 404


def test_what_is_missing_is_told(client: Client) -> None:
    assert client.post("acme", "orders/imports/").status == 400
    answer = client.post("acme", "orders/", {**ORDER, "quantity": "many", "email": ""})
    assert (answer.status, answer.body) == (400, {"error": "missing or wrong: email, quantity"})


def test_the_admin_is_open_for_the_seeded_user(site: Site) -> None:
    admin = AdminBrowser(site.url, site.secrets.admin_user, site.secrets.admin_password)

    assert "Café Nordlicht, Köln" in admin.page("/admin/tenants/tenant/")
    assert "1002" in admin.page("/admin/billing/invoice/?q=1002")


def test_an_admin_action_dispatches_for_the_tenant_of_each_row(site: Site, client: Client) -> None:
    """The admin is in no tenant's scope; the jobs get their tenant by argument."""
    number = INVOICE_BY_CARD[CARD_OK]
    admin = AdminBrowser(site.url, site.secrets.admin_user, site.secrets.admin_password)
    path = f"/admin/billing/invoice/?q={number}&tenant__id__exact=acme"
    key = re.search(r'name="_selected_action" value="(\d+)"', admin.page(path))
    assert key

    page = admin.submit(path, {"action": "collect", "_selected_action": key[1]})

    assert "1 payment is being collected." in page

    def is_paid() -> bool:
        # Whatever else the tests of this module have charged, only acme's 1001 is looked at.
        page = admin.page(f"/admin/billing/invoice/{key[1]}/change/")
        return 'name="payment_reference" value="ch_' in page

    wait_until(is_paid, description="the invoice is paid", timeout=60)


def test_the_support_confirms_orders_through_the_handler_of_the_job(
    site: Site, client: Client
) -> None:
    """B163: the same write for a user with the role, in the admin, and for the job."""
    number = "HAND-2"
    assert client.post("acme", "orders/", {**ORDER, "number": number}).status == 201
    admin = AdminBrowser(site.url, site.secrets.admin_user, site.secrets.admin_password)
    path = f"/admin/orders/order/?q={number}&tenant__id__exact=acme"
    key = re.search(r'name="_selected_action" value="(\d+)"', admin.page(path))
    assert key

    page = admin.submit(path, {"action": "confirm", "_selected_action": key[1]})

    assert "1 order is confirmed." in page


def test_without_redis_a_request_is_asked_to_try_again(site: Site, tmp_path: Path) -> None:
    """A dispatch outside a transaction raises ``BrokerUnavailable``; the view makes it a 503."""
    web = f"127.0.0.1:{free_port()}"
    environment = {
        **os.environ,
        **site.environment,
        "REDIS_URL": f"redis://127.0.0.1:{free_port()}/0",
    }
    processes = Processes(tmp_path)
    try:
        command = [sys.executable, "manage.py", "runserver", "--noreload", web]
        processes.start("web server", command, environment)
        wait_for_web(f"http://{web}", processes)
        client = Client(f"http://{web}", site.secrets.api_keys)
        answer = client.post("acme", "billing/reminders/")
        assert (answer.status, answer.body) == (503, {"error": "please try again"})
    finally:
        processes.stop_all()
