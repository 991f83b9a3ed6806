"""A hook that raises makes a failure of a success."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "the hook that was told of a completed job was called inside the same try as the "
        "handler, so that its error failed the attempt, and the job ran again."
    ),
    test=(
        "tests/unit/run/test_signals.py::"
        "test_a_receiver_that_raises_changes_nothing[completed-ValueError]"
    ),
    fails_at='assert settlement == Complete("fine")',
    changes=(
        Replacement(
            "kumiko_django/run/runner.py",
            old="""\
            outcome = self._classify(run, ending)
        except Exception as error:
""",
            new="""\
            outcome = self._classify(run, ending)
            if isinstance(outcome, Completed):
                signals.job_completed.send(run.definition, run=run.info(), outcome=outcome, logs=())
        except Exception as error:
""",
        ),
    ),
)
