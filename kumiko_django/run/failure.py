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
    )


def describe(error: BaseException) -> str:
    """``error`` as one scrubbed text of at most :data:`MAX_ERROR_CHARS` characters."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  (a broken __str__ must not hide the failure)
        text = "(its text cannot be shown)"
    if not isinstance(error, Refused):
        name = type(error).__name__
        text = f"{name}: {text}" if text else name
    return cut_end(scrub(text, _secrets()), MAX_ERROR_CHARS)


def _trace(error: BaseException) -> str:
    if isinstance(error, Refused):
        return ""
    own = _own_frames(error.__traceback__)
    lines = traceback.format_exception(type(error), error, own)
    return cut_start(scrub("".join(lines), _secrets()), MAX_TRACEBACK_CHARS)


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
    return hashlib.sha1(raw.encode(), usedforsecurity=False).hexdigest()


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
