"""The defaults: e-mail, values of the settings, the environment, functions of files."""

from __future__ import annotations

import logging
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.core import mail
from django.core.files.storage import InMemoryStorage
from pytest_django import Settings

from kumiko_django import SYSTEM, SettingsError
from kumiko_django.conf import build
from kumiko_django.facets import config, derivatives, notify, secrets, tz
from kumiko_django.facets.derivatives import FileDerivatives
from kumiko_django.facets.files import TenantFiles
from kumiko_django.facets.notify import EmailNotify
from kumiko_django.facets.secrets import EnvironmentSecrets, variables
from tests.unit.facets.requests import request_of

pytestmark = pytest.mark.once


# --------------------------------------------------------------------------------------- notify


def test_each_recipient_gets_an_email_of_their_own(settings: Settings) -> None:
    """B155: the plainest default. Nobody sees to whom else it went."""
    settings.DEFAULT_FROM_EMAIL = "shop@example.com"
    made = notify.make(request_of("acme"), build({}))
    assert made is not None

    sent = made(
        "invoice-ready",
        to=["a@example.com", "b@example.com", "a@example.com"],
        subject="Ready",
        text="It is.",
        html="<b>It is.</b>",
        priority="high",
    )

    assert sent == 2
    assert [message.to for message in mail.outbox] == [["a@example.com"], ["b@example.com"]]
    message: Any = mail.outbox[0]
    assert (message.from_email, message.subject, message.body) == (
        "shop@example.com", "Ready", "It is.",
    )  # fmt: skip
    assert [alternative.content for alternative in message.alternatives] == ["<b>It is.</b>"]
    assert message.extra_headers == {
        "X-Kind": "invoice-ready", "Importance": "high", "X-Priority": "1",
    }  # fmt: skip


async def test_an_email_from_an_event_loop() -> None:
    assert await EmailNotify().asend("k", to=["a@example.com"], subject="s", text="t") == 1
    assert [message.subject for message in mail.outbox] == ["s"]


@pytest.mark.parametrize(
    ("values", "error", "part"),
    [
        ({"to": "a@example.com"}, TypeError, "a list of recipients"),
        ({"to": []}, ValueError, "no recipient"),
        ({"priority": "urgent"}, ValueError, "high, normal, low"),
        ({"subject": "a\nBcc: all@example.com"}, ValueError, "newlines"),
        ({"to": ["ok@example.com", "a@example.com\nBcc: b@example.com"]}, ValueError, "newlines"),
        ({"kind": "a\r\nX: y"}, ValueError, "newlines"),
    ],
)
def test_no_email_is_sent_that_is_wrong(
    values: dict[str, Any], error: type[Exception], part: str
) -> None:
    """Not even to the recipients before the wrong one."""
    given = {"kind": "k", "to": ["a@example.com"], "subject": "s", "text": "t", **values}
    with pytest.raises(error, match=part):
        EmailNotify()(given.pop("kind"), **given)
    assert mail.outbox == []


# --------------------------------------------------------------------------------------- config


def by_tenant(request: Any) -> dict[str, Any]:
    return {"currency": "EUR" if request.tenant_id == "acme" else "CHF"}


@pytest.mark.parametrize(
    "source", [{"currency": "EUR"}, by_tenant, f"{__name__}.by_tenant"], ids=["dict", "def", "path"]
)
def test_config_has_the_values_of_the_tenant(source: Any) -> None:
    """B156."""
    made = config.make(request_of("acme"), build({"CONFIG": source}))
    assert made is not None
    assert made["currency"] == "EUR"
    assert ("currency" in made, "colour" in made) == (True, False)
    assert (made.get("colour"), made.get("colour", "red")) == (None, "red")
    assert list(made) == ["currency"]
    with pytest.raises(KeyError, match=r"no config 'colour' for tenant 'acme'.*CONFIG"):
        made["colour"]
    with pytest.raises(TypeError):
        made["currency"] = "USD"  # type: ignore[index]
    assert "EUR" not in repr(made)


