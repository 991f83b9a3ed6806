"""Invoices, what stands on them, and reminders."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from example_project.orders.models import Customer, Order
from example_project.tenants.models import Tenant


class InvoiceQuerySet(models.QuerySet["Invoice"]):
    """The vocabulary of invoices."""

    def unpaid(self) -> InvoiceQuerySet:
        return self.filter(paid_at=None)

    def overdue(self) -> InvoiceQuerySet:
        return self.unpaid().filter(due_on__lt=timezone.localdate())


class Invoice(models.Model):
    """What a customer has to pay to a tenant."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="invoices")
    customer = models.ForeignKey(Customer, on_delete=models.PROTECT, related_name="invoices")
    number = models.CharField(max_length=40)
    total = models.DecimalField(max_digits=12, decimal_places=2)
    due_on = models.DateField()
    paid_at = models.DateTimeField(null=True, blank=True)
    payment_reference = models.CharField(max_length=100, blank=True)

    objects = InvoiceQuerySet.as_manager()

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(fields=("tenant", "number"), name="invoice_number_per_tenant"),
        )

    def __str__(self) -> str:
        return self.number


class InvoiceLine(models.Model):
    """One order on an invoice. An order stands on one invoice only."""

    invoice = models.ForeignKey(Invoice, on_delete=models.CASCADE, related_name="lines")
    order = models.OneToOneField(Order, on_delete=models.PROTECT, related_name="invoice_line")

    def __str__(self) -> str:
        return f"{self.invoice} / {self.order}"


class Reminder(models.Model):
    """A letter about an overdue invoice: at most one a day."""

    invoice = models.ForeignKey(Invoice, on_delete=models.CASCADE, related_name="reminders")
    sent_on = models.DateField()
    receipt = models.CharField(max_length=100)

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(fields=("invoice", "sent_on"), name="one_reminder_a_day"),
        )

    def __str__(self) -> str:
        return f"{self.invoice}, {self.sent_on}"
