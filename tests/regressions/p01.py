"""Two dispatchers that both see nobody, and both add."""

from __future__ import annotations

from tests.regressions.regression import Regression, Replacement

REGRESSION = Regression(
    was=(
        "skip asked first whether there was a peer and added the job afterwards, in a "
        "second step; of many dispatchers at once several found none."
    ),
    test="tests/integration/admission/test_races.py::test_however_closely_they_meet",
    fails_at="assert Counter(statuses) == {",
    changes=(
        Replacement(
            "kumiko_django/broker/scripts/door.lua",
            old="""\
if rules.mode == "skip" and occupied(rules.mode_key, 1) >= 1 then
  return {"skipped", "skipped"}
end
""",
            new="",
        ),
        Replacement(
            "kumiko_django/broker/producer.py",
            old="""\
    calls = [job.call()]
    with sync_client() as client:
        answers = _run(client, calls)
""",
            new="""\
    calls = [job.call()]
    with sync_client() as client:
        if job.rules is not None and job.rules.mode == "skip":
            places = f"{door._bases()['base']}places:{job.rules.mode_key}"
            if client.zcard(places):
                return Decision(job.job_id, "skipped", "skipped")
        answers = _run(client, calls)
""",
        ),
    ),
)
