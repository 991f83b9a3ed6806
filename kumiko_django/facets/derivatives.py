"""``ctx.derivatives``: variants of the tenant's files, made by functions of the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from asgiref.sync import sync_to_async

from kumiko_django.conf import Settings
from kumiko_django.exceptions import SettingsError
from kumiko_django.facets.protocols import Derivatives, FileHandle, Files
from kumiko_django.facets.request import FacetRequest
from kumiko_django.types.dotted import load_callable


class FileDerivatives:
    """Keeps each variant beside its source, as ``<key>.<variant>``; see :class:`Derivatives`.

    A variant is not made anew when its source is written: call :meth:`make` after that.
    """

    def __init__(self, files: Files, variants: Mapping[str, Any]) -> None:
        """Bind to the files of a tenant.

        Args:
            files: The files.
            variants: Functions from bytes to bytes (or their dotted paths) by variant.
        """
        self._files = files
        self._variants = variants

    def get(self, source: str | FileHandle, variant: str) -> FileHandle:
        """A variant of a file, made if it is not there."""
        function = self._function(variant)
        target = self._source(source).derive(f".{variant}")
        return target if target.exists() else self._made(source, target, function)

    def make(self, source: str | FileHandle, variant: str) -> FileHandle:
        """The same, made anew."""
        function = self._function(variant)
        return self._made(source, self._source(source).derive(f".{variant}"), function)

    async def aget(self, source: str | FileHandle, variant: str) -> FileHandle:
        """As :meth:`get`."""
        return await sync_to_async(partial(self.get, source, variant))()

    async def amake(self, source: str | FileHandle, variant: str) -> FileHandle:
        """As :meth:`make`."""
        return await sync_to_async(partial(self.make, source, variant))()

    def _source(self, source: str | FileHandle) -> FileHandle:
        # By its key, so that the handle of another tenant's file leads to none of theirs.
        return self._files.handle(source if isinstance(source, str) else source.key)

    def _made(
        self, source: str | FileHandle, target: FileHandle, function: Callable[[bytes], Any]
    ) -> FileHandle:
        content = function(self._source(source).read())
        if not isinstance(content, bytes):
            raise SettingsError(
                f'KUMIKO["DERIVATIVES"]: {function!r} must give bytes, not '
                f"{type(content).__name__}."
            )
        target.write(content)
        return target

    def _function(self, variant: str) -> Callable[[bytes], Any]:
        if variant not in self._variants:
            raise LookupError(
                f"There is no variant {variant!r}; there are: {', '.join(self._variants)}. "
                'KUMIKO["DERIVATIVES"] has them.'
            )
        function = self._variants[variant]
        return load_callable("DERIVATIVES", function, "of the bytes of a file", entry=variant)


def make(request: FacetRequest, settings: Settings) -> Derivatives | None:
    """``ctx.derivatives``; None where ``DERIVATIVES`` is not set."""
    source = settings.derivatives
    if source is None or source is False:
        return None
    if isinstance(source, Mapping):
        return FileDerivatives(request.files, source)
    made: Derivatives = load_callable("DERIVATIVES", source, "of a FacetRequest")(request)
    return made
