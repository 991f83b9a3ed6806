"""Below ``/t/<tenant>/orders/``."""

from __future__ import annotations

from django.urls import path

from example_project.orders import views

urlpatterns = [
    path("", views.orders, name="orders"),
    path("imports/", views.upload, name="upload"),
    path("imports/<int:pk>/", views.import_status, name="import-status"),
]
