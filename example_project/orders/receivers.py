"""An order that was saved is confirmed by a job."""

from __future__ import annotations

from typing import Any

from django.db.models.signals import post_save
from django.dispatch import receiver

from example_project.orders.jobs import confirm_order
from example_project.orders.models import Order


@receiver(post_save, sender=Order, dispatch_uid="orders.confirm_new_order")
def confirm_new_order(instance: Order, *, created: bool, raw: bool, **_: Any) -> None:
    # tenant_id= because orders are also saved where no tenant's scope is entered: in the admin.
    if created and not raw:
        confirm_order.dispatch({"order": instance.pk}, tenant_id=instance.tenant_id)
