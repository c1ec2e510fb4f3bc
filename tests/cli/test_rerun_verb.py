"""``levelbench rerun`` and ``levelbench board verify``: runs are made again from records, files and entries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from levelbench.cli import main
from levelbench.competition.entries import encode, read_submission
from levelbench.tasks import digits

pytestmark = pytest.mark.usefixtures("undrawn")

OWN = """
from levelbench.tasks.digits import task
from levelbench.training import Momentum, Recipe, Shuffled
from levelbench.networks import zoo


@task.recipe
def small(lr: float = 0.1):
    return Recipe(zoo.mlp(64, 32, 10), Shuffled(64), Momentum(lr), epochs=20)
"""


@pytest.fixture
def call(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LEVELBENCH_STORE", raising=False)
    # A busy machine must not decide: times are then not judged, as on another machine.
    monkeypatch.setattr("levelbench.cli.rerun_verb._machine", lambda runs: "")

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            main(list(map(str, words)))
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return run


@pytest.fixture
def recorded(call):
    assert call("run", "digits", "--framework", "numpy", "-n", 3, "--no-report")[0] == 0
    return call


@pytest.fixture
def entry(recorded, tmp_path):
    words = ("--author", "Ann Lee", "--force", "-o", "board")
    recorded("board", "submit", "digits", *words)
    (path,) = (tmp_path / "board").rglob("*.json")
    return path


def test_recorded_runs_come_out_again_to_the_last_digit(recorded):
    code, out, _ = recorded("rerun", "digits", "--most", 3)
    assert code == 0
    assert "CONSISTENT: recorded runs of digits" in out
    assert "same seeds: 3 of 3 with the same losses and qualities to the last digit" in out
    assert "reached the target: 3 of 3 claimed, 3 of 3 again" in out


def test_fresh_seeds_are_none_of_the_recorded_ones(recorded):
    code, out, _ = recorded("rerun", "digits", "--most", 3, "--fresh-seeds", "--json")
    found = json.loads(out)
    assert found["seeds"] == [3, 4, 5]
    assert found["same_seeds"] == []
    assert found["pace"] is None
    assert code == {"consistent": 0, "inconsistent": 1, "cannot tell": 4}[found["kind"]]


@pytest.mark.slow
def test_code_that_a_record_holds_is_run_only_where_it_is_asked_for(call, tmp_path, monkeypatch):
    def as_in_a_new_process():
        monkeypatch.setattr(digits.task, "_recipes", dict(before[0]))
        monkeypatch.setattr(digits.task, "_factors", dict(before[1]))

    before = dict(digits.task._recipes), dict(digits.task._factors)
    as_in_a_new_process()
    own = tmp_path / "own.py"
    own.write_text(OWN)
    assert call("run", "own.py", "--framework", "numpy", "-n", 3, "--no-report")[0] == 0
    own.unlink()
    as_in_a_new_process()
    code, _, err = call("rerun", "digits[recipe=small]", "--most", 3)
    assert (code, "the record holds the code of its task file, which would run here as you" in err) == (2, True)
    code, out, _ = call("rerun", "digits[recipe=small]", "--most", 3, "--recorded-code")
    assert code == 0
    assert "3 of 3 with the same losses" in out
    assert "note: ran the code that the record holds" in out


def test_runs_of_several_specifications_are_refused(recorded):
    recorded("run", "digits[lr=0.1]", "--framework", "numpy", "-n", 1, "--no-report")
    code, _, err = recorded("rerun", "digits")
    assert (code, "they are of 2 specifications" in err) == (2, True)


@pytest.mark.slow
def test_an_honest_entry_is_consistent_with_its_re_run_and_gets_a_badge(entry, recorded):
    code, out, _ = recorded("board", "verify", entry, "--same-seeds", "--most", 3, "--badge", "verified/a.json")
    assert code == 0
    assert "same seeds: 3 of 3 with the same quality at the target to the last digit" in out
    with Path("verified/a.json").open() as file:
        badge = json.load(file)
    assert (badge["kind"], badge["entry"], badge["runs"]) == ("consistent", entry.name, [3, 3])


def test_an_entry_whose_curves_rise_sooner_than_they_do_is_inconsistent(entry, recorded):
    forged = json.loads(encode(read_submission(entry)))
    for run in forged["runs"]:
        curve = run["curve"]
        for name in ("samples", "time_s", "epoch"):
            curve[name] = [type(each)(each / 2) for each in curve[name]]
    entry.write_text(json.dumps(forged))
    code, out, _ = recorded("board", "verify", entry, "--same-seeds", "--most", 3)
    assert code == 1
    assert "INCONSISTENT" in out
    assert "re-runs need more than 1.25 times as much: samples to the target" in out


def test_an_imported_entry_has_nothing_to_run(entry, recorded):
    imported = json.loads(entry.read_text())
    imported["origin"] = {"format": "dawnbench", "file": "a.json"}
    entry.write_text(json.dumps(imported))
    code, _, err = recorded("board", "verify", entry)
    assert (code, "it was imported from dawnbench, without code that could run here" in err) == (2, True)
