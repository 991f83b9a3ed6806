"""What the jobs of the tests write, in tables that kumiko_django knows nothing about."""

from __future__ import annotations

from django.db import models

from tests.app.owned import (
    Comment,
    Duty,
    Epic,
    Invoice,
    Label,
    Memo,
    Meter,
    Organisation,
    Parcel,
    Person,
    Project,
    Task,
    TaskProxy,
    TaskTwin,
    Topic,
)
from tests.app.personal import Contact, ContactProxy, ContactTwin, Member, Patient

__all__ = [
    "Comment",
    "Contact",
    "ContactProxy",
    "ContactTwin",
    "Duty",
    "Effect",
    "Epic",
    "Invoice",
    "Label",
    "Member",
    "Memo",
    "Meter",
    "Order",
    "Organisation",
    "Parcel",
    "Patient",
    "Person",
    "Project",
    "Task",
    "TaskProxy",
    "TaskTwin",
    "Topic",
]


class Effect(models.Model):
    """A trace that a handler leaves behind, to be counted by a test.

    ``tenant_id`` is the ambient tenant at the moment of writing (not what the context says), and
    ``pid`` the process that ran the handler.
    """

    job_name = models.CharField(max_length=200)
    job_id = models.CharField(max_length=200)
    tenant_id = models.CharField(max_length=100, null=True)
    key = models.CharField(max_length=200, db_index=True)
    value = models.JSONField(null=True)
    pid = models.IntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.key} by {self.job_name} for {self.tenant_id}"


class Order(models.Model):
    """A row of the host's business: dispatched about, looked for by a job."""

    tenant_id = models.CharField(max_length=100)
    number = models.CharField(max_length=50)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"order {self.number} of {self.tenant_id}"
