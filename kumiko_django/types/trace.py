"""Where a span stands in a trace: the W3C ``traceparent`` (P91)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_TRACE_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_SPAN_ID = re.compile(r"[0-9a-f]{16}", re.ASCII)
_SAMPLED = 0x01


@dataclass(frozen=True, slots=True)
class TraceParent:
    """The ids of a span, and whether its trace is kept; always well formed.

    Attributes:
        trace_id: 32 hex digits in lower case, not all zero.
        span_id: 16 of them, likewise.
        sampled: Whether the trace is kept.
    """

    trace_id: str
    span_id: str
    sampled: bool = True

    def __post_init__(self) -> None:
        """Refuse what no other system would read.

        Raises:
            ValueError: An id has another form, or is all zero.
        """
        if not _is_id(self.trace_id, _TRACE_ID):
            raise ValueError(f"A trace id is 32 hex digits and not all zero, not {self.trace_id!r}")
        if not _is_id(self.span_id, _SPAN_ID):
            raise ValueError(f"A span id is 16 hex digits and not all zero, not {self.span_id!r}")

    def __str__(self) -> str:
        """The header's value, in version 00."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    @classmethod
    def parse(cls, value: object) -> TraceParent | None:
        """Read a header's value; None for anything malformed.

        Of a version later than 00 the part that all versions share is read, as the standard asks.
        """
        match = _FORM.fullmatch(value) if isinstance(value, str) and len(value) <= 512 else None
        if match is None:
            return None
        version, trace_id, span_id, flags, more = match.groups()
        if version == "ff" or (version == "00" and more):
            return None
        return cls.of(trace_id, span_id, sampled=bool(int(flags, 16) & _SAMPLED))

    @classmethod
    def of(cls, trace_id: str, span_id: str, *, sampled: bool = True) -> TraceParent | None:
        """Make one of two ids, of hex digits in either case; None where they are no such ids."""
        try:
            return cls(trace_id.lower(), span_id.lower(), sampled)
        except ValueError:
            return None


def _is_id(value: str, form: re.Pattern[str]) -> bool:
    return form.fullmatch(value) is not None and value.strip("0") != ""
