"""Every form of a Redis URL arrives as what it means, and nonsense is refused without secrets."""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import quote

import pytest

from kumiko_django import SettingsError
from kumiko_django.broker.redis_url import SSL_OPTIONS, RedisAddress, from_url

pytestmark = pytest.mark.once

SETTING = 'KUMIKO["REDIS_URL"]'


def parsed(url: str) -> RedisAddress:
    return from_url(url, SETTING)


FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "redis://": ("tcp", {}),
    "redis://localhost": ("tcp", {"host": "localhost"}),
    "redis://localhost/": ("tcp", {"host": "localhost"}),
    "redis://localhost:6380": ("tcp", {"host": "localhost", "port": 6380}),
    "redis://localhost:6380/": ("tcp", {"host": "localhost", "port": 6380}),
    "redis://h:6380/3": ("tcp", {"host": "h", "port": 6380, "db": 3}),
    "redis://h?db=3": ("tcp", {"host": "h", "db": 3}),
    "redis://h/?db=3": ("tcp", {"host": "h", "db": 3}),
    "redis://h/1?db=3": ("tcp", {"host": "h", "db": 3}),
    "redis:///4": ("tcp", {"db": 4}),
    " redis://h/0\n": ("tcp", {"host": "h", "db": 0}),
    "valkey://h:1/2": ("tcp", {"host": "h", "port": 1, "db": 2}),
    "rediss://h/0": ("tls", {"host": "h", "db": 0}),
    "valkeys://h/0": ("tls", {"host": "h", "db": 0}),
    "redis://[::1]:6380/1": ("tcp", {"host": "::1", "port": 6380, "db": 1}),
    "redis://u:p@[fe80::1%25eth0]/1": (
        "tcp",
        {"host": "fe80::1%eth0", "db": 1, "username": "u", "password": "p"},
    ),
    "redis://user@h": ("tcp", {"host": "h", "username": "user"}),
    "redis://user:@h": ("tcp", {"host": "h", "username": "user"}),
    "redis://:pw@h": ("tcp", {"host": "h", "password": "pw"}),
    "redis://user:pw@h:1/2": (
        "tcp",
        {"host": "h", "port": 1, "db": 2, "username": "user", "password": "pw"},
    ),
    "redis://h?username=user&password=a+b": (
        "tcp",
        {"host": "h", "username": "user", "password": "a+b"},
    ),
    "redis://h/0?password=p@ss": ("tcp", {"host": "h", "db": 0, "password": "p@ss"}),
    "redis://u:pw@h/0?password=other": (
        "tcp",
        {"host": "h", "db": 0, "username": "u", "password": "pw"},
    ),
    "unix:///run/redis.sock": ("unix", {"path": "/run/redis.sock"}),
    "unix:///run/redis@6379/a.sock?db=2": ("unix", {"path": "/run/redis@6379/a.sock", "db": 2}),
    "unix:///run/my%20redis.sock": ("unix", {"path": "/run/my redis.sock"}),
    "unix:///run/r.sock?password=a@b": ("unix", {"path": "/run/r.sock", "password": "a@b"}),
    "unix://user:pw@/run/r.sock?db=1": (
        "unix",
        {"path": "/run/r.sock", "db": 1, "username": "user", "password": "pw"},
    ),
    "unix://:p/w@x@/run/r.sock": ("unix", {"path": "/run/r.sock", "password": "p/w@x"}),
}


@pytest.mark.parametrize("url", list(FORMS))
def test_forms(url: str) -> None:
    """B019, P87, user-needs 44: transport, host, port, database, user and password all arrive."""
    address = parsed(url)
    assert (address.transport, dict(address.arguments)) == FORMS[url]


