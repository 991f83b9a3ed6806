"""The jobs of this app. Django finds this module by its name when it starts."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, BinaryIO, TextIO, cast

from django.core.files.storage import default_storage
from django.db import transaction
from django.utils import timezone
from pydantic import BaseModel

from example_project.orders.csv_rows import (
    BrokenRow,
    NotAnOrderFile,
    OrderRow,
    count_rows,
    read_rows,
)
from example_project.orders.handlers import CONFIRM_ORDER
from example_project.orders.models import Customer, Order, OrderImport
from example_project.orders.signals import orders_imported
from kumiko_django import Backoff, JobContext, On, Unrecoverable, VisibleRun, job

ROWS_AT_A_TIME = 250


class ImportOrders(BaseModel):
    """Payload of ``import-orders``: the name of the file, never what is in it."""

    order_import: int
    file: str


@job(
    schema=ImportOrders,
    retries=3,
    backoff=Backoff.exponential(seconds=2),
    # Uploads come with an API key: to Django nobody is logged in.
    accepts_personal_data="the tenant's staff upload the customers of their orders",
    # The tenant sees the latest run of each import.
    tenant_visible_run=VisibleRun(subject=("order_import",)),
)
def import_orders(payload: ImportOrders, ctx: JobContext) -> dict[str, int]:
    """Make orders from an uploaded CSV file; rows that make no sense are logged and left out."""
    order_import = OrderImport.objects.get(pk=payload.order_import, tenant=ctx.tenant_id)
    ctx.about(order_import)
    try:
        with _opened(payload.file) as file:
            rejected = _import_rows(order_import, file, ctx)
    except NotAnOrderFile as error:
        # The same file would be read again: another attempt cannot help.
        raise Unrecoverable(str(error)) from error
    imported = order_import.orders.count()
    with transaction.atomic():
        order_import.imported, order_import.rejected = imported, rejected
        order_import.finished_at = timezone.now()
        order_import.save(update_fields=["imported", "rejected", "finished_at"])
        orders_imported.send(sender=OrderImport, order_import=order_import)
    ctx.log.info("orders imported", imported=imported, rejected=rejected)
    return {"imported": imported, "rejected": rejected}


def _import_rows(order_import: OrderImport, file: TextIO, ctx: JobContext) -> int:
    """Store the good rows batch by batch; return how many were broken."""
    total, done, rejected = count_rows(file), 0, 0
    rows = read_rows(file)
    while batch := list(islice(rows, ROWS_AT_A_TIME)):
        for row in batch:
            if isinstance(row, BrokenRow):
                rejected += 1
                ctx.log.warning("row left out", line=row.line, reason=row.reason)
        _store(order_import, [row for row in batch if isinstance(row, OrderRow)])
        done += len(batch)
        ctx.progress(done, total, "rows read")
    return rejected


@transaction.atomic
def _store(order_import: OrderImport, rows: Sequence[OrderRow]) -> None:
    """Store some rows. Rows that are there already, from an attempt that broke off, stay."""
    tenant = order_import.tenant
    names = {row.email: row.customer for row in rows}
    Customer.objects.bulk_create(
        [Customer(tenant=tenant, email=email, name=name) for email, name in names.items()],
        ignore_conflicts=True,
    )
    found = Customer.objects.filter(tenant=tenant, email__in=names)
    customers = {customer.email: customer for customer in found}
    # bulk_create sends no post_save: thousands of imported orders need no confirmation each.
    Order.objects.bulk_create(
        [
            Order(
                tenant=tenant,
                source=order_import,
                customer=customers[row.email],
                **row.model_dump(exclude={"customer", "email"}),
            )
            for row in rows
        ],
        ignore_conflicts=True,
    )


@contextmanager
def _opened(name: str) -> Iterator[TextIO]:
    """A stored file as text. Excel begins UTF-8 files with a mark, which utf-8-sig takes off."""
    with default_storage.open(name) as stored:
        yield io.TextIOWrapper(cast("BinaryIO", stored.file), encoding="utf-8-sig", newline="")


@job(trigger=On("orders.order-placed"), lane="api", subject_fields=("customer",))
def confirm_order(payload: dict[str, Any], ctx: JobContext) -> None:
    """Confirm an order. Somebody waits for it, so it runs in the lane for short work."""
    order = Order.objects.select_related("customer").get(pk=payload["order"], tenant=ctx.tenant_id)
    ctx.about(order)
    ctx.write(CONFIRM_ORDER, {"order": order.pk})
    ctx.log.info("order confirmed", number=order.number, amount=order.amount)
