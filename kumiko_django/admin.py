"""Doorway for Django: the admin pages that the rooms define, registered with the default site.

For an ``AdminSite`` of your own: ``my_site.register(JobRun, JobRunAdmin)``.
"""

from __future__ import annotations

from django.contrib import admin

from kumiko_django.audit.models import EscapeHatchUse
from kumiko_django.history.admin import JobRunAdmin
from kumiko_django.history.hatch_admin import EscapeHatchUseAdmin
from kumiko_django.history.models import JobRun
from kumiko_django.history.visible_admin import TenantVisibleFailureAdmin, TenantVisibleRunAdmin
from kumiko_django.history.visible_models import TenantVisibleFailure, TenantVisibleRun

__all__ = [
    "EscapeHatchUseAdmin",
    "JobRunAdmin",
    "TenantVisibleFailureAdmin",
    "TenantVisibleRunAdmin",
]

admin.site.register(EscapeHatchUse, EscapeHatchUseAdmin)
admin.site.register(JobRun, JobRunAdmin)
admin.site.register(TenantVisibleFailure, TenantVisibleFailureAdmin)
admin.site.register(TenantVisibleRun, TenantVisibleRunAdmin)
