"""The table of uses. Keys of tenants and users are text, as in the history."""

from __future__ import annotations

from typing import Final

from django.db import models
from django.utils.translation import gettext_lazy as _

from kumiko_django.types.ids import uuid7

MAX_DETAIL_LENGTH: Final = 1000


class HatchKind(models.TextChoices):
    """What was used: a grant, or a scope that was left for another one."""

    UNSAFE_RAW = "unsafe_raw", _("SQL of its own")
    GLOBAL_WRITES = "global_writes", _("writing rows of all")
    CROSS_TENANT_READS = "cross_tenant_reads", _("reading across tenants")
    SYSTEM_IDENTITY = "system_identity", _("acting as another")
    SCOPE_SWITCH = "scope_switch", _("entering another scope")


class EscapeHatchUse(models.Model):
    """That an escape hatch was used, or refused: one row for all like it in a window."""

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    kind = models.CharField(_("kind"), max_length=32, choices=HatchKind.choices)
    refused = models.BooleanField(_("refused"), default=False)
    job_name = models.CharField(_("job"), max_length=200, blank=True, default="")
    run_id = models.UUIDField(_("run"), null=True, blank=True)
    tenant_id = models.CharField(_("tenant"), max_length=128)
    actor_id = models.CharField(_("actor"), max_length=255, blank=True, default="")
    caller_id = models.CharField(_("caller"), max_length=255, blank=True, default="")
    reason = models.CharField(_("reason"), max_length=500, blank=True, default="")
    detail = models.CharField(
        _("what was done"), max_length=MAX_DETAIL_LENGTH, blank=True, default=""
    )
    count = models.PositiveBigIntegerField(_("uses"), default=1)
    used_at = models.DateTimeField(_("first use"))
    last_used_at = models.DateTimeField(_("last use"))

    class Meta:
        verbose_name = _("use of an escape hatch")
        verbose_name_plural = _("uses of escape hatches")
        # The primary key is a UUID of version 7: its order is that of the first uses.
        ordering = ("-id",)
        indexes = (
            # Each filter of the admin's list, together with the order of the list.
            models.Index(fields=("kind", "-id"), name="kumiko_hatch_kind"),
            models.Index(fields=("job_name", "-id"), name="kumiko_hatch_job"),
            models.Index(fields=("tenant_id", "-id"), name="kumiko_hatch_tenant"),
            models.Index(fields=("refused", "-id"), name="kumiko_hatch_refused"),
            # What its search finds.
            models.Index(fields=("run_id",), name="kumiko_hatch_run"),
        )

    def __str__(self) -> str:
        return f"{self.kind} {'refused' if self.refused else 'used'} ({self.count})"
