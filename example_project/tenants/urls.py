"""Below ``/t/<tenant>/``."""

from __future__ import annotations

from django.urls import path

from example_project.tenants import views

urlpatterns = [
    path("jobs/<str:job_id>/", views.job_status, name="job-status"),
    path("notices/", views.notices, name="notices"),
]
