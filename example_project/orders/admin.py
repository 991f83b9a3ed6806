"""Orders in the admin."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import ngettext

from example_project.orders.handlers import CONFIRM_ORDER
from example_project.orders.models import Customer, Order, OrderImport
from kumiko_django import tenant_scope
from kumiko_django.handlers import write


@admin.register(Customer)
class CustomerAdmin(admin.ModelAdmin):
    list_display = ("name", "email", "tenant")
    list_filter = ("tenant",)
    search_fields = ("name", "email")


@admin.register(OrderImport)
class OrderImportAdmin(admin.ModelAdmin):
    list_display = ("file", "tenant", "imported", "rejected", "uploaded_at", "finished_at")
    list_filter = ("tenant",)
    list_select_related = ("tenant",)
    readonly_fields = ("job_id", "imported", "rejected", "finished_at")


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ("number", "customer", "tenant", "article", "quantity", "unit_price")
    list_filter = ("tenant",)
    list_select_related = ("customer", "tenant")
    search_fields = ("number", "article")
    autocomplete_fields = ("customer",)
    readonly_fields = ("confirmed_at", "source")
    actions = ("confirm",)

    @admin.action(description="Confirm the orders")
    def confirm(self, request: HttpRequest, queryset: QuerySet[Order]) -> None:
        # For the support only: being an administrator is no role.
        for order in queryset:
            with tenant_scope(order.tenant_id):
                write(CONFIRM_ORDER, {"order": order.pk}, user=request.user)
        count = len(queryset)
        message = ngettext("%d order is confirmed.", "%d orders are confirmed.", count)
        self.message_user(request, message % count)
