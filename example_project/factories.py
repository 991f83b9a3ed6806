"""Made-up tenants, customers and invoices, for the demo and for tests."""

from __future__ import annotations

import datetime as dt
import random

from django.utils import timezone
from factory.declarations import LazyAttribute, LazyFunction, SelfAttribute, Sequence, SubFactory
from factory.django import DjangoModelFactory
from factory.faker import Faker

from example_project.billing.models import Invoice
from example_project.billing.providers import CARD_OK
from example_project.orders.models import Customer
from example_project.tenants.models import Tenant


class TenantFactory(DjangoModelFactory[Tenant]):
    """A tenant; one that is there already is used as it is."""

    class Meta:
        model = Tenant
        django_get_or_create = ("id",)

    id = Sequence(lambda n: f"tenant-{n}")
    name = Faker("company", locale="de_DE")


class CustomerFactory(DjangoModelFactory[Customer]):
    """A customer whose card works."""

    class Meta:
        model = Customer

    tenant = SubFactory(TenantFactory)
    name = Faker("name", locale="de_DE")
    email = Sequence(lambda n: f"customer-{n}@example.com")
    payment_card = CARD_OK


class InvoiceFactory(DjangoModelFactory[Invoice]):
    """An open invoice with a customer of its own, due in two weeks unless ``days_late`` says."""

    class Meta:
        model = Invoice

    class Params:
        days_late = -14

    tenant = SubFactory(TenantFactory)
    customer = SubFactory(CustomerFactory, tenant=SelfAttribute("..tenant"))
    number = Sequence(lambda n: f"2001-{n:04}")
    total = LazyFunction(lambda: random.randint(1_000, 90_000) / 100)

    due_on = LazyAttribute(lambda o: timezone.localdate() - dt.timedelta(days=o.days_late))
