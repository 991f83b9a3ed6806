"""``ctx.files``: reading and writing below the tenant's prefix, and nowhere else (B154)."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import FileSystemStorage, InMemoryStorage, Storage, storages
from pytest_django import Settings

from kumiko_django import KumikoError, ScopeError, system_scope, tenant_scope
from kumiko_django.conf import build
from kumiko_django.facets.files import TenantFiles, make
from kumiko_django.facets.protocols import FileHandle
from tests.unit.facets.requests import request_of

pytestmark = pytest.mark.once


@pytest.fixture(params=["disk", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return FileSystemStorage(tmp_path) if request.param == "disk" else InMemoryStorage()


@pytest.fixture
def disk(tmp_path: Path) -> FileSystemStorage:
    return FileSystemStorage(tmp_path)


def test_a_file_is_written_read_and_deleted(storage: Storage) -> None:
    file = TenantFiles("acme", storage).handle("invoices/17.pdf")
    assert isinstance(file, FileHandle)
    assert not file.exists()
    with pytest.raises(FileNotFoundError):
        file.read()

    file.write(b"one")

    assert (file.key, file.exists(), file.read()) == ("invoices/17.pdf", True, b"one")
    assert storage.exists("tenants/t-acme/invoices/17.pdf")
    with file.open() as opened:
        assert opened.read(2) == b"on"
    file.delete()
    file.delete()
    assert not file.exists()


async def test_the_same_on_an_event_loop(storage: Storage) -> None:
    file = TenantFiles("acme", storage).handle("a/b")
    assert not await file.aexists()
    await file.awrite(b"one")
    assert await file.aexists()
    assert await file.aread() == b"one"
    opened = await file.aopen()
    assert opened.read() == b"one"
    opened.close()
    await file.adelete()
    assert not file.exists()


@pytest.mark.parametrize("content", [b"new", io.BytesIO(b"new"), ContentFile(b"new")])
def test_what_is_there_is_replaced_under_the_same_name(content: Any, storage: Storage) -> None:
    """Django would store the second under another name, and the key would give the first."""
    file = TenantFiles("acme", storage).handle("a.txt")
    file.write(b"something longer")

    file.write(content)

    assert file.read() == b"new"
    assert storage.listdir("tenants/t-acme")[1] == ["a.txt"]


@pytest.mark.parametrize("content", ["text", None, 5, ["a"]])
def test_only_bytes_and_files_are_written(content: Any, storage: Storage) -> None:
    file = TenantFiles("acme", storage).handle("a.txt")
    file.write(b"kept")
    with pytest.raises(TypeError, match="write bytes or an open file"):
        file.write(content)
    assert file.read() == b"kept"


def test_two_tenants_have_different_files_under_one_key(storage: Storage) -> None:
    one, other = (TenantFiles(t, storage).handle("a") for t in ("acme", "Acme"))
    one.write(b"1")
    assert not other.exists()
    other.write(b"2")
    other.delete()
    assert one.read() == b"1"


def test_a_derived_file_lies_beside_its_source(storage: Storage) -> None:
    file = TenantFiles("acme", storage).handle("a/photo.jpg")
    derived = file.derive(".small.png")
    assert derived.key == "a/photo.jpg.small.png"
    derived.write(b"small")
    assert not file.exists()
    assert derived.derive(".txt").key == "a/photo.jpg.small.png.txt"


@pytest.mark.parametrize(
    "suffix", ["", "/x", "/../../../t-globex/a", "\\..", "\x00", ".", " ", "\uff0f..", None, b"x"]
)
def test_a_suffix_leads_nowhere_else(suffix: Any, disk: Storage) -> None:
    file = TenantFiles("acme", disk).handle("a/photo.jpg")
    with pytest.raises(ValueError, match=r"suffix|key"):
        file.derive(suffix)


# -------------------------------------------------------------------------------------- attacks


OPERATIONS = {
    "read": lambda file: file.read(),
    "open": lambda file: file.open(),
    "write": lambda file: file.write(b"x"),
    "delete": lambda file: file.delete(),
    "exists": lambda file: file.exists(),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("link", ["file", "folder", "tenant", "loop", "dangling"])
def test_a_symbolic_link_is_not_followed(
    operation: str, link: str, disk: FileSystemStorage, tmp_path: Path
) -> None:
    """Django's safe_join compares names only; a link leads to another tenant all the same."""
    TenantFiles("globex", disk).handle("secret").write(b"of globex")
    theirs, ours = tmp_path / "tenants/t-globex", tmp_path / "tenants/t-acme"
    key = "way/secret"
    if link == "tenant":
        ours.symlink_to(theirs)
        key = "secret"
    else:
        ours.mkdir()
    if link == "folder":
        (ours / "way").symlink_to(theirs)
    elif link == "loop":
        (ours / "way").symlink_to(ours / "way")
    elif link in ("file", "dangling"):
        (ours / "way").mkdir()
        target = theirs / "secret" if link == "file" else tmp_path / "nothing"
        (ours / "way/secret").symlink_to(target)

    with pytest.raises(PermissionError, match="symbolic link"):
        OPERATIONS[operation](TenantFiles("acme", disk).handle(key))

    assert (theirs / "secret").read_bytes() == b"of globex"
    assert not (tmp_path / "nothing").exists()


