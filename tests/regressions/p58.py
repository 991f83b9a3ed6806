"""Gates that hold nothing back."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "the worker was started first and the gates were run when it was ready, while it "
        "consumed already."
    ),
    test=(
        "tests/integration/worker/test_gates.py::"
        "test_nothing_is_consumed_before_the_gates_have_passed"
    ),
    fails_at="assert state.wait == [queued.job_id]",
    changes=(
        Replacement(
            "kumiko_django/worker/host.py",
            old="""\
            gates_ended = await self._before_consuming()
            if self._stop.is_set():
                return gates_ended
            consuming = self._consume()
""",
            new="""\
            consuming = self._consume()
            await asyncio.sleep(2)  # until the worker is ready
            gates_ended = await self._before_consuming()
            if self._stop.is_set():
                return gates_ended
""",
        ),
    ),
)
