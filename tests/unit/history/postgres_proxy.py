"""A proxy before PostgreSQL's unix socket that can stop answering, as a lost network does."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

SOCKET_NAME = ".s.PGSQL.5432"


class PostgresProxy:
    """Passes bytes on until it is frozen; then connections stay open and nothing is answered."""

    def __init__(self, target: str, directory: str) -> None:
        self.directory = directory
        self._target = str(Path(target) / SOCKET_NAME)
        self._thawed = threading.Event()
        self._thawed.set()
        self._closing = False
        self._sockets: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(Path(directory) / SOCKET_NAME))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def freeze(self) -> None:
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    def close(self) -> None:
        self._closing = True
        self.thaw()
        for opened in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._closing:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
                self._sockets += [client, server]
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._thawed.wait()
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def postgres_proxy(target: str) -> Iterator[PostgresProxy]:
    """Put a proxy before the server whose socket is in the folder ``target``."""
    with tempfile.TemporaryDirectory(prefix="kumiko-proxy-") as directory:
        proxy = PostgresProxy(target, directory)
        try:
            yield proxy
        finally:
            proxy.close()