def test_config_that_is_not_set_is_none_and_nonsense_is_told() -> None:
    assert config.make(request_of("acme"), build({})) is None
    assert config.make(request_of("acme"), build({"CONFIG": {}})) is not None
    with pytest.raises(SettingsError, match=r'KUMIKO\["CONFIG"\] must give a mapping'):
        config.make(request_of("acme"), build({"CONFIG": lambda request: 5}))


def test_config_may_be_an_object_of_the_project() -> None:
    class Theirs:
        def get(self, key: str, default: Any = None) -> Any:
            return default

        __getitem__ = get

    theirs: Any = Theirs()
    assert config.make(request_of("acme"), build({"CONFIG": lambda request: theirs})) is theirs


# -------------------------------------------------------------------------------------- secrets


def test_a_tenants_own_secret_comes_before_the_one_for_all() -> None:
    environment = {
        "KUMIKO_SECRET_STRIPE_KEY": "for all",
        "KUMIKO_SECRET_STRIPE_KEY__ACME": "of acme",
        "KUMIKO_SECRET_STRIPE_KEY___41CME": "of Acme",
        "STRIPE_KEY": "not for handlers",
        "DATABASE_URL": "not for handlers",
    }

    def of(tenant: str) -> EnvironmentSecrets:
        return EnvironmentSecrets(tenant, environment)

    assert of("acme")["STRIPE_KEY"] == "of acme"
    assert of("Acme")["STRIPE_KEY"] == "of Acme"
    assert of("globex")["STRIPE_KEY"] == of(SYSTEM)["STRIPE_KEY"] == "for all"
    assert of("acme").get("DATABASE_URL", "none") == "none"
    assert ("STRIPE_KEY" in of("acme"), "DATABASE_URL" in of("acme")) == (True, False)
    assert 5 not in of("acme")
    with pytest.raises(KeyError, match=r"KUMIKO_SECRET_SMTP__ACME or KUMIKO_SECRET_SMTP\."):
        of("acme")["SMTP"]
    assert "of acme" not in repr(of("acme"))


@pytest.mark.parametrize(
    "name", ["", "stripe", "STRIPE__ACME", "_A", "A_", "A__B", "A=B", "A\n", "../A", "Ä", None, 5]
)
def test_no_name_reads_the_secret_of_another_tenant(name: Any) -> None:
    """``STRIPE_KEY__ACME`` would be acme's, whoever asks; the name may come from a payload."""
    secrets_of_globex = EnvironmentSecrets("globex", {"KUMIKO_SECRET_STRIPE__ACME": "of acme"})
    with pytest.raises(ValueError, match="name of a secret"):
        secrets_of_globex.get(name)


def test_no_two_tenants_share_a_variable() -> None:
    """On Windows the names of variables have no case."""
    tenants = ["acme", "ACME", "Acme", "a-b", "a_b", "a b", "a.b", "ab", "a_2db", "é", "e\u0301"]
    assert len({variables("KEY", tenant)[0].upper() for tenant in tenants}) == len(tenants)
    assert variables("KEY", "a-b")[0] == "KUMIKO_SECRET_KEY__A_2DB"


def test_secrets_of_the_project_and_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUMIKO_SECRET_KEY", "k")
    made = secrets.make(request_of("acme"), build({}))
    assert made is not None
    assert made["KEY"] == "k"
    theirs: Any = {}
    given = build({"SECRETS": lambda request: theirs})
    assert secrets.make(request_of("acme"), given) is theirs
    assert secrets.make(request_of("acme"), build({"SECRETS": False})) is None


# ---------------------------------------------------------------------------------- derivatives


def upper(content: bytes) -> bytes:
    return content.upper()


def two_files() -> tuple[TenantFiles, TenantFiles]:
    storage = InMemoryStorage()
    files = TenantFiles("acme", storage), TenantFiles("globex", storage)
    for file, content in zip(files, (b"of acme", b"of globex"), strict=True):
        file.handle("a.txt").write(content)
    return files


async def test_a_variant_is_made_once_and_anew_when_asked() -> None:
    """B157."""
    calls: list[bytes] = []

    def counted(content: bytes) -> bytes:
        calls.append(content)
        return content.upper()

    files, _ = two_files()
    made = FileDerivatives(files, {"upper": counted})

    assert made.get("a.txt", "upper").read() == b"OF ACME"
    assert made.get(files.handle("a.txt"), "upper").key == "a.txt.upper"
    assert (await made.aget("a.txt", "upper")).key == "a.txt.upper"
    assert len(calls) == 1
    files.handle("a.txt").write(b"new")
    assert made.make("a.txt", "upper").read() == b"NEW"
    files.handle("a.txt").write(b"newer")
    assert (await made.amake("a.txt", "upper")).read() == b"NEWER"


