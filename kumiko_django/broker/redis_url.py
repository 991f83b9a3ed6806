"""A Redis URL as connection arguments.

Everything that it can say about reaching Redis arrives (P87): user, password with any characters,
TLS and its options, unix socket, database number. What would break a worker does not: timeouts are
ours, since a five-second one silently stops delayed jobs (bullmq-python 1.1).
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from ssl import TLSVersion, VerifyFlags
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl, unquote

import redis
import redis.asyncio
from redis.asyncio.connection import SSLConnection as AsyncSSLConnection

from kumiko_django.exceptions import SettingsError

Transport: TypeAlias = Literal["tcp", "tls", "unix"]

TRANSPORTS: Final[Mapping[str, Transport]] = {
    "redis": "tcp", "valkey": "tcp", "rediss": "tls", "valkeys": "tls", "unix": "unix",
}  # fmt: skip
_CREDENTIALS = ("username", "password")


def _parameters(*classes: type) -> frozenset[str]:
    return frozenset(
        name
        for connection in classes
        for base in connection.__mro__
        if base is not object
        for name in inspect.signature(base.__init__).parameters  # type: ignore[misc]
    )


SSL_OPTIONS: Final = frozenset(
    name
    for name in _parameters(redis.SSLConnection) & _parameters(AsyncSSLConnection)
    if name.startswith("ssl_")
)
"""What both of our clients can be told about TLS."""
OURS: Final = _parameters(redis.Connection, redis.BlockingConnectionPool) | {"retry_on_error"}
"""What redis-py knows and is no way to reach a server: timeouts, retries, pools, decoding. Given in
a URL or in a cache's options, it is left alone: workers and dispatching need their own (1.1)."""

_RAW = re.compile(r"[/@#?:\[\] ]|%(?![0-9A-Fa-f]{2})")
"""What percent-encoding would not have left in a user or password."""
_HOST = r"(?P<host>\[[^\]/?#@\s]+\]|[^\[\]:/?#@\s]*)"
_KNOWN_OPTION = r"(?:db|username|password|protocol|timeout|[a-z]+_[a-z_]+)="
_PLACE = re.compile(rf"{_HOST}(?::(?P<port>\d{{1,5}}))?(?:/(?P<db>\d*))?")
_WHOLE_PLACE = re.compile(rf"{_PLACE.pattern}(?:\?(?:{_KNOWN_OPTION}.*)?)?", re.DOTALL)


@dataclass(frozen=True)
class RedisAddress:
    """How to reach Redis.

    Attributes:
        transport: ``tcp``, ``tls`` or ``unix``.
        arguments: What redis-py's connection classes take: host, port, db, username, ssl_*...
        setting: The setting that this comes from, for messages.
    """

    transport: Transport
    arguments: Mapping[str, Any] = field(repr=False)
    setting: str

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that must appear in no message."""
        values = (self.arguments.get(name) for name in ("password", "ssl_password"))
        return tuple(str(value) for value in values if value)

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for equal addresses."""
        return (self.transport, *sorted((k, repr(v)) for k, v in self.arguments.items()))

    def __str__(self) -> str:
        database = self.arguments.get("db") or 0
        if self.transport == "unix":
            return f"unix://{self.arguments['path']}?db={database}"
        scheme = "rediss" if self.transport == "tls" else "redis"
        host = str(self.arguments.get("host", "localhost"))
        place = f"[{host}]" if ":" in host else host
        return f"{scheme}://{place}:{self.arguments.get('port', 6379)}/{database}"


@lru_cache(maxsize=16)
def from_url(url: str, setting: str) -> RedisAddress:
    """The address in a URL.

    Raises:
        SettingsError: It cannot be used. The message repeats nothing of the URL, where a password
            may stand anywhere, but the names of options.
    """
    scheme, _, rest = url.strip().partition("://")
    transport = TRANSPORTS.get(scheme)
    if transport is None:
        raise SettingsError(
            f"{setting} must begin with one of {', '.join(f'{name}://' for name in TRANSPORTS)}."
        )
    credentials, place = _split(rest, transport)
    user, _, password = credentials.partition(":")
    place, _, query = place.partition("?")
    given = {"username": _decoded(user), "password": _decoded(password)}
    arguments: dict[str, Any] = _socket(place, setting) if transport == "unix" else {}
    if transport != "unix":
        arguments = _host(place, setting)
    # A plus sign is one: nobody fills in a form here.
    for name, value in parse_qsl(query.replace("+", "%2B"), keep_blank_values=True):
        if name in _CREDENTIALS:
            given[name] = given[name] or value
        else:
            arguments.update(_option(name, value, setting))
    arguments |= {name: value for name, value in given.items() if value}
    return checked(transport, arguments, setting)


