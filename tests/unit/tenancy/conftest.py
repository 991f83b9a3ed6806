"""The rows that the tests of tenant models look at."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
from django.db import transaction
from pytest_django.plugin import DjangoDbBlocker

from tests.unit.tenancy.rows import Rows, make_rows


@pytest.fixture(scope="module")
def rows_of_module(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Rows]:
    """Make the rows once for a module, in a transaction around those of its tests."""
    with django_db_blocker.unblock(), transaction.atomic():
        yield make_rows()
        transaction.set_rollback(True)


@pytest.fixture
def rows(rows_of_module: Rows, db: None) -> Rows:
    """Give one row of each kind for each tenant. Not for tests whose transactions are real."""
    return copy.deepcopy(rows_of_module)
