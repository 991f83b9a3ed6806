"""Writes through the asynchronous ORM."""

from __future__ import annotations

import pytest

from kumiko_django import ScopeError, tenant_scope
from tests.app.models import Task
from tests.unit.tenancy.rows import ACME, GLOBEX


async def test_async_writes_have_the_same_rules(transactional_db: None) -> None:
    with pytest.raises(ScopeError, match="outside of any scope"):
        await Task.objects.acreate(code="a")
    async with tenant_scope(ACME):
        task = await Task.objects.acreate(code="a")
        task.weight = 3
        await task.asave()
        assert task.tenant_id == ACME
        assert [t.weight async for t in Task.objects.all()] == [3]
    async with tenant_scope(GLOBEX):
        with pytest.raises(ScopeError, match="be changed"):
            await task.asave()
        with pytest.raises(ScopeError, match="be deleted"):
            await task.adelete()
        assert await Task.objects.filter(pk=task.pk).aupdate(weight=1) == 0
    async with tenant_scope(ACME):
        assert (await task.adelete())[0] == 1