def test_the_handle_of_another_tenants_file_leads_to_our_own() -> None:
    ours, theirs = two_files()
    made = FileDerivatives(ours, {"upper": upper}).get(theirs.handle("a.txt"), "upper")
    assert made.read() == b"OF ACME"
    assert not theirs.handle("a.txt.upper").exists()


def test_what_cannot_be_derived_is_told() -> None:
    files, _ = two_files()
    made = FileDerivatives(files, {"upper": f"{__name__}.upper", "bad": len, "gone": "a.b"})
    assert made.get("a.txt", "upper").read() == b"OF ACME"
    with pytest.raises(LookupError, match=r"no variant 'lower'; there are: upper, bad, gone"):
        made.get("a.txt", "lower")
    with pytest.raises(SettingsError, match="must give bytes, not int"):
        made.get("a.txt", "bad")
    with pytest.raises(SettingsError, match="cannot be imported"):
        made.get("a.txt", "gone")
    with pytest.raises(FileNotFoundError):
        made.get("nothing.txt", "upper")
    with pytest.raises(ValueError, match="file key"):
        made.get("../t-globex/a.txt", "upper")


def test_derivatives_stand_on_the_files_of_the_run() -> None:
    files, _ = two_files()
    asked: list[str] = []

    def other(name: str) -> Any:
        asked.append(name)
        return files

    made = derivatives.make(request_of("acme", other), build({"DERIVATIVES": {"upper": upper}}))
    assert made is not None
    assert (asked, made.get("a.txt", "upper").read()) == (["files"], b"OF ACME")
    theirs: Any = object()
    given = build({"DERIVATIVES": lambda request: theirs})
    assert derivatives.make(request_of("acme"), given) is theirs
    assert derivatives.make(request_of("acme"), build({})) is None


# ------------------------------------------------------------------------------------ time zone


ZONES: dict[str, Any] = {
    "acme": "Asia/Tokyo",
    "globex": ZoneInfo("America/New_York"),
    "none": None,
    "unknown": "Mars/Olympus",
    "path": "../../etc/passwd",
    "nonsense": 5,
}


def zones(tenant_id: str) -> Any:
    return ZONES[tenant_id]


@pytest.mark.parametrize(
    ("tenant", "name", "logged"),
    [
        ("acme", "Asia/Tokyo", False),
        ("globex", "America/New_York", False),
        ("none", "Europe/Berlin", False),
        (SYSTEM, "Europe/Berlin", False),
        ("unknown", "Europe/Berlin", True),
        ("path", "Europe/Berlin", True),
        ("nonsense", "Europe/Berlin", True),
        ("missing", "Europe/Berlin", True),
    ],
)
def test_the_time_zone_of_a_tenant(
    tenant: str, name: str, logged: bool, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """B141, B243: what goes wrong is logged, and Django's own is taken."""
    settings.KUMIKO = {**settings.KUMIKO, "TIME_ZONE": f"{__name__}.zones"}

    assert str(tz.zone_of(tenant)) == name

    records = [r for r in caplog.records if r.name == "kumiko_django.facets"]
    assert [record.levelno for record in records] == [logging.ERROR] * logged
    assert all(f"tenant {tenant}" in record.getMessage() for record in records)


@pytest.mark.parametrize("broken", ["tests.app.nothing.zone", lambda: None])
def test_a_time_zone_that_cannot_be_asked_for_fails_nothing(
    broken: Any, settings: Settings
) -> None:
    settings.KUMIKO = {**settings.KUMIKO, "TIME_ZONE": broken}
    assert str(tz.zone_of("acme")) == "Europe/Berlin"
    settings.KUMIKO = {**settings.KUMIKO, "TIME_ZONE": None}
    assert not tz.has_own("acme")
    assert str(tz.zone_of("acme")) == "Europe/Berlin"
