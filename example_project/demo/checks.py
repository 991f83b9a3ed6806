"""Whether everything came out as told: the runs, the data, and that no tenant sees another's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from example_project.billing.providers import CARD_BUSY_TWICE, CARD_OK
from example_project.demo.client import AdminBrowser, Client
from example_project.demo.runs import Run, differences
from example_project.demo.story import IMPORT, ORDERS_BY_HAND, Told, order_file
from example_project.seeds import INVOICE_BY_CARD, LATE_CUSTOMERS, TENANTS


@dataclass(frozen=True)
class Check:
    """Something that was looked at."""

    text: str
    expected: Any
    found: Any

    @property
    def is_fine(self) -> bool:
        return bool(self.expected == self.found)


def check_runs(told: Told, runs: list[Run]) -> Iterator[Check]:
    """Each job ended as told, and there are no others."""
    wrong = differences(told.jobs, runs)
    count = sum(told.jobs.values())
    total = sum(len(story.outcomes) * n for story, n in told.jobs.items())
    yield Check(f"{count} jobs ended as told", [], wrong)
    yield Check("one row for each of their runs", total, len(runs))


def check_workers(exit_codes: dict[str, int | None]) -> Iterator[Check]:
    """The workers ended as they were asked to."""
    for lane, code in exit_codes.items():
        yield Check(f"the worker for lane {lane} ended with code 0 on SIGTERM", 0, code)


def check_data(told: Told) -> Iterator[Check]:
    """The data of each tenant is what its own requests make, and nothing else."""
    from django.db.models import F

    from example_project.billing.models import Invoice, InvoiceLine, Reminder
    from example_project.orders.models import Order, OrderImport
    from kumiko_django.models import JobRunLog

    for tenant in TENANTS:
        file = order_file(tenant)
        imported = OrderImport.objects.get(pk=told.imports[tenant])
        orders = Order.objects.filter(tenant=tenant)
        by_hand = orders.filter(source=None)
        warnings = JobRunLog.objects.filter(
            run__job_name=IMPORT, run__tenant_id=tenant, level="warn"
        )
        found = (imported.imported, orders.count() - by_hand.count())
        yield Check(f"{tenant}: {file.good:,} orders imported", (file.good,) * 2, found)
        found = (imported.rejected, warnings.count())
        yield Check(f"{tenant}: {file.broken} broken rows logged", (file.broken,) * 2, found)
        confirmed = by_hand.exclude(confirmed_at=None).count()
        yield Check(f"{tenant}: orders confirmed", ORDERS_BY_HAND[tenant], confirmed)
        invoices = Invoice.objects.filter(tenant=tenant, lines__order__source=imported).distinct()
        yield Check(f"{tenant}: {file.customers} customers invoiced", file.customers, len(invoices))
        lines = InvoiceLine.objects.filter(invoice__tenant=tenant)
        yield Check(f"{tenant}: each imported order invoiced once", file.good, lines.count())
    mixed = InvoiceLine.objects.exclude(invoice__tenant=F("order__tenant")).count()
    yield Check("no invoice has another tenant's orders", 0, mixed)
    paid = sorted(Invoice.objects.exclude(paid_at=None).values_list("tenant", "number"))
    charged = [("acme", INVOICE_BY_CARD[CARD_OK]), ("bergmann", INVOICE_BY_CARD[CARD_BUSY_TWICE])]
    yield Check("two cards charged", charged, paid)
    reminded = Reminder.objects.filter(invoice__tenant="bergmann").count()
    yield Check(
        f"{LATE_CUSTOMERS} reminders sent, all of bergmann",
        (LATE_CUSTOMERS,) * 2,
        (reminded, Reminder.objects.count()),
    )


def check_isolation(told: Told, client: Client) -> Iterator[Check]:
    """Over HTTP, each tenant sees its own work only."""
    tenants = list(TENANTS)
    for tenant, other in zip(tenants, [*tenants[1:], tenants[0]], strict=True):
        own = client.get(tenant, f"jobs/{told.job_ids[tenant]}/").body["runs"]
        yield Check(f"{tenant} sees the run of its own import", 1, len(own))
        foreign = client.get(tenant, f"jobs/{told.job_ids[other]}/").body["runs"]
        yield Check(f"{tenant} does not see {other}'s", [], foreign)
        refused = client.get(tenant, "orders/", key_of=other).status
        yield Check(f"{other}'s key does not open {tenant}", 403, refused)


def check_admin(browser: AdminBrowser, runs: list[Run]) -> Iterator[Check]:
    """The admin shows the runs, and a page for each."""
    listed = browser.page("/admin/kumiko/jobrun/")
    yield Check("the admin lists every run", [], [run.id for run in runs if run.id not in listed])
    failed = next(run for run in runs if run.status == "failed")
    page = browser.page(f"/admin/kumiko/jobrun/{failed.id}/change/")
    yield Check("the admin shows a failed run's error", True, "ProviderBusy" in page)
