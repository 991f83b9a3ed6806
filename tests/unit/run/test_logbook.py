"""``ctx.log``: every line in order, never a reason to fail (B176-B179, P81)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kumiko_django.history.events import LogLine
from kumiko_django.run.context import Notes
from kumiko_django.run.logbook import MAX_DATA_CHARS, MAX_LINES, MAX_MESSAGE_CHARS, Logbook, RunLog


@pytest.fixture
def handed_over() -> list[LogLine]:
    return []


@pytest.fixture
def book(handed_over: list[LogLine]) -> Logbook:
    return Logbook(handed_over.append)


@pytest.fixture
def log(book: Logbook) -> RunLog:
    return RunLog(book)


class Hostile:
    """An object that does not want to be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


class HostileMapping(Mapping[str, Any]):
    """A mapping that does not want to be read."""

    def __getitem__(self, key: str) -> Any:
        raise RuntimeError("no")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no")

    def __len__(self) -> int:
        return 1


class HostileText(str):
    """A text that does not want to be copied."""

    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("message", "args", "text"),
    [
        ("%s of %d", ("a", 3), "a of 3"),
        ("%(n)d rows", ({"n": 3},), "3 rows"),
        ("100 %", (), "100 %"),
        ("100 % done", ("x",), "100 % done x"),
        ("none", (1, [2]), "none 1 [2]"),
        ("%s", (Hostile(),), "%s <"),
        ("%(n)d", (HostileMapping(),), "%(n)d <"),
    ],
)
def test_arguments_fill_the_message(
    message: str, args: tuple[Any, ...], text: str, log: RunLog, handed_over: list[LogLine]
) -> None:
    """A habit from ``logging``; P81: what does not fit fails nothing."""
    log.child(a=1).info(message, *args, b=2)
    log.debug(message, *args)
    (line,) = handed_over
    # What an object without words is called has its address.
    assert line.message == text if text[-1] != "<" else line.message.startswith(text)
    assert line.data == {"a": 1, "b": 2}


def test_levels_in_order_and_debug_not_kept(log: RunLog, handed_over: list[LogLine]) -> None:
    """B176: four calls, three entries."""
    log.info("one", n=1)
    log.debug("unseen", n=2)
    log.warn("two")  # noqa: G010 - not the logger of the standard library
    log.warning("three")
    log.error("four")
    assert [(entry.number, entry.level, entry.message) for entry in handed_over] == [
        (1, "info", "one"),
        (2, "warn", "two"),
        (3, "warn", "three"),
        (4, "error", "four"),
    ]
    assert handed_over[0].data == {"n": 1}
    assert handed_over[0].text == 'one {"n": 1}'
    assert handed_over[1].text == "two"
    assert [entry.created_at for entry in handed_over] == sorted(e.created_at for e in handed_over)


def test_children_add_context_and_write_to_the_same_log(
    log: RunLog, handed_over: list[LogLine]
) -> None:
    """B177, B178: data of the call wins over the child's, the child's over its parent's."""
    child = log.child(a=1, b=1)
    child.child(b=2, c=2).info("deep", c=3)
    child.info("flat")
    log.info("top")
    assert [entry.data for entry in handed_over] == [
        {"a": 1, "b": 2, "c": 3},
        {"a": 1, "b": 1},
        {},
    ]


def test_data_may_have_any_name(log: RunLog, handed_over: list[LogLine]) -> None:
    """A payload's keys are logged as they are; none of them may break the call."""
    data = {"message": "m", "self": "s", "level": "l", "data": "d"}
    log.info("line", **data)
    log.child(**data).error("line")
    assert [entry.data for entry in handed_over] == [data, data]


@pytest.mark.parametrize(
    "value",
    [
        Hostile(),
        HostileMapping(),
        HostileText("x"),
        {"deep": Hostile()},
        [HostileMapping()],
        10**5000,
    ],
    ids=["object", "mapping", "text", "inside", "in a list", "number"],
)
def test_hostile_values_are_named_and_break_nothing(
    value: Any, log: RunLog, handed_over: list[LogLine]
) -> None:
    """P81: a logger never raises, and what is beside the hostile value stays."""
    log.info("line", good=1, bad=value)
    log.info(value)
    first, second = handed_over
    assert first.data["good"] == 1
    assert first.data["bad"]
    assert first.text.startswith("line {")
    assert isinstance(second.message, str)


def test_long_lines_are_cut(log: RunLog, handed_over: list[LogLine]) -> None:
    log.info("m" * 10_000, text="d" * 20_000)
    (entry,) = handed_over
    assert MAX_MESSAGE_CHARS - 5 < len(entry.message) <= MAX_MESSAGE_CHARS
    assert set(entry.data) == {"data"}
    assert MAX_DATA_CHARS - 5 < len(str(entry.data["data"])) <= MAX_DATA_CHARS


def test_beyond_the_limit_one_notice_stands_and_the_error_still_comes(
    book: Logbook, log: RunLog, handed_over: list[LogLine]
) -> None:
    """B179, P81: the error that ended the run is the last line, whatever the limit."""
    for number in range(MAX_LINES + 50):
        log.info("line", n=number)
    book.close("it failed")
    log.info("too late")
    book.close("again")
    assert len(handed_over) == MAX_LINES + 2
    assert handed_over[MAX_LINES - 1].data == {"n": MAX_LINES - 1}
    assert handed_over[-2].message == f"The log ends here: it has {MAX_LINES} lines."
    assert (handed_over[-1].level, handed_over[-1].message) == ("error", "it failed")
    assert book.lines == tuple(handed_over)


def test_lines_from_several_threads_have_one_order(log: RunLog, handed_over: list[LogLine]) -> None:
    def write() -> None:
        for _ in range(100):
            log.info("line")

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [entry.number for entry in handed_over] == list(range(1, 401))


def test_progress_of_hostile_values_breaks_nothing() -> None:
    reported: list[Any] = []
    notes = Notes(reported.append)
    notes.set_progress({"done": 1, "message": Hostile()})
    notes.set_progress({"done": 10**5000})
    assert reported[0]["done"] == 1
    assert len(reported) == 2
    assert notes.progress == reported[1]
