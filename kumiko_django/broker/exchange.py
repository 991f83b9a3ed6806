"""One exchange with Redis: some commands out, as many answers back, over a connection of a pool.

redis-py's own way through ``execute_command`` and pipelines costs several times what it takes to
send a command and to read its answer (design 9), and every job passes here.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import redis
import redis.asyncio
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

Command: TypeAlias = tuple[Any, ...]
"""The words of a command: texts, numbers, bytes."""

_pack_fast: Callable[[Any], bytes] | None = None
with contextlib.suppress(ImportError):  # an extra
    from hiredis import pack_command as _pack_fast


class Pool(redis.ConnectionPool):
    """A pool that also lends connections unseen.

    redis-py asks the socket of each connection that it lends whether the server has closed it; that
    costs as much as sending a command. :func:`exchange` finds out when it does so.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._resting: deque[Any] = deque()

    def lend(self) -> Any:
        """A connection, maybe one that the server has closed."""
        try:
            return self._resting.pop()
        except IndexError:
            return self.get_connection()

    def take_back(self, connection: Any) -> None:
        """Keep a connection on which no answer is outstanding."""
        self._resting.append(connection)

    def disconnect(self, *arguments: Any, **options: Any) -> None:
        """Close the connections."""
        while self._resting:
            self.release(self._resting.pop())
        super().disconnect(*arguments, **options)


def exchange(client: redis.Redis, commands: Sequence[Command]) -> list[Any]:
    """Send commands together and read their answers.

    Returns:
        The answers as they come, unconverted; an error that Redis answers stands in its place.

    Raises:
        RedisConnectionError, RedisTimeoutError, OSError: The connection failed, also at a second
            try. The commands may have been carried out, even twice.
    """
    pool: Any = client.connection_pool  # a Pool; the client's stub does not know
    connection = pool.lend()
    try:
        packed = _pack(connection, commands)
        try:
            return _ask(connection, packed, len(commands))
        except RedisConnectionError:
            # The server has closed it meanwhile. Not after a time-out: that would double the wait.
            connection.disconnect()
            return _ask(connection, packed, len(commands))
    except BaseException:
        # Broken off, say, with answers on their way that the next user would take for its own.
        connection.disconnect()
        raise
    finally:
        pool.take_back(connection)


def _ask(connection: Any, packed: list[bytes], count: int) -> list[Any]:
    connection.send_packed_command(packed)
    answers: list[Any] = []
    for _ in range(count):
        try:
            answers.append(connection.read_response())
        except ResponseError as error:
            answers.append(error)
    return answers


async def aexchange(client: redis.asyncio.Redis, commands: Sequence[Command]) -> list[Any]:
    """Send commands together and read their answers; see :func:`exchange`."""
    pool: Any = client.connection_pool
    connection = await pool.get_connection()
    try:
        packed = _pack(connection, commands)
        try:
            return await _aask(connection, packed, len(commands))
        except RedisConnectionError:
            await connection.disconnect()
            return await _aask(connection, packed, len(commands))
    except BaseException:
        # Cancelled, say, with answers on their way that the next user would take for its own.
        await connection.disconnect()
        raise
    finally:
        await pool.release(connection)


async def _aask(connection: Any, packed: list[bytes], count: int) -> list[Any]:
    await connection.send_packed_command(packed)
    answers: list[Any] = []
    for _ in range(count):
        try:
            answers.append(await connection.read_response())
        except ResponseError as error:
            answers.append(error)
    return answers


def _pack(connection: Any, commands: Sequence[Command]) -> list[bytes]:
    if _pack_fast is not None:
        try:
            return [b"".join(map(_pack_fast, commands))]
        except UnicodeEncodeError:
            # A lone surrogate. The connection's own packer may be the same one; its encoder knows
            # what shall become of it.
            commands = [tuple(map(connection.encoder.encode, words)) for words in commands]
    packed: list[bytes] = connection.pack_commands(commands)
    return packed
