"""What a tenant may know about its own background work."""

from __future__ import annotations

from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_GET

from example_project.tenants.access import tenant_view
from example_project.tenants.models import Tenant
from kumiko_django.models import JobRun


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
