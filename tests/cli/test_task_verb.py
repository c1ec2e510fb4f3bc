"""``levelbench task tune-target`` for real, on the bundled digits."""

import json
from pathlib import Path

import pytest

from levelbench.records.reader import Record
from levelbench.records.schema import Evaluation, Header, Source, Specification, Target
from levelbench.runner import campaign


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A store that the tests of this file share: ten runs are made once."""
    return tmp_path_factory.mktemp("curves")


def record(qualities, seed):
    """A run that was evaluated after each of its epochs, of 100 steps and a second."""
    target = Target("top1", 0.9, "higher")
    specification = Specification("digits", "mlp", "numpy", "cpu", {}, target, "sustained", "wall", "1 epoch", 8.0)
    header = Header(1, f"{seed:08d}", "k", seed, "2026-01-01T00:00:00", specification, {}, Source("t", "", ""), "0")
    evaluations = []
    for epoch, quality in enumerate(qualities, 1):
        phases = {"forward": epoch * 900_000_000, "evaluate": epoch * 100_000_000}
        seen = {"validation": quality}
        evaluations.append(Evaluation(sum(phases.values()), 100 * epoch, epoch, 3200 * epoch, seen, 1.0, phases))
    return Record(Path(), header, tuple(evaluations), {}, (), None, "done")


@pytest.fixture
def in_this_process(monkeypatch):
    """Make runs here: ten processes would take most of a minute, and that they work is tested elsewhere."""
    from levelbench.runner.child import execute
    from levelbench.runner.launch import Finished

    def launch(job, watch):
        told = []
        execute(job, told.append)
        return Finished(next(Path(message.path) for message in told if message.path), None)

    monkeypatch.setattr(campaign, "launch", launch)


WORDS = ("task", "tune-target", "digits[hidden=32]", "--framework", "numpy", "--epochs", "12")


def test_ten_runs_become_a_proposal_and_are_not_made_again(call, folder, in_this_process):
    code, out, err = call(*WORDS, "--store", folder)
    assert code == 0
    assert "10 wanted · 0 done · 10 to go" in err
    assert "propose: target=0.9" in out
    assert 'evaluate_every="' in out
    assert "levelbench run digits -n " in out
    assert ", chosen" in out
    code, out, err = call(*WORDS, "--store", folder, "--json")
    found = json.loads(out)
    assert code == 0
    assert "10 wanted · 10 done · 0 to go" in err
    assert found["task"] == "digits"
    assert found["propose"][0] == f"target={found['target']['target']:g}"
    assert found["cadence"]["cost"] <= 0.05
    assert found["runs"]["n"] == 10


def test_where_there_is_no_target_nothing_is_proposed_and_no_empty_table_shown(call, tmp_path, monkeypatch):
    # Curves that are at their end from the second evaluation on.
    qualities = [0.1, *[0.9 + 0.001 * at for at in range(7)]]
    monkeypatch.setattr(campaign, "carry_out", lambda *_: {seed: record(qualities, seed) for seed in range(10)})
    code, out, _ = call(*WORDS[:-1], "8", "--store", tmp_path)
    assert code == 4
    assert "target: none: no knee" in out
    assert "nothing is proposed; the runs were evaluated every 1 epoch (--every) for 8 (--epochs)" in out
    assert not any(word in out for word in ("propose: ", "evaluate_every", " -n ", "(nothing)"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-n", "9"), "9 is not in the range"),
        (("--plot", "curves.txt"), "end it in .svg"),
        (("--recipe", "mpl"), "close: mlp"),
        (("--epochs", "-1"), "not positive"),
        (("--every", "often"), "that is none"),
        (("--cost", "2"), "it is no share"),
        (("--width", "0"), "it is no share"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_run(call, tmp_path, words, says):
    code, _, err = call("task", "tune-target", "digits", "--framework", "numpy", "--store", tmp_path, *words)
    assert code == 2
    assert says in err.replace("End it", "end it")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_task_answers_with_the_nearest(call, tmp_path):
    code, _, err = call("task", "tune-target", "digit", "--store", tmp_path)
    assert code == 2
    assert "close: digits" in err
