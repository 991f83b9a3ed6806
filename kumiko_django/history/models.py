"""The tables of the run history.

Keys of the host's tenants and users are text, never foreign keys, since a router may keep them in
another database.
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _

from kumiko_django.types.ids import uuid7


class RunStatus(models.TextChoices):
    """What a run is doing, or came to."""

    RUNNING = "running", _("running")
    DEFERRED = "deferred", _("deferred")
    COMPLETED = "completed", _("completed")
    FAILED = "failed", _("failed")
    INTERRUPTED = "interrupted", _("interrupted")
    LOST = "lost", _("lost")
    CANCELLED = "cancelled", _("cancelled")
    SKIPPED = "skipped", _("skipped")
    QUARANTINED = "quarantined", _("quarantined")


class JobRunQuerySet(models.QuerySet["JobRun"]):
    """The vocabulary of the history."""

    def of_job(self, lane: str, job_id: str) -> JobRunQuerySet:
        """All runs of one job of the queue, oldest first."""
        return self.filter(lane=lane, queue_job_id=job_id).order_by("id")

    def for_list(self) -> JobRunQuerySet:
        """Without the columns that can be large (user-needs 49)."""
        return self.defer("payload", "result", "traceback", "progress")


class JobRun(models.Model):
    """One execution of a job. A retry is another run, and so is a redelivery."""

    id = models.UUIDField(_("run"), primary_key=True, default=uuid7, editable=False)
    job_name = models.CharField(_("job"), max_length=200)
    lane = models.CharField(_("lane"), max_length=16)
    queue_job_id = models.CharField(_("queue job"), max_length=255)
    queue_created_at = models.DateTimeField(_("created in the queue"))
    attempt = models.PositiveIntegerField(_("attempt"))
    max_attempts = models.PositiveIntegerField(_("attempts at most"))
    start = models.PositiveIntegerField(
        _("start"), help_text=_("How often the queue has started the job, redeliveries included.")
    )
    tenant_id = models.CharField(_("tenant"), max_length=128)
    status = models.CharField(_("status"), max_length=16, choices=RunStatus.choices)
    final = models.BooleanField(
        _("final"), default=False, help_text=_("No other attempt follows this run.")
    )
    reason = models.CharField(_("reason"), max_length=255, blank=True, default="")
    payload = models.JSONField(_("payload"), null=True, blank=True)
    result = models.JSONField(_("result"), null=True, blank=True)
    error = models.TextField(_("error"), blank=True, default="")
    fingerprint = models.CharField(
        _("error group"),
        max_length=40,
        blank=True,
        default="",
        help_text=_("Same job, same kind of error, same place."),
    )
    traceback = models.TextField(_("traceback"), blank=True, default="")
    progress = models.JSONField(_("progress"), null=True, blank=True)
    triggered_by_id = models.CharField(_("triggered by"), max_length=255, null=True, blank=True)
    trigger = models.CharField(_("trigger"), max_length=255, blank=True, default="")
    object_ref = models.CharField(_("object"), max_length=255, blank=True, default="")
    correlation_id = models.CharField(_("correlation"), max_length=128, blank=True, default="")
    trace_id = models.CharField(_("trace"), max_length=64, blank=True, default="")
    retried_from = models.UUIDField(_("retried from"), null=True, blank=True)
    parent = models.UUIDField(_("parent run"), null=True, blank=True)
    enqueued_at = models.DateTimeField(_("enqueued"))
    started_at = models.DateTimeField(_("started"))
    finished_at = models.DateTimeField(_("finished"), null=True, blank=True)
    resume_at = models.DateTimeField(_("resumes"), null=True, blank=True)
    deferrals = models.PositiveIntegerField(_("deferrals"), default=0, db_default=0)
    wait_ms = models.BigIntegerField(_("wait (ms)"), null=True, blank=True)
    duration_ms = models.BigIntegerField(_("duration (ms)"), null=True, blank=True)
    worker = models.CharField(_("worker"), max_length=128, blank=True, default="")
    release = models.CharField(_("release"), max_length=64, blank=True, default="")

    objects = JobRunQuerySet.as_manager()

    class Meta:
        verbose_name = _("job run")
        verbose_name_plural = _("job runs")
        # The primary key is a UUID of version 7: its order is that of time, and it has an index.
        ordering = ("-id",)
        # Of runs and of what tenants see; without it, those of one's own tenant (history/seen_by).
        permissions = (("view_all_tenants", "Can view the records of all tenants"),)
        constraints = (
            models.UniqueConstraint(
                fields=("lane", "queue_job_id", "queue_created_at", "attempt", "start"),
                name="kumiko_jobrun_one_row_a_run",
            ),
        )
        indexes = (
            # Each filter of the admin's list, together with the order of the list.
            models.Index(fields=("status", "-id"), name="kumiko_jobrun_status"),
            models.Index(fields=("job_name", "-id"), name="kumiko_jobrun_job"),
            models.Index(fields=("tenant_id", "-id"), name="kumiko_jobrun_tenant"),
            models.Index(fields=("lane", "-id"), name="kumiko_jobrun_lane"),
            # What its search finds.
            models.Index(fields=("queue_job_id",), name="kumiko_jobrun_queue_job"),
            models.Index(fields=("correlation_id",), name="kumiko_jobrun_correlation"),
            models.Index(fields=("object_ref",), name="kumiko_jobrun_object"),
        )

    def __str__(self) -> str:
        return f"{self.job_name} ({self.status}, attempt {self.attempt})"

    @property
    def short_error(self) -> str:
        """First line of the error, at most 120 characters."""
        line = self.error.strip().split("\n", 1)[0]
        return line if len(line) <= 120 else line[:119] + "…"


class LogLevel(models.TextChoices):
    """Levels of a run's own log; debug lines are not kept (B176)."""

    INFO = "info", _("info")
    WARN = "warn", _("warning")
    ERROR = "error", _("error")


