"""What becomes of an exception: its text, its trace, its group, and whether another try follows."""

from __future__ import annotations

import time
from typing import Any

import pytest
from pytest_django import Settings

from kumiko_django import Backoff, Unrecoverable
from kumiko_django.run.failure import (
    MAX_ERROR_CHARS,
    MAX_TRACEBACK_CHARS,
    Refused,
    describe,
    failed,
)
from tests.unit.run.deliveries import delivery


def caught(error: BaseException) -> BaseException:
    try:
        raise error  # noqa: TRY301
    except BaseException as raised:  # noqa: BLE001
        return raised


class BrokenText(Exception):
    """Its text cannot be had."""

    def __init__(self, instead: BaseException) -> None:
        self.instead = instead

    def __str__(self) -> str:
        raise self.instead


def fails_here() -> None:
    raise ValueError("here")


def fails_there(text: str = "there") -> None:
    raise ValueError(text)


def outcome_of(function: Any, *args: Any) -> Any:
    try:
        function(*args)
    except ValueError as error:
        return failed(error, delivery())
    raise AssertionError("it did not fail")


def test_the_final_flag_goes_by_the_attempts_stored_with_the_job() -> None:
    """B084, B085, P27."""
    for attempt, stored, final in [
        (1, 1, True),
        (1, 3, False),
        (2, 3, False),
        (3, 3, True),
        (4, 3, True),
    ]:
        outcome = failed(ValueError("x"), delivery(attempt=attempt, max_attempts=stored))
        assert outcome.final is final, (attempt, stored)
        assert (outcome.retry_ms == 0) is final


def test_an_unrecoverable_error_is_final_whatever_attempts_remain() -> None:
    """B086, P29."""

    class OurOwn(Unrecoverable):
        pass

    for error in (Unrecoverable("no"), OurOwn("no"), Refused("no")):
        retryable = not isinstance(error, Refused)
        outcome = failed(error, delivery(max_attempts=9), retryable=retryable)
        assert (outcome.final, outcome.retry_ms) == (True, 0)


def test_pauses_follow_the_stored_backoff_else_the_definition() -> None:
    """B080, P27, P36, bullmq-python 1.13."""
    stored = {"type": "exponential", "delay": 100, "maxDelay": 300}
    pauses = [
        failed(ValueError(), delivery(attempt=n, max_attempts=9, backoff=stored)).retry_ms
        for n in (1, 2, 3, 4)
    ]
    assert pauses == [100, 200, 300, 300]
    defined = Backoff.fixed(7)
    assert failed(ValueError(), delivery(max_attempts=2), defined).retry_ms == 7000
    odd = delivery(max_attempts=2, backoff={"type": "fibonacci", "delay": 1})
    assert failed(ValueError(), odd, defined).retry_ms == 7000
    assert failed(ValueError(), delivery(max_attempts=2)).retry_ms == 1000


def test_secrets_do_not_appear(settings: Settings) -> None:
    """P38: neither in the message nor in the traceback."""
    settings.SECRET_KEY = "the-secret-key-of-django"
    settings.KUMIKO = {**settings.KUMIKO, "REDIS_URL": "redis://:redis-pass-word@host:1/0"}
    text = (
        "cannot reach redis://user:pw123456@host, password=hunter22, "
        "key the-secret-key-of-django, and redis-pass-word, Bearer abcdefgh1234"
    )
    try:
        raise RuntimeError(text) from KeyError("api_key=abc123")  # noqa: TRY301
    except RuntimeError as error:
        outcome = failed(error, delivery())
    for secret in (
        "pw123456",
        "hunter22",
        "the-secret-key",
        "redis-pass-word",
        "abc123",
        "abcdefgh",
    ):
        assert secret not in outcome.error + outcome.traceback, secret
    assert outcome.error.startswith("RuntimeError: cannot reach redis://user:***@host")


def test_texts_are_cut_and_say_so() -> None:
    """P38: the start of a message, the end of a traceback."""
    outcome = failed(caught(ValueError("x" * 50_000)), delivery())
    assert MAX_ERROR_CHARS - 5 < len(outcome.error) <= MAX_ERROR_CHARS
    assert outcome.error.endswith("[48035 characters cut]")
    assert MAX_TRACEBACK_CHARS - 5 < len(outcome.traceback) <= MAX_TRACEBACK_CHARS
    assert outcome.traceback.startswith("[")


def test_megabytes_of_text_do_not_hold_up_the_event_loop() -> None:
    """A driver that quotes a whole document in its error must not stop every other run."""
    error = caught(ValueError("token of a b c " * 2_000_000 + "password=hunter22"))
    began = time.process_time()  # what it costs, however busy the machine is
    outcome = failed(error, delivery())
    assert time.process_time() - began < 1
    assert len(outcome.error) <= MAX_ERROR_CHARS
    assert "hunter22" not in outcome.traceback


def test_many_secrets_leave_a_short_text_and_no_tail() -> None:
    """What was not looked through is not shown, however much of the rest was masked."""
    outcome = failed(
        caught(ValueError("password=" + "x" * 30_000 + " password=hunter22")), delivery()
    )
    assert "hunter22" not in outcome.error
    assert outcome.error == "ValueError: password=***"


@pytest.mark.parametrize("instead", [ValueError("no text"), SystemExit(1), KeyboardInterrupt()])
def test_an_error_whose_text_cannot_be_had_is_still_a_failure(instead: BaseException) -> None:
    outcome = failed(caught(BrokenText(instead)), delivery())
    assert outcome.error == "BrokenText: (its text cannot be shown)"
    assert "BrokenText" in outcome.traceback


def test_the_trace_begins_in_the_handler() -> None:
    outcome = outcome_of(fails_here)
    assert "fails_here" in outcome.traceback
    assert "kumiko_django/run/" not in outcome.traceback
    assert describe(ValueError()) == "ValueError"
    assert describe(Refused("as it is")) == "as it is"
    assert failed(Refused("no trace"), delivery()).traceback == ""


def test_groups_of_exceptions_and_causes_are_shown() -> None:
    group = ExceptionGroup("several", [ValueError("one"), KeyError("two")])
    outcome = failed(caught(group), delivery())
    assert "several (2 sub-exceptions)" in outcome.error
    assert "ValueError: one" in outcome.traceback


def test_the_fingerprint_groups_by_kind_place_and_job() -> None:
    """The same fault with another text is the same group."""
    same = {outcome_of(fails_there, text).fingerprint for text in ("one", "two")}
    assert len(same) == 1
    assert outcome_of(fails_here).fingerprint not in same
    error = caught(ValueError())
    assert (
        failed(error, delivery()).fingerprint
        != failed(error, delivery(job_name="testapp:job:other")).fingerprint
    )


def test_a_path_that_is_no_utf_8_hides_no_failure() -> None:
    """bullmq-python 1.11: an error here would leave the failed job unsettled."""
    scope: dict[str, Any] = {}
    exec(compile("def fails(): raise ValueError('x')", "/srv/jobs\udce9.py", "exec"), scope)  # noqa: S102
    outcome = outcome_of(scope["fails"])
    assert outcome.error == "ValueError: x"
    assert len(outcome.fingerprint) == 40
