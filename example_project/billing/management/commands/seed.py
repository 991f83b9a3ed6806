"""``manage.py seed``: data to look at."""

from __future__ import annotations

import json
import secrets
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.management.base import BaseCommand
from django.db import transaction

from example_project.factories import CustomerFactory, InvoiceFactory, TenantFactory
from example_project.orders.handlers import SUPPORT
from example_project.seeds import INVOICE_BY_CARD, LATE_CUSTOMERS, TENANTS
from example_project.tenants.models import Tenant

ADMIN: Final = "admin"


class Command(BaseCommand):
    """Creates what is missing, and gives the admin and the tenants new secrets each time."""

    help = (
        "Create three tenants with customers and invoices, and an admin user. Prints the admin's "
        "new password and the tenants' new API keys as JSON."
    )

    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        """Run the command."""
        keys = {}
        for tenant_id, name in TENANTS.items():
            tenant = TenantFactory.create(id=tenant_id, name=name)
            keys[tenant_id] = tenant.renew_api_key()
            if not tenant.customers.exists():
                _fill(tenant)
        secret = {"admin": {"user": ADMIN, "password": _admin_password()}, "api_keys": keys}
        self.stdout.write(json.dumps(secret, indent=2))


def _fill(tenant: Tenant) -> None:
    for card, number in INVOICE_BY_CARD.items():
        customer = CustomerFactory.create(tenant=tenant, payment_card=card)
        InvoiceFactory.create(tenant=tenant, customer=customer, number=number)
    InvoiceFactory.create_batch(LATE_CUSTOMERS, tenant=tenant, days_late=10)


def _admin_password() -> str:
    password = secrets.token_urlsafe(9)
    admin, _ = get_user_model().objects.get_or_create(
        username=ADMIN, defaults={"is_staff": True, "is_superuser": True}
    )
    admin.set_password(password)
    admin.save()
    admin.groups.add(Group.objects.get_or_create(name=SUPPORT)[0])
    return password
