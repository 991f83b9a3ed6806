"""The app."""

from __future__ import annotations

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """Tenants and their keys."""

    name = "example_project.tenants"
