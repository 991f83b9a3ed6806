"""What ``manage.py seed`` creates, as plain values: the demo and the tests count on them."""

from __future__ import annotations

from typing import Final

from example_project.billing import providers

TENANTS: Final = {
    "acme": "Acme GmbH",
    "bergmann": "Bergmann & Söhne KG",
    "nordlicht": "Café Nordlicht, Köln",
}
LATE_CUSTOMERS: Final = 24
"""So many customers of each tenant have an overdue invoice."""
INVOICE_BY_CARD: Final = {
    providers.CARD_OK: "1001",
    providers.CARD_BUSY_TWICE: "1002",
    providers.CARD_OUTAGE: "1003",
    providers.CARD_DECLINED: "1004",
}
"""Every tenant has an invoice with this number, to be paid with that test card."""
