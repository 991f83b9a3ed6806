"""A payload that names its tenant."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "metadata stood among the keys of the payload, and what the caller's payload had "
        "there was taken for it: data of a user chose the tenant of the run."
    ),
    test="tests/unit/dispatching/test_request.py::test_a_payload_never_carries_metadata",
    fails_at='with pytest.raises(PayloadError, match="reserved for metadata") as raised:',
    changes=(
        Replacement(
            "kumiko_django/broker/envelope.py",
            old="""\
        refuse_reserved_keys(self.payload)
        data: dict[str, JSON] = {**self.payload, **_wire(self.meta), "_v": FORMAT_VERSION}
""",
            new="""\
        data: dict[str, JSON] = _wire(self.meta)
        data |= {"_v": FORMAT_VERSION, **self.payload}
""",
        ),
    ),
)
