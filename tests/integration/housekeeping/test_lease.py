"""Leases in a real Redis: one owner at a time, whoever dies."""

from __future__ import annotations

import threading

import pytest
import redis
from pytest_django import Settings

from kumiko_django import BrokerUnavailable
from kumiko_django.broker.lease import Lease, housekeeping_key, read_note, write_note
from tests.helpers.processes import run_python
from tests.helpers.valkey import Valkey
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.once


def test_one_of_two_gets_it_and_keeps_it(raw_redis: redis.Redis) -> None:
    first, second = Lease("sweep", 30), Lease("sweep", 30)

    assert first.keep()
    assert not second.keep()
    raw_redis.pexpire(housekeeping_key("sweep"), 5_000)
    assert first.keep(), "its owner renews it"
    assert int(raw_redis.pttl(housekeeping_key("sweep"))) > 25_000


def test_leases_of_different_names_have_different_owners() -> None:
    assert Lease("sweep", 30).keep()
    assert Lease("mop", 30).keep()


def test_deployments_that_share_a_redis_do_not_share_leases(
    settings: Settings, queue_prefix: str
) -> None:
    """B032: another prefix is another world."""
    assert Lease("sweep", 30).keep()
    settings.KUMIKO = {**settings.KUMIKO, "QUEUE_PREFIX": f"{queue_prefix}-other"}
    assert Lease("sweep", 30).keep()


def test_only_its_owner_gives_it_back() -> None:
    first, second = Lease("sweep", 30), Lease("sweep", 30)
    assert first.keep()

    second.release()
    assert not second.keep()

    first.release()
    assert second.keep()


def test_one_that_has_run_out_is_neither_renewed_nor_released_by_its_old_owner() -> None:
    """A process that was frozen meanwhile must not end the lease of the next one."""
    old, new = Lease("sweep", 0.05), Lease("sweep", 30)
    assert old.keep()
    assert wait_until(new.keep, description="the lease has run out")

    assert not old.keep()
    old.release()
    assert new.keep()
    assert not Lease("sweep", 30).keep()


def test_many_that_want_it_at_once_get_one() -> None:
    barrier, got = threading.Barrier(8), list[bool]()

    def claim() -> None:
        lease = Lease("sweep", 30)
        barrier.wait()
        got.append(lease.keep())

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == [False] * 7 + [True]


def test_a_killed_owners_lease_ends() -> None:
    killed = run_python(
        "import django, os, signal; django.setup()\n"
        "from kumiko_django.broker.lease import Lease\n"
        "assert Lease('sweep', 1.0).keep()\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert killed.returncode == -9, killed.stderr

    assert wait_until(Lease("sweep", 30).keep, description="it has ended", timeout=5)


def test_a_redis_that_is_away_is_one_typed_error(own_valkey: Valkey) -> None:
    lease = Lease("sweep", 30)
    assert lease.keep()
    own_valkey.stop()

    for ask in (lease.keep, lease.release, lambda: read_note("n"), lambda: write_note("n", "", 9)):
        with pytest.raises(BrokerUnavailable):
            ask()


def test_a_note_is_read_by_all_until_its_time_is_over(raw_redis: redis.Redis) -> None:
    assert read_note("last") is None
    write_note("last", "2026-03-01", 60)
    assert read_note("last") == "2026-03-01"
    assert 0 < int(raw_redis.ttl(housekeeping_key("last"))) <= 60
