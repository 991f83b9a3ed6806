"""Looking hosts up: one look-up for all who wait, and an answer whatever happens."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kumiko_django.broker.transport import LookUpError, LookUpTimeout, look_up, time_limit

pytestmark = pytest.mark.once

GOOD = [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", 7))]


def test_an_address_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """user-needs 5: no thread for what needs no resolver."""
    before = threading.active_count()
    for host in ("127.0.0.1", "::1"):
        assert look_up(host, 7, 1)[0][4][:2] == (host, 7)
    assert threading.active_count() == before


def test_who_asks_for_the_same_host_shares_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """user-needs 5: a hundred requests a second must not become as many hanging threads."""
    asked: list[str] = []
    release = threading.Event()

    def resolver(host: str, *arguments: Any, **options: Any) -> Any:
        asked.append(host)
        release.wait(10)
        return GOOD

    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    with ThreadPoolExecutor(8) as threads:
        waiting = [threads.submit(look_up, "a.invalid", 7, 10) for _ in range(8)]
        with pytest.raises(LookUpTimeout, match=r"'a\.invalid' took too long"):
            look_up("a.invalid", 7, 0.05)
        release.set()
        assert [future.result(10) for future in waiting] == [GOOD] * 8
    assert asked == ["a.invalid"]
    assert look_up("a.invalid", 7, 10) == GOOD
    assert asked == ["a.invalid"] * 2, "what is over is not remembered"


@pytest.mark.parametrize(
    "error",
    [
        socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
        OSError("strange"),
        UnicodeError("label too long"),
        ValueError("embedded null byte"),
    ],
)
def test_every_failure_is_an_answer(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """user-needs 5: also one that no resolver should give; and it does not stick."""

    def resolver(*arguments: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    with pytest.raises(LookUpError, match=r"unknown host 'b\.invalid': \w+"):
        look_up("b.invalid", 7, 5)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: GOOD)
    assert look_up("b.invalid", 7, 5) == GOOD


def test_a_host_without_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: [])
    with pytest.raises(LookUpError, match=r"'c\.invalid': no address"):
        look_up("c.invalid", 7, 5)


def test_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """user-needs 5: a process at its limit, or at its end, gets an error that is handled."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(LookUpError, match="can't start new thread"):
            look_up("d.invalid", 7, 5)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: GOOD)
    assert look_up("d.invalid", 7, 5) == GOOD


def test_the_whole_limit_counts_for_the_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Must hold: what is left in all is less than what a look-up may take."""
    release = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **o: release.wait(10) and GOOD)
    with time_limit(0.05), pytest.raises(LookUpTimeout):
        look_up("e.invalid", 7, 5)
    release.set()
    assert look_up("e.invalid", 7, 5) == GOOD
