"""Of a Redis URL, only host and port."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "the URL was taken apart, and host and port were kept: user, password, TLS, unix "
        "socket and database number were lost."
    ),
    test="tests/integration/broker/test_reach.py::test_urls[user]",
    fails_at="arrive(server, queue_prefix, database)",
    changes=(
        Replacement(
            "kumiko_django/broker/redis_url.py",
            old="""\
    arguments |= {name: value for name, value in given.items() if value}
    return checked(transport, arguments, setting)
""",
            new="""\
    kept = {name: arguments[name] for name in ("host", "port") if name in arguments}
    return RedisAddress("tcp", kept, setting)
""",
        ),
    ),
)
