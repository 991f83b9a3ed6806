"""Connections that keep to a time limit: for the look-up of the host, and for all steps together.

redis-py bounds single operations of a socket, not their sum, nor the resolver: a server that
answers each step late, or a name server that is away, holds the caller up (bullmq-python 1.5).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import ipaddress
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, TypeAlias

import redis
from redis.asyncio import connection as async_connection

Address: TypeAlias = "tuple[Any, Any, int, str, Any]"
"""What ``socket.getaddrinfo`` gives."""
_Answer: TypeAlias = "concurrent.futures.Future[list[Address] | str]"
"""Addresses, or why there are none."""

_deadline: ContextVar[float | None] = ContextVar("kumiko_broker_deadline", default=None)


class LookUpError(OSError):
    """The host's name could not be turned into an address."""


class LookUpTimeout(LookUpError, TimeoutError):
    """No name server answered in time."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Whatever connections of this module do within the block ends after ``seconds``."""
    token = _deadline.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


def _left(most: float | None) -> float | None:
    """Seconds that an operation may take that would be given ``most`` without a deadline."""
    deadline = _deadline.get()
    if deadline is None or most == 0:
        return most
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left if most is None else min(left, most)


class _LookUps:
    """The look-ups that are under way, one a host however many callers wait for it.

    The resolver has no time limit and cannot be stopped. So it runs in a daemonic thread, which
    neither the end of an event loop nor the end of the process waits for.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[tuple[str, int], _Answer] = {}

    def get(self, host: str, port: int) -> _Answer:
        with self._lock:
            answer = self._running.get((host, port))
            if answer is None:
                answer = self._start(host, port)
                self._running[host, port] = answer
        return answer

    def _start(self, host: str, port: int) -> _Answer:
        answer: _Answer = concurrent.futures.Future()
        # So that a caller that gives up cannot cancel it for the others.
        answer.set_running_or_notify_cancel()
        thread = threading.Thread(
            target=self._look_up, args=(host, port, answer), name="kumiko-resolve", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # no more threads, or the interpreter is about to end
            raise LookUpError(f"looking up the host {host!r} is not possible: {error}") from error
        return answer

    def _look_up(self, host: str, port: int, answer: _Answer) -> None:
        outcome: list[Address] | str
        try:
            outcome = list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as error:  # noqa: BLE001  (whatever it is, callers wait for the answer)
            outcome = getattr(error, "strerror", None) or str(error)
        with self._lock:
            del self._running[host, port]
        answer.set_result(outcome)


_look_ups = _LookUps()


def _forget_threads_of_parent() -> None:
    global _look_ups
    _look_ups = _LookUps()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork either
    os.register_at_fork(after_in_child=_forget_threads_of_parent)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def look_up(host: str, port: int, seconds: float | None) -> list[Address]:
    """The addresses of a host.

    Args:
        host: A name or an address.
        port: What is wanted there.
        seconds: Longest time to wait for the resolver.

    Raises:
        LookUpError: It has none, or nobody said so in time.
    """
    if _is_address(host):
        return list(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    try:
        found = _look_ups.get(host, port).result(_left(seconds))
    except TimeoutError:
        raise _too_slow(host) from None
    return _addresses(host, found)


async def alook_up(host: str, port: int, seconds: float | None) -> list[tuple[str, int]]:
    """The addresses and ports of a host; arguments and errors as :func:`look_up`."""
    if _is_address(host):
        return [(host, port)]
    try:
        answer = asyncio.wrap_future(_look_ups.get(host, port))
        found = await asyncio.wait_for(answer, seconds)
    except TimeoutError:
        raise _too_slow(host) from None
    return [(str(place[0]), int(place[1])) for *_, place in _addresses(host, found)]


def _addresses(host: str, found: list[Address] | str) -> list[Address]:
    if isinstance(found, str) or not found:
        raise LookUpError(f"unknown host {host!r}: {found or 'no address'}")
    return found


def _too_slow(host: str) -> LookUpTimeout:
    return LookUpTimeout(f"looking up the host {host!r} took too long")


class _TimedSocket:
    """A socket whose single operations get no more time than is left in all."""

    def __init__(self, connected: socket.socket, seconds: float | None) -> None:
        self._socket = connected
        self._seconds = seconds
        self._set: float | None = None

    def settimeout(self, seconds: float | None) -> None:
        self._seconds = self._set = seconds
        self._socket.settimeout(seconds)

    def recv(self, *arguments: Any) -> bytes:
        return self._timed().recv(*arguments)

    def recv_into(self, *arguments: Any) -> int:
        return self._timed().recv_into(*arguments)

    def sendall(self, *arguments: Any) -> None:
        self._timed().sendall(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def _timed(self) -> socket.socket:
        left = _left(self._seconds)
        if left != self._set:  # a system call; mostly nothing has changed
            self._set = left
            self._socket.settimeout(left)
        return self._socket


class _PlainConnection(redis.Connection):
    def _connect(self) -> Any:
        """Connect to the first of the host's addresses that lets us."""
        failure: OSError = LookUpError(f"unknown host {self.host!r}")
        limit = self.socket_connect_timeout
        for family, kind, protocol, _, place in look_up(self.host, int(self.port), limit):
            plain = socket.socket(family, kind, protocol)
            try:
                self._prepare(plain)
                plain.settimeout(_left(limit))
                plain.connect(place)
                plain.settimeout(_left(self.socket_timeout))
                return plain
            except OSError as error:
                plain.close()
                failure = error
        raise failure

    def _prepare(self, plain: socket.socket) -> None:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.socket_keepalive:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in self.socket_keepalive_options.items():
                plain.setsockopt(socket.IPPROTO_TCP, option, value)


