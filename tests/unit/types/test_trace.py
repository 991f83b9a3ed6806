"""The W3C form of a span's place in a trace (P91, B138)."""

from __future__ import annotations

from typing import Any

import pytest

from kumiko_django.types.ambient import TraceContext
from kumiko_django.types.trace import TraceParent

pytestmark = pytest.mark.once

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(
    ("header", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"00-{TRACE}-{SPAN}-02", False),
        (f"cc-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01-what-will-be", True),
    ],
)
def test_a_header_is_read(header: str, sampled: bool) -> None:
    """P91: with the flag that says whether the trace is kept; later versions as far as known."""
    assert TraceParent.parse(header) == TraceParent(TRACE, SPAN, sampled)


@pytest.mark.parametrize("sampled", [True, False])
def test_what_is_written_is_read(sampled: bool) -> None:
    written = str(TraceParent(TRACE, SPAN, sampled))

    assert written == f"00-{TRACE}-{SPAN}-{'01' if sampled else '00'}"
    assert TraceParent.parse(written) == TraceParent(TRACE, SPAN, sampled)


@pytest.mark.parametrize(
    "value",
    [
        None, 7, b"00", {}, "", "00", f"{TRACE}-{SPAN}",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}0-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01\n",
        f" 00-{TRACE}-{SPAN}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"0x-{TRACE}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01-{'x' * 1000}",
        f"00-{'٣' * 32}-{SPAN}-01",
    ],
)  # fmt: skip
def test_what_is_malformed_is_dropped(value: Any) -> None:
    """P91: as the standard says, ids of zeros included."""
    assert TraceParent.parse(value) is None


@pytest.mark.parametrize(("trace_id", "span_id"), [("x", SPAN), (TRACE, "x"), ("0" * 32, SPAN)])
def test_one_that_is_malformed_cannot_be_made(trace_id: str, span_id: str) -> None:
    with pytest.raises(ValueError, match="hex digits"):
        TraceParent(trace_id, span_id)
    assert TraceContext(trace_id, span_id).parent is None, "B074 keeps it, W3C does not know it"


def test_ids_of_others_may_be_in_capitals() -> None:
    """B138: a stored trace is valid if it has ids of the right form."""
    context = TraceContext(TRACE.upper(), SPAN.upper(), sampled=False)

    assert context.parent == TraceParent(TRACE, SPAN, sampled=False)
    assert TraceContext.at(TraceParent(TRACE, SPAN)) == TraceContext(TRACE, SPAN)
