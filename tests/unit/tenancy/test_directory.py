"""Which tenants are active, and how long an answer is believed (B224, P47)."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from kumiko_django import ScopeError
from kumiko_django.tenancy.directory import FRESH_SECONDS, Directory, active_tenants

pytestmark = pytest.mark.once


class Tenants:
    """A ``TENANTS`` that counts how often it is asked, and takes its time by the test's clock."""

    def __init__(self, *tenants: object) -> None:
        self.tenants: list[object] = list(tenants)
        self.asked = 0
        self.now = 1000.0
        self.takes = 0.0

    def __call__(self) -> list[object]:
        self.asked += 1
        self.now += self.takes
        return list(self.tenants)

    def clock(self) -> float:
        return self.now


@pytest.fixture
def tenants(settings: Settings) -> Tenants:
    """Two tenants in ``KUMIKO``."""
    given = Tenants("acme", "globex")
    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": given}
    return given


def test_they_are_asked_for_at_every_call_and_come_in_order_and_once(tenants: Tenants) -> None:
    """B224, B064: no cache; ids of any kind become text."""
    tenants.tenants = [3, "b", "3", "a", "b"]
    assert active_tenants() == ["3", "b", "a"]
    assert active_tenants() == ["3", "b", "a"]
    assert tenants.asked == 2


@pytest.mark.parametrize("bad", ["", " acme", "a\nb", "x" * 129])
def test_an_unusable_id_is_an_error(tenants: Tenants, bad: str) -> None:
    tenants.tenants = ["acme", bad]
    with pytest.raises(ScopeError, match="tenant id"):
        active_tenants()


def test_thousands_of_runs_ask_once(tenants: Tenants) -> None:
    directory = Directory(tenants.clock)
    assert directory.known("acme", since=900) is None, "nobody has been asked"
    assert all(directory.is_active("acme", since=900 + n / 100) for n in range(5000))
    assert directory.known("globex", since=900) is True
    assert tenants.asked == 1


def test_an_answer_is_believed_for_a_second(tenants: Tenants) -> None:
    """P47: a tenant that has been closed is one a moment later."""
    directory = Directory(tenants.clock)
    assert directory.is_active("acme", since=900)
    tenants.tenants = ["globex"]
    tenants.now += FRESH_SECONDS * 0.9
    assert directory.is_active("acme", since=900)
    tenants.now += FRESH_SECONDS * 0.2
    assert directory.known("acme", since=900) is None
    assert not directory.is_active("acme", since=900)
    assert tenants.asked == 2


def test_that_a_tenant_is_not_active_is_only_believed_of_a_younger_answer(
    tenants: Tenants,
) -> None:
    """A tenant that was added, and its job, after the answer: it is not skipped for that."""
    directory = Directory(tenants.clock)
    assert not directory.is_active("initech", since=900)
    assert not directory.is_active("initech", since=900)
    assert tenants.asked == 1
    tenants.tenants.append("initech")
    tenants.now += FRESH_SECONDS / 2
    assert directory.is_active("initech", since=tenants.now - 0.1)
    assert tenants.asked == 2


def test_an_answer_that_takes_long_is_believed_for_longer(tenants: Tenants) -> None:
    directory = Directory(tenants.clock)
    tenants.takes = 2.0
    assert directory.is_active("acme", since=900)
    tenants.now += 30
    assert directory.is_active("acme", since=900)
    assert tenants.asked == 1
    tenants.now += 15
    assert directory.is_active("acme", since=900)
    assert tenants.asked == 2


def test_another_source_or_a_clock_that_was_set_back_are_asked_again(
    tenants: Tenants, settings: Settings
) -> None:
    directory = Directory(tenants.clock)
    directory.is_active("acme", since=900)
    tenants.now -= 500
    assert directory.known("acme", since=900) is None
    assert directory.is_active("acme", since=900)
    settings.KUMIKO = {**settings.KUMIKO, "TENANTS": lambda: ["other"]}
    assert directory.known("acme", since=900) is None
    assert not directory.is_active("acme", since=100)


def test_what_the_tenants_raise_is_raised(tenants: Tenants) -> None:
    """And nothing of it is remembered."""
    directory = Directory(tenants.clock)
    tenants.tenants = [""]
    with pytest.raises(ScopeError):
        directory.is_active("acme", since=900)
    tenants.tenants = ["acme"]
    assert directory.is_active("acme", since=900)
