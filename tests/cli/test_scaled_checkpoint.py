"""levelbench run --ranks 2 --checkpoint: a command that was killed, given again."""

import pytest
from tests.experiments.team_jobs import DYING, alike, left_of

from levelbench.records import Store
from levelbench.records.ranks import teamwork
from levelbench.training.checkpoints import checkpoint_of, part_of


@pytest.mark.slow
def test_a_run_on_two_ranks_that_was_killed_and_given_again_equals_one_that_was_not(call, tmp_path, monkeypatch):
    pytest.importorskip("mpi4py")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    task, cut, whole = tmp_path / "dying.py", Store(tmp_path / "cut"), Store(tmp_path / "whole")
    task.write_text(DYING)
    words = ["run", task, "--framework", "numpy", "--ranks", "2", "--engine", "mpi", "-n", "1"]
    words += ["--checkpoint", "1 epoch", "--store"]
    task.with_suffix(".left").write_text("2")
    _, _, err = call(*words, cut.path)
    assert "rank 0 was killed by SIGKILL" in " ".join(err.split())
    (before,) = cut.records()
    assert before.status == "interrupted"
    kept = checkpoint_of(before.path)
    assert (kept.is_file(), part_of(kept, 17, 1).is_file()) == (True, True)
    # The target is out of reach.
    assert call(*words, cut.path)[0] == 1
    (record,) = (each for each in cut.records() if each.status == "done")
    assert any("resumed from a checkpoint at step 17" in each for each in record.end.suspect)
    _, (report,), others = left_of(cut)
    assert (report.startswith("report-dying-"), others) == (True, [])
    assert record.evaluations[0] == before.evaluations[0]
    assert [len(each["step_time"].values) for each in record.ranks.values()] == [51, 51]
    found = teamwork(record)
    assert found.sent_bytes == found.predicted_bytes > 0
    assert len(record.end.environment_after["team"]["peak_memory_bytes_by_rank"]) == 2
    assert call(*words, whole.path)[0] == 1
    alike(record, whole.records()[0])
