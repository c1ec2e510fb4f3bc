"""``levelbench run --keep-model``: which networks are kept, and what is said where one is not."""

import pytest

from levelbench.errors import StoreError
from levelbench.experiments import training
from levelbench.experiments.child import boundary
from levelbench.experiments.inference.models import model_path
from levelbench.experiments.training import Finished
from levelbench.records import Store

RUN = ("run", "digits[hidden=4]", "--framework", "numpy", "--epochs", "1", "-n", "1", "--no-report", "--keep-model")


@pytest.fixture
def run(call, monkeypatch, tmp_path):
    """The command on a store of this test's, with its runs made in this process."""

    def launch(job, on_progress, starter=None):
        told = []
        boundary(job, told.append)
        path = next(each.path for each in told if each.path)
        error = next((each.error for each in told if each.error), None)
        return Finished(path, StoreError(*error) if error else None)

    monkeypatch.setattr(training, "launch", launch)
    return lambda *words: call(*RUN, "--store", tmp_path, *words)


def test_a_network_that_was_kept_is_in_the_store_and_the_same_command_has_nothing_to_say_of_it(run, tmp_path):
    run()
    (record,) = Store(tmp_path).records()
    assert model_path(tmp_path, record.header.key, 0).is_file()
    code, out, _ = run()
    assert code == 1
    assert "1 done · 0 to go" in out
    assert "made again to be kept" not in out


def test_a_run_whose_network_could_not_be_kept_is_done_and_the_next_command_says_how_to_keep_it(run, tmp_path):
    (tmp_path / "models").write_text("a file where the folder should be")
    code, out, err = run()
    assert code == 3
    assert "missed after" in out
    assert "failed" not in out
    assert "was not kept" in err
    assert "is done and counts" in err
    (tmp_path / "models").unlink()
    code, out, _ = run()
    assert code == 1
    assert "1 done · 0 to go" in out
    assert "1 of the runs are already finished and are not made again to be kept: --fresh makes them again" in out