def checked(transport: Transport, arguments: dict[str, Any], setting: str) -> RedisAddress:
    """The address, if its parts go together.

    Raises:
        SettingsError: They do not.
    """
    for name in arguments:
        if name.startswith("ssl_") and name not in SSL_OPTIONS:
            known = ", ".join(sorted(SSL_OPTIONS))
            raise SettingsError(f"{setting}: {name} is not supported (known: {known}).")
        if name.startswith("ssl_") and transport != "tls":
            raise SettingsError(f"{setting} has {name}, but no TLS. Use a rediss:// address.")
    if "db" in arguments:
        arguments["db"] = _database(arguments["db"], setting)
    if isinstance(arguments.get("ssl_cert_reqs"), str):
        arguments["ssl_cert_reqs"] = _cert_reqs(arguments["ssl_cert_reqs"], setting)
    return RedisAddress(transport, arguments, setting)


def _split(rest: str, transport: Transport) -> tuple[str, str]:
    """Credentials and place.

    A password may stand in the URL as it is, with ``/``, ``@``, ``#`` and ``?``, and a path to a
    file among the options may have an ``@`` too. What follows the right one looks like a place.
    """
    if transport == "unix":
        # A path begins with a slash, with or without credentials before it.
        if "@/" not in rest or rest.startswith("/"):
            return "", rest
        credentials, _, path = rest.rpartition("@/")
        return credentials, f"/{path}"
    position = -1
    while not _WHOLE_PLACE.fullmatch(rest, position + 1):
        position = rest.find("@", position + 1)
        if position < 0:
            credentials, _, place = rest.rpartition("@")
            return credentials, place
    return rest[: max(position, 0)], rest[position + 1 :]


def _decoded(text: str) -> str:
    """A user or password, percent-decoded if it can have been encoded, else as it stands."""
    if _RAW.search(text):
        return text
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text


def _host(place: str, setting: str) -> dict[str, Any]:
    match = _PLACE.fullmatch(place)
    if match is None or int(match["port"] or 1) not in range(1, 65536):
        raise SettingsError(
            f"{setting} is no usable Redis URL. It must look like "
            "redis://user:password@host:6379/0; check the host, the port and the database number."
        )
    arguments: dict[str, Any] = {}
    if match["host"]:
        arguments["host"] = unquote(match["host"].strip("[]"))
    if match["port"]:
        arguments["port"] = int(match["port"])
    if match["db"]:
        arguments["db"] = int(match["db"])
    return arguments


def _socket(place: str, setting: str) -> dict[str, Any]:
    if not place.startswith("/") or place == "/":
        raise SettingsError(f"{setting} names no socket; write unix:///path/to/redis.sock?db=0.")
    return {"path": unquote(place)}


def _option(name: str, value: str, setting: str) -> dict[str, Any]:
    if name == "db":
        return {name: value}
    if name in SSL_OPTIONS:
        try:
            return {name: _SSL_VALUES.get(name, str)(value)}
        except (KeyError, ValueError):
            raise SettingsError(f"{setting}: the option {name} has an unknown value.") from None
    if name in OURS:
        return {}
    if name.lower() in ("ssl", "tls"):
        raise SettingsError(f"{setting}: for TLS use a rediss:// address, not the option {name!r}.")
    known = sorted({"db", *_CREDENTIALS, *SSL_OPTIONS})
    near = difflib.get_close_matches(name, known, n=1) or [", ".join(known)]
    raise SettingsError(f"{setting} has the unknown option {name!r} (known: {near[0]}).")


def _database(value: object, setting: str) -> int:
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()):
        raise SettingsError(f"{setting}: the database must be a number from 0 on.")
    return int(text)


def _cert_reqs(value: str, setting: str) -> str:
    text = value.lower().removeprefix("cert_")
    if text not in ("none", "optional", "required"):
        raise SettingsError(f"{setting}: ssl_cert_reqs must be none, optional or required.")
    return text


def _boolean(text: str) -> bool:
    return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[
        text.lower()
    ]


def _tls_version(text: str) -> TLSVersion:
    return TLSVersion(int(text)) if text.isdigit() else TLSVersion[text.replace(".", "_")]


def _verify_flags(text: str) -> list[VerifyFlags]:
    return [VerifyFlags[name.strip()] for name in text.strip("[]").split(",")]


_SSL_VALUES: Final[Mapping[str, Callable[[str], Any]]] = {
    "ssl_check_hostname": _boolean,
    "ssl_min_version": _tls_version,
    "ssl_include_verify_flags": _verify_flags,
    "ssl_exclude_verify_flags": _verify_flags,
}
