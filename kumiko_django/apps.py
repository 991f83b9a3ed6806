"""The app: register checks, find jobs, and nothing else."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

# Before any model is made: Django makes them once all apps are known.
from kumiko_django.privacy.marks import when_marked


class KumikoConfig(AppConfig):
    """``INSTALLED_APPS = [..., "kumiko_django"]``."""

    name = "kumiko_django"
    label = "kumiko"
    verbose_name = _("Background jobs")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Plug in the dispatcher and connections, register checks, import what apps define."""
        from kumiko_django import checks, dispatching  # noqa: F401  (need loaded apps)
        from kumiko_django.audit import recorder
        from kumiko_django.definitions.discovery import discover
        from kumiko_django.handlers.discovery import discover as discover_handlers
        from kumiko_django.tenancy import session
        from kumiko_django.tenancy.install import install

        when_marked(install)
        recorder.plug_in()
        session.install()
        discover()
        discover_handlers()
