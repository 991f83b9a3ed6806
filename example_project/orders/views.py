"""The API for orders. Each view takes the work in, and leaves the doing to a job."""

from __future__ import annotations

from django.core.files.uploadedfile import UploadedFile
from django.db import IntegrityError, transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from pydantic import ValidationError

from example_project.orders.csv_rows import COLUMNS, OrderRow
from example_project.orders.jobs import import_orders
from example_project.orders.models import Customer, Order, OrderImport
from example_project.tenants.access import tenant_view
from example_project.tenants.models import Tenant
from kumiko_django import accepts_personal_data


@tenant_view
@require_POST
def upload(request: HttpRequest, tenant: Tenant) -> JsonResponse:
    """Take a CSV file of orders (form field ``file``) and import it in the background."""
    file = request.FILES.get("file")
    if not isinstance(file, UploadedFile):
        return JsonResponse({"error": "the form field 'file' is missing"}, status=400)
    with transaction.atomic():
        order_import = OrderImport.objects.create(tenant=tenant, file=file)
        # Sent after the commit: the job finds the row, and a rollback leaves no job behind.
        sent = import_orders.dispatch(
            {"order_import": order_import.pk, "file": order_import.file.name}
        )
        order_import.job_id = sent.job_id
        order_import.save(update_fields=["job_id"])
    return JsonResponse({"import": order_import.pk, "job": sent.job_id}, status=202)


@tenant_view
@require_GET
def import_status(request: HttpRequest, tenant: Tenant, pk: int) -> JsonResponse:
    """What became of an upload."""
    order_import = get_object_or_404(OrderImport, pk=pk, tenant=tenant)
    return JsonResponse(
        {
            "import": order_import.pk,
            "job": order_import.job_id,
            "imported": order_import.imported,
            "rejected": order_import.rejected,
            "finished_at": order_import.finished_at,
        }
    )


@accepts_personal_data("a tenant's API key stands for its staff, who are no users here")
@tenant_view
@require_http_methods(["GET", "POST"])
def orders(request: HttpRequest, tenant: Tenant) -> JsonResponse:
    """List the newest orders, or place one; an order that is placed is confirmed by a job."""
    if request.method == "POST":
        return _place_order(request, tenant)
    found = Order.objects.filter(tenant=tenant).select_related("customer")
    return JsonResponse(
        {
            "count": found.count(),
            "newest": [
                {
                    "number": order.number,
                    "customer": order.customer.name,
                    "amount": order.amount,
                    "is_confirmed": order.confirmed_at is not None,
                }
                for order in found[:20]
            ],
        }
    )


def _place_order(request: HttpRequest, tenant: Tenant) -> JsonResponse:
    try:
        row = OrderRow.model_validate({name: request.POST.get(name) for name in COLUMNS})
    except ValidationError as error:
        fields = sorted({str(problem["loc"][0]) for problem in error.errors()})
        return JsonResponse({"error": f"missing or wrong: {', '.join(fields)}"}, status=400)
    try:
        with transaction.atomic():
            customer, _ = Customer.objects.get_or_create(
                tenant=tenant, email=row.email, defaults={"name": row.customer}
            )
            order = Order.objects.create(
                tenant=tenant, customer=customer, **row.model_dump(exclude={"customer", "email"})
            )
    except IntegrityError:
        return JsonResponse({"error": f"there is an order {row.number} already"}, status=409)
    return JsonResponse({"order": order.pk, "number": order.number}, status=201)
