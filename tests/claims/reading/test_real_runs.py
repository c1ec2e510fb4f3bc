"""Five real trainings, as ``levelbench run digits -n 5`` makes them, have no error and no warning."""

import pytest

from levelbench.claims.lint import findings_of
from levelbench.claims.reading.records import read_runs
from levelbench.experiments.child import execute
from levelbench.experiments.jobs import Job
from levelbench.experiments.request import Options, resolve
from levelbench.records import Store, new_id


@pytest.mark.slow
def test_a_clean_complete_run_of_digits_has_no_error_and_no_warning(tmp_path):
    arm = resolve("digits", {}, Options(framework="numpy"))
    for seed in range(5):
        # In this process: what a process of its own would add is not in the record.
        job = Job(arm.reference, arm.specification, arm.key, seed, new_id(), str(tmp_path))
        execute(job, lambda message: None)
    (claim,) = read_runs("digits", Store(tmp_path))
    side = claim.sides[0]
    assert (side.runs_made, side.runs_reached, side.clock.policy) == (5, 5, "wall")
    assert [each for each in findings_of(claim) if each.severity != "not-stated"] == []
