"""A proxy before Redis that loses one reply, and the connection with it, after the server has done
what was asked for: the client cannot know whether it was."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

UNKNOWN_SCRIPT = b"-NOSCRIPT"


class _Connection:
    """One client's connection, and the one to the server that belongs to it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.loses_reply = False

    def close(self) -> None:
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class LosingProxy:
    """Passes bytes on. The reply to the next request that contains certain texts is lost."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._guard = threading.Lock()
        self._wanted: tuple[bytes, ...] = ()
        self._then_cut = self._is_cut = False
        self._connections: list[_Connection] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.lost = threading.Event()
        """Set when the reply has been lost."""
        threading.Thread(target=self._accept, name="losing-proxy", daemon=True).start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"

    def lose_reply_to(self, *texts: str, then_cut: bool = False) -> None:
        """Lose the reply to the next request that contains all these texts.

        Args:
            texts: What the request contains.
            then_cut: Cut all connections then, and refuse new ones until :meth:`restore`.
        """
        with self._guard:
            self._wanted = tuple(text.encode() for text in texts)
            self._then_cut = then_cut

    def restore(self) -> None:
        """Let clients through again."""
        self._is_cut = False

    def close(self) -> None:
        for opened in self._connections:
            opened.close()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._is_cut:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._server_port))
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                opened = _Connection(client, server)
                self._connections.append(opened)
                for copy in (self._requests, self._replies):
                    threading.Thread(target=copy, args=(opened,), daemon=True).start()

    def _requests(self, opened: _Connection) -> None:
        with contextlib.suppress(OSError):
            while data := opened.client.recv(1 << 20):
                with self._guard:
                    if self._wanted and all(text in data for text in self._wanted):
                        opened.loses_reply = True
                opened.server.sendall(data)
        if not opened.loses_reply:
            opened.close()

    def _replies(self, opened: _Connection) -> None:
        with contextlib.suppress(OSError):
            while data := opened.server.recv(1 << 20):
                if opened.loses_reply and UNKNOWN_SCRIPT not in data:
                    self._lose(opened)
                elif opened.client.fileno() >= 0:
                    opened.loses_reply = False
                    opened.client.sendall(data)
        opened.close()

    def _lose(self, opened: _Connection) -> None:
        """Cut the client off. The server is heard to its end, so that it does all it was asked."""
        with self._guard:
            self._wanted = ()
        self._is_cut = self._then_cut
        for each in self._connections if self._is_cut else [opened]:
            with contextlib.suppress(OSError):
                each.client.shutdown(socket.SHUT_RDWR)
        self.lost.set()


@contextlib.contextmanager
def losing_proxy(server_port: int) -> Iterator[LosingProxy]:
    """Put a proxy before the Redis on this port of 127.0.0.1."""
    proxy = LosingProxy(server_port)
    try:
        yield proxy
    finally:
        proxy.close()
