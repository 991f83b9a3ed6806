"""Scopes of threads and tasks do not touch one another (P106, user-needs 23)."""

from __future__ import annotations

import asyncio
import contextvars
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from asgiref.sync import async_to_sync, sync_to_async

from kumiko_django import ScopeError, current_tenant_id, tenant_scope
from kumiko_django.types import ambient
from tests.helpers.waiting import await_until

pytestmark = pytest.mark.once

TENANTS = ("acme", "globex")


async def test_two_tenants_times_a_hundred_tasks() -> None:
    """P106."""
    rng = random.Random(1)

    async def work(tenant: str, steps: list[float]) -> bool:
        async with tenant_scope(tenant):
            for step in steps:
                await asyncio.sleep(step)
                if current_tenant_id() != tenant:
                    return False
                other, same = await asyncio.gather(nested(), sync_to_async(current_tenant_id)())
                if (other, same) != ("other", tenant):
                    return False
        return current_tenant_id() is None

    async def nested() -> str | None:
        with tenant_scope("other"):
            await asyncio.sleep(0)
            return current_tenant_id()

    tasks = [
        work(tenant, [rng.random() / 200 for _ in range(5)])
        for tenant in TENANTS
        for _ in range(100)
    ]

    assert all(await asyncio.gather(*tasks))
    assert current_tenant_id() is None


def test_two_tenants_times_a_hundred_units_in_threads() -> None:
    """P106."""

    def work(number: int) -> bool:
        tenant = TENANTS[number % 2]
        if current_tenant_id() is not None:
            return False
        with tenant_scope(tenant):
            for _ in range(50):
                if current_tenant_id() != tenant:
                    return False
                with tenant_scope(f"{number}"):
                    if current_tenant_id() != f"{number}":
                        return False
        return current_tenant_id() is None

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(200)))


async def test_one_block_may_be_entered_by_many_tasks_at_once() -> None:
    """The block kept its tokens in a list, and one task took another's: ``ValueError``."""
    block = tenant_scope("acme")
    release = asyncio.Event()
    entered = 0

    async def work(delay: float) -> str | None:
        nonlocal entered
        async with block:
            entered += 1
            await release.wait()
            await asyncio.sleep(delay)
            inside = current_tenant_id()
        assert current_tenant_id() is None
        return inside

    rng = random.Random(2)
    tasks = [asyncio.create_task(work(rng.random() / 50)) for _ in range(50)]
    await await_until(lambda: entered == len(tasks), description="all are inside")
    release.set()

    assert set(await asyncio.gather(*tasks)) == {"acme"}


def test_one_block_may_be_entered_by_many_threads_at_once() -> None:
    block, barrier = tenant_scope("acme"), threading.Barrier(8)

    def work(number: int) -> bool:
        for _ in range(50):
            barrier.wait()
            with block:
                barrier.wait()
                if current_tenant_id() != "acme":
                    return False
            if current_tenant_id() is not None:
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


async def test_one_decorated_function_may_run_many_times_at_once() -> None:
    gate = asyncio.Barrier(20)

    @tenant_scope("acme")
    async def work() -> str | None:
        async with gate:
            return current_tenant_id()

    assert set(await asyncio.gather(*(work() for _ in range(20)))) == {"acme"}
    assert current_tenant_id() is None


async def test_a_task_inherits_the_scope_and_keeps_it() -> None:
    """As any ContextVar: what is started inside belongs to the tenant, also after the block."""
    done = asyncio.Event()

    async def later() -> str | None:
        await done.wait()
        return current_tenant_id()

    with tenant_scope("acme"):
        task = asyncio.create_task(later())
    done.set()

    assert await task == "acme"
    assert current_tenant_id() is None


async def test_a_task_that_is_cancelled_inside_leaves_nothing_behind() -> None:
    inside = asyncio.Event()
    left: list[str | None] = []

    async def work() -> None:
        try:
            async with tenant_scope("acme"):
                inside.set()
                await asyncio.Event().wait()
        finally:
            left.append(current_tenant_id())

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert left == [None]


def test_a_new_thread_starts_outside_of_every_scope() -> None:
    seen: list[str | None] = []

    with tenant_scope("acme"):
        thread = threading.Thread(target=lambda: seen.append(current_tenant_id()))
        thread.start()
        thread.join()

    assert seen == [None]


async def test_the_scope_follows_asgiref_into_threads_and_back() -> None:
    async def on_the_loop() -> str | None:
        return current_tenant_id()

    def in_thread() -> tuple[str | None, str | None]:
        return current_tenant_id(), async_to_sync(on_the_loop)()

    with tenant_scope("acme"):
        assert await sync_to_async(in_thread)() == ("acme", "acme")
    assert await sync_to_async(in_thread)() == (None, None)


async def test_a_block_that_was_entered_in_an_asgiref_thread_can_be_left_outside_of_it() -> None:
    """Old-style middleware does so. A token of the ContextVar would be void in another context."""
    block = tenant_scope("acme")

    await sync_to_async(block.__enter__)()
    assert current_tenant_id() == "acme"
    await sync_to_async(block.__exit__)(None, None, None)

    assert current_tenant_id() is None


def test_a_block_cannot_be_left_in_a_context_that_has_not_entered_it() -> None:
    block = tenant_scope("acme")
    elsewhere = contextvars.copy_context()

    with block:
        with pytest.raises(ScopeError, match="in another order, task or thread"):
            elsewhere.run(block.__exit__, None, None, None)
        assert current_tenant_id() == "acme"
    assert elsewhere.run(current_tenant_id) is None


def test_a_run_that_ends_inside_a_block_leaves_no_scope_behind() -> None:
    """``ambient.entered`` puts the scope back, whatever the handler has left open."""
    block = tenant_scope("globex")

    def run() -> str | None:
        with ambient.entered({ambient.scope: ambient.Scope("acme", "tenant")}):
            block.__enter__()
        with tenant_scope("initech"):
            assert current_tenant_id() == "initech"
        return current_tenant_id()

    assert contextvars.copy_context().run(run) is None
    assert current_tenant_id() is None
