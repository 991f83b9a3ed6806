"""Below ``/t/<tenant>/billing/``."""

from __future__ import annotations

from django.urls import path

from example_project.billing import views

urlpatterns = [
    path("invoices/", views.invoices, name="invoices"),
    path("invoices/<str:number>/collect/", views.collect, name="collect"),
    path("reminders/", views.remind, name="remind"),
    path("statements/", views.statements, name="statements"),
]
