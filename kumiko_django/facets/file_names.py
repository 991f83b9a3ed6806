"""Where the files of a tenant lie, and which names can never lead out of there.

A name is refused rather than mended: ``a/../b`` that became ``b`` would be another file than the
one that was meant. What only *some* storage or file system takes for a separator, a parent or the
same name is refused as well, since a project may change its storage.
"""

from __future__ import annotations

import hashlib
import unicodedata
from typing import Final

ROOT: Final = "tenants"
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_MAX_FOLDER: Final = 100
_MAX_NAME_BYTES: Final = 255
_MAX_KEY_LENGTH: Final = 512
_REFUSED: Final = frozenset('\\:*?"<>|')
"""Separators, streams of files and wildcards of Windows."""


def prefix_of(tenant_id: str) -> str:
    """The folder of a tenant: ``tenants/t-acme``.

    No two tenants share one, also where a file system does not tell ``A`` from ``a`` or one Unicode
    form from another: all but small letters, digits and ``-`` is written as ``_`` and two hex
    digits for each byte. Of ids whose folder would be too long, it is a hash.
    """
    folder = "".join(
        chr(byte) if chr(byte) in _PLAIN else f"_{byte:02x}" for byte in tenant_id.encode()
    )
    if len(folder) > _MAX_FOLDER:
        return f"{ROOT}/h-{hashlib.sha256(tenant_id.encode()).hexdigest()}"
    return f"{ROOT}/t-{folder}"


def clean_key(key: object) -> str:
    """A path below the tenant's folder, as it is given.

    Raises:
        ValueError: It is none, or might lead elsewhere.
    """
    if not isinstance(key, str):
        raise ValueError(f"The key of a file is text, not {type(key).__name__}.")  # noqa: TRY004
    text = str.__str__(key)
    if not text or len(text) > _MAX_KEY_LENGTH:
        raise ValueError(
            f"The key of a file has 1 to {_MAX_KEY_LENGTH} characters, not {len(text):,}."
        )
    for segment in text.split("/"):
        reason = _why_refused(segment)
        if reason is not None:
            raise ValueError(
                f"The file key {text!r} {reason}. Keys are relative paths like "
                "'invoices/2026/17.pdf'."
            )
    return text


def clean_suffix(suffix: object) -> str:
    """What :meth:`derive` adds to a name.

    Raises:
        ValueError: It is empty or would lead to another folder.
    """
    if not isinstance(suffix, str) or not suffix or "/" in suffix:
        raise ValueError(f"A suffix is text without a slash, e.g. '.preview.png', not {suffix!r}.")
    return str.__str__(suffix)


def _why_refused(segment: str) -> str | None:
    if not segment:
        return "is absolute, ends with a slash or has two in a row"
    if not segment.isprintable():  # also single surrogates, and marks that turn text around
        return "has control characters, or ones that cannot be seen"
    # What looks like a dot, a slash or a backslash may become one, e.g. the full-width forms.
    compatible = unicodedata.normalize("NFKC", segment)
    if "/" in compatible or _REFUSED & {*segment, *compatible}:
        return "has a character that separates or stands for other files somewhere"
    if compatible.strip(". ") == "":
        return "has a part that consists of dots and spaces"
    if segment != segment.strip(" ") or segment.endswith("."):
        return "has a part with a space at an end or a dot at its end, which Windows drops"
    if len(segment.encode()) > _MAX_NAME_BYTES:
        return f"has a part of more than {_MAX_NAME_BYTES} bytes"
    return None
