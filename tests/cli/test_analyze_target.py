"""``levelbench analyze target`` for real, on the bundled digits."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from levelbench.cli import watching
from levelbench.errors import UsageError
from levelbench.experiments import training
from levelbench.records.reader import Record
from levelbench.records.schema import Evaluation, Header, Source, Specification, Target


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A store that the tests of this file share: ten runs are made once."""
    return tmp_path_factory.mktemp("curves")


def record(qualities, seed):
    """A run that was evaluated after each of its epochs, of 100 steps and a second."""
    target = Target("top1", 0.7, "higher")
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
    from levelbench.experiments.child import execute
    from levelbench.experiments.training import Finished

    def launch(job, watch, starter=None):
        told = []
        execute(job, told.append)
        return Finished(next(Path(message.path) for message in told if message.path), None)

    monkeypatch.setattr(training, "launch", launch)


@pytest.fixture
def climbing(monkeypatch):
    """Ten runs that climb to 0.95, past the 0.7 that they were made under, instead of any that is made."""
    luck = np.random.default_rng(0).normal(0, 0.002, (10, 20))
    curves = 0.95 - 0.85 * np.exp(-np.arange(1, 21) / 3) + luck
    found = {seed: record(curve.tolist(), seed) for seed, curve in enumerate(curves)}
    monkeypatch.setattr(watching, "carry_out", lambda *_, **__: found)


@pytest.fixture
def planned(call, monkeypatch):
    """What ``levelbench run`` would make of a printed command: its one arm, and the number of runs."""

    def parse(command):
        found = []

        def stop(kind, arms, seeds, *_, **__):
            found.append((arms, len(seeds)))
            raise UsageError("a plan", "it is seen", "stop")

        monkeypatch.setattr("levelbench.cli.watching.make_plan", stop)
        words = shlex.split(command)
        assert words[:2] == ["levelbench", "run"]
        call(*words[1:])
        (((arm,), runs),) = found
        return arm, runs

    return parse


WORDS = ("analyze", "target", "digits[hidden=32]", "--framework", "numpy", "--epochs", "12")


@pytest.mark.slow
def test_ten_runs_become_a_proposal_and_are_not_made_again(call, folder, in_this_process):
    code, out, err = call(*WORDS, "--store", folder)
    assert code == 0
    assert "10 wanted · 0 done · 10 to go" in err
    assert "propose: target=0.9" in out
    assert 'evaluate_every="' in out
    command = "levelbench run 'digits[framework=numpy,recipe=mlp,hidden=32]' --target 0.9" in out
    assert ", chosen" in out
    code, out, err = call(*WORDS, "--store", folder, "--json")
    found = json.loads(out)
    assert code == 0
    assert "10 wanted · 10 done · 0 to go" in err
    assert found["task"] == "digits"
    assert found["propose"][0] == f"target={found['target']['target']:g}"
    # How long an evaluation of such small data takes depends on the machine; else it says why it costs more.
    assert found["cadence"]["cost"] <= 0.05 or "train longer" in found["cadence"]["reason"]
    assert found["runs"]["n"] == 10
    # On a machine that is busy enough no number of runs will do.
    assert command == (found["runs"]["needed"] is not None)


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (("digits", "--recipe", "onecycle"), {"epochs": 10}),
        (("digits[recipe=onecycle,lr=0.2,epochs=12]",), {"lr": 0.2, "epochs": 12}),
        (("digits[hidden=32]", "--epochs", "12.5"), {"hidden": 32}),
    ],
)
def test_the_printed_command_measures_what_its_number_of_runs_was_found_on(
    call, climbing, planned, tmp_path, words, settings
):
    _, out, _ = call("analyze", "target", *words, "--framework", "numpy", "--store", tmp_path, "--json")
    found = json.loads(out)
    arm, runs = planned(found["propose"][-1])
    specification = arm.specification
    assert (specification.framework, specification.crossing) == ("numpy", "confirmed")
    assert specification.recipe == ("onecycle" if "onecycle" in "".join(words) else "mlp")
    assert settings.items() <= specification.settings.items()
    assert specification.target.threshold == found["target"]["target"]
    assert specification.evaluate_every == found["cadence"]["every"]
    assert specification.budget_epochs == (12.5 if "--epochs" in words else settings.get("epochs", 60))
    assert runs == max(5, found["runs"]["needed"])


