"""TLS in front of a Valkey, since the embedded one is built without it."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Iterator

import trustme

from tests.integration.broker import servers

POLL_SECONDS = 0.05


class TlsProxy:
    """What a TLS-terminating proxy is to a test."""

    def __init__(self, port: int, frozen: threading.Event) -> None:
        self.port = port
        self.frozen = frozen
        """While it is set, nothing is passed on any more."""


class _Passing:
    """Serve one connection after the other with TLS, and pass what comes on in plain."""

    def __init__(self, target_port: int, context: ssl.SSLContext, frozen: threading.Event) -> None:
        self._target = ("127.0.0.1", target_port)
        self._context = context
        self._frozen = frozen

    def __call__(self, connection: socket.socket, over: threading.Event) -> None:
        connection.settimeout(5)
        with (
            self._context.wrap_socket(connection, server_side=True) as front,
            socket.create_connection(self._target) as behind,
        ):
            while not over.is_set():
                readable: list[socket.socket] = [front] if front.pending() else []
                if not readable:
                    readable, _, _ = select.select([front, behind], [], [], POLL_SECONDS)
                if self._frozen.is_set():
                    over.wait(POLL_SECONDS)
                    continue
                # One thread reads and writes: an SSL connection is not safe for two.
                for source in readable:
                    data = source.recv(65536)
                    if not data:
                        return
                    (behind if source is front else front).sendall(data)


@contextlib.contextmanager
def tls_proxy(
    target_port: int, certificate: trustme.LeafCert, client_ca: trustme.CA | None = None
) -> Iterator[TlsProxy]:
    """Take TLS connections on a port of 127.0.0.1 and pass them on to ``target_port`` in plain.

    Args:
        target_port: Where the Valkey listens.
        certificate: What the proxy shows.
        client_ca: Who must have signed the certificate that a client has to show.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    if client_ca is not None:
        client_ca.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    frozen = threading.Event()
    with servers.server(_Passing(target_port, context, frozen)) as port:
        yield TlsProxy(port, frozen)
