"""Calls from threads to the loop: many for one waking, in their order (design 9)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kumiko_django.run.mailbox import Mailbox

pytestmark = pytest.mark.once


class CountingLoop(asyncio.SelectorEventLoop):
    """Python's own loop, which counts how often other threads wake it."""

    def __init__(self) -> None:
        super().__init__()
        self.woken = 0

    def call_soon_threadsafe(  # type: ignore[override]  # (passes everything on)
        self, *args: Any, **options: Any
    ) -> asyncio.Handle:
        self.woken += 1
        return super().call_soon_threadsafe(*args, **options)


def run(main: Callable[[CountingLoop, Mailbox], Any]) -> Any:
    async def made() -> Any:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, CountingLoop)
        return await main(loop, Mailbox(loop))

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        return runner.run(made())


def test_what_is_posted_while_the_loop_is_busy_wakes_it_once() -> None:
    """A waking is a system call, and more than most of what is handed over costs."""

    async def main(loop: CountingLoop, mailbox: Mailbox) -> tuple[list[int], int]:
        seen: list[int] = []
        before = loop.woken

        def post() -> None:
            for number in range(1000):
                mailbox.post(partial(seen.append, number))

        thread = threading.Thread(target=post)
        thread.start()
        thread.join()  # the loop is held up meanwhile
        assert seen == [], "called on the loop, not in the thread"
        await asyncio.sleep(0.01)
        return seen, loop.woken - before

    assert run(main) == (list(range(1000)), 1)


def test_each_thread_keeps_its_order_and_nothing_is_left_lying() -> None:
    """Also what is posted in the very moment when the mailbox is emptied."""
    threads, each = 4, 2000

    async def main(loop: CountingLoop, mailbox: Mailbox) -> list[tuple[int, int]]:
        seen: list[tuple[int, int]] = []
        over = asyncio.Event()

        def note(sender: int, number: int) -> None:
            seen.append((sender, number))
            if len(seen) == threads * each:
                over.set()

        def post(sender: int) -> None:
            for number in range(each):
                mailbox.post(partial(note, sender, number))

        started = [threading.Thread(target=post, args=(sender,)) for sender in range(threads)]
        for thread in started:
            thread.start()
        await asyncio.wait_for(over.wait(), 10)
        for thread in started:
            thread.join()
        return seen

    seen = run(main)
    for sender in range(threads):
        assert [number for who, number in seen if who == sender] == list(range(each))


def test_a_call_may_post_another() -> None:
    async def main(loop: CountingLoop, mailbox: Mailbox) -> list[str]:
        seen: list[str] = []

        def first() -> None:
            seen.append("first")
            mailbox.post(partial(seen.append, "second"))

        mailbox.post(first)
        await asyncio.sleep(0.01)
        mailbox.post(partial(seen.append, "third"))
        await asyncio.sleep(0.01)
        return seen

    assert run(main) == ["first", "second", "third"]


def test_one_that_raises_holds_up_none_of_those_behind_it() -> None:
    """bullmq-python 1.18: else they would lie there until somebody posts again, which may be
    never: a run that has ended, a record that is written."""

    async def main(loop: CountingLoop, mailbox: Mailbox) -> tuple[list[int], list[str]]:
        seen: list[int] = []
        told: list[str] = []
        loop.set_exception_handler(lambda _, context: told.append(repr(context["exception"])))

        def breaks() -> None:
            raise ZeroDivisionError

        for number in range(3):
            mailbox.post(breaks)
            mailbox.post(partial(seen.append, number))
        await asyncio.sleep(0.01)
        return seen, told

    assert run(main) == ([0, 1, 2], ["ZeroDivisionError()"] * 3)


def test_posting_to_a_loop_that_is_closed_does_nothing() -> None:
    """A handler that hangs may end after its worker's loop: its thread must not trip over that."""
    kept: list[Mailbox] = []
    seen: list[int] = []

    async def main(loop: CountingLoop, mailbox: Mailbox) -> None:
        kept.append(mailbox)

    run(main)
    for number in range(3):
        kept[0].post(partial(seen.append, number))
    assert seen == []
