"""Servers that a dispatch must get away from: silent, slow, broken off, talking something else."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

Talk = Callable[[socket.socket, threading.Event], None]


@contextlib.contextmanager
def server(talk: Talk) -> Iterator[int]:
    """Serve each connection with ``talk`` in a thread; gives the port on 127.0.0.1.

    ``talk`` is given the connection and an event that is set when the test is over.
    """
    over = threading.Event()
    threads: list[threading.Thread] = []
    connections: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            talk(connection, over)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connections.append(connection)
            thread = threading.Thread(target=serve, args=(connection,))
            threads.append(thread)
            thread.start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor = threading.Thread(target=accept)
        acceptor.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            acceptor.join()
            for connection in connections:
                # Clients keep theirs open; who waits for them to go on must not wait for ever.
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


@contextlib.contextmanager
def silent() -> Iterator[int]:
    """A listening socket that nobody accepts from: connecting works, answers never come."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as listener:
        yield listener.getsockname()[1]


@contextlib.contextmanager
def full_backlog() -> Iterator[int]:
    """A listening socket whose backlog is full: the kernel drops every further connection."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        place = listener.getsockname()
        while True:
            filler = stack.enter_context(socket.socket())
            filler.settimeout(0.2)
            try:
                filler.connect(place)
            except TimeoutError:
                break
        yield place[1]


@contextlib.contextmanager
def refused() -> Iterator[int]:
    """A port that nobody listens on (bound, so that nobody else can)."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def breaks_off(connection: socket.socket, over: threading.Event) -> None:
    """Close in the middle of the first answer."""
    connection.recv(4096)
    connection.sendall(b"$100\r\nonly the beg")


def trickles(connection: socket.socket, over: threading.Event) -> None:
    """Send an answer that never ends, a byte at a time: each read makes progress."""
    connection.recv(4096)
    connection.sendall(b"+")
    while not over.wait(0.3):
        connection.sendall(b"x")


def answers_late(connection: socket.socket, over: threading.Event) -> None:
    """Answer everything with OK, each time after a second."""
    while connection.recv(65536) and not over.wait(1.0):
        connection.sendall(b"+OK\r\n")


def speaks_http(connection: socket.socket, over: threading.Event) -> None:
    """Answer as a web server does, and stay connected."""
    connection.recv(4096)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    over.wait()


def accepts_and_closes(connection: socket.socket, over: threading.Event) -> None:
    """Close every connection at once, as a proxy does whose backend is away."""


def reads_slowly(connection: socket.socket, over: threading.Event) -> None:
    """Answer the handshake, then take a byte now and then: large commands get stuck."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    while (received := connection.recv(4096)) and len(received) < 2048:
        connection.sendall(b"+OK\r\n" * received.count(b"CLIENT"))
    while not over.wait(0.1):
        connection.recv(1)
