"""What a tenant may know about its own background work."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_GET

from example_project.tenants.access import tenant_view
from example_project.tenants.models import Tenant
from kumiko_django.models import JobRun, TenantVisibleFailure, TenantVisibleRun

MESSAGES = {
    "billing.payment_failed": "The payment could not be collected. We will look into it.",
    "billing.card_declined": "The customer's card was declined. Please ask for another one.",
}
"""What the keys say. In a project of yours: texts that are translated."""


@tenant_view
@require_GET
def job_status(request: HttpRequest, tenant: Tenant, job_id: str) -> JsonResponse:
    """Every run of a job, oldest first. A job that waits for its first run has none yet."""
    runs = JobRun.objects.filter(tenant_id=tenant.pk, queue_job_id=job_id).order_by("id")
    return JsonResponse(
        {
            "job": job_id,
            "runs": [
                {
                    "name": run.job_name,
                    "attempt": run.attempt,
                    "status": run.status,
                    "final": run.final,
                    "progress": run.progress,
                    "result": run.result,
                }
                for run in runs
            ],
        }
    )


@tenant_view
@require_GET
def notices(request: HttpRequest, tenant: Tenant) -> JsonResponse:
    """What the tenant should know: failures that nothing has resolved, and its latest imports."""
    failures = TenantVisibleFailure.objects.unresolved().filter(tenant_id=tenant.pk)
    runs = TenantVisibleRun.objects.filter(tenant_id=tenant.pk)
    return JsonResponse(
        {
            "failures": [
                {"about": failure.subject, "message": MESSAGES[failure.message_key]}
                for failure in failures
            ],
            "runs": [{"about": run.subject, "status": run.status} for run in runs[:20]],
        }
    )
