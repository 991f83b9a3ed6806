"""Orders in the admin."""

from __future__ import annotations

from django.contrib import admin

from example_project.orders.models import Customer, Order, OrderImport


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
