"""What goes wrong with Redis, as one typed error that says where and what, and no secrets."""

from __future__ import annotations

import errno
import os
import ssl

from redis.exceptions import (
    AuthenticationError,
    InvalidResponse,
    NoPermissionError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from kumiko_django.broker.address import RedisAddress
from kumiko_django.broker.transport import LookUpError
from kumiko_django.exceptions import BrokerUnavailable
from kumiko_django.types.scrub import scrub


def unavailable(error: BaseException, address: RedisAddress) -> BrokerUnavailable:
    """``error`` as the typed error that callers see, naming the setting and hiding secrets."""
    text = (
        scrub(_reason(error, address), address.secrets).strip().rstrip(".") or type(error).__name__
    )
    where = f"Redis at {address} (from {address.setting})"
    if isinstance(error, AuthenticationError) or "NOAUTH" in text:
        told = f"{where} refuses the credentials: {_ended(text)} {_credentials_hint(address)}"
    elif isinstance(error, NoPermissionError):
        told = f"{where} does not let this user do it: {_ended(text)} Check the user's ACL"
    elif isinstance(error, InvalidResponse):
        told = f"{where} does not speak Redis: {_ended(text)} Check host, port, and redis:// or rediss://"
    elif isinstance(error, RedisTimeoutError | TimeoutError):
        told = f"{where} does not answer in time ({text})"
    elif isinstance(error, RedisConnectionError | OSError):
        told = f"{where} cannot be reached: {text}"
    else:
        told = f"{where} refuses the command: {text}"
    return BrokerUnavailable(_ended(told))


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith(("?", "!")) else f"{sentence}."


def _reason(error: BaseException, address: RedisAddress) -> str:
    """What went wrong first: redis-py and asyncio wrap it, each in words of their own."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, LookUpError):
            return str(link)
        if isinstance(link, ssl.SSLCertVerificationError):
            return f"its certificate is refused ({link.verify_message}); see ssl_ca_certs"
        if isinstance(link, ssl.SSLError):
            return f"TLS failed ({link.reason or link}); is it a TLS port?"
        if isinstance(link, FileNotFoundError) and address.transport == "tls":
            return f"a file is missing: {_missing_files(address) or link}"
        if isinstance(link, ConnectionRefusedError):
            return os.strerror(errno.ECONNREFUSED).lower()
        link = link.__cause__ or link.__context__
    text = str(error) or "timed out"
    if address.transport == "tls" and "connecting" in text:
        # A Redis without TLS takes the handshake for the beginning of a command, and waits.
        text += "; is it a TLS port?"
    return text


def _credentials_hint(address: RedisAddress) -> str:
    if address.arguments.get("username") and not address.arguments.get("password"):
        return "A password stands after a colon: redis://:password@host"
    return "Check user and password"


def _missing_files(address: RedisAddress) -> str:
    names = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
    files = {name: str(address.arguments.get(name) or "") for name in names}
    return ", ".join(
        f"{name}={path}" for name, path in files.items() if path and not os.path.exists(path)
    )
