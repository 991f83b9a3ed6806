"""From an exception to a failed outcome: final or not, scrubbed, cut, grouped."""

from __future__ import annotations

import contextlib
import hashlib
import traceback
from functools import lru_cache
from types import TracebackType

from django.conf import settings as django_settings
from django.core.signals import setting_changed

from kumiko_django.broker.connection import current_address
from kumiko_django.broker.delivery import Delivery
from kumiko_django.broker.options import retry_delay_ms
from kumiko_django.definitions.options import DEFAULT_BACKOFF, Backoff
from kumiko_django.exceptions import SettingsError, Unrecoverable
from kumiko_django.run.outcome import Failed
from kumiko_django.types.scrub import cut_end, cut_start, scrub

MAX_ERROR_CHARS = 2_000
MAX_TRACEBACK_CHARS = 20_000
_LOOKED_AT = 10
"""How many times the kept length is looked through for secrets: megabytes of text would hold up the
event loop. What is masked is short, so that what lies beyond is not kept anyway."""


class Refused(Exception):
    """The run ends before the handler: nothing that retrying could help (P28)."""


def failed(
    error: BaseException,
    delivery: Delivery,
    backoff: Backoff | None = None,
    *,
    retryable: bool = True,
) -> Failed:
    """The outcome of an attempt that ended with ``error``.

    Args:
        error: What the handler raised, or why it was not called.
        delivery: The job.
        backoff: The definition's backoff, for jobs that store none.
        retryable: Whether another attempt could help.
    """
    final = (
        not retryable
        or isinstance(error, Unrecoverable)
        or delivery.attempt >= delivery.max_attempts
    )
    return Failed(
        error=describe(error),
        traceback=_trace(error),
        fingerprint=_fingerprint(error, delivery.job_name),
        final=final,
        retry_ms=0
        if final
        else retry_delay_ms(delivery.backoff, delivery.attempt, backoff or DEFAULT_BACKOFF),
        exception=error,
    )


def describe(error: BaseException) -> str:
    """``error`` as one scrubbed text of at most :data:`MAX_ERROR_CHARS` characters."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001  (a broken __str__ must not hide the failure)
        text = "(its text cannot be shown)"
    if not isinstance(error, Refused):
        name = type(error).__name__
        text = f"{name}: {text}" if text else name
    head, tail = text[: MAX_ERROR_CHARS * _LOOKED_AT], text[MAX_ERROR_CHARS * _LOOKED_AT :]
    head = scrub(head, _secrets())
    return cut_end(head + tail, MAX_ERROR_CHARS) if len(head) >= MAX_ERROR_CHARS else head


def _trace(error: BaseException) -> str:
    if isinstance(error, Refused):
        return ""
    own = _own_frames(error.__traceback__)
    try:
        text = "".join(traceback.format_exception(type(error), error, own))
    except Exception:  # noqa: BLE001  (odd attributes of an exception must not hide the failure)
        text = "".join(traceback.format_tb(own))
    looked_at = MAX_TRACEBACK_CHARS * _LOOKED_AT
    head, tail = text[:-looked_at], text[-looked_at:]
    tail = scrub(tail, _secrets())
    return cut_start(head + tail, MAX_TRACEBACK_CHARS) if len(tail) >= MAX_TRACEBACK_CHARS else tail


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the handler on: our frames above it say nothing to its author."""
    frame = trace
    while frame is not None and _is_ours(frame):
        frame = frame.tb_next
    return frame or trace


def _is_ours(frame: TracebackType) -> bool:
    module = str(frame.tb_frame.f_globals.get("__name__", ""))
    return module.startswith(("kumiko_django.run.", "concurrent.futures", "asyncio."))


def _fingerprint(error: BaseException, job_name: str) -> str:
    place = ""
    frames = traceback.extract_tb(_own_frames(error.__traceback__))
    if frames:
        last = frames[-1]
        place = f"{last.filename.rsplit('/', 2)[-1]}:{last.name}"
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    raw = f"{job_name}|{kind}|{place}"
    # A path that is no UTF-8 comes with lone surrogates.
    return hashlib.sha1(raw.encode("utf-8", "replace"), usedforsecurity=False).hexdigest()


@lru_cache(maxsize=1)
def _secrets() -> tuple[str, ...]:
    """Values of this process that must appear in no text."""
    found = [django_settings.SECRET_KEY]
    found += [str(entry.get("PASSWORD") or "") for entry in django_settings.DATABASES.values()]
    with contextlib.suppress(SettingsError):  # without an address there is no password of it
        found += current_address().secrets
    return tuple(secret for secret in found if secret)


def _forget(**_: object) -> None:
    _secrets.cache_clear()


setting_changed.connect(_forget, dispatch_uid="kumiko_django.run.failure.forget")
