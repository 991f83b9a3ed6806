"""Customers, orders, and the files that orders come from."""

from __future__ import annotations

from decimal import Decimal

from django.db import models

from example_project.tenants.models import Tenant


class Customer(models.Model):
    """Who orders from a tenant."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="customers")
    name = models.CharField(max_length=200)
    email = models.EmailField()
    payment_card = models.CharField(max_length=40, blank=True)

    class Personal:
        fields = ("name", "email", "payment_card")

    class Meta:
        ordering = ("tenant", "name")
        constraints = (
            models.UniqueConstraint(fields=("tenant", "email"), name="customer_email_per_tenant"),
        )

    def __str__(self) -> str:
        return self.name


def import_path(order_import: OrderImport, filename: str) -> str:
    return f"order-imports/{order_import.tenant_id}/{filename}"


class OrderImport(models.Model):
    """An uploaded file of orders, and what became of it."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="order_imports")
    file = models.FileField(upload_to=import_path, max_length=250)
    job_id = models.CharField(max_length=64, blank=True)
    imported = models.PositiveIntegerField(null=True)
    rejected = models.PositiveIntegerField(null=True)
    uploaded_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return self.file.name or "?"


class Order(models.Model):
    """So many of one article for one customer."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="orders")
    customer = models.ForeignKey(Customer, on_delete=models.PROTECT, related_name="orders")
    number = models.CharField(max_length=40)
    article = models.CharField(max_length=200)
    quantity = models.PositiveIntegerField()
    unit_price = models.DecimalField(max_digits=10, decimal_places=2)
    ordered_on = models.DateField()
    confirmed_at = models.DateTimeField(null=True, blank=True)
    source = models.ForeignKey(
        OrderImport, null=True, blank=True, on_delete=models.SET_NULL, related_name="orders"
    )

    class Meta:
        ordering = ("-id",)
        constraints = (
            models.UniqueConstraint(fields=("tenant", "number"), name="order_number_per_tenant"),
        )

    def __str__(self) -> str:
        return self.number

    @property
    def amount(self) -> Decimal:
        return self.quantity * self.unit_price
