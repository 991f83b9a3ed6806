"""What each facet can do, whoever makes it; the facets themselves know nothing of one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, Any, Literal, Protocol, TypeAlias, runtime_checkable

from django.core.files import File

Content: TypeAlias = "bytes | File[Any] | IO[bytes]"
Priority: TypeAlias = Literal["high", "normal", "low"]


class NoSuchKey(KeyError):
    """A config or secret that is not there, with a message that reads as it is written."""

    def __str__(self) -> str:
        return Exception.__str__(self)


@runtime_checkable
class FileHandle(Protocol):
    """One file of one tenant. Nothing is asked of the storage before something is done."""

    @property
    def key(self) -> str:
        """The file's path below the tenant's; this is what goes into a payload or a row."""

    def read(self) -> bytes:
        """All of it.

        Raises:
            FileNotFoundError: There is no such file.
        """

    def open(self) -> File[Any]:
        """The file, to be read as bytes and closed; it is a context manager."""

    def write(self, content: Content) -> None:
        """Store ``content`` in place of what is there."""

    def delete(self) -> None:
        """Delete the file, if it is there."""

    def exists(self) -> bool:
        """Whether it is there."""

    def derive(self, suffix: str) -> FileHandle:
        """The file beside it whose name has ``suffix`` added."""

    async def aread(self) -> bytes:
        """As :meth:`read`, for async handlers."""

    async def aopen(self) -> File[Any]:
        """As :meth:`open`, for async handlers."""

    async def awrite(self, content: Content) -> None:
        """As :meth:`write`, for async handlers."""

    async def adelete(self) -> None:
        """As :meth:`delete`, for async handlers."""

    async def aexists(self) -> bool:
        """As :meth:`exists`, for async handlers."""


class Files(Protocol):
    """``ctx.files``: the files of one tenant."""

    def handle(self, key: str) -> FileHandle:
        """The file at a path below the tenant's, whether it is there or not.

        Raises:
            ValueError: The path leads elsewhere, or is none.
        """


class Derivatives(Protocol):
    """``ctx.derivatives``: what is made from files, e.g. previews."""

    def get(self, source: str | FileHandle, variant: str) -> FileHandle:
        """A variant of a file, made if it is not there.

        Raises:
            LookupError: There is no such variant.
            FileNotFoundError: There is no such file.
        """

    def make(self, source: str | FileHandle, variant: str) -> FileHandle:
        """The same, made anew."""

    async def aget(self, source: str | FileHandle, variant: str) -> FileHandle:
        """As :meth:`get`, for async handlers."""

    async def amake(self, source: str | FileHandle, variant: str) -> FileHandle:
        """As :meth:`make`, for async handlers."""


class Notify(Protocol):
    """``ctx.notify``: telling people something."""

    def __call__(
        self,
        kind: str,
        *,
        to: Sequence[str],
        subject: str,
        text: str,
        html: str | None = None,
        priority: Priority = "normal",
    ) -> int:
        """Send a message to each of some recipients.

        Args:
            kind: What it is about, e.g. ``invoice-ready``; for whoever sorts messages.
            to: The recipients.
            subject: One line.
            text: The message.
            html: The same as a page.
            priority: How urgent it is.

        Returns:
            How many were sent.
        """

    async def asend(
        self,
        kind: str,
        *,
        to: Sequence[str],
        subject: str,
        text: str,
        html: str | None = None,
        priority: Priority = "normal",
    ) -> int:
        """The same, for async handlers."""


class Config(Protocol):
    """``ctx.config``: settings of the tenant."""

    def __getitem__(self, key: str, /) -> Any:
        """A value.

        Raises:
            KeyError: There is none.
        """

    def __contains__(self, key: object, /) -> bool:
        """Whether there is one."""

    def __iter__(self) -> Iterator[str]:
        """The keys."""

    def get(self, key: str, default: Any = None, /) -> Any:
        """A value, or ``default``."""


class Secrets(Protocol):
    """``ctx.secrets``: what must not stand in code, payloads or rows."""

    def __getitem__(self, name: str, /) -> str:
        """A secret.

        Raises:
            KeyError: There is none.
        """

    def __contains__(self, name: object, /) -> bool:
        """Whether there is one."""

    def get(self, name: str, default: str | None = None, /) -> str | None:
        """A secret, or ``default``."""
