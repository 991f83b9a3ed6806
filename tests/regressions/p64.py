"""A dispatch that outlives the rollback of its transaction."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "a dispatch went to the queue at once, also inside a transaction: its job ran "
        "before the commit, and after a rollback as well."
    ),
    test="tests/integration/dispatching/test_transactions.py::test_a_rollback_leaves_nothing",
    fails_at="assert queue.counts() == dict.fromkeys(queue.counts(), 0)",
    changes=(
        Replacement(
            "kumiko_django/dispatching/dispatcher.py",
            old="""\
    if not immediate and _left_to_commit(definition, jobs, using):
        return _left(jobs)
""",
            new="",
        ),
        Replacement(
            "kumiko_django/dispatching/dispatcher.py",
            old="""\
    if not immediate and await _aleft_to_commit(definition, jobs, using):
        return _left(jobs)
""",
            new="",
        ),
    ),
)
