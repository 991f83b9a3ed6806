"""Secrets leave error texts, and nothing else does (P38)."""

from __future__ import annotations

import time
import traceback
from urllib.parse import quote

import pytest

from kumiko_django.types.scrub import cut_end, cut_start, scrub

pytestmark = pytest.mark.once

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9Pl"

# The secret in each text is S3cr3t or stands beside it; what must remain stands beside that.
SECRETS: list[tuple[str, str, str]] = [
    # Addresses.
    ("redis://:S3cr3t@host:6379/0", "S3cr3t", "redis://:***@host:6379/0"),
    ("redis://user:S3cr3t@host", "S3cr3t", "redis://user:***@host"),
    ("rediss://u:p@S3cr3t/w#rd@host:6380/1", "S3cr3t", "rediss://u:***@host:6380/1"),
    ("redis://u:S3c?r3t=x&y@host/0", "S3c", "redis://u:***@host/0"),
    ("redis://u:12345/S3cr3t@host/0", "S3cr3t", "redis://u:***@host/0"),
    ("valkeys://u:S3cr3t@host", "S3cr3t", "valkeys://u:***@host"),
    ("unix://u:S3cr3t@/run/redis.sock", "S3cr3t", "unix://u:***@/run/redis.sock"),
    ("postgres://app@tenant:S3cr3t@db:5432/x", "S3cr3t", "postgres://app@tenant:***@db:5432/x"),
    ("postgresql+psycopg://app:S3/cr3t@db/x", "S3/", "postgresql+psycopg://app:***@db/x"),
    ("amqp://guest:S3cr3t@mq//", "S3cr3t", "amqp://guest:***@mq//"),
    ("mongodb+srv://u:S3cr3t@c.example.com/db", "S3cr3t", "@c.example.com/db"),
    ("https://u:S3cr3t@host/path?q=1", "S3cr3t", "https://u:***@host/path?q=1"),
    ("ftp://u:S3cr3t%40@host/", "S3cr3t", "ftp://u:***@host/"),
    ("a http://a:S3cr3t@b/x and http://c:S3cr3t@d/y", "S3cr3t", "http://c:***@d/y"),
    ("fetch https://ghp_0123456789abcdefS3cr3t@github.com/x", "S3cr3t", "https://***@github.com/x"),
    ('{"url":"redis://u:S3cr3t@host","mail":"a@b.c"}', "S3cr3t", '@host","mail":"a@b.c"}'),
    ("redis://host/0?password=S3cr3t&db=1", "S3cr3t", "?password=***&db=1"),
    ("https://s3/x?X-Amz-Signature=S3cr3t00&X=1", "S3cr3t", "X-Amz-Signature=***&X=1"),
    # key=value in its forms.
    ("host=db password=S3cr3t user=app", "S3cr3t", "host=db password=*** user=app"),
    ("host=db password='a S3cr3t b' user=app", "S3cr3t", "password='***' user=app"),
    ("host=db password=se)cr,S3cr3t;x", "S3cr3t", "host=db password=***"),
    ("Server=a;Password=S3cr3t;Database=d", "S3cr3t", "Server=a;Password=***;Database=d"),
    ("connect(host='a', password='S3cr3t')", "S3cr3t", "connect(host='a', password='***')"),
    ("f(token=S3cr3t)", "S3cr3t", "f(token=***)"),
    ("SECRET_KEY=S3cr3t", "S3cr3t", "SECRET_KEY=***"),
    ("DB_PASS=S3cr3t", "S3cr3t", "DB_PASS=***"),
    ("PGPASSWORD=S3cr3t psql", "S3cr3t", "PGPASSWORD=*** psql"),
    ("AWS_SECRET_ACCESS_KEY=wJalr/S3cr3t+x", "S3cr3t", "AWS_SECRET_ACCESS_KEY=***"),
    ("accessToken=S3cr3t", "S3cr3t", "accessToken=***"),
    ("client_secret: S3cr3t", "S3cr3t", "client_secret: ***"),
    ("api-key => S3cr3t", "S3cr3t", "api-key => ***"),
    ("X-Api-Key: S3cr3t", "S3cr3t", "X-Api-Key: ***"),
    ("password1=S3cr3t&password2=S3cr3t", "S3cr3t", "password1=***&password2=***"),
    ("password: swordfish", "swordfish", "password: ***"),
    ("passphrase: S3cr3t and more", "S3cr3t", "passphrase: *** and more"),
    ("password=S3cr3t\nnext line stays", "S3cr3t", "password=***\nnext line stays"),
    ("--password=S3cr3t", "S3cr3t", "--password=***"),
    ("['mysql', '--password', 'S3cr3t', 'db']", "S3cr3t", "['mysql', '--password', '***', 'db']"),
    ("tokens: ['S3cr3t', 'S3cr3t2']", "S3cr3t", "tokens: [***]"),
    # JSON and Python.
    ('{"password": "S3cr3t", "n": 1}', "S3cr3t", '{"password": "***", "n": 1}'),
    ('{"password": "a S3cr3t b", "n": 1}', "S3cr3t", '{"password": "***", "n": 1}'),
    (r'{"password": "a\"S3cr3t", "n": 1}', "S3cr3t", '{"password": "***", "n": 1}'),
    ('{"password":12345678}', "12345678", '{"password":***}'),
    (r"{\"password\": \"a S3cr3t\", \"n\": 1}", "S3cr3t", r"{\"password\": \"***\", \"n\": 1}"),
    ("{'password': b'S3cr3t', 'n': 2}", "S3cr3t", "{'password': b'***', 'n': 2}"),
    ('{"password": "S3cr3t and then it was cut', "S3cr3t", '{"password": "***'),
    ('{"refresh_token":"S3cr3t"}', "S3cr3t", '{"refresh_token":"***"}'),
    # Headers.
    ("Authorization: Bearer S3cr3t.x-y_z", "S3cr3t", "Authorization: Bearer ***"),
    ("Authorization: Basic dXNlcjpTM2NyM3Q=", "dXNl", "Authorization: Basic ***"),
    ("authorization=token 9944b09199S3cr3t", "S3cr3t", "authorization=token ***"),
    ("Authorization: S3cr3t-0123456", "S3cr3t", "Authorization: ***"),
    ("Proxy-Authorization: Basic dTpw", "dTpw", "Proxy-Authorization: Basic ***"),
    ("Authorization: Digest username=u, response=S3cr3t", "S3cr3t", "Authorization: Digest ***"),
    (
        "Authorization: AWS4-HMAC-SHA256 Credential=AKIA/x, Signature=S3cr3t",
        "S3cr3t",
        "Authorization: AWS4-HMAC-SHA256 ***",
    ),
    ("{'Authorization': 'Bearer S3cr3t123', 'X': 'y'}", "S3cr3t", "'Bearer ***', 'X': 'y'}"),
    ("[(b'authorization', b'Bearer S3cr3t123')]", "S3cr3t", "b'Bearer ***')]"),
    ("('X-Api-Key', 'S3cr3t')", "S3cr3t", "('X-Api-Key', '***')"),
    ("the header was Bearer S3cr3t123, said curl", "S3cr3t", "Bearer ***, said curl"),
    ("curl -u: Basic dXNlcjpTM2NyM3Q= failed", "dXNl", "Basic *** failed"),
    ("Cookie: sessionid=S3cr3t; csrftoken=S3cr3t", "S3cr3t", "Cookie: ***"),
    (
        "{'Set-Cookie': 'sessionid=S3cr3t; Path=/', 'a': 1}",
        "S3cr3t",
        "'Set-Cookie': '***', 'a': 1}",
    ),
    # By their looks.
    (f"got {JWT} from", "dozjgNry", "got *** from"),
    ("key ghp_0123456789abcdefS3cr3t is bad", "S3cr3t", "key *** is bad"),
    ("stripe says sk_live_0123456789S3cr3t", "S3cr3t", "stripe says ***"),
    ("slack xoxb-0123456789-S3cr3t", "S3cr3t", "slack ***"),
    (
        "-----BEGIN RSA PRIVATE KEY-----\nMIIS3cr3t\n-----END RSA PRIVATE KEY-----\nafter",
        "S3cr3t",
        "-----BEGIN RSA PRIVATE KEY----- ***\nafter",
    ),
    ("-----BEGIN PRIVATE KEY-----\nMIIS3cr3t and cut", "S3cr3t", "-----BEGIN PRIVATE KEY----- ***"),
]


