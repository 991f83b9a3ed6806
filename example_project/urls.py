"""The admin, and a small API for each tenant under ``/t/<tenant>/``."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("t/<slug:tenant_id>/", include("example_project.tenants.urls")),
    path("t/<slug:tenant_id>/orders/", include("example_project.orders.urls")),
    path("t/<slug:tenant_id>/billing/", include("example_project.billing.urls")),
]
