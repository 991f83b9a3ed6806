"""Models with personal fields: plain ones and a tenant's, inherited and related in all ways."""

from __future__ import annotations

from django.db import models

from kumiko_django import TenantModel
from tests.app.owned import Topic


class Reachable(models.Model):
    """An abstract base that marks a field."""

    email = models.CharField(max_length=50, null=True, blank=True, default="")

    class Meta:
        abstract = True

    class Personal:
        fields = ("email",)

    def __str__(self) -> str:
        return f"contact {self.pk}"


class Contact(Reachable):
    """A plain row with a personal text, relation and many-to-many field."""

    nickname = models.CharField(max_length=50, unique=True)
    phone = models.CharField(max_length=50, default="")
    born = models.DateField(null=True, db_default=None)
    employer = models.ForeignKey(Topic, models.SET_NULL, null=True, related_name="employees")
    illnesses = models.ManyToManyField(Topic, related_name="ill")
    topics = models.ManyToManyField(Topic, related_name="interested")

    class Personal:
        fields = ("born", "employer", "illnesses")


class ContactProxy(Contact):
    """The same table under another name."""

    class Meta:
        proxy = True


class ContactTwin(models.Model):
    """The same table again, by a model that knows nothing of marks."""

    nickname = models.CharField(max_length=50)
    mail = models.CharField(max_length=50, db_column="email")
    phone = models.CharField(max_length=50, default="")

    class Meta:
        managed = False
        db_table = "testapp_contact"

    def __str__(self) -> str:
        return self.nickname


class Member(Contact):
    """A second table; it marks a field of the first one, too."""

    level = models.IntegerField(default=0)
    address = models.TextField(default="")

    class Personal:
        fields = ("address", "phone")


class Patient(TenantModel):
    """A tenant's row with a personal field."""

    code = models.CharField(max_length=50, unique=True)
    name = models.CharField(max_length=50, default="")

    class Personal:
        fields = ("name",)

    def __str__(self) -> str:
        return self.code
