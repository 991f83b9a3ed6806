"""Invoices in the admin, with an action that leaves its work to jobs."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import ngettext

from example_project.billing.jobs import collect_payment
from example_project.billing.models import Invoice, InvoiceQuerySet, Reminder


@admin.register(Invoice)
class InvoiceAdmin(admin.ModelAdmin):
    list_display = ("number", "customer", "tenant", "total", "due_on", "paid_at")
    list_filter = ("tenant",)
    list_select_related = ("customer", "tenant")
    search_fields = ("number", "customer__name")
    autocomplete_fields = ("customer",)
    actions = ("collect",)

    @admin.action(description="Charge the customers' cards", permissions=["change"])
    def collect(self, request: HttpRequest, queryset: InvoiceQuerySet) -> None:
        # No tenant's scope is entered here, so each job is told whose it is.
        sent = [
            collect_payment.dispatch(
                {"invoice": invoice.pk}, tenant_id=invoice.tenant_id, triggered_by=request.user
            )
            for invoice in queryset.unpaid()
        ]
        count = len(sent)
        message = ngettext(
            "%d payment is being collected.", "%d payments are being collected.", count
        )
        self.message_user(request, message % count)


@admin.register(Reminder)
class ReminderAdmin(admin.ModelAdmin):
    list_display = ("invoice", "sent_on", "receipt")
    list_filter = ("invoice__tenant",)
    list_select_related = ("invoice",)
