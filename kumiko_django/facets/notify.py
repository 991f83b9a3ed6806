"""``ctx.notify``: telling people something, by Django e-mail unless the settings say otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from asgiref.sync import sync_to_async
from django.core.mail import EmailMultiAlternatives, get_connection

from kumiko_django.conf import Settings
from kumiko_django.facets.protocols import Notify, Priority
from kumiko_django.facets.request import FacetRequest
from kumiko_django.types.dotted import load_callable

_HEADERS: Final[dict[str, dict[str, str]]] = {
    "high": {"Importance": "high", "X-Priority": "1"},
    "normal": {},
    "low": {"Importance": "low", "X-Priority": "5"},
}


class EmailNotify:
    """Sends e-mails from ``DEFAULT_FROM_EMAIL``; see :class:`Notify`."""

    def __call__(
        self,
        kind: str,
        *,
        to: Sequence[str],
        subject: str,
        text: str,
        html: str | None = None,
        priority: Priority = "normal",
    ) -> int:
        """Send one e-mail to each recipient, so that none sees the others' addresses.

        Returns:
            How many were handed over.

        Raises:
            TypeError: The recipients are one text.
            ValueError: There are none, the priority is unknown, or a header has a line break.
            OSError: What the e-mail backend raises when its server does not take them.
        """
        if isinstance(to, str | bytes):
            raise TypeError(f"notify({kind!r}): give a list of recipients, to=[{to!r}].")
        if priority not in _HEADERS:
            raise ValueError(
                f"notify({kind!r}): priority is {', '.join(_HEADERS)}; not {priority!r}."
            )
        recipients = list(dict.fromkeys(to))
        if not recipients:
            raise ValueError(f"notify({kind!r}): there is no recipient.")
        mails = []
        for recipient in recipients:
            mail = EmailMultiAlternatives(
                subject, text, to=[recipient], headers={"X-Kind": kind, **_HEADERS[priority]}
            )
            if html is not None:
                mail.attach_alternative(html, "text/html")
            mail.message()  # refuses line breaks in headers before any is sent
            mails.append(mail)
        return get_connection().send_messages(mails) or 0

    async def asend(
        self,
        kind: str,
        *,
        to: Sequence[str],
        subject: str,
        text: str,
        html: str | None = None,
        priority: Priority = "normal",
    ) -> int:
        """The same, for async handlers."""
        call = partial(self, kind, to=to, subject=subject, text=text, html=html, priority=priority)
        return await sync_to_async(call)()


def make(request: FacetRequest, settings: Settings) -> Notify | None:
    """``ctx.notify``; None where the settings say that there is none."""
    if settings.notify is False:
        return None
    if settings.notify is not None:
        made: Notify = load_callable("NOTIFY", settings.notify, "of a FacetRequest")(request)
        return made
    return EmailNotify()
