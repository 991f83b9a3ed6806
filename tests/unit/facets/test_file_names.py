"""Which names are refused, and that no two tenants share a folder."""

from __future__ import annotations

import itertools
import unicodedata

import pytest

from kumiko_django.facets.file_names import clean_key, prefix_of
from kumiko_django.tenancy.scope import MAX_TENANT_ID_LENGTH

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    "key",
    [
        "a",
        "invoices/2026/17.pdf",
        ".hidden",
        "a..b",
        "a…b",
        "Größe & Maß (1).txt",
        "%2e%2e%2fother",
        "日本語.txt",
        "a" * 255,
        "/".join(["a"] * 256),
    ],
)
def test_a_good_key_stays_as_it_is(key: str) -> None:
    assert clean_key(key) == key


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "/etc/passwd",
        "//host/share",
        "..",
        ".",
        "../t-globex/a",
        "a/../../t-globex/a",
        "a/..",
        "a/./b",
        "a//b",
        "a/",
        "...",
        ". .",
        ".. /a",
        " ",
        "a /b",
        " a",
        "a.",
        "a./b",
        "..\\t-globex\\a",
        "a\\b",
        "C:/windows",
        "C:a",
        "a:stream",
        "a*",
        "a?",
        "a|b",
        "a<b",
        'a"',
        "a\x00b",
        "a\nb",
        "a\x7fb",
        "a\u202eb",  # turns the text around
        "a\u200bb",  # cannot be seen
        "\ud800",  # half a character
        "\uff0e\uff0e/a",  # full-width dots
        "\u2025/a",  # two dots in one
        "a\uff0fb",  # full-width slash
        "a\uff3cb",  # full-width backslash
        "a\uff1ab",  # full-width colon
        "a" * 256,
        "ä" * 128,
        "a/" * 256 + "a",
    ],
)
def test_a_key_that_might_lead_elsewhere_is_refused(key: str) -> None:
    """Refused, not mended: the file that is meant is another one."""
    with pytest.raises(ValueError, match="key"):
        clean_key(key)


@pytest.mark.parametrize("key", [None, b"a", 5, ["a"]])
def test_a_key_is_text(key: object) -> None:
    with pytest.raises(ValueError, match="is text"):
        clean_key(key)


HOSTILE_TENANTS = [
    "acme", "Acme", "ACME", "a/b", "a_2fb", "a_b", "a-b", "a b", "a.b", "..", ".", "...", "/", "//",
    "a\\b", "con", "nul.txt", "~", "$HOME", "%2e", "é", "e\u0301", "É", "K", "\u212a", "ß", "ss",
    "ẞ", "\u0131", "i", "İ", "5", "05", "t-acme", "h-acme", "x" * 99, "x" * 100, "x" * 101,
    "Y" * 50, "y" * MAX_TENANT_ID_LENGTH, "Y" * MAX_TENANT_ID_LENGTH, "漢" * MAX_TENANT_ID_LENGTH,
]  # fmt: skip


def as_a_file_system_may_see_it(path: str) -> str:
    return unicodedata.normalize("NFKC", path).casefold()


def test_no_two_tenants_share_a_folder() -> None:
    """B154: also where a file system tells neither cases nor forms of a character apart."""
    seen = [as_a_file_system_may_see_it(prefix_of(tenant)) for tenant in HOSTILE_TENANTS]

    assert len(set(seen)) == len(HOSTILE_TENANTS)
    for one, other in itertools.permutations(seen, 2):
        assert not other.startswith(f"{one}/"), "none lies within another"


@pytest.mark.parametrize("tenant", HOSTILE_TENANTS)
def test_a_tenants_folder_is_one_plain_folder(tenant: str) -> None:
    root, folder = prefix_of(tenant).split("/")

    assert root == "tenants"
    assert clean_key(folder) == folder
    assert folder[:2] in ("t-", "h-")
    assert set(folder) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_")


def test_plain_ids_can_be_read_by_people() -> None:
    assert prefix_of("acme") == "tenants/t-acme"
    assert prefix_of("a/b") == "tenants/t-a_2fb"
