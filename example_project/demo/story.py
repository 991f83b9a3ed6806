"""What the demo does: requests over HTTP, and what has to come of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from example_project.billing.providers import (
    CARD_BUSY_TWICE,
    CARD_DECLINED,
    CARD_OK,
    CARD_OUTAGE,
)
from example_project.demo.client import Client
from example_project.demo.order_files import OrderFile, make_order_file
from example_project.demo.processes import DemoFailed
from example_project.demo.runs import JobStory
from example_project.seeds import INVOICE_BY_CARD, TENANTS

ROWS_AND_BROKEN_ROWS: Final = {"acme": (4000, 12), "bergmann": (2500, 7), "nordlicht": (1500, 5)}
ORDERS_BY_HAND: Final = {"acme": 2, "bergmann": 2, "nordlicht": 1}

IMPORT: Final = "orders:job:import-orders"
CONFIRM: Final = "orders:job:confirm-order"
INVOICES: Final = "billing:job:issue-invoices"
COLLECT: Final = "billing:job:collect-payment"
REMIND: Final = "billing:job:send-reminders"
STATEMENTS: Final = "billing:job:render-statements"

COMPLETED: Final = ("completed",)
THIRD_TIME_LUCKY: Final = ("failed", "failed", "completed")
EXHAUSTED: Final = ("failed",) * 4
GIVEN_UP_AT_ONCE: Final = ("failed",)


@cache
def order_file(tenant: str) -> OrderFile:
    """What a tenant uploads."""
    rows, broken = ROWS_AND_BROKEN_ROWS[tenant]
    return make_order_file(f"Aufträge-{tenant}.csv", rows=rows, broken=broken)


@dataclass
class Told:
    """What has been asked for, and what is to come of it."""

    jobs: Counter[JobStory] = field(default_factory=Counter)
    imports: dict[str, int] = field(default_factory=dict)
    """Key of each tenant's import."""
    job_ids: dict[str, str] = field(default_factory=dict)
    """Id of each tenant's import job."""

    def expect(self, tenant: str, job: str, *outcomes: str, lane: str = "worker") -> None:
        """Note how one more job has to end."""
        self.jobs[JobStory(tenant, job, lane, outcomes)] += 1


class Storyteller:
    """Sends the requests, each of which leaves its work to jobs."""

    def __init__(self, client: Client, tell: Callable[[str], None]) -> None:
        self._client = client
        self._tell = tell
        self._told = Told()

    def tell_all(self) -> Told:
        """Send them all."""
        # Slow work first, so that the demo shows it beside the rest.
        self._post("acme", "billing/statements/", STATEMENTS, COMPLETED)
        for tenant in TENANTS:
            self._upload(tenant, order_file(tenant))
        for tenant, count in ORDERS_BY_HAND.items():
            for number in range(1, count + 1):
                self._order(tenant, f"HAND-{number}")
        self._collect("bergmann", CARD_BUSY_TWICE, THIRD_TIME_LUCKY)
        self._collect("nordlicht", CARD_OUTAGE, EXHAUSTED)
        self._collect("nordlicht", CARD_DECLINED, GIVEN_UP_AT_ONCE)
        self._collect("acme", CARD_OK, COMPLETED)
        self._post("bergmann", "billing/reminders/", REMIND, COMPLETED)
        return self._told

    def _upload(self, tenant: str, file: OrderFile) -> None:
        path = "orders/imports/"
        answer = self._client.upload(tenant, path, file.name, file.content)
        self._require(tenant, path, answer.status == 202, answer)
        self._told.imports[tenant] = answer.body["import"]
        self._told.job_ids[tenant] = answer.body["job"]
        self._told.expect(tenant, IMPORT, *COMPLETED)
        # Dispatched by a signal when the import ends.
        self._told.expect(tenant, INVOICES, *COMPLETED)
        rows = f"{file.good + file.broken:,} rows, {file.broken} of them broken"
        self._tell(f"POST /t/{tenant}/{path} {file.name} ({rows})")

    def _order(self, tenant: str, number: str) -> None:
        form = {
            "number": number,
            "customer": "Buchhandlung Kästner",
            "email": "laden@example.com",
            "article": "Regal, Eiche",
            "quantity": "2",
            "unit_price": "129.90",
            "ordered_on": "2026-03-01",
        }
        answer = self._client.post(tenant, "orders/", form)
        self._require(tenant, "orders/", answer.status == 201, answer)
        # Dispatched by post_save.
        self._told.expect(tenant, CONFIRM, *COMPLETED, lane="api")
        self._tell(f"POST /t/{tenant}/orders/ {number}")

    def _collect(self, tenant: str, card: str, outcomes: tuple[str, ...]) -> None:
        path = f"billing/invoices/{INVOICE_BY_CARD[card]}/collect/"
        self._post(tenant, path, COLLECT, outcomes)

    def _post(self, tenant: str, path: str, job: str, outcomes: tuple[str, ...]) -> None:
        answer = self._client.post(tenant, path)
        self._require(tenant, path, answer.status == 202, answer)
        self._told.expect(tenant, job, *outcomes)
        self._tell(f"POST /t/{tenant}/{path}")

    def _require(self, tenant: str, path: str, is_fine: bool, answer: object) -> None:
        if not is_fine:
            raise DemoFailed(f"POST /t/{tenant}/{path} was refused: {answer}")
