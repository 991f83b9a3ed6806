"""What nobody's work may not write: personal fields, by whatever path of the ORM (B173)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import models, transaction
from django.db.models import F, Value
from django.db.models.functions import Concat

from kumiko_django import AccessDenied, system_scope, tenant_scope
from kumiko_django.tenancy import lifting
from kumiko_django.types import ambient
from kumiko_django.types.origin import WriteOrigin
from tests.app.models import Contact, ContactProxy, ContactTwin, Member, Patient, Topic

pytestmark = pytest.mark.django_db

Values = dict[ContextVar[Any], Any]
NOBODY: Values = {ambient.write_origin: WriteOrigin("anonymous")}


@dataclass
class Rows:
    contact: Contact
    member: Member
    patient: Patient
    topic: Topic


@pytest.fixture
def rows(db: None) -> Iterator[Rows]:
    topic = Topic.objects.create(name="work")
    with tenant_scope("acme"):
        yield Rows(
            Contact.objects.create(nickname="c", email="c@example.org", employer=topic),
            Member.objects.create(nickname="m", email="m@example.org"),
            Patient.objects.create(code="p", name="Pat"),
            topic,
        )


def awaited(call: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await call()

    return async_to_sync(main)()


def everything() -> list[Any]:
    through = Contact.illnesses.through, Contact.topics.through
    tables: tuple[Any, ...] = (Contact, Member, Patient, Topic, *through)
    return [list(table.objects.order_by("pk").values()) for table in tables]


WRITES: dict[str, tuple[Callable[[Rows], Any], str]] = {
    "create": (lambda r: Contact.objects.create(nickname="x", email="x"), "Contact.email"),
    "create of a relation": (
        lambda r: Contact.objects.create(nickname="x", employer=r.topic),
        "Contact.employer",
    ),
    "save": (lambda r: r.contact.save(), "Contact.email"),
    "save of a field": (lambda r: r.contact.save(update_fields=["email"]), "Contact.email"),
    "save as new": (lambda r: Contact(nickname="x", email="x").save(), "Contact.email"),
    "save_base": (lambda r: r.contact.save_base(raw=True), "Contact.email"),
    "save_base of Django": (lambda r: models.Model.save_base(r.patient), "Patient.name"),
    "emptying": (lambda r: Contact.objects.update(email=""), "Contact.email"),
    "update": (lambda r: Contact.objects.filter(pk=1).update(email="x"), "Contact.email"),
    "update by an expression": (
        lambda r: Contact.objects.update(email=Concat(F("nickname"), Value("@"))),
        "Contact.email",
    ),
    "update of the key of a relation": (
        lambda r: Contact.objects.update(employer_id=None),
        "Contact.employer",
    ),
    "base manager": (lambda r: Contact._base_manager.update(email="x"), "Contact.email"),
    "plain queryset": (
        lambda r: models.QuerySet(Patient).filter(code="p").update(name="x"),
        "Patient.name",
    ),
    "bulk_create": (
        lambda r: Contact.objects.bulk_create(
            [Contact(nickname="x"), Contact(nickname="y", email="y")]
        ),
        "Contact.email",
    ),
    "bulk_create, ignoring": (
        lambda r: Contact.objects.bulk_create(
            [Contact(nickname="c", email="x")], ignore_conflicts=True
        ),
        "Contact.email",
    ),
    "upsert of nothing": (
        lambda r: Contact.objects.bulk_create(
            [Contact(nickname="c", email="")],
            update_conflicts=True, unique_fields=["nickname"], update_fields=["email"],
        ),
        "Contact.email",
    ),
    "bulk_update": (lambda r: Contact.objects.bulk_update([r.contact], ["email"]), "Contact.email"),
    "get_or_create": (
        lambda r: Contact.objects.get_or_create(nickname="x", defaults={"email": "x"}),
        "Contact.email",
    ),
    "update_or_create": (
        lambda r: Contact.objects.update_or_create(nickname="c", defaults={"email": "x"}),
        "Contact.email",
    ),
    "related create": (
        lambda r: r.topic.employees.create(nickname="x"),
        "Contact.employer",
    ),
    "related add": (
        lambda r: r.topic.employees.add(Contact.objects.create(nickname="x")),
        "Contact.employer",
    ),
    "related set": (lambda r: r.topic.employees.set([]), "Contact.employer"),
    "set null by a deletion": (lambda r: r.topic.delete(), "Contact.employer"),
    "many to many": (lambda r: r.contact.illnesses.add(r.topic), "Contact.illnesses"),
    "many to many, created": (
        lambda r: r.contact.illnesses.create(name="flu"),
        "Contact.illnesses",
    ),
    "many to many, set": (lambda r: r.contact.illnesses.set([r.topic]), "Contact.illnesses"),
    "many to many, other side": (lambda r: r.topic.ill.add(r.contact), "Contact.illnesses"),
    "many to many, of a child": (lambda r: r.member.illnesses.add(r.topic), "Contact.illnesses"),
    "through table": (
        lambda r: Contact.illnesses.through.objects.create(contact=r.contact, topic=r.topic),
        "Contact.illnesses",
    ),
    "proxy": (lambda r: ContactProxy.objects.update(email="x"), "Contact.email"),
    "proxy, created": (
        lambda r: ContactProxy.objects.bulk_create([ContactProxy(nickname="x", email="x")]),
        "Contact.email",
    ),
    "second table": (lambda r: Member.objects.update(address="x"), "Member.address"),
    "first table": (lambda r: Member.objects.update(email="x"), "Contact.email"),
    "first table, created": (
        lambda r: Member.objects.create(nickname="x", email="x"),
        "Contact.email",
    ),
    "marked by a child": (lambda r: Contact.objects.update(phone="1"), "Contact.phone"),
    "tenant's": (lambda r: Patient.objects.create(code="x", name="x"), "Patient.name"),
    "tenant's update": (
        lambda r: Patient.objects.filter(code="p").update(name="x"),
        "Patient.name",
    ),
    "twin": (lambda r: ContactTwin.objects.update(mail="x"), "Contact.email"),
    "twin, created": (
        lambda r: ContactTwin.objects.create(nickname="x", mail="x"),
        "Contact.email",
    ),
    "acreate": (
        lambda r: awaited(lambda: Contact.objects.acreate(nickname="x", email="x")),
        "Contact.email",
    ),
    "asave": (lambda r: awaited(r.contact.asave), "Contact.email"),
    "aupdate": (lambda r: awaited(lambda: Contact.objects.aupdate(email="x")), "Contact.email"),
    "aadd": (lambda r: awaited(lambda: r.contact.illnesses.aadd(r.topic)), "Contact.illnesses"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_nobodys_work_writes_no_personal_field(rows: Rows, name: str) -> None:
    """B173."""
    write, what = WRITES[name]
    before = everything()
    with (
        pytest.raises(AccessDenied, match=rf"{what} holds personal data"),
        ambient.entered(NOBODY),
        transaction.atomic(),
    ):
        write(rows)
    assert everything() == before


@pytest.mark.parametrize("name", [name for name in WRITES if "upsert" not in name])
@pytest.mark.parametrize("root", ["user", "system", None])
def test_others_may(rows: Rows, name: str, root: Any) -> None:
    """B170: the same writes, of somebody, or where nobody has said: a command, a schedule."""
    origin = None if root is None else WriteOrigin(root, "testapp:job:before")
    with ambient.entered({ambient.write_origin: origin}):
        WRITES[name][0](rows)


OPEN: dict[str, Callable[[Rows], Any]] = {
    "other fields": lambda r: r.contact.save(update_fields=["nickname"]),
    "update": lambda r: Contact.objects.update(nickname="x"),
    "a row without personal data": lambda r: Contact.objects.create(nickname="x"),
    "a child without": lambda r: Member.objects.create(nickname="x", level=1),
    "rows of a tenant without": lambda r: Patient.objects.bulk_create([Patient(code="x")]),
    "default of the database": lambda r: Contact(nickname="x").save(),
    "fields that are not loaded": lambda r: (
        Contact.objects.only("nickname").get(pk=r.contact.pk).save()
    ),
    "other relations": lambda r: r.contact.topics.set([r.topic]),
    "other models": lambda r: Topic.objects.create(name="x"),
    "removal of a relation": lambda r: r.contact.illnesses.remove(r.topic),
    "deletion": lambda r: Contact.objects.all().delete(),
    "reading": lambda r: list(Contact.objects.filter(email="c@example.org")),
}


@pytest.mark.parametrize("name", OPEN)
def test_what_is_not_personal_is_open(rows: Rows, name: str) -> None:
    Contact.objects.exclude(pk=rows.contact.pk).delete()
    rows.contact.illnesses.add(rows.topic)
    with ambient.entered(NOBODY):
        OPEN[name](rows)


@pytest.mark.parametrize("lifted", ["system scope", "all tenants' rows", "every rule"])
def test_no_scope_and_no_grant_goes_around_it(rows: Rows, lifted: str) -> None:
    """B173: a system scope, and what the escape hatches lift, is for tenants, not for this."""
    contexts: dict[str, Any] = {
        "system scope": ambient.entered({}),
        "all tenants' rows": lifting.reading_all(Patient),
        "every rule": ambient.entered(
            {lifting.lifted: lifting.Lifted(frozenset({Patient}), True, True)}
        ),
    }
    ambient.scope.set(None)
    scope = system_scope("all") if lifted == "system scope" else tenant_scope("acme")
    with ambient.entered(NOBODY), scope, contexts[lifted]:
        for write in (
            lambda: Patient.objects.create(code="x", name="x"),
            lambda: Patient.objects.filter(pk__isnull=False).update(name="x"),
            lambda: Contact.objects.update(email="x"),
        ):
            with pytest.raises(AccessDenied):
                write()


def test_what_the_refusal_says(rows: Rows) -> None:
    """Model, field, who, and the option; never the value."""
    job: Values = {
        ambient.handler: "testapp:job:import",
        ambient.write_origin: WriteOrigin("anonymous"),
    }
    with ambient.entered(job), pytest.raises(AccessDenied) as in_job:
        Contact.objects.update(email="secret")
    for part in ("testapp.Contact.email", "testapp:job:import", "accepts_personal_data="):
        assert part in str(in_job.value)
    view: Values = {ambient.view_name: lambda: "shop:sign-up", **NOBODY}
    with ambient.entered(view), pytest.raises(AccessDenied) as in_view:
        Contact.objects.update(email="secret")
    for part in ("testapp.Contact.email", "shop:sign-up", "@accepts_personal_data("):
        assert part in str(in_view.value)
    assert "secret" not in f"{in_job.value} {in_view.value}"


def test_tasks_of_a_request_keep_its_origin(rows: Rows) -> None:
    """B173: the origin is in the context, which tasks and sync_to_async copy."""

    async def write() -> None:
        await asyncio.create_task(Contact.objects.acreate(nickname="x", email="x"))

    with ambient.entered(NOBODY), pytest.raises(AccessDenied):
        async_to_sync(write)()
