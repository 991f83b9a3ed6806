"""Clients of Redis: bounded ones for dispatching, patient ones for workers.

Dispatching must answer: every step has a time limit, and what goes wrong becomes one typed error
that names the setting. A worker waits, so its client is allowed to (bullmq-python 1.1, 1.5).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import redis
import redis.asyncio
from redis.asyncio import connection as async_connection
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    NoPermissionError,
    RedisError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from kumiko_django.broker.address import RedisAddress, address_of
from kumiko_django.conf import get_settings
from kumiko_django.exceptions import BrokerUnavailable
from kumiko_django.types.scrub import scrub

CONNECT_SECONDS = 1.0
"""Longest time to look a host up, and again to connect, when dispatching."""
ANSWER_SECONDS = 1.5
"""Longest time to wait for an answer when dispatching."""
TOTAL_SECONDS = 2.5
"""Longest time that one asynchronous dispatch may take in all."""
WORKER_SOCKET_SECONDS = 20.0
"""A worker blocks for up to 10 s on an idle queue; a socket that is silent longer is dead."""
LONGEST_BLOCK_SECONDS = 10.0

AWAY_ERRORS = (RedisConnectionError, RedisTimeoutError, BusyLoadingError, OSError)
"""What redis-py raises while Redis is away. (READONLY after a failover is a ResponseError.)"""


def _resolve(host: str, port: int) -> None:
    """Look ``host`` up within :data:`CONNECT_SECONDS`; the resolver itself has no time limit."""
    errors: list[OSError] = []

    def look_up() -> None:
        try:
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            errors.append(error)

    thread = threading.Thread(target=look_up, name="kumiko-resolve", daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS)
    if thread.is_alive():
        raise RedisConnectionError(f"looking up the host {host!r} took too long")
    if errors:
        raise RedisConnectionError(f"unknown host {host!r}: {errors[0].strerror}")


class _BoundedConnection(redis.Connection):
    def _connect(self) -> Any:
        _resolve(self.host, int(self.port))
        return super()._connect()  # type: ignore[no-untyped-call]


class _BoundedSSLConnection(redis.SSLConnection):
    def _connect(self) -> Any:
        _resolve(self.host, int(self.port))
        return super()._connect()  # type: ignore[no-untyped-call]


_SYNC_CLASSES: dict[str, Any] = {
    "tcp": _BoundedConnection,
    "tls": _BoundedSSLConnection,
    "unix": redis.UnixDomainSocketConnection,
}
_ASYNC_CLASSES: dict[str, Any] = {
    "tcp": async_connection.Connection,
    "tls": async_connection.SSLConnection,
    "unix": async_connection.UnixDomainSocketConnection,
}


def current_address() -> RedisAddress:
    """The address in the current settings.

    Raises:
        SettingsError: There is none.
    """
    return address_of(get_settings())


def new_sync_client(address: RedisAddress) -> redis.Redis:
    """A pooled client that answers or fails within seconds. The pool renews itself after a fork."""
    options = _options(address, CONNECT_SECONDS, ANSWER_SECONDS)
    # One more try on a connection that the server has closed meanwhile. Not after a time-out: that
    # would double the wait. Adds are repeatable, their ids are ours.
    options["retry"] = Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,))
    pool = redis.ConnectionPool(connection_class=_SYNC_CLASSES[address.transport], **options)
    return redis.Redis.from_pool(pool)


def new_async_client(address: RedisAddress, *, patient: bool = False) -> redis.asyncio.Redis:
    """A client of one event loop.

    Args:
        address: Where Redis is.
        patient: For a worker: allows commands that block on an idle queue.
    """
    # A ready, pooled client: bullmq's own from a URL serialises all commands (bullmq-python 5) and
    # retries 20 times without a word (1.5).
    if patient:
        options = _options(address, 5.0, WORKER_SOCKET_SECONDS)
        if address.transport != "unix":
            options["socket_keepalive"] = True
    else:
        options = _options(address, CONNECT_SECONDS, ANSWER_SECONDS)
    options["retry"] = AsyncRetry(NoBackoff(), 1, supported_errors=(RedisConnectionError,))
    pool: Any = async_connection.ConnectionPool(
        connection_class=_ASYNC_CLASSES[address.transport], **options
    )
    return redis.asyncio.Redis.from_pool(pool)


def _options(address: RedisAddress, connect: float, answer: float) -> dict[str, Any]:
    options: dict[str, Any] = {**address.arguments, "decode_responses": True}
    options["socket_timeout"] = answer
    if address.transport != "unix":
        options["socket_connect_timeout"] = connect
    return options


class _SyncClients:
    """One sync client per process and address."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: tuple[object, ...] | None = None
        self._client: redis.Redis | None = None

    def get(self) -> tuple[redis.Redis, RedisAddress]:
        address = current_address()
        with self._lock:
            if self._client is None or self._key != address.key:
                if self._client is not None:
                    self._client.close()
                self._client, self._key = new_sync_client(address), address.key
            return self._client, address