def test_a_storage_that_lies_behind_a_link_itself_is_fine(tmp_path: Path) -> None:
    """Operators move directories, and say so with a link."""
    (tmp_path / "big-disk").mkdir()
    (tmp_path / "media").symlink_to(tmp_path / "big-disk")
    file = TenantFiles("acme", FileSystemStorage(tmp_path / "media")).handle("a")
    file.write(b"x")
    assert file.read() == b"x"


@pytest.mark.parametrize("operation", OPERATIONS)
def test_another_tenants_scope_is_refused(operation: str, storage: Storage) -> None:
    """A handle that a careless developer keeps in a global leads to nobody else's run."""
    file = TenantFiles("acme", storage).handle("a")
    file.write(b"x")
    with tenant_scope("globex"), pytest.raises(ScopeError, match="'globex'"):
        OPERATIONS[operation](file)
    with tenant_scope("acme"):
        assert file.read() == b"x"
    with system_scope("backup"):
        assert file.read() == b"x"


class Renaming(FileSystemStorage):
    """Keeps files under names of its own."""

    def get_available_name(self, name: str, max_length: int | None = None) -> str:
        return f"{name}.stored"


def test_a_storage_that_changes_names_is_told(tmp_path: Path) -> None:
    """What was written could not be found again, or would be found by another tenant."""
    file = TenantFiles("acme", Renaming(tmp_path)).handle("a")
    with pytest.raises(KumikoError, match=r"stored it as 'tenants/t-acme/a\.stored'"):
        file.write(b"x")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


class Overtaken(InMemoryStorage):
    """Another process writes the same file between our two steps, as often as it is told."""

    times = 1

    def delete(self, name: str) -> None:
        super().delete(name)
        if self.times and name.endswith("/a"):
            self.times -= 1
            super().save(name, ContentFile(b"theirs"))


@pytest.mark.parametrize(("times", "kept"), [(1, b"ours"), (9, b"theirs")])
def test_of_two_that_write_at_once_one_wins(times: int, kept: bytes) -> None:
    storage = Overtaken()
    storage.times = times
    file = TenantFiles("acme", storage).handle("a")
    if kept == b"ours":
        file.write(b"ours")
    else:
        with pytest.raises(KumikoError, match="Another process"):
            file.write(b"ours")
    assert file.read() == kept
    assert storage.listdir("tenants/t-acme")[1] == ["a"], "no second file is left"


class Pipe(io.BytesIO):
    def seekable(self) -> bool:
        return False


def test_what_can_be_read_once_is_not_written_twice() -> None:
    """The second time it would be empty."""
    file = TenantFiles("acme", Overtaken()).handle("a")
    with pytest.raises(KumikoError, match="could not be written"):
        file.write(Pipe(b"ours"))
    assert file.read() == b"theirs"
    file.write(Pipe(b"ours"))
    assert file.read() == b"ours"


# -------------------------------------------------------------------------------------- settings


def test_the_storage_is_the_one_of_the_alias(settings: Settings, tmp_path: Path) -> None:
    settings.STORAGES = {
        **settings.STORAGES,
        "private": {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {"location": str(tmp_path)},
        },
    }
    settings.KUMIKO = {**settings.KUMIKO, "FILES_STORAGE": "private"}
    made = make(request_of("acme"), build(settings.KUMIKO))
    assert made is not None
    made.handle("a").write(b"x")
    assert (tmp_path / "tenants/t-acme/a").read_bytes() == b"x"
    assert storages["private"].exists("tenants/t-acme/a")


def test_a_factory_of_the_project_is_asked_and_false_is_none() -> None:
    asked: list[Any] = []
    theirs: Any = object()

    def factory(request: Any) -> Any:
        asked.append(request)
        return theirs

    assert make(request_of("acme"), build({"FILES": factory})) is theirs
    assert asked == [request_of("acme")]
    assert make(request_of("acme"), build({"FILES": False})) is None
