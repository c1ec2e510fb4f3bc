"""``levelbench analyze generalization``: what it prints, writes and exits with, and the order of its arms."""

import csv
import json

import numpy as np
import pytest
from tests.report.pages import needs_matplotlib

from levelbench.experiments import training
from levelbench.experiments.child import boundary
from levelbench.experiments.training import Finished


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store with three kept models of each of two sizes, one of them of too few units to learn much."""
    from tests.cli.conftest import main

    folder = tmp_path_factory.mktemp("made")

    def launch(job, on_progress, starter=None):
        told = []
        boundary(job, told.append)
        return Finished(next(each.path for each in told if each.path), None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "launch", launch)
        words = ("digits[hidden=2]", "digits[hidden=64]", "--framework", "numpy", "--epochs", "3", "-n", "3")
        with pytest.raises(SystemExit):
            main(["run", *words, "--keep-model", "--no-report", "--store", str(folder)])
    return folder


LARGE_FIRST = ("digits[hidden=64]", "digits[hidden=2]")


def test_the_first_runs_named_are_the_baseline_and_a_worse_arm_exits_with_1(call, made):
    words = ("analyze", "generalization", *LARGE_FIRST, "--on", "noise[severity=3]", "--store", made)
    code, out, _ = call(*words)
    assert code == 1
    assert "digits[hidden=2] against digits[hidden=64]: WORSE on test, noise[severity=3]" in out
    assert "Gaussian noise of deviation 0.08" in out
    code, out, _ = call(*words[:2], *LARGE_FIRST[::-1], *words[4:])
    assert code == 0
    assert "BETTER on test, noise[severity=3]" in out


def test_json_has_sets_scores_and_differences(call, made):
    words = ("--on", "contrast[severity=1]", "--store", made, "--json")
    _, out, _ = call("analyze", "generalization", *LARGE_FIRST, *words)
    found = json.loads(out)
    assert [each["name"] for each in found["sets"]] == ["test", "contrast[severity=1]"]
    against = found["scores"][-1]["against"]
    assert (against["kind"], against["paired"]) == ("WORSE", True)
    assert [each["seeds"] for each in found["arms"]] == [[0, 1, 2]] * 2


@needs_matplotlib
def test_tables_and_the_figure_are_written(call, made, tmp_path):
    files = ("--csv", tmp_path / "g.csv", "--markdown", tmp_path / "g.md", "--plot", tmp_path / "g.svg")
    call("analyze", "generalization", *LARGE_FIRST, "--on", "shift[severity=1]", "--store", made, *files)
    rows = list(csv.DictReader((tmp_path / "g.csv").read_text().splitlines()))
    assert [row["set"] for row in rows] == ["test", "test", "shift[severity=1]", "shift[severity=1]"]
    assert float(rows[0]["quality"]) > float(rows[1]["quality"])
    assert "# Generalization" in (tmp_path / "g.md").read_text()
    assert "digits[hidden=64] (n = 3)" in (tmp_path / "g.svg").read_text()


def test_arrays_on_another_scale_are_doubted_wherever_the_answer_goes(call, made, tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.random((40, 64), np.float32))
    np.save(tmp_path / "y.npy", np.arange(40) % 10)
    on = ("--on", f"{tmp_path}/x.npy,{tmp_path}/y.npy", "--store", made, "--markdown", tmp_path / "g.md")
    _, text, _ = call("analyze", "generalization", *LARGE_FIRST, *on)
    _, out, _ = call("analyze", "generalization", *LARGE_FIRST, *on, "--json")
    said = "are they on the task's scale?"
    assert said in " ".join(text.split())
    assert any(said in each for each in json.loads(out)["lines"])
    assert said in (tmp_path / "g.md").read_text()


def test_models_alone_are_shown_and_tell_nothing(call, made):
    words = ("digits[hidden=64]", "--on", "blur[severity=3]", "--store", made)
    code, out, _ = call("analyze", "generalization", *words)
    assert code == 4
    assert "nothing to compare with" in out


def test_without_data_it_says_what_can_be_named(call, made):
    code, _, err = call("analyze", "generalization", *LARGE_FIRST, "--store", made)
    assert code == 2
    assert "--on corruptions" in err


def test_runs_without_models_say_how_to_keep_them(call, store):
    code, _, err = call("analyze", "generalization", "digits", "--on", "noise", "--store", store)
    assert code == 3
    assert "--keep-model --fresh" in err


def test_the_tasks_training_data_is_refused(call, made):
    code, _, err = call("analyze", "generalization", *LARGE_FIRST, "--on", "train", "--store", made)
    assert code == 2
    assert "own data" in err


@pytest.mark.parametrize("margin", ["0", "100"])
def test_a_margin_that_is_no_number_of_points_is_refused_before_anything_is_scored(call, made, margin):
    code, _, err = call("analyze", "generalization", *LARGE_FIRST, "--on", "noise", "--store", made, "--margin", margin)
    assert code == 2
    assert "no number of points" in err
    assert "scoring" not in err


def test_the_command_that_keeps_models_makes_runs_of_the_settings_that_were_asked_for(call, tmp_path):
    words = ("digits[hidden=4,lr=0.02]", "--framework", "numpy", "--epochs", "1", "-n", "1", "--no-report")
    call("run", *words, "--store", tmp_path)
    _, _, err = call("analyze", "generalization", "digits", "--on", "noise[severity=1]", "--store", tmp_path)
    assert "levelbench run 'digits[recipe=mlp,framework=numpy,hidden=4,lr=0.02]' -n 1 --keep-model --fresh" in err
