"""Tenants in the admin."""

from __future__ import annotations

from django.contrib import admin

from example_project.tenants.models import Tenant


@admin.register(Tenant)
class TenantAdmin(admin.ModelAdmin):
    list_display = ("name", "id", "is_active")
    list_filter = ("is_active",)
    search_fields = ("id", "name")
