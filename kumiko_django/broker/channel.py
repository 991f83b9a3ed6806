"""Script calls of one event loop, sent together.

What is asked for in one turn of the loop goes to Redis in one exchange: a round trip for each call
is what a worker would spend its time on (bullmq-python 5).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis.asyncio
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError

from kumiko_django.broker.bullmq import Script
from kumiko_django.broker.exchange import aexchange

MOST_EXCHANGES = 1
"""As many are on their way at a time; what comes meanwhile waits, and goes together."""

CLOSE_SECONDS = 1.0


@dataclass(slots=True)
class _Call:
    script: Script | None
    command: tuple[Any, ...]
    answer: asyncio.Future[Any]


class Channel:
    """Sends script calls over a pooled client. Bound to the running event loop.

    The order of calls made in one turn of the loop is kept, but for scripts that the server does
    not know yet: these come after the others. A call fails for itself: an error that Redis answers
    is raised where the call is awaited; an error of the connection in all calls of
    the exchange, some of which may have been carried out.
    """

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._waiting: list[_Call] = []
        self._exchanges: set[asyncio.Task[None]] = set()
        self._closed = False

    def run(self, script: Script, keys: Sequence[str], args: Sequence[Any]) -> asyncio.Future[Any]:
        """Run a script; await the answer.

        Raises:
            RedisError: When awaited.
        """
        return self._ask(script, ("EVALSHA", script.sha, len(keys), *keys, *args))

    def execute(self, *command: Any) -> asyncio.Future[Any]:
        """Run a plain command; its answer is not converted.

        Raises:
            RedisError: When awaited.
        """
        return self._ask(None, command)

    async def close(self) -> None:
        """Wait a moment for what is on its way; give up what is not answered then.

        Whoever asks from then on, or has asked and was not sent, is told that nothing was done.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                while self._waiting or self._exchanges:
                    await asyncio.sleep(0)
                    if self._exchanges:
                        await asyncio.wait(self._exchanges)
        self._closed = True
        calls, self._waiting = self._waiting, []
        for call in calls:
            _tell(call.answer, _closed_error())
        exchanges = list(self._exchanges)
        for exchange in exchanges:
            exchange.cancel()
        await asyncio.gather(*exchanges, return_exceptions=True)

    def _ask(self, script: Script | None, command: tuple[Any, ...]) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self._closed:
            answer.set_exception(_closed_error())
            return answer
        if not self._waiting and len(self._exchanges) < MOST_EXCHANGES:
            self._loop.call_soon(self._send)
        self._waiting.append(_Call(script, command, answer))
        return answer

    def _send(self) -> None:
        if not self._waiting:
            return
        calls, self._waiting = self._waiting, []
        exchange = self._loop.create_task(self._exchange(calls), name="kumiko-exchange")
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._sent)

    def _sent(self, exchange: asyncio.Task[None]) -> None:
        self._exchanges.discard(exchange)
        if self._waiting:
            self._loop.call_soon(self._send)

    async def _exchange(self, calls: list[_Call]) -> None:
        try:
            answers = await aexchange(self._client, [call.command for call in calls])
            unknown = [n for n, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
            if unknown:
                # The server was restarted, or these are the first calls. Nothing of them was done.
                await self._load([calls[n] for n in unknown])
                again = await aexchange(self._client, [calls[n].command for n in unknown])
                for n, answer in zip(unknown, again, strict=True):
                    answers[n] = answer
        except BaseException as error:  # noqa: BLE001  (who waits must hear of it, whatever it is)
            answers = [error] * len(calls)
        for call, answer in zip(calls, answers, strict=True):
            _tell(call.answer, answer)

    async def _load(self, calls: list[_Call]) -> None:
        texts = {call.script.text for call in calls if call.script is not None}
        await aexchange(self._client, [("SCRIPT", "LOAD", text) for text in texts])


def _closed_error() -> Exception:
    return RedisConnectionError("The channel is closed; nothing was sent.")


def _tell(future: asyncio.Future[Any], answer: Any) -> None:
    if future.done():  # nobody waits any longer
        return
    if isinstance(answer, asyncio.CancelledError):
        future.cancel()
    elif isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)
