"""Projects without tenants: marks work without a tenant model, and cost nothing where none are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.definitions.fresh import Project

pytestmark = pytest.mark.once

MODELS = """
    from django.db import models

    class Person(models.Model):
        email = models.TextField(default="")

        class Personal:
            fields = {fields}
"""
TRIES = """
    from django.db import connection
    from kumiko_django import AccessDenied
    from kumiko_django.types import ambient
    from kumiko_django.types.origin import WriteOrigin
    from crm.models import Person

    with connection.schema_editor() as editor:
        editor.create_model(Person)
    with ambient.entered({ambient.write_origin: WriteOrigin("anonymous")}):
        Person.objects.create()
        try:
            Person.objects.create(email="x")
        except AccessDenied as error:
            print(error)
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize(
    "installed", [["kumiko_django", "crm"], ["crm", "kumiko_django"]], ids=["before", "after"]
)
def test_a_marked_model_is_guarded_without_any_tenant_model(
    project: Project, installed: list[str]
) -> None:
    """B173: whatever the order of the apps."""
    project.app("crm", models=MODELS.format(fields='("email",)'))
    code = project.configured(TRIES, installed).replace(
        "DATABASES={}",
        "DATABASES={'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': ':memory:'}}",
    )
    done = project.run(code)

    assert done.stdout.startswith("crm.Person.email holds personal data"), done.stderr


def test_a_wrong_mark_keeps_django_from_starting(project: Project) -> None:
    project.app("crm", models=MODELS.format(fields='("emial",)'))

    assert "crm.Person.Personal names 'emial', which is no column" in project.setup_error()


def test_where_nothing_is_marked_django_is_as_it_was(project: Project) -> None:
    project.app("crm", models=MODELS.split("class Personal")[0])

    assert (
        project.setup(
            "from django.db.models.sql.compiler import SQLCompiler\n"
            "print(SQLCompiler.__init__.__module__)"
        )
        == "django.db.models.sql.compiler"
    )
