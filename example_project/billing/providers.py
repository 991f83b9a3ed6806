"""Stand-ins for the services of others: a payment provider, a letter service, a PDF renderer.

As in a real provider's test mode, test cards decide what happens.
"""

from __future__ import annotations

import asyncio
import time
from decimal import Decimal

CARD_OK = "tok_ok"
CARD_BUSY_TWICE = "tok_busy_twice"
CARD_OUTAGE = "tok_outage"
CARD_DECLINED = "tok_declined"


class ProviderBusy(Exception):
    """The provider does not answer now; try again later."""


class CardDeclined(Exception):
    """The bank says no, and will say no again."""


def charge(card: str, amount: Decimal, *, idempotency_key: str, attempt: int) -> str:
    """Take ``amount`` from a card, once for each key, and return the provider's reference.

    ``attempt`` is there for the test cards only, since this provider remembers nothing.
    """
    time.sleep(0.05)
    if card == CARD_DECLINED:
        raise CardDeclined("The card was declined (insufficient funds)")
    if card == CARD_OUTAGE or (card == CARD_BUSY_TWICE and attempt <= 2):
        raise ProviderBusy("The payment provider answered 503 Service Unavailable")
    return f"ch_{idempotency_key}"


async def send_letter(address: str, text: str) -> str:
    """Hand a letter over for delivery and return its receipt."""
    await asyncio.sleep(0.1)
    return f"letter to {address}, {len(text)} characters"


def render_page(text: str) -> bytes:
    """Make a page of a text. Slow, as renderers are."""
    time.sleep(0.2)
    return f"{text}\f\n".encode()