class Connection(_PlainConnection):
    """Over TCP."""

    def _connect(self) -> Any:
        return _TimedSocket(super()._connect(), self.socket_timeout)


class SSLConnection(redis.SSLConnection, _PlainConnection):
    """Over TLS: redis-py wraps the socket that :class:`_PlainConnection`, its base here, gives."""

    def _connect(self) -> Any:
        wrapped = super()._connect()  # type: ignore[no-untyped-call]
        return _TimedSocket(wrapped, self.socket_timeout)


class UnixConnection(redis.UnixDomainSocketConnection):
    """Over a unix socket."""

    def _connect(self) -> Any:
        connected = super()._connect()  # type: ignore[no-untyped-call]
        return _TimedSocket(connected, self.socket_timeout)


class _Aborting(async_connection.AbstractConnection):
    async def disconnect(self, *arguments: Any, **options: Any) -> None:
        """Let go of the socket at once.

        A server that does not read any more would otherwise keep it open: for what is still to be
        sent, and with TLS for its farewell.
        """
        if self._writer is not None:
            self._writer.transport.abort()
        await super().disconnect(*arguments, **options)


class AsyncConnection(_Aborting, async_connection.Connection):
    """Over TCP, on an event loop."""

    _place: tuple[str, int] = ("", 0)

    async def _connect(self) -> None:
        """Connect to the first of the host's addresses that lets us."""
        failure: OSError = LookUpError(f"unknown host {self.host!r}")
        limit = self.socket_connect_timeout
        for place in await alook_up(self.host, int(self.port), limit):
            self._place = place
            try:
                await super()._connect()  # type: ignore[no-untyped-call]
            except OSError as error:
                failure = error
            else:
                return
        raise failure

    def _connection_arguments(self) -> dict[str, Any]:
        host, port = self._place
        return {**super()._connection_arguments(), "host": host, "port": port}


class AsyncSSLConnection(async_connection.SSLConnection, AsyncConnection):
    """Over TLS, on an event loop."""

    def _connection_arguments(self) -> dict[str, Any]:
        # We connect to an address; the certificate is checked against the name.
        return {**super()._connection_arguments(), "server_hostname": self.host}


class AsyncUnixConnection(_Aborting, async_connection.UnixDomainSocketConnection):
    """Over a unix socket, on an event loop."""


SYNC_CLASSES: dict[str, Any] = {"tcp": Connection, "tls": SSLConnection, "unix": UnixConnection}
ASYNC_CLASSES: dict[str, Any] = {
    "tcp": AsyncConnection,
    "tls": AsyncSSLConnection,
    "unix": AsyncUnixConnection,
}