@pytest.mark.parametrize(("text", "secret", "remains"), SECRETS, ids=[t[0][:50] for t in SECRETS])
def test_a_secret_is_masked_and_what_is_beside_it_remains(
    text: str, secret: str, remains: str
) -> None:
    scrubbed = scrub(text)

    assert secret not in scrubbed
    assert remains in scrubbed


@pytest.mark.parametrize("text", [t[0] for t in SECRETS])
def test_scrubbing_twice_is_as_good_as_once(text: str) -> None:
    """A text goes through it more than once on its way to the history."""
    assert scrub(scrub(text)) == scrub(text)


@pytest.mark.parametrize("text", [t[0] for t in SECRETS if not t[0].endswith("and cut")])
def test_secrets_are_found_in_the_middle_of_a_long_text(text: str) -> None:
    around = "Something failed, at last.\n"

    assert scrub(around + text + "\n" + around) == around + scrub(text + "\n") + around


ORDINARY = [
    "",
    "division by zero",
    "Basic authentication failed for user bob",
    "a basic understanding of the matter",
    "Basic functionality is restored",
    "Bearer authentication is required",
    "the bearer of this letter",
    "Authorization: Bearer token is missing",
    "Authorization: required",
    "authorization failed: no such user",
    'FATAL:  password authentication failed for user "app"',
    'connection to server at "db" (10.0.0.1), port 5432 failed: Connection refused',
    "WRONGPASS invalid username-password pair or user is disabled.",
    "NOAUTH Authentication required.",
    "password: This password is too short.",
    "{'password': ['This password is too short. It must contain at least 8 characters.']}",
    '{"password": "This field may not be blank."}',
    "KeyError: 'password'",
    "'User' object has no attribute 'token'",
    "token: unexpected end of input",
    "Invalid token: expired three days ago",
    "password=None, token=null, secret=''",
    "max_tokens=4096, total_tokens: 1532",
    "if token == expected:",
    "self.password != other.password",
    "def login(password: str) -> None:",
    "Secretary: Ms Smith",
    "the tokenizer: it splits words",
    "passwordless=yes",
    "compass: north, bypass: no",
    "http://localhost:8000/users/@me",
    "http://host:8080/path?email=user@example.com",
    "https://example.com/a?b=c&d=e#f",
    "git@github.com:org/repo.git",
    "ssh://git@github.com:22/org/repo@v1.2",
    "docker://registry:5000/image@sha256:abcdef",
    "mail to user@example.com at 10:30",
    "redis://localhost:6379/0",
    "Error 111 connecting to localhost:6379. Connection refused.",
    "Cookie: a small cake",
    "cookies are off",
    "IntegrityError: UNIQUE constraint failed: shop_order.number",
    "KeyError: UUID('018f0000-0000-7000-8000-000000000000')",
    "fields ('token', 'user') must make a unique set",
    "See https://docs.python.org/3/library/secrets.html for more",
    "sk-learn is not installed; use scikit-learn",
    "SELECT key, value FROM settings WHERE key = 'a'",
    "Zürich \u2603 \U0001f600: größer als 5 €",
    "::1 is localhost; std::string is not a secret",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_an_ordinary_text_stays_as_it_is(text: str) -> None:
    """An error that cannot be read helps nobody."""
    assert scrub(text) == text


def test_a_traceback_stays_readable() -> None:
    password = "S3cr3t"

    def connect(url: str) -> None:
        raise ConnectionError(f"cannot reach {url} with {{'password': '{password}', 'db': 0}}")

    try:
        connect(f"redis://:{password}@host:6379/0")
    except ConnectionError as error:
        text = "".join(traceback.format_exception(error))

    scrubbed = scrub(text)

    assert "S3cr3t" in text
    assert "ConnectionError: cannot reach redis://:***@host:6379/0" in scrubbed
    assert "{'password': '***', 'db': 0}" in scrubbed
    assert "in connect" in scrubbed
    assert scrubbed.count("\n") == text.count("\n")
    assert len(scrubbed) > 0.9 * len(text)


# -------------------------------------------------------------------------- exact values


@pytest.mark.parametrize(
    "text",
    [
        "the value p@ss/w#rd\"'ä was wrong",
        f"the value {quote('p@ss/w#rd' + chr(34) + chr(39) + 'ä', safe='')} was wrong",
        r"the value p@ss/w#rd\"'\u00e4 was wrong",
        "the value p@ss/w#rd\\\"'ä was wrong",
    ],
    ids=["as it is", "in a URL", "in JSON", "in JSON with umlauts"],
)
def test_a_known_secret_is_masked_in_every_spelling(text: str) -> None:
    assert scrub(text, ["p@ss/w#rd\"'ä"]) == "the value *** was wrong"


def test_a_secret_that_contains_another_leaves_nothing_of_itself() -> None:
    """Masked in the order given, "password" would leave "123456" behind."""
    for secrets in (["password", "password123456"], ["password123456", "password"]):
        assert scrub("x password123456 y password z", secrets) == "x *** y *** z"


@pytest.mark.parametrize(
    ("secret", "text", "scrubbed"),
    [
        ("test", "the latest test_run of test failed", "the latest ***_run of *** failed"),
        ("postgres", "postgresql at postgres:5432", "postgresql at ***:5432"),
        ("abc", "abc is too short to be sure", "abc is too short to be sure"),
        ("", "nothing", "nothing"),
        ("Xk9vPq2mLw7z", "glued:aXk9vPq2mLw7zb", "glued:a***b"),
        ("a.b*", "a.b* and aXbb", "*** and aXbb"),
    ],
)
def test_a_short_known_secret_is_masked_as_a_word(secret: str, text: str, scrubbed: str) -> None:
    """Development passwords are ordinary words, and stand inside of others."""
    assert scrub(text, [secret]) == scrubbed


# ---------------------------------------------------------------------------------- speed, cuts

HOSTILE = {
    "names": "a-" * 100_000,
    "dots": "a." * 100_000,
    "schemes": "://" * 70_000,
    "addresses": "a://b:" * 35_000,
    "server addresses": "redis://a:" * 20_000,
    "keywords": "password=" * 22_000,
    "quotes": 'password="' * 20_000,
    "escapes": '\\"token\\":' * 20_000,
    "brackets": "token=a" + ")" * 200_000,
    "spaces": "token" + " " * 200_000,
    "lists": "token:['" * 25_000,
    "keys": "-----BEGIN PRIVATE KEY-----" * 7_000,
    "basic": "Basic " * 33_000,
    "tokens": "eyJaaaaaaaaa." * 15_000,
    "cookies": "cookie:a=" * 22_000,
    "headers": "authorization:" * 14_000,
    "sentence": 'token="A' + " a" * 100_000 + '"',
    "backslashes": "token='" + "\\" * 200_000,
    "commas": "token=a" + ",a" * 100_000,
    "one word": "x" * 200_000,
    "base64": "Basic " + "QUJD" * 50_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_text_takes_long(text: str) -> None:
    """The text may come from outside; one that takes minutes would hold a worker.

    200 kB take a fraction of a second; with a pattern that looks back and forth they take hours.
    """
    started = time.process_time()
    scrub(text)

    assert time.process_time() - started < 10


@pytest.mark.parametrize("limit", [0, 1, 5, 20, 26, 27, 50, 199, 200, 201, 500])
@pytest.mark.parametrize("cut", [cut_end, cut_start])
def test_a_cut_text_is_never_longer_than_its_limit(cut: object, limit: int) -> None:
    text = "x" * 100 + "y" * 100
    shortened = cut_end(text, limit) if cut is cut_end else cut_start(text, limit)

    assert len(shortened) <= limit or shortened == text
    assert (shortened == text) == (limit >= 200)


def test_the_note_says_how_much_is_gone() -> None:
    text = "A" * 1000 + "Z" * 1000

    head, tail = cut_end(text, 100), cut_start(text, 100)

    kept = head.count("A")
    assert head == "A" * kept + f" [{2000 - kept} characters cut]"
    assert tail == f"[{2000 - kept} characters cut]\n" + "Z" * kept
    assert kept > 70