_sync_clients = _SyncClients()
_Holder = AsyncIterator["redis.asyncio.Redis"]
_async_clients: WeakKeyDictionary[
    asyncio.AbstractEventLoop, tuple[tuple[object, ...], redis.asyncio.Redis, _Holder]
] = WeakKeyDictionary()


@contextlib.contextmanager
def sync_client() -> Iterator[redis.Redis]:
    """The process's client for dispatching from sync code.

    Raises:
        BrokerUnavailable: Anything went wrong inside the block.
        SettingsError: The settings name no usable Redis.
    """
    client, address = _sync_clients.get()
    try:
        yield client
    except (RedisError, OSError) as error:
        raise unavailable(error, address) from error


@contextlib.asynccontextmanager
async def async_client() -> AsyncIterator[redis.asyncio.Redis]:
    """The running loop's client for dispatching from async code; errors as in sync code.

    Raises:
        BrokerUnavailable: Anything went wrong inside the block, or it took too long.
        SettingsError: The settings name no usable Redis.
    """
    address = current_address()
    client = await _client_of_loop(address)
    try:
        # asyncio.timeout also bounds the look-up of the host.
        async with asyncio.timeout(TOTAL_SECONDS):
            yield client
    except (RedisError, OSError) as error:
        raise unavailable(error, address) from error


async def _client_of_loop(address: RedisAddress) -> redis.asyncio.Redis:
    """The client of the running loop, made when first asked for.

    A client is bound to its loop (bullmq-python 1.6) and closed together with it: loops shut their
    async generators down, also the short ones of async_to_sync.
    """
    loop = asyncio.get_running_loop()
    held = _async_clients.get(loop)
    if held is not None and held[0] == address.key:
        return held[1]
    holder = _hold(address)
    client = await anext(holder)
    _async_clients[loop] = (address.key, client, holder)
    return client


async def _hold(address: RedisAddress) -> AsyncIterator[redis.asyncio.Redis]:
    client = new_async_client(address)
    try:
        yield client
    finally:
        await client.aclose()


def unavailable(error: BaseException, address: RedisAddress) -> BrokerUnavailable:
    """``error`` as the typed error that callers see, naming the setting and hiding secrets."""
    text = scrub(str(error), address.secrets).strip().rstrip(".") or type(error).__name__
    where = f"Redis at {address} (from {address.setting})"
    if isinstance(error, AuthenticationError | NoPermissionError) or "NOAUTH" in text:
        reason = f"{where} refuses the credentials: {text}. Check user and password"
    elif isinstance(error, RedisTimeoutError | TimeoutError):
        reason = f"{where} does not answer in time ({text or 'timed out'})"
    elif isinstance(error, RedisConnectionError | OSError):
        reason = f"{where} cannot be reached: {text}"
    else:
        reason = f"{where} refuses the command: {text}"
    return BrokerUnavailable(f"{reason}.")
