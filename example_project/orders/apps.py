"""The app."""

from __future__ import annotations

from django.apps import AppConfig


class OrdersConfig(AppConfig):
    """Orders and their import; the label is the first part of its jobs' names."""

    name = "example_project.orders"

    def ready(self) -> None:
        from example_project.orders import receivers  # noqa: F401
