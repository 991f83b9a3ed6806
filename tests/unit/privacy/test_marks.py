"""``class Personal`` in models: whose columns it marks, and what is refused (B173)."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import models
from django.test.utils import isolate_apps

from kumiko_django.exceptions import DefinitionError
from kumiko_django.privacy.marks import named_fields, personal_columns, personal_relation
from tests.app.models import Contact, ContactProxy, Member, Patient, Topic

pytestmark = pytest.mark.once


def personal_fields(model: type[models.Model]) -> set[str]:
    columns = personal_columns(model._meta.db_table).values()
    return {each.rpartition(".")[2] for each in columns}


def test_marks_are_inherited_and_sit_on_columns() -> None:
    assert personal_fields(Contact) == {"email", "born", "employer", "phone"}
    assert personal_fields(ContactProxy) == personal_fields(Contact)
    assert personal_fields(Member) == {"address"}, "what its own table has"
    assert personal_fields(Patient) == {"name"}
    assert personal_fields(Topic) == set()
    assert named_fields(Member) == ("email", "born", "employer", "illnesses", "address", "phone")


def test_the_table_of_a_many_to_many_field_is_marked() -> None:
    assert (
        personal_relation(Contact.illnesses.through._meta.db_table) == "testapp.Contact.illnesses"
    )
    assert personal_relation(Contact.topics.through._meta.db_table) is None


def test_a_personal_that_is_derived_adds_to_the_other() -> None:
    with isolate_apps("tests.app"):

        class Base(models.Model):
            first = models.TextField()

            class Meta:
                app_label = "testapp"
                abstract = True

            class Personal:
                fields: Any = ["first"]

        class Derived(Base):  # noqa: DJ008
            second = models.TextField()

            class Meta:
                app_label = "testapp"

            class Personal(Base.Personal):
                fields: Any = {"second"}

    assert named_fields(Derived) == ("first", "second")
    assert personal_fields(Derived) == {"first", "second"}


WRONG: dict[str, tuple[Any, str]] = {
    "text": ("email", r"write fields = \('email',\)"),
    "nothing": ((), "must be a tuple of names"),
    "None": (None, "must be a tuple of names"),
    "unknown": (("emial",), "names 'emial', which is no column.*It has: email, id, topic"),
    "no name": ((7,), "names 7, which is no column"),
    "column of a relation": (("topic_id",), "Name the field: 'topic'"),
    "primary key": (("id",), "the primary key"),
    "pk": (("pk",), "names 'pk', which is no column"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused_when_the_class_is_made(name: str) -> None:
    given, message = WRONG[name]
    with isolate_apps("tests.app"), pytest.raises(DefinitionError, match=message):

        class Wrong(models.Model):  # noqa: DJ008
            email = models.TextField()
            topic = models.ForeignKey(Topic, models.CASCADE, related_name="+")

            class Meta:
                app_label = "testapp"

            class Personal:
                fields = given


def test_a_mark_without_fields_is_refused() -> None:
    with isolate_apps("tests.app"), pytest.raises(DefinitionError, match="says no fields"):

        class Wrong(models.Model):  # noqa: DJ008
            class Meta:
                app_label = "testapp"

            class Personal:
                names = ("email",)
