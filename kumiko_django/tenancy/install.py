"""The three places of Django that this room holds on to.

Django has no hook for every query: a manager or a queryset class governs only what begins at its
own model, and a database engine would have to be named in every settings module. Every statement of
the ORM, though, is made by an ``SQLCompiler`` and every deletion that follows relations by a
``Collector``. They are held on to when the first tenant model is defined.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from django.db.models import Model, QuerySet
from django.db.models.deletion import Collector
from django.db.models.query import RawQuerySet
from django.db.models.sql.compiler import SQLCompiler

from kumiko_django.tenancy import statements
from kumiko_django.tenancy.access import column_value, current_access
from kumiko_django.tenancy.compilers import is_historical, with_rules
from kumiko_django.tenancy.marks import for_writing
from kumiko_django.tenancy.rules import column_of, mentioned, rule_of
from kumiko_django.types.ids import SYSTEM

_django_init = SQLCompiler.__init__
_django_collect = Collector.collect
_django_raw_init = RawQuerySet.__init__
_django_raw_iterator = RawQuerySet.iterator


def install() -> None:
    """Hold on to Django's compilers, raw querysets and collector. Doing it twice does nothing."""
    SQLCompiler.__init__ = _init  # type: ignore[method-assign]
    Collector.collect = _collect  # type: ignore[method-assign]
    RawQuerySet.__init__ = _raw_init  # type: ignore[method-assign]
    RawQuerySet.iterator = _raw_iterator  # type: ignore[method-assign]


def _init(self: SQLCompiler, *args: Any, **kwargs: Any) -> None:
    _django_init(self, *args, **kwargs)
    self.__class__ = with_rules(cast("Any", type(self)))


def _raw_init(self: Any, *args: Any, **kwargs: Any) -> None:
    _django_raw_init(self, *args, **kwargs)
    _refuse_raw(self)


def _raw_iterator(self: Any) -> Iterator[Any]:
    _refuse_raw(self)
    yield from _django_raw_iterator(self)


def _refuse_raw(queryset: Any) -> None:
    model, text = queryset.model, str(queryset.raw_query)
    if model is None or is_historical(model):
        return
    rule = rule_of(model) or mentioned(text)
    if rule is not None and not current_access(rule.model, "raw").lifted.unsafe_raw:
        raise statements.raw_refused(rule.model._meta.label, text)


def _collect(self: Any, objs: Any, source: Any = None, *args: Any, **kwargs: Any) -> Any:
    if source is None:  # not by way of a cascade
        objs = _only_own(objs)
    return _django_collect(self, objs, source, *args, **kwargs)


def _only_own(objs: Any) -> Any:
    """What of ``objs`` the scope may delete.

    Raises:
        ScopeError: An instance is another's, the queryset has no filter, or there is no scope.
    """
    if isinstance(objs, QuerySet) and objs._result_cache is None:
        rule = rule_of(objs.model)
        if rule is None or is_historical(objs.model):
            return objs
        statements.refuse_unfiltered(objs.query, rule, "delete")
        return for_writing(objs)
    for each in objs:
        refuse_foreign(each, "delete")
    return objs


def refuse_foreign(instance: Model, operation: Any) -> None:
    """Refuse to write an instance that was loaded as another tenant's row.

    Only its attribute is looked at; the statement has the condition in any case.

    Raises:
        ScopeError: It is another's, or there is no scope.
    """
    rule = rule_of(type(instance))
    if rule is None or is_historical(instance):
        return
    access = current_access(rule.model, operation)
    column = column_of(type(instance))
    if column is None or column.field.attname not in instance.__dict__:
        return
    value = instance.__dict__[column.field.attname]
    own = {column_value(column.field, access.tenant_id)}
    if access.lifted.global_writes:
        own.add(column_value(column.field, SYSTEM))
    if statements.plain(column, value) not in own:
        raise statements.foreign_row(rule.model, value, access, operation)
