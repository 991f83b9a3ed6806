"""The app."""

from __future__ import annotations

from django.apps import AppConfig


class BillingConfig(AppConfig):
    """Invoices; it listens to what the orders app tells."""

    name = "example_project.billing"

    def ready(self) -> None:
        from example_project.billing import receivers  # noqa: F401
