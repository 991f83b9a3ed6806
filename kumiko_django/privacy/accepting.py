"""``@accepts_personal_data``: a view that may write personal data for anonymous requests."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from asgiref.sync import iscoroutinefunction

from kumiko_django.definitions.personal import check_reason
from kumiko_django.exceptions import DefinitionError
from kumiko_django.types import ambient

View = TypeVar("View", bound=Callable[..., Any])

_BY_NAME = 'Write @accepts_personal_data("why it must be so").'


def accepts_personal_data(reason: str) -> Callable[[View], View]:
    """Let a view write personal fields although nobody has logged in: a registration, say.

    For views, sync and async, and by ``method_decorator`` for methods of class-based ones. It holds
    until the view returns: not for the parts of a streamed answer, nor for jobs that the view
    dispatches, whose definitions say it for themselves.

    Args:
        reason: Why it must be so; one line, for whoever audits it.

    Raises:
        DefinitionError: There is no reason, or it is put on something that is no view.
    """
    if callable(reason):
        raise DefinitionError(f"@accepts_personal_data has no reason. {_BY_NAME}")
    said = check_reason(reason, "@accepts_personal_data", _BY_NAME)

    def decorate(view: View) -> View:
        if isinstance(view, type) or not callable(view):
            raise DefinitionError(
                f"@accepts_personal_data is for views that are functions, not {view!r}. On a "
                f'class write @method_decorator(accepts_personal_data("..."), name="dispatch").'
            )
        return cast("View", _wrapped(view, said))

    return decorate


def _wrapped(view: Callable[..., Any], reason: str) -> Callable[..., Any]:
    if iscoroutinefunction(view):

        @functools.wraps(view)
        async def of_async(*args: Any, **kwargs: Any) -> Any:
            with _accepting(reason):
                return await view(*args, **kwargs)

        return of_async

    @functools.wraps(view)
    def of_sync(*args: Any, **kwargs: Any) -> Any:
        with _accepting(reason):
            response = view(*args, **kwargs)
        # The dispatch of an asynchronous class-based view is no coroutine function, but gives one.
        return _awaited(response, reason) if inspect.isawaitable(response) else response

    return of_sync


async def _awaited(response: Awaitable[Any], reason: str) -> Any:
    with _accepting(reason):
        return await response


def _accepting(reason: str) -> Any:
    if ambient.handler.get() is not None:
        return ambient.entered({})  # in a job its definition alone says what it may
    return ambient.entered({ambient.accepts_personal_data: reason})
