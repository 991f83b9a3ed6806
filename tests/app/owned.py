"""Models whose rows belong to tenants, in all the forms that a project may have, and plain ones."""

from __future__ import annotations

import uuid
from typing import Any, ClassVar

from django.contrib.contenttypes.fields import GenericForeignKey, GenericRelation
from django.contrib.contenttypes.models import ContentType
from django.db import models

from kumiko_django import TenantMixin, TenantModel


class Topic(models.Model):
    """A plain row that tenants' rows point to."""

    name = models.CharField(max_length=50, unique=True)

    def __str__(self) -> str:
        return self.name


class Project(TenantModel):
    """A tenant's row that others point to."""

    name = models.CharField(max_length=50)
    topic = models.ForeignKey(Topic, models.CASCADE, null=True, related_name="projects")
    comments = GenericRelation("testapp.Comment")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["tenant_id", "name"], name="project_name")]

    def __str__(self) -> str:
        return self.name


class Label(TenantModel):
    """The far end of a many-to-many relation between tenants' rows."""

    name = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.name


class OpenTasks(models.Manager["Task"]):
    """A manager that knows nothing of tenants."""

    def get_queryset(self) -> models.QuerySet[Task]:
        return super().get_queryset().filter(done=False)


class Task(TenantModel):
    """A tenant's row with every kind of relation."""

    code = models.CharField(max_length=50, unique=True)
    done = models.BooleanField(default=False)
    weight = models.IntegerField(default=0)
    due = models.DateTimeField(null=True)
    project = models.ForeignKey(Project, models.CASCADE, null=True, related_name="tasks")
    parent = models.ForeignKey("self", models.SET_NULL, null=True, related_name="children")
    topic = models.ForeignKey(Topic, models.SET_NULL, null=True, related_name="tasks")
    labels = models.ManyToManyField(Label, related_name="tasks")
    topics = models.ManyToManyField(Topic, related_name="listed")

    open: ClassVar[Any] = OpenTasks()

    class Meta:
        default_manager_name = "objects"

    def __str__(self) -> str:
        return self.code


class TaskProxy(Task):
    """The same table under another name."""

    class Meta:
        proxy = True

    def __str__(self) -> str:
        return f"proxy of {self.code}"


class TaskTwin(models.Model):
    """The same table again, by a model that knows nothing of tenants."""

    code = models.CharField(max_length=50)

    class Meta:
        managed = False
        db_table = "testapp_task"

    def __str__(self) -> str:
        return self.code


class Epic(Task):
    """A model with two tables: the tenant stands in the first."""

    goal = models.CharField(max_length=50, default="")

    def __str__(self) -> str:
        return f"epic {self.code}"


class Comment(TenantModel):
    """A row that points to any model."""

    text = models.CharField(max_length=50)
    content_type = models.ForeignKey(ContentType, models.CASCADE)
    object_id = models.PositiveBigIntegerField()
    about = GenericForeignKey()

    def __str__(self) -> str:
        return self.text


class Person(models.Model):
    """A plain row at the end of a many-to-many relation with a model of its own."""

    name = models.CharField(max_length=50)
    tasks = models.ManyToManyField(Task, through="Duty", related_name="people")

    def __str__(self) -> str:
        return self.name


class Duty(models.Model):
    """A through model without tenant column."""

    person = models.ForeignKey(Person, models.CASCADE)
    task = models.ForeignKey(Task, models.CASCADE)
    role = models.CharField(max_length=50, default="")

    def __str__(self) -> str:
        return self.role


class Memo(models.Model):
    """A plain row that points to tenants' rows."""

    code = models.CharField(max_length=50)
    weight = models.IntegerField(default=0)
    due = models.DateTimeField(null=True)
    task = models.ForeignKey(Task, models.SET_NULL, null=True, related_name="memos")
    project = models.ForeignKey(Project, models.CASCADE, related_name="memos")
    tasks = models.ManyToManyField(Task, related_name="listed_memos")

    def __str__(self) -> str:
        return self.code


class Organisation(models.Model):
    """A tenant, as a project may keep it."""

    name = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.name


class Invoice(TenantMixin):
    """A row whose tenant is a foreign key."""

    organisation = models.ForeignKey(Organisation, models.CASCADE)
    number = models.IntegerField()

    class Tenant:
        field = "organisation"

    def __str__(self) -> str:
        return f"invoice {self.number}"


class Meter(TenantMixin):
    """A row whose tenant is a number."""

    customer = models.IntegerField(db_index=True, null=True)
    reading = models.IntegerField(default=0)

    class Tenant:
        field = "customer"

    def __str__(self) -> str:
        return f"reading {self.reading}"


class Parcel(TenantMixin):
    """A row whose tenant is a UUID, and whose key is one too."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    owner = models.UUIDField(db_index=True, null=True)
    slot = models.IntegerField(unique=True)
    content = models.CharField(max_length=50, default="")

    class Tenant:
        field = "owner"

    def __str__(self) -> str:
        return f"parcel {self.slot}"
