"""The API for invoices."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_GET, require_POST

from example_project.billing.jobs import collect_payment, render_statements, send_reminders
from example_project.billing.models import Invoice
from example_project.tenants.access import tenant_view
from example_project.tenants.models import Tenant


@tenant_view
@require_GET
def invoices(request: HttpRequest, tenant: Tenant) -> JsonResponse:
    """How many invoices there are, and the newest."""
    found = Invoice.objects.filter(tenant=tenant).select_related("customer")
    return JsonResponse(
        {
            "count": found.count(),
            "newest": [
                {
                    "number": invoice.number,
                    "customer": invoice.customer.name,
                    "total": invoice.total,
                    "due_on": invoice.due_on,
                    "is_paid": invoice.paid_at is not None,
                }
                for invoice in found[:20]
            ],
        }
    )


@tenant_view
@require_POST
def collect(request: HttpRequest, tenant: Tenant, number: str) -> JsonResponse:
    """Charge the customer's card for an invoice."""
    invoice = get_object_or_404(Invoice, number=number, tenant=tenant)
    sent = collect_payment.dispatch({"invoice": invoice.pk})
    return JsonResponse({"job": sent.job_id}, status=202)


@tenant_view
@require_POST
def remind(request: HttpRequest, tenant: Tenant) -> JsonResponse:
    """Remind of all overdue invoices."""
    return JsonResponse({"job": send_reminders.dispatch().job_id}, status=202)


@tenant_view
@require_POST
def statements(request: HttpRequest, tenant: Tenant) -> JsonResponse:
    """Render a statement for each customer who is late."""
    return JsonResponse({"job": render_statements.dispatch().job_id}, status=202)