PASSWORDS = [
    "plain",
    "slash/in/it",
    "at@sign",
    "two@at@signs",
    "hash#tag",
    "question?mark",
    "question?a_b=mark",
    "colon:s:",
    "per%cent",
    "percent%",
    "50%/41%41",
    "plus+sign",
    "a&b=c;d,e",
    "umlauts äöüß",
    "日本語",
    "[brackets]",
    "@",
    "/",
    "#",
    "?",
    "back\\slash",
    "quote\"s'",
    "looks/like:1@host:2/3",
]
PLACES = ["host:6379/0", "host", "[::1]:6379", "host/5?ssl_ca_certs=/etc/a@b/ca#1.pem"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("user", ["", "us/er@home"])
@pytest.mark.parametrize("spelling", ["raw", "encoded"])
def test_any_password(spelling: str, user: str, password: str, place: str) -> None:
    """P87, bullmq-python 3: written as it is (which hangs in the package), or percent-encoded."""
    credentials = (
        f"{quote(user, safe='')}:{quote(password, safe='')}"
        if spelling == "encoded"
        else f"{user}:{password}"
    )
    arguments = parsed(f"rediss://{credentials}@{place}").arguments
    assert arguments["password"] == password
    assert arguments.get("username", "") == user
    assert arguments["host"] in ("host", "::1")
    assert arguments.get("ssl_ca_certs") in (None, "/etc/a@b/ca#1.pem")


TLS_OPTIONS: dict[str, tuple[str, Any]] = {
    "ssl_cert_reqs=none": ("ssl_cert_reqs", "none"),
    "ssl_cert_reqs=CERT_REQUIRED": ("ssl_cert_reqs", "required"),
    "ssl_check_hostname=false": ("ssl_check_hostname", False),
    "ssl_check_hostname=1": ("ssl_check_hostname", True),
    "ssl_ca_certs=/etc/my+ca%20.pem": ("ssl_ca_certs", "/etc/my+ca .pem"),
    "ssl_ca_path=/etc/ssl/certs": ("ssl_ca_path", "/etc/ssl/certs"),
    "ssl_certfile=/c.pem": ("ssl_certfile", "/c.pem"),
    "ssl_keyfile=/k.pem": ("ssl_keyfile", "/k.pem"),
    "ssl_min_version=TLSv1.3": ("ssl_min_version", ssl.TLSVersion.TLSv1_3),
    "ssl_min_version=771": ("ssl_min_version", ssl.TLSVersion.TLSv1_2),
    "ssl_ciphers=ECDHE": ("ssl_ciphers", "ECDHE"),
}


@pytest.mark.parametrize(
    # Two of them came with redis-py 7.
    "option",
    [option for option in TLS_OPTIONS if option.split("=")[0] in SSL_OPTIONS],
)
def test_options_of_tls(option: str) -> None:
    """P87: certificates, keys and checks arrive."""
    name, value = TLS_OPTIONS[option]
    assert parsed(f"rediss://h/0?{option}").arguments[name] == value


@pytest.mark.parametrize(
    "option",
    [
        "socket_timeout=5",
        "socket_connect_timeout=5",
        "timeout=5",
        "health_check_interval=30",
        "retry_on_timeout=true",
        "retry_on_error=x",
        "max_connections=1",
        "decode_responses=false",
        "encoding=latin-1",
        "protocol=3",
        "client_name=web",
        "socket_read_size=1",
    ],
)
def test_what_would_break_workers_is_left_alone(option: str) -> None:
    """bullmq-python 1.1: a socket_timeout of five seconds stops delayed jobs of an idle queue."""
    address = parsed(f"redis://h:1/0?{option}")
    assert dict(address.arguments) == {"host": "h", "port": 1, "db": 0}


SECRET = "hunter2"
NONSENSE: dict[str, str] = {
    f"http://:{SECRET}@h/0": "must begin with one of redis://",
    f"redis:/:{SECRET}@h/0": "must begin with one of",
    f":{SECRET}@h:6379/0": "must begin with one of",
    f"redis://:{SECRET}": "no usable Redis URL",
    f"redis://h:{SECRET}": "no usable Redis URL",
    f"redis://user:{SECRET}@h:port/0": "no usable Redis URL",
    f"redis://user:{SECRET}@h:99999/0": "no usable Redis URL",
    f"redis://user:{SECRET}@h:0/0": "no usable Redis URL",
    f"redis://user:{SECRET}@h:6379/{SECRET}": "no usable Redis URL",
    f"redis://user:{SECRET}@h:6379/0/1": "no usable Redis URL",
    f"redis://user:{SECRET}@h:6379/-1": "no usable Redis URL",
    f"redis://user:{SECRET}@::1:6379/0": "no usable Redis URL",
    f"redis://:{SECRET}@h/0?db={SECRET}": "database must be a number",
    f"redis://:{SECRET}@h/0?db=-1": "database must be a number",
    f"redis://:{SECRET}@h/0?tls=true": "use a rediss:// address, not the option 'tls'",
    f"redis://:{SECRET}@h/0?ssl=true": "use a rediss:// address",
    f"redis://:{SECRET}@h/0?ssl_cert_reqs=none": "ssl_cert_reqs, but no TLS",
    f"unix://:{SECRET}@/r.sock?ssl_cert_reqs=none": "ssl_cert_reqs, but no TLS",
    f"rediss://:{SECRET}@h/0?ssl_cert_reqs={SECRET}": "none, optional or required",
    f"rediss://:{SECRET}@h/0?ssl_check_hostname={SECRET}": "ssl_check_hostname has an unknown",
    f"rediss://:{SECRET}@h/0?ssl_min_version=SSLv1{SECRET}": "ssl_min_version has an unknown",
    f"rediss://:{SECRET}@h/0?ssl_ca_cert=/x": "unknown option 'ssl_ca_cert' .*'?ssl_ca_certs",
    f"redis://:{SECRET}@h/0?maxRetriesPerRequest=3": "unknown option 'maxRetriesPerRequest'",
    f"rediss://:{SECRET}@h/0?ssl_validate_ocsp=true": "unknown option|not supported",
    f"unix://:{SECRET}@": "names no socket",
    "unix://": "names no socket",
    "unix:///": "names no socket",
    "unix://relative/r.sock": "names no socket",
}


@pytest.mark.parametrize("url", list(NONSENSE))
def test_nonsense_is_refused_without_showing_the_password(url: str) -> None:
    """P87: the message names the setting and what is wrong; a password may stand anywhere."""
    with pytest.raises(SettingsError, match=NONSENSE[url]) as raised:
        parsed(url)
    assert SETTING in str(raised.value)
    chain: BaseException | None = raised.value
    while chain is not None:
        shown = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
        assert SECRET not in str(chain)
        chain = shown


TEXTS = {
    "redis://u:hunter2@h": "redis://h:6379/0",
    "rediss://u:hunter2@h:1/3": "rediss://h:1/3",
    "redis://:hunter2@[::1]:7/2": "redis://[::1]:7/2",
    "unix://:hunter2@/run/r.sock?db=4": "unix:///run/r.sock?db=4",
}


@pytest.mark.parametrize("url", list(TEXTS))
def test_an_address_shows_no_secret(url: str) -> None:
    """P38, P87: neither its text nor its repr, which end up in messages and logs."""
    address = parsed(url)
    assert str(address) == TEXTS[url]
    assert "hunter2" not in repr(address)
    assert address.secrets == ("hunter2",)


def test_the_secrets_of_an_address_include_that_of_a_key() -> None:
    address = RedisAddress("tls", {"ssl_password": "hunter2", "password": "pw"}, SETTING)
    assert set(address.secrets) == {"hunter2", "pw"}


def test_keys_tell_addresses_apart() -> None:
    """user-needs 44: a client is made again when anything of the address changes."""
    urls = ["redis://h", "rediss://h", "redis://h/1", "redis://:a@h", "redis://:b@h", "redis://g"]
    assert len({parsed(url).key for url in urls}) == len(urls)
    assert parsed("redis://h?timeout=1").key == parsed("redis://h").key
