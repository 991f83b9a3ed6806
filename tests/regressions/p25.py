"""A hook that raises hides why the job has failed."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "an error of the hook that was told of a failure took the place of the handler's "
        "own, in the history and in the queue."
    ),
    test=(
        "tests/unit/run/test_signals.py::"
        "test_a_receiver_that_raises_changes_nothing[failed-ValueError]"
    ),
    fails_at="assert run.error == ",
    changes=(
        Replacement(
            "kumiko_django/run/runner.py",
            old="""\
            outcome = self._classify(run, ending)
        except Exception as error:
""",
            new="""\
            outcome = self._classify(run, ending)
            if isinstance(outcome, Failed):
                signals.job_failed.send(run.definition, run=run.info(), outcome=outcome, logs=())
        except Exception as error:
""",
        ),
    ),
)
