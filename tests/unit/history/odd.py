"""Values that a record must take: what foreign producers, handlers and errors come with."""

from __future__ import annotations

from typing import Any


def nested(depth: int) -> Any:
    """Lists in lists, so many levels deep."""
    value: Any = "bottom"
    for _ in range(depth):
        value = [value]
    return value


PAYLOADS: dict[str, Any] = {
    "none": None,
    "empty": {},
    "plain": {"n": 1, "list": [1, 2.5, None, True, {"a": []}]},
    "false values": {"a": 0, "b": "", "c": False, "d": None, "e": []},
    "not an object": [1, "two"],
    "a text": "just a text",
    "zero": 0,
    "nul": {"a\x00b": "\x00"},
    "nul as it is written": {"text": "\\u0000 and \\\\u0000"},
    "lone surrogates": {"\ud800": ["\udfff", {"x": "a\ud83db"}]},
    "a pair of surrogates": {"text": "\ud83d\ude00"},
    "emoji": {"😀": "👩‍👩‍👧 日本 Grüße"},
    "nan": {"a": float("nan"), "b": [float("inf"), float("-inf")]},
    "huge numbers": {"a": 10**5000, "b": -(10**1200), "c": 2**63, "d": 1e308, "e": -0.0},
    "a tiny number": {"a": 5e-324},
    "deep": {"deep": nested(600)},
    "just not too deep": nested(100),
    "just too deep": nested(102),
    "wide": [{"n": n} for n in range(300)],
    "long": {"text": "x" * 100_000},
    "separators": {"a": "line one\nline two\r\n\u2028\u2029\x85\x1f\x7f"},
    "quotes": {"a\"b": "\\\"'%s%%{}$1 ?"},
    "dates are texts": {"when": "2026-03-29T02:30:00+00:00"},
    "json in json": {"a": '{"b": "\\u0000"}'},
}  # fmt: skip

TEXTS: dict[str, str] = {
    "plain": "a text",
    "empty": "",
    "nul": "a\x00b",
    "surrogates": "\ud800 and \udfff",
    "emoji": "👩‍👩‍👧",
    "lines": "one\ntwo\r\n\u2028three",
    "long": "é" * 5000,
    "escapes": "\\u0000 \\x00 %s",
}
