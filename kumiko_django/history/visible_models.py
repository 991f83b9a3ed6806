"""What tenants see of their runs: the latest of each subject, and failures until they are resolved.

One row for each tenant, job and subject. No error text is in them, only keys of messages (B184).
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Q
from django.db.models.fields.json import KeyTransform
from django.utils.translation import gettext_lazy as _

from kumiko_django.history.models import RunStatus
from kumiko_django.types.jsonable import JSON
from kumiko_django.types.visible import MAX_KEY_LENGTH, MAX_MESSAGE_KEY_LENGTH, subject_of


class VisibleQuerySet(models.QuerySet[Any]):
    """The vocabulary of both tables."""

    def of_subject(self, **values: JSON) -> VisibleQuerySet:
        """Records of exactly this subject: its fields and their values.

        Raises:
            SubjectError: A value cannot be part of a subject.
        """
        return self.filter(subject_key=subject_of(values, list(values)).key)

    def naming(self, field: str, value: JSON) -> VisibleQuerySet:
        """Records whose subject has this value in this field, alone or beside others.

        For the erasure of what is known of a person, say. Served by no index.

        Raises:
            SubjectError: The value cannot be part of a subject.
        """
        kept = subject_of({field: value}, (field,)).values[field]
        # No lookup by a path: the field's name may be any text.
        with_value: VisibleQuerySet = self.alias(_named=KeyTransform(field, "subject"))
        return with_value.filter(_named=kept)


class FailureQuerySet(VisibleQuerySet):
    """The vocabulary of failures."""

    def unresolved(self) -> FailureQuerySet:
        """Failures that no later success has resolved."""
        return self.filter(resolved_at=None)


class FailureManager(models.Manager.from_queryset(FailureQuerySet)):  # type: ignore[misc]
    """Failures only, without the subjects that have never failed."""

    def get_queryset(self) -> FailureQuerySet:
        """Rows with a failure."""
        failures: FailureQuerySet = super().get_queryset().filter(run_id__isnull=False)
        return failures


class SubjectRecord(models.Model):
    """What both tables have."""

    id = models.UUIDField(
        primary_key=True, editable=False, help_text=_("Made of tenant, job and subject.")
    )
    tenant_id = models.CharField(_("tenant"), max_length=128)
    job_name = models.CharField(_("job"), max_length=200)
    subject: Any = models.JSONField(_("subject"), default=dict)
    subject_key = models.CharField(_("key of the subject"), max_length=MAX_KEY_LENGTH)

    class Meta:
        abstract = True


class TenantVisibleRun(SubjectRecord):
    """The latest run of a job for one subject, as its tenant may see it."""

    run_id = models.UUIDField(_("run"))
    status = models.CharField(_("status"), max_length=16, choices=RunStatus.choices)
    final = models.BooleanField(
        _("final"), default=False, help_text=_("No other attempt follows this run.")
    )
    started_at = models.DateTimeField(_("started"))
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)

    objects = VisibleQuerySet.as_manager()

    class Meta:
        verbose_name = _("run that its tenant sees")
        verbose_name_plural = _("runs that tenants see")
        # The ids of runs are in the order of time.
        ordering = ("-run_id",)
        constraints = (
            models.UniqueConstraint(
                fields=("tenant_id", "job_name", "subject_key"),
                name="kumiko_tenantrun_one_row_a_subject",
            ),
        )
        indexes = (
            models.Index(fields=("-run_id",), name="kumiko_tenantrun_run"),
            models.Index(fields=("tenant_id", "-run_id"), name="kumiko_tenantrun_tenant"),
            models.Index(fields=("job_name", "-run_id"), name="kumiko_tenantrun_job"),
            models.Index(fields=("status", "-run_id"), name="kumiko_tenantrun_status"),
            models.Index(fields=("subject_key", "-run_id"), name="kumiko_tenantrun_subject"),
        )

    def __str__(self) -> str:
        return f"{self.job_name} ({self.status})"


class TenantVisibleFailure(SubjectRecord):
    """That a job has failed for good for one subject, until a later run of it succeeds (P109).

    A subject that has only succeeded has a row as well, for a day: records of runs may come in any
    order, and an earlier failure must not look as if it were the last word. ``objects`` leaves
    these rows out; ``states`` has them.
    """

    message_key = models.CharField(
        _("key of the message"), max_length=MAX_MESSAGE_KEY_LENGTH, blank=True, default=""
    )
    run_id = models.UUIDField(_("run"), null=True, blank=True)
    started_at = models.DateTimeField(_("started"), null=True, blank=True)
    failed_at = models.DateTimeField(_("failed"), null=True, blank=True)
    success_run_id = models.UUIDField(_("successful run"), null=True, blank=True)
    success_started_at = models.DateTimeField(_("success started"), null=True, blank=True)
    succeeded_at = models.DateTimeField(_("succeeded"), null=True, blank=True)
    resolved_at = models.DateTimeField(_("resolved"), null=True, blank=True)

    objects = FailureManager()
    states = models.Manager()  # noqa: DJ012  (a manager)

    class Meta:
        verbose_name = _("failure that its tenant sees")
        verbose_name_plural = _("failures that tenants see")
        ordering = ("-run_id",)
        constraints = (
            models.UniqueConstraint(
                fields=("tenant_id", "job_name", "subject_key"),
                name="kumiko_tenantfailure_one_row_a_subject",
            ),
        )
        indexes = (
            models.Index(fields=("-run_id",), name="kumiko_tenantfailure_run"),
            models.Index(fields=("tenant_id", "-run_id"), name="kumiko_tenantfailure_tenant"),
            models.Index(fields=("job_name", "-run_id"), name="kumiko_tenantfailure_job"),
            models.Index(fields=("subject_key", "-run_id"), name="kumiko_tenantfailure_subject"),
            models.Index(
                fields=("-run_id",),
                condition=Q(resolved_at__isnull=True, run_id__isnull=False),
                name="kumiko_tenantfailure_open",
            ),
            models.Index(
                fields=("tenant_id", "-run_id"),
                condition=Q(resolved_at__isnull=True, run_id__isnull=False),
                name="kumiko_tenantfailure_opentenan",
            ),
            models.Index(
                fields=("success_run_id",),
                condition=Q(run_id__isnull=True),
                name="kumiko_tenantfailure_never",
            ),
        )

    def __str__(self) -> str:
        return f"{self.job_name} ({self.message_key})"

    @property
    def is_resolved(self) -> bool:
        """Whether a later run has succeeded."""
        return self.resolved_at is not None
