"""``ctx.files``: the tenant's files on a Django storage, below a prefix that no path can leave."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Final, TypeVar

from asgiref.sync import sync_to_async
from django.core.files import File
from django.core.files.base import ContentFile
from django.core.files.storage import Storage, storages

from kumiko_django.conf import Settings, get_settings
from kumiko_django.exceptions import KumikoError, ScopeError
from kumiko_django.facets.file_names import ROOT, clean_key, clean_suffix, prefix_of
from kumiko_django.facets.protocols import Content, Files
from kumiko_django.facets.request import FacetRequest
from kumiko_django.tenancy.scope import clean_tenant_id
from kumiko_django.types import ambient
from kumiko_django.types.dotted import load_callable

T = TypeVar("T")
_TRIES: Final = 3


class TenantFiles:
    """The files of one tenant."""

    def __init__(self, tenant_id: str, storage: Storage | None = None) -> None:
        """Bind to a tenant; in a view, give ``current_tenant_id()``.

        Args:
            tenant_id: The tenant.
            storage: Where the files are; by default ``KUMIKO["FILES_STORAGE"]`` says it.

        Raises:
            ScopeError: The id is unusable.
            InvalidStorageError: There is no such storage.
        """
        self.tenant_id = clean_tenant_id(tenant_id)
        self._storage = storages[get_settings().files_storage] if storage is None else storage

    def __repr__(self) -> str:
        return f"<files of {self.tenant_id!r}>"

    def handle(self, key: str) -> StoredFile:
        """The file at a path below the tenant's; see :class:`Files`."""
        return StoredFile(self.tenant_id, self._storage, clean_key(key))


class StoredFile:
    """A file of a tenant; see :class:`FileHandle`."""

    def __init__(self, tenant_id: str, storage: Storage, key: str) -> None:
        self._tenant_id = tenant_id
        self._storage = storage
        self._key = clean_key(key)

    def __repr__(self) -> str:
        return f"<file {self._key!r} of {self._tenant_id!r}>"

    @property
    def key(self) -> str:
        """The path below the tenant's."""
        return self._key

    def read(self) -> bytes:
        """All of it, as bytes."""
        with self.open() as file:
            content: bytes = file.read()
            return content

    def open(self) -> File[Any]:
        """The file, open for reading bytes."""
        return self._storage.open(self._name(), "rb")

    def write(self, content: Content) -> None:
        """Store ``content`` in place of what is there.

        Between the old content and the new there is a moment with neither, and of two that write
        at once one wins.

        Raises:
            TypeError: The content is no bytes and no file.
            KumikoError: The storage stores under other names than it is given.
        """
        name = self._name()
        if isinstance(content, str) or not (
            isinstance(content, bytes) or callable(getattr(content, "read", None))
        ):
            raise TypeError(
                f"{self!r}: write bytes or an open file, not {type(content).__name__}; text as "
                "text.encode()."
            )
        for _ in range(_TRIES if _is_repeatable(content) else 1):
            # save() would choose another name for the second of the same.
            self._storage.delete(name)
            stored = self._storage.save(name, _as_file(content))
            if stored == name:
                return
            self._storage.delete(stored)
            if not self._storage.exists(name):
                break
        raise KumikoError(
            f"{self!r} could not be written: the storage has stored it as {stored!r} instead of "
            f"{name!r}. Another process writes it at the same time, or the storage changes names."
        )

    def delete(self) -> None:
        """Delete the file, if it is there."""
        self._storage.delete(self._name())

    def exists(self) -> bool:
        """Whether it is there."""
        return self._storage.exists(self._name())

    def derive(self, suffix: str) -> StoredFile:
        """The file beside it whose name has ``suffix`` added."""
        return StoredFile(self._tenant_id, self._storage, self._key + clean_suffix(suffix))

    async def aread(self) -> bytes:
        """As :meth:`read`."""
        return await sync_to_async(self.read)()

    async def aopen(self) -> File[Any]:
        """As :meth:`open`."""
        return await sync_to_async(self.open)()

    async def awrite(self, content: Content) -> None:
        """As :meth:`write`."""
        await sync_to_async(partial(self.write, content))()

    async def adelete(self) -> None:
        """As :meth:`delete`."""
        await sync_to_async(self.delete)()

    async def aexists(self) -> bool:
        """As :meth:`exists`."""
        return await sync_to_async(self.exists)()

    def _name(self) -> str:
        """The name in the storage, once it is certain that it is this tenant's."""
        scope = ambient.scope.get()
        if scope is not None and scope.mode == "tenant" and scope.tenant_id != self._tenant_id:
            raise ScopeError(f"{self!r} is asked for in the scope of tenant {scope.tenant_id!r}.")
        name = f"{prefix_of(self._tenant_id)}/{self._key}"
        _refuse_links(self._storage, name)
        return name


def _is_repeatable(content: Content) -> bool:
    return isinstance(content, bytes) or content.seekable()


def _as_file(content: Content) -> File[Any]:
    if isinstance(content, bytes):
        return ContentFile(content)
    return content if isinstance(content, File) else File(content)


def _refuse_links(storage: Storage, name: str) -> None:
    """Refuse a name that a symbolic link leads elsewhere, in storages that are a file system.

    Django's own check (``safe_join``) compares names, and a link that somebody has put there, with
    an archive that was unpacked, say, passes it.
    """
    try:
        root, path = storage.path(ROOT), storage.path(name)
    except NotImplementedError:
        return
    parts = os.path.relpath(path, root).split(os.sep)
    straight = os.path.join(os.path.realpath(root), *parts)
    # realpath() alone says nothing of a link to itself, islink() nothing of a Windows junction.
    is_link = any(
        os.path.islink(os.path.join(root, *parts[:count])) for count in range(1, len(parts) + 1)
    )
    if is_link or os.path.normcase(os.path.realpath(path)) != os.path.normcase(straight):
        raise PermissionError(
            f"{name!r} lies behind a symbolic link, which could lead to another tenant's files."
        )


def make(request: FacetRequest, settings: Settings) -> Files | None:
    """``ctx.files``; None where the settings say that there is none."""
    if settings.files is False:
        return None
    if settings.files is not None:
        made: Files = load_callable("FILES", settings.files, "of a FacetRequest")(request)
        return made
    return TenantFiles(request.tenant_id)
