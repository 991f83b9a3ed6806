"""Orders that were imported are invoiced by a job."""

from __future__ import annotations

from typing import Any

from django.dispatch import receiver

from example_project.billing.jobs import issue_invoices
from example_project.orders.models import OrderImport
from example_project.orders.signals import orders_imported


@receiver(orders_imported, dispatch_uid="billing.invoice_imported_orders")
def invoice_imported_orders(order_import: OrderImport, **_: Any) -> None:
    issue_invoices.dispatch({"order_import": order_import.pk})
