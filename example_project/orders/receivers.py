"""An order that was saved is an event, which a job listens to."""

from __future__ import annotations

from django.db.models.signals import post_save

from example_project.orders.models import Order
from kumiko_django import bind_signal

bind_signal(
    post_save,
    "orders.order-placed",
    sender=Order,
    when=lambda created: created,
    payload=lambda instance: {"order": instance.pk, "customer": instance.customer_id},
    # Orders are also saved where no tenant's scope is entered: in the admin.
    tenant_id=lambda instance: instance.tenant_id,
)
