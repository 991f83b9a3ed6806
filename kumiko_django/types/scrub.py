"""Taking secrets out of error texts before they reach history, logs or the queue (P38).

A text may be megabytes long and come from anywhere, so no pattern here looks further than it must:
the time is linear in the length of the text. Where a secret and an ordinary text look the same, it
counts as a secret; what is plainly a sentence or a count is left alone, since an error that cannot
be read helps nobody.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, quote_plus

MASK: Final = "***"

_MIN_SECRET: Final = 4
_LONG_SECRET: Final = 12
"""From here on a value of letters and digits is masked inside longer words too."""

_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?P<kind>[A-Z ]{0,30}PRIVATE KEY)-----(?! \*\*\*)"
    r".*?(?:-----END (?P=kind)-----|\Z)",
    re.DOTALL,
)
_KNOWN_TOKEN = re.compile(
    r"""\b(?: gh[oprsu]_\w{16,} | github_pat_\w{16,} | glpat-[\w-]{16,} | xox[abeprs]-[\w-]{10,}
            | [prs]k_(?:live|test)_\w{10,} | sk-(?=[a-z-]{0,20}[A-Z0-9])[\w-]{20,} | AIza[\w-]{30,}
            | eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]* )""",
    re.VERBOSE,
)

# In the address of a database or broker a password may stand as it is, with "/", "#" and "@": it
# ends at the last "@". In other addresses that would reach into paths ("host:80/users/@me").
_SERVER_URL = re.compile(
    r"""(?P<head>\b(?:rediss?|valkeys?|postgres(?:ql)?|pgsql|postgis|mysql2?|mariadb|mssql|oracle
        |cockroachdb|mongodb|amqps?|ldaps?|smtps?|sentinel|unix)(?:\+\w{1,20})?://[^\s:/"'<>]{0,200})
        :[^\s"'<>]{1,500}@""",
    re.IGNORECASE | re.VERBOSE,
)
_OTHER_URL = re.compile(
    r"""(?P<head>\b[a-z][a-z0-9+.-]{0,30}://[^\s:/?\#"'<>]{0,200}):[^\s/?\#"'<>]{1,500}@""",
    re.IGNORECASE | re.VERBOSE,
)
_URL_TOKEN = re.compile(r"(?P<head>\b[a-z][a-z0-9+.-]{0,30}://)[\w~+=-]{20,500}@", re.IGNORECASE)
_URL_SIGNATURE = re.compile(
    r"(?P<head>[?&](?:x-\w{1,10}-)?sig(?:nature)?=)[^\s&\"'<>]{6,}", re.IGNORECASE
)

# After the name of a header: a separator, and quotes as JSON, Python and JSON in JSON write them.
_TO_VALUE = r"""\\{0,3}["']?[ \t]{0,3}[:=,][ \t]{0,3}(?:b(?=["']))?\\{0,3}["']?"""
_AUTHORIZATION = re.compile(
    rf"""(?P<head>(?<![\w-])(?:proxy-|x-)?authorization{_TO_VALUE})(?P<value>[^"'\\\r\n}}]+)""",
    re.IGNORECASE,
)
_SCHEME_OF_ONE = re.compile(
    r"(?P<head>(?:bearer|basic|token|api-?key|key|negotiate|ntlm)\s+)(?P<value>\S+)", re.IGNORECASE
)
_SCHEME_OF_MANY = re.compile(
    r"(?P<head>(?:digest|hawk|oauth|aws4-[\w-]{1,40})\s+).+", re.IGNORECASE
)
_COOKIE = re.compile(
    rf"""(?P<head>(?<![\w-])(?:set-)?cookie{_TO_VALUE})[\w.-]{{1,100}}=[^"'\\\r\n}}]+""",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(?P<head>Bearer\s{1,3})(?P<value>[\w.~+/=-]{6,})", re.IGNORECASE)
_BASIC = re.compile(r"\b(?P<head>Basic\s{1,3})(?P<value>[A-Za-z0-9+/_-]{6,}={0,2})", re.IGNORECASE)

_KINDS = r"""(?:password|passwd|passphrase|passcode|pwd|[a-z0-9][_-]pass|secret|token
    |credential|sessionid|(?:api|access|secret|private|signing|encryption|session)[_-]?key)"""
# What comes after a comma that is no part of the secret before it: "password=a,b;user=c".
_NEXT = r"""(?:[\s"']|$|[\w.\x20-]{1,40}[=:])"""
_NAMED = re.compile(
    rf"""(?P<head>(?<![\w-])[\w-]{{0,60}}?{_KINDS}(?P<plural>s?)[_-]?\d{{0,2}}
        (?P<quote>\\{{0,3}}["'])?[ \t]{{0,3}}(?P<separator>=>|=(?!=)|:(?!:))[ \t]{{0,3}})
        (?P<value> [bru]?"(?:[^"\\\r\n]|\\.)*"? | [bru]?'(?:[^'\\\r\n]|\\.)*'?
            | \\{{1,3}}["'](?:(?!\\{{1,3}}["'])[^\r\n])*(?:\\{{1,3}}["'])?
            | \[[ \t]{{0,3}}[bru]?["'\d][^\]\r\n]*\]?
            | (?:[^\s"',;&]|[,;&](?!{_NEXT}))+?(?=[)}}\]>]{{0,5}}(?:[\s"']|[,;&]{_NEXT}|$)) )""",
    re.IGNORECASE | re.VERBOSE,
)
# [("X-Api-Key", "..."), ...] and ["--password", "..."]
_PAIR = re.compile(
    rf"""(?P<head>["'](?:--[\w-]{{0,40}}?|\w{{1,20}}-[\w-]{{0,40}}?){_KINDS}["'],[ \t]{{0,3}}b?)
        (?P<quote>["'])[^"'\r\n]+(?P=quote)""",
    re.IGNORECASE | re.VERBOSE,
)
_OPENING = re.compile(r"""[bru]?\\{0,3}["']|\[""", re.IGNORECASE)
_HARMLESS = frozenset(
    {"", "none", "null", "true", "false", "undefined", "str", "bytes", "int", "any", "{", "[", "("}
)
_SENTENCE = re.compile(r"""\W{0,3}[A-Z][a-z']*(?: [\w'.,():;%-]+){2,}[.!]?\W{0,3}""")


def scrub(text: str, secrets: Iterable[str] = ()) -> str:
    """``text`` without passwords and tokens.

    Args:
        text: An error message or traceback.
        secrets: Exact values that must not appear, such as the Redis password.
    """
    text = _without(text, secrets)
    text = _PRIVATE_KEY.sub(rf"-----BEGIN \g<kind>----- {MASK}", text)
    for address in (_SERVER_URL, _OTHER_URL):
        text = address.sub(_url, text)
    text = _URL_TOKEN.sub(rf"\g<head>{MASK}@", text)
    text = _URL_SIGNATURE.sub(rf"\g<head>{MASK}", text)
    text = _AUTHORIZATION.sub(_authorization, text)
    text = _COOKIE.sub(rf"\g<head>{MASK}", text)
    text = _BEARER.sub(_bearer, text)
    text = _BASIC.sub(_basic, text)
    text = _NAMED.sub(_named, text)
    text = _PAIR.sub(rf"\g<head>\g<quote>{MASK}\g<quote>", text)
    return _KNOWN_TOKEN.sub(MASK, text)


def _without(text: str, secrets: Iterable[str]) -> str:
    spellings = {s for secret in secrets if len(secret) >= _MIN_SECRET for s in _spelled(secret)}
    # The longest first: a short one that is part of a long one would leave the rest of it.
    for spelling in sorted(spellings, key=len, reverse=True):
        if len(spelling) < _LONG_SECRET and spelling.isalnum():
            # The password "test" must not make "the la*** attempt" of "the latest attempt".
            text = re.sub(rf"(?<![^\W_]){re.escape(spelling)}(?![^\W_])", MASK, text)
        else:
            text = text.replace(spelling, MASK)
    return text


def _spelled(secret: str) -> tuple[str, ...]:
    """As it is, and as URLs, JSON and Python write it."""
    return (
        secret,
        quote(secret, safe=""),
        quote_plus(secret),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
    )


def _url(match: re.Match[str]) -> str:
    return f"{match['head']}:{MASK}@"


def _authorization(match: re.Match[str]) -> str:
    value = match["value"]
    one = _SCHEME_OF_ONE.match(value)
    if one is not None:
        rest = value[one.end() :]
        if one["value"].isalpha() and rest[:1] == " ":
            return match[0]  # "Authorization: Bearer token is missing"
        return f"{match['head']}{one['head']}{MASK}{rest}"
    many = _SCHEME_OF_MANY.match(value)
    if many is not None:
        return f"{match['head']}{many['head']}{MASK}"
    word = value.strip()
    if len(word) >= 8 and not word.isalpha() and " " not in word:
        return f"{match['head']}{MASK}"
    return match[0]


def _bearer(match: re.Match[str]) -> str:
    value = match["value"]
    if len(value) >= 20 or any(character.isdigit() for character in value):
        return f"{match['head']}{MASK}"
    return match[0]  # "bearer authentication"


def _basic(match: re.Match[str]) -> str:
    value = match["value"].rstrip("=")
    try:
        decoded = base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_")
    except (binascii.Error, ValueError):
        return match[0]
    # User and password are joined by a colon; "basic functionality" decodes to nothing like it.
    return f"{match['head']}{MASK}" if b":" in decoded else match[0]


def _named(match: re.Match[str]) -> str:
    value = match["value"]
    opening = _OPENING.match(value)
    if opening is None:
        return match[0] if _is_no_secret(match) else match["head"] + MASK
    start = opening[0]
    end = "]" if start == "[" else start.lstrip("bruBRU")
    closed = len(value) > len(start) and value.endswith(end)
    inner = value[len(start) : -len(end)] if closed else value[len(start) :]
    if inner.lower() in _HARMLESS or inner == MASK or _SENTENCE.fullmatch(inner):
        return match[0]  # as a form says it: {"password": ["This password is too short."]}
    return f"{match['head']}{start}{MASK}{end if closed else ''}"


def _is_no_secret(match: re.Match[str]) -> bool:
    value = match["value"]
    if value.lower() in _HARMLESS or value.strip("*") == "":
        return True
    if match["plural"] and value.isdigit():
        return True  # "max_tokens=4096"
    # "password: This field is required": a word, and more words after it.
    is_prose = match["separator"] == ":" and match["quote"] is None and value.isalpha()
    return is_prose and re.match(r" [A-Za-z(]", match.string[match.end() :][:2]) is not None


def cut_end(text: str, limit: int) -> str:
    """The first characters of ``text``, at most ``limit``, with a note of what was cut."""
    if len(text) <= limit:
        return text
    kept = max(limit - len(_note(len(text))) - 1, 0)
    return f"{text[:kept]} {_note(len(text) - kept)}"[:limit]


def cut_start(text: str, limit: int) -> str:
    """The last characters of ``text``, at most ``limit``, with a note of what was cut."""
    if len(text) <= limit:
        return text
    cut = len(text) - max(limit - len(_note(len(text))) - 1, 0)
    return f"{_note(cut)}\n{text[cut:]}"[:limit]


def _note(characters: int) -> str:
    return f"[{characters} characters cut]"