def test_the_dots_of_the_figure_are_where_the_runs_confirmed_the_proposed_target(call, climbing, tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr("levelbench.report.analyses.write_target", lambda *given: drawn.append(given))
    monkeypatch.setattr("levelbench.report.run_figures.can_draw", lambda: True)
    _, out, _ = call(*WORDS, "--store", tmp_path, "--plot", tmp_path / "curves.svg", "--json")
    ((curves, specification, _, whose),) = drawn
    threshold = json.loads(out)["target"]["target"]
    assert (specification.target.threshold, whose) == (threshold, "proposed")
    assert threshold > 0.9
    assert all(run.at(run.reached_at) >= threshold for run in curves.runs)


def test_the_tables_and_what_is_proposed_can_be_written_to_files(call, climbing, tmp_path):
    files = ("--csv", tmp_path / "t.csv", "--markdown", tmp_path / "t.md")
    _, out, _ = call(*WORDS, "--store", tmp_path, *files, "--columns", "60")
    assert (tmp_path / "t.csv").read_text().startswith("target,")
    proposed = out.split("propose: ")[1].splitlines()
    assert f"- propose: {proposed[0]}\n" in (tmp_path / "t.md").read_text()
    assert any(len(line) > 60 for line in proposed)
    assert all(len(line) <= 60 for line in out.split("\ncsv: ")[0].splitlines())


def test_where_there_is_no_target_nothing_is_proposed_and_no_empty_table_shown(call, tmp_path, monkeypatch):
    # Curves that are at their end from the second evaluation on.
    qualities = [0.1, *[0.9 + 0.001 * at for at in range(7)]]
    monkeypatch.setattr(watching, "carry_out", lambda *_, **__: {seed: record(qualities, seed) for seed in range(10)})
    code, out, _ = call(*WORDS[:-1], "8", "--store", tmp_path)
    assert code == 4
    assert "target: none: no knee" in out
    assert "nothing is proposed; the runs were evaluated every 1 epoch (--every) for 8 (--epochs)" in out
    assert not any(word in out for word in ("propose: ", "evaluate_every", " -n ", "(nothing)"))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-n", "9"), "9 is not in the range"),
        (("--plot", "curves.txt"), "end it in .svg or .png"),
        (("--epochs", "3"), "that is 3 evaluations, but finding a knee takes at least 8"),
        (
            ("--epochs", "7"),
            "or [epochs=...] for a schedule of fixed length) or evaluate more often (--every)",
        ),
        (("--every", "2 epochs", "--epochs", "14"), "that is 7 evaluations"),
        (("--every", "150 steps", "--epochs", "60"), "that is 7 evaluations"),
        (("--every", "16000 samples", "--epochs", "60"), "that is 5 evaluations"),
        (("--recipe", "mpl"), "close: mlp"),
        (("--epochs", "-1"), "not positive"),
        (("--every", "often"), "not an interval"),
        (("--cost", "2"), "it is not a share"),
        (("--width", "0"), "it is not a share"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_run(call, tmp_path, words, says):
    code, _, err = call("analyze", "target", "digits", "--framework", "numpy", "--store", tmp_path, *words)
    assert code == 2
    assert says in " ".join(err.split())
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_task_answers_with_the_nearest(call, tmp_path):
    code, _, err = call("analyze", "target", "digit", "--store", tmp_path)
    assert code == 2
    assert "close: digits" in err


def test_its_former_name_is_an_alias_that_help_does_not_show(call):
    assert call("task", "tune-target", "digit")[2] == call("analyze", "target", "digit")[2]
    assert "tune-target" in call("task", "--help")[1]
    assert "  task" not in call("--help")[1]
