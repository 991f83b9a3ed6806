"""What may be done with orders, and by whom; Django finds this module by its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.utils import timezone

from example_project.orders.models import Order
from kumiko_django import write_handler
from kumiko_django.handlers import HandlerContext

CONFIRM_ORDER: Final = "orders:write:confirm-order"
SUPPORT: Final = "support"
"""Name of a group of users."""


@dataclass(frozen=True)
class OrderRef:
    """Payload: an order."""

    order: int


@write_handler("confirm-order", roles=[SUPPORT, "system"], schema=OrderRef)
def confirm_order(payload: OrderRef, ctx: HandlerContext) -> dict[str, str]:
    """Confirm an order: a job does so for each that is placed, the support in the admin."""
    order = Order.objects.get(pk=payload.order, tenant=ctx.tenant_id)
    Order.objects.filter(pk=order.pk, confirmed_at=None).update(confirmed_at=timezone.now())
    return {"order": order.number}
