"""The doorway to the package: what it is relied upon for, told when it changes."""

from __future__ import annotations

import pytest
from bullmq.scripts import Scripts
from pytest_django import Settings

from kumiko_django import Backoff, BrokerUnavailable
from kumiko_django.broker import producer
from kumiko_django.broker.bullmq import PUT_BACK_SCRIPT, QueueScripts, queue_scripts, script_text
from kumiko_django.broker.door import Decision
from kumiko_django.broker.envelope import Envelope
from kumiko_django.broker.options import JobOptions
from kumiko_django.broker.producer import CHUNK_BYTES, CHUNK_JOBS, NewJob

pytestmark = pytest.mark.once

SCRIPTS = {
    "addStandardJob-9.lua": {},
    "addDelayedJob-6.lua": {"delay": 5},
    "addPrioritizedJob-9.lua": {"priority": 5},
}


@pytest.mark.parametrize("script", list(SCRIPTS))
def test_which_script_adds_which_job(script: str) -> None:
    """design 2: the package builds the arguments, and its own script runs."""
    call = QueueScripts("q", "bull").add("name", "{}", {"jobId": "a", **SCRIPTS[script]})
    assert call.script == script
    assert all(key.startswith("bull:q:") for key in call.keys)
    assert len(call.keys) == int(script.split("-")[1].removesuffix(".lua"))
    assert "redis.call" in script_text(script).replace("rcall", "redis.call")


def test_the_script_for_giving_back_is_shipped() -> None:
    """bullmq-python 2: no class of the package offers it."""
    assert "attemptsMade" not in PUT_BACK_SCRIPT
    assert len(script_text(PUT_BACK_SCRIPT)) > 100


def test_a_package_that_builds_calls_otherwise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """bullmq-python 4: "pin and test"; nothing is sent that was not understood."""
    monkeypatch.setattr(Scripts, "addStandardJob", lambda *arguments: ["EVALSHA"])
    with pytest.raises(TypeError, match="bullmq built list instead of a script call"):
        QueueScripts("q", "bull").add("name", "{}", {"jobId": "a"})


def test_a_package_that_puts_the_data_elsewhere_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """bullmq-python 4: the data is put where the package would write it, and nowhere else."""
    monkeypatch.setattr(Scripts, "addJobArgs", lambda *arguments: ["options", "arguments"])
    with pytest.raises(TypeError, match="changed where the data of a job stands"):
        QueueScripts("q", "bull").add("name", "{}", {"jobId": "a"})


def test_builders_are_shared() -> None:
    """design 9: the keys of a queue are built once."""
    assert queue_scripts("q") is queue_scripts("q")
    assert queue_scripts("q") is not queue_scripts("r")


def new_job(size: int = 0) -> NewJob:
    options = JobOptions(attempts=1, backoff=Backoff.fixed(1))
    return NewJob.of(
        Envelope({"text": "x" * size}),
        lane="worker",
        name="testapp:job:record",
        job_id="id-1",
        options=options,
        timestamp_ms=1,
    )


def test_a_negative_answer_is_no_id() -> None:
    """bullmq-python 1.16: the package takes -5 for the id of the job."""
    with pytest.raises(BrokerUnavailable, match=r"testapp:job:record \(id-1\): code -5"):
        producer._checked(-5, new_job())
    assert producer._checked("id-1", new_job()) == Decision("id-1")


def test_portions_are_limited_in_number_and_bytes() -> None:
    """bullmq-python 1.5: each has to be sent and answered within its time."""
    many = list(producer._chunks([new_job()] * (2 * CHUNK_JOBS + 1)))
    assert [len(chunk) for chunk in many] == [CHUNK_JOBS, CHUNK_JOBS, 1]
    large = list(producer._chunks([new_job(CHUNK_BYTES // 3)] * 7))
    assert [len(chunk) for chunk in large] == [2, 2, 2, 1]
    assert list(producer._chunks([])) == []


def test_one_that_is_larger_than_a_portion_goes_alone(settings: Settings) -> None:
    """user-needs 6: MAX_PAYLOAD_BYTES is the only limit of a single job."""
    settings.KUMIKO = {**settings.KUMIKO, "MAX_PAYLOAD_BYTES": 10 * CHUNK_BYTES}
    chunks = list(producer._chunks([new_job(), new_job(2 * CHUNK_BYTES), new_job()]))
    assert [len(chunk) for chunk in chunks] == [1, 1, 1]