class JobRunLog(models.Model):
    """One line that a handler logged. Deleted with its run (P80)."""

    run = models.ForeignKey(
        JobRun, verbose_name=_("run"), on_delete=models.CASCADE, related_name="logs", db_index=False
    )  # the constraint has an index
    number = models.PositiveIntegerField(_("number"))
    level = models.CharField(_("level"), max_length=8, choices=LogLevel.choices)
    message = models.TextField(_("message"))
    data: Any = models.JSONField(_("data"), null=True, blank=True)
    created_at = models.DateTimeField(_("time"))

    class Meta:
        verbose_name = _("log line")
        verbose_name_plural = _("log lines")
        ordering = ("run", "number")
        constraints = (
            models.UniqueConstraint(fields=("run", "number"), name="kumiko_jobrunlog_number"),
        )

    def __str__(self) -> str:
        return f"{self.number} {self.level}: {self.message[:80]}"


class JobStat(models.Model):
    """How many runs that began in one hour have one status, and how long they took.

    Rolled up from ``JobRun`` (see :mod:`kumiko_django.history.stats`), so that overviews need not
    look at single runs.
    """

    hour = models.DateTimeField(_("hour"), help_text=_("In which the runs began, in UTC."))
    job_name = models.CharField(_("job"), max_length=200)
    lane = models.CharField(_("lane"), max_length=16)
    tenant_id = models.CharField(_("tenant"), max_length=128)
    status = models.CharField(_("status"), max_length=16, choices=RunStatus.choices)
    count = models.PositiveBigIntegerField(_("runs"))
    duration_ms_sum = models.BigIntegerField(_("sum of durations (ms)"), default=0)
    wait_ms_sum = models.BigIntegerField(_("sum of waits (ms)"), default=0)
    # How many runs lie in each bucket of stats.BUCKET_BOUNDS_MS.
    durations: Any = models.JSONField(_("durations"), default=list)
    waits: Any = models.JSONField(_("waits"), default=list)
    rolled_up_at = models.DateTimeField(_("rolled up"))

    class Meta:
        verbose_name = _("hour of a job")
        verbose_name_plural = _("hours of jobs")
        ordering = ("-hour", "job_name", "lane", "tenant_id", "status")
        constraints = (
            # Its index also serves the last hours.
            models.UniqueConstraint(
                fields=("hour", "job_name", "lane", "tenant_id", "status"),
                name="kumiko_jobstat_one_row_a_group",
            ),
        )
        indexes = (
            models.Index(fields=("job_name", "hour"), name="kumiko_jobstat_job"),
            # Hours with runs that had not ended.
            models.Index(fields=("status", "hour"), name="kumiko_jobstat_status"),
        )

    def __str__(self) -> str:
        return f"{self.hour:%Y-%m-%d %H}h {self.job_name} ({self.status}): {self.count}"
