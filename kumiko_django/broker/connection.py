"""Clients of Redis: bounded ones for dispatching, patient ones for workers.

Dispatching must answer: every step has a time limit, and what goes wrong becomes one typed error
that names the setting. A worker waits, so its client is allowed to (bullmq-python 1.1, 1.5).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
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
from redis.exceptions import BusyLoadingError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from kumiko_django.broker.address import RedisAddress, address_of
from kumiko_django.broker.errors import unavailable
from kumiko_django.broker.exchange import Pool
from kumiko_django.broker.transport import ASYNC_CLASSES, SYNC_CLASSES, time_limit
from kumiko_django.conf import get_settings
from kumiko_django.exceptions import BrokerUnavailable

CONNECT_SECONDS = 1.0
"""Longest time to look the host up, and again to connect to an address, when dispatching."""
ANSWER_SECONDS = 1.5
"""Longest silence of Redis, when dispatching."""
TOTAL_SECONDS = 2.0
"""Longest time that one exchange with Redis may take in all, when dispatching."""
LOOP_CONNECTIONS = 32
"""Dispatches of one event loop that talk to Redis at the same time; the others queue up."""
WORKER_SOCKET_SECONDS = 20.0
"""A worker blocks for up to 10 s on an idle queue; a socket that is silent longer is dead."""
LONGEST_BLOCK_SECONDS = 10.0

AWAY_ERRORS = (RedisConnectionError, RedisTimeoutError, BusyLoadingError, OSError)
"""What redis-py raises while Redis is away. (READONLY after a failover is a ResponseError.)"""

_MANY = 100_000
"""Connections of a pool: redis-py 8 stops at 100, which threads and running jobs may exceed."""
_LAG_SECONDS = 0.25
_RESP2 = 2
"""The protocol that all supported servers, proxies and versions of redis-py share. The other one
would let the server stretch our time limits (maintenance notifications)."""


def current_address() -> RedisAddress:
    """The address in the current settings.

    Raises:
        SettingsError: There is none.
    """
    return address_of(get_settings())


def new_sync_client(address: RedisAddress) -> redis.Redis:
    """A pooled client that answers or fails within seconds."""
    options = _options(address, CONNECT_SECONDS, ANSWER_SECONDS)
    # One more try on a connection that the server has closed meanwhile. Not after a time-out: that
    # would double the wait. Adds are repeatable, their ids are ours.
    options["retry"] = Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,))
    pool = Pool(connection_class=SYNC_CLASSES[address.transport], **options)
    return redis.Redis.from_pool(pool)


def new_async_client(address: RedisAddress, *, patient: bool = False) -> redis.asyncio.Redis:
    """A client of one event loop.

    Args:
        address: Where Redis is.
        patient: For a worker: allows commands that block on an idle queue. Otherwise only
            connecting is bounded, and the caller bounds the rest.
    """
    # A ready, pooled client: bullmq's own from a URL serialises all commands (bullmq-python 5) and
    # retries 20 times without a word (1.5).
    if patient:
        options = _options(address, 5.0, WORKER_SOCKET_SECONDS)
    else:
        options = _options(address, CONNECT_SECONDS, None)
    options["retry"] = AsyncRetry(NoBackoff(), 1, supported_errors=(RedisConnectionError,))
    pool: Any = async_connection.ConnectionPool(
        connection_class=ASYNC_CLASSES[address.transport], **options
    )
    return redis.asyncio.Redis.from_pool(pool)


def _options(address: RedisAddress, connect: float, answer: float | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "decode_responses": True,
        "protocol": _RESP2,
        "max_connections": _MANY,
        "socket_timeout": answer,
    }
    if address.transport != "unix":
        options["socket_connect_timeout"] = connect
        # Firewalls forget connections that idle for minutes, and swallow what is sent on them.
        options["socket_keepalive"] = True
        options["socket_keepalive_options"] = {
            getattr(socket, name): value
            for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
            if hasattr(socket, name)
        }
    return options | dict(address.arguments)


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
                    # Other threads may be in the middle of a dispatch; theirs close when unused.
                    self._client.connection_pool.disconnect(inuse_connections=False)
                self._client, self._key = new_sync_client(address), address.key
            return self._client, address


_sync_clients = _SyncClients()
_async_lock = threading.Lock()


def _forget_client_of_parent() -> None:
    # Locks may have been held by other threads at the moment of the fork.
    global _sync_clients, _async_lock
    _sync_clients = _SyncClients()
    _async_lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork either
    os.register_at_fork(after_in_child=_forget_client_of_parent)


@contextlib.contextmanager
def sync_client() -> Iterator[redis.Redis]:
    """The process's client for one exchange from sync code.

    Raises:
        BrokerUnavailable: Anything went wrong inside the block, or it took too long.
        SettingsError: The settings name no usable Redis.
    """
    client, address = _sync_clients.get()
    try:
        with time_limit(TOTAL_SECONDS):
            yield client
    except (RedisError, OSError) as error:
        raise unavailable(error, address) from error


class _LoopClient:
    """The client of one event loop, to which it is bound (bullmq-python 1.6)."""

    def __init__(self, address: RedisAddress) -> None:
        self.address = address
        self.client = new_async_client(address)
        self._places = asyncio.Semaphore(LOOP_CONNECTIONS)
        self._failure = ""
        self._failed_at = 0.0

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncIterator[redis.asyncio.Redis]:
        """The client, for one exchange.

        Thousands of dispatches may be gathered: they take turns on a few connections, for as long
        as there is progress. When Redis is away, those that wait share the answer of those before
        them, so that each still gets one in time.
        """
        began = asyncio.get_running_loop().time()
        async with self._places:
            if self._failure and self._failed_at > began:
                raise BrokerUnavailable(self._failure)
            try:
                async with _time_limit(TOTAL_SECONDS):
                    yield self.client
            except (RedisError, OSError) as error:
                failure = unavailable(error, self.address)
                if isinstance(error, AWAY_ERRORS):
                    self._failure = str(failure)
                    self._failed_at = asyncio.get_running_loop().time()
                raise failure from error
            self._failure = ""


@contextlib.asynccontextmanager
async def _time_limit(seconds: float) -> AsyncIterator[None]:
    """``asyncio.timeout``, but fair when the loop itself was held up by somebody's blocking code.

    The answer may have been there all the while; it gets a moment to be read (bullmq-python 1.10).
    """
    loop = asyncio.get_running_loop()
    due = loop.time() + seconds
    async with asyncio.timeout(None) as limit:

        def expire() -> None:
            now = loop.time()
            limit.reschedule(now + 2 * _LAG_SECONDS if now - due > _LAG_SECONDS else now)

        timer = loop.call_at(due, expire)
        try:
            yield
        finally:
            timer.cancel()


@contextlib.asynccontextmanager
async def async_client() -> AsyncIterator[redis.asyncio.Redis]:
    """The running loop's client for one exchange from async code; errors as in sync code.

    Raises:
        BrokerUnavailable: Anything went wrong inside the block, or it took too long.
        SettingsError: The settings name no usable Redis.
    """
    held = await _client_of_loop(current_address())
    async with held.use() as client:
        yield client


_Holder = AsyncIterator[_LoopClient]
_async_clients: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[_LoopClient, _Holder]] = (
    WeakKeyDictionary()
)


async def _client_of_loop(address: RedisAddress) -> _LoopClient:
    # The client is closed together with its loop: loops shut their async generators down, also the
    # short ones of async_to_sync.
    loop = asyncio.get_running_loop()
    held = _async_clients.get(loop)
    if held is not None and held[0].address.key == address.key:
        return held[0]
    holder = _hold(address)
    client = await anext(holder)
    with _async_lock:
        # A loop that was closed without this courtesy would be kept for ever, too.
        for other in [other for other in _async_clients if other.is_closed()]:
            del _async_clients[other]
        _async_clients[loop] = (client, holder)
    return client


async def _hold(address: RedisAddress) -> AsyncIterator[_LoopClient]:
    held = _LoopClient(address)
    try:
        yield held
    finally:
        # What is kept here refers to the loop, which would never be freed.
        loop = asyncio.get_running_loop()
        with _async_lock:
            if _async_clients.get(loop, (None,))[0] is held:
                del _async_clients[loop]
        await held.client.aclose()
