"""Deferred by the count, and not deferred."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "the count of deferrals was written before the job was moved; where the move "
        "failed, the job counted as deferred and was not."
    ),
    test="tests/integration/worker/test_deferring.py::test_a_lock_that_is_lost_defers_nothing",
    fails_at="assert state.job(job_id).data == before",
    changes=(
        Replacement(
            "kumiko_django/broker/lane_worker.py",
            old="""\
        field = records.record_field(delivery)
        try:
""",
            new="""\
        field = records.record_field(delivery)
        if isinstance(settlement, settling.Postpone):
            key = f"{self._scripts.keys['']}{job.id}"
            await self.channel.execute("HSET", key, "data", settlement.data)
        try:
""",
        ),
    ),
)
