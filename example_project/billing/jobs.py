"""The jobs of this app. Django finds this module by its name when it starts."""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from example_project.billing.models import Invoice, InvoiceLine, Reminder
from example_project.billing.providers import CardDeclined, charge, render_page, send_letter
from example_project.orders.models import Customer, Order, OrderImport
from kumiko_django import Backoff, JobContext, Unrecoverable, VisibleFailure, job

LETTERS_AT_A_TIME = 5


@dataclass(frozen=True)
class ImportRef:
    """Payload: an import of orders."""

    order_import: int


@dataclass(frozen=True)
class InvoiceRef:
    """Payload: an invoice."""

    invoice: int


@job(schema=ImportRef, retries=3)
def issue_invoices(payload: ImportRef, ctx: JobContext) -> dict[str, int]:
    """Write one invoice to each customer for the orders of an import that have none yet."""
    source = OrderImport.objects.get(pk=payload.order_import, tenant=ctx.tenant_id)
    ctx.about(source)
    customers = list(Customer.objects.filter(orders__source=source).distinct())
    for done, customer in enumerate(customers, start=1):
        _invoice(customer, source, ctx.config["days_to_pay"])
        ctx.progress(done, len(customers), "customers invoiced")
    issued = Invoice.objects.filter(lines__order__source=source).distinct().count()
    ctx.log.info("invoices issued", invoices=issued)
    return {"invoices": issued}


@transaction.atomic
def _invoice(customer: Customer, source: OrderImport, days_to_pay: int) -> None:
    orders = list(Order.objects.filter(customer=customer, source=source, invoice_line=None))
    if not orders:
        return  # an earlier attempt came this far
    invoice = Invoice.objects.create(
        tenant_id=customer.tenant_id,
        customer=customer,
        number=f"{source.pk}-{customer.pk}",
        total=sum(order.amount for order in orders),
        due_on=timezone.localdate() + dt.timedelta(days=days_to_pay),
    )
    InvoiceLine.objects.bulk_create(InvoiceLine(invoice=invoice, order=order) for order in orders)


@job(
    schema=InvoiceRef,
    retries=3,
    # Seconds, so that the demo is short. A provider that is down wants minutes.
    backoff=Backoff.exponential(seconds=0.5, jitter=0.1, max_seconds=60),
    # The tenant is told, until a later payment of the invoice succeeds.
    tenant_visible_failure=VisibleFailure("billing.payment_failed", subject=("invoice",)),
)
def collect_payment(payload: InvoiceRef, ctx: JobContext) -> dict[str, str]:
    """Charge the customer's card; a busy provider is asked again, a declined card is not."""
    invoice = Invoice.objects.select_related("customer").get(
        pk=payload.invoice, tenant=ctx.tenant_id
    )
    ctx.about(invoice)
    if invoice.paid_at is not None:
        return {"reference": invoice.payment_reference}
    try:
        reference = charge(
            invoice.customer.payment_card,
            invoice.total,
            # The same for all attempts: a job that runs twice does not charge twice.
            idempotency_key=ctx.job_id,
            attempt=ctx.attempt,
        )
    except CardDeclined as error:
        raise Unrecoverable(
            f"Invoice {invoice.number}: {error}", message_key="billing.card_declined"
        ) from error
    Invoice.objects.filter(pk=invoice.pk).update(
        paid_at=timezone.now(), payment_reference=reference
    )
    ctx.log.info("paid", invoice=invoice.number, total=invoice.total)
    return {"reference": reference}


@job(retries=2)
async def send_reminders(payload: dict[str, Any], ctx: JobContext) -> dict[str, int]:
    """Remind of every overdue invoice: waiting for the letter service is left to the loop."""
    today = timezone.localdate()
    overdue = Invoice.objects.overdue().filter(tenant=ctx.tenant_id).select_related("customer")
    invoices = [invoice async for invoice in overdue.exclude(reminders__sent_on=today)]
    at_a_time = asyncio.Semaphore(LETTERS_AT_A_TIME)
    sent = 0

    async def remind(invoice: Invoice) -> None:
        nonlocal sent
        async with at_a_time:
            receipt = await send_letter(
                invoice.customer.email, f"Please pay invoice {invoice.number} ({invoice.total} EUR)"
            )
        await Reminder.objects.acreate(invoice=invoice, sent_on=today, receipt=receipt)
        sent += 1
        ctx.progress(sent, len(invoices), "reminders sent")

    async with asyncio.TaskGroup() as group:
        for invoice in invoices:
            group.create_task(remind(invoice))
    ctx.log.info("reminders sent", reminders=sent)
    return {"reminders": sent}


@job
def render_statements(payload: dict[str, Any], ctx: JobContext) -> dict[str, Any]:
    """Put a statement for each customer with overdue invoices into one file. Takes its time."""
    overdue = Invoice.objects.overdue().filter(tenant=ctx.tenant_id)
    customers = Customer.objects.filter(invoices__in=overdue).distinct()
    pages = []
    for done, customer in enumerate(customers, start=1):
        numbers = ", ".join(invoice.number for invoice in overdue.filter(customer=customer))
        pages.append(render_page(f"{customer.name}: {numbers}"))
        ctx.progress(done, len(customers), "statements rendered")
    file = ctx.files.handle(f"statements/{ctx.job_id}.txt")  # of this tenant, whatever the name
    file.write(b"".join(pages))  # in place of what an attempt that broke off has left
    ctx.log.info("statements stored", file=file.key, pages=len(pages))
    return {"file": file.key, "pages": len(pages)}


@job(
    tenant="system",
    # Declared here with the reason, and each use is on record.
    escape_hatches={"cross_tenant_reads": "the operator bills a share of what is paid"},
)
def sum_up_payments(payload: dict[str, Any], ctx: JobContext) -> dict[str, str]:
    """Add up, for the operator, what the customers of every tenant have paid."""
    paid = ctx.cross_tenant_reads(Invoice).exclude(paid_at=None)
    sums = paid.order_by("tenant_id").values_list("tenant_id").annotate(Sum("total"))
    return {str(tenant_id): str(total) for tenant_id, total in sums}
