"""``levelbench rerun`` and ``levelbench board verify``: runs are made again from records, files and entries."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from levelbench.cli import main
from levelbench.cli.rerun_verb import _other_conditions, read_badges
from levelbench.competition.entries import encode, read_submission
from levelbench.records import Store
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
TASK_OF_ITS_OWN = """
from levelbench.networks import zoo
from levelbench.training import Momentum, Recipe, Shuffled, Task, Top1, datasets

task = Task("own", data=datasets.digits, quality=Top1(target=0.9), description="{}")


@task.recipe
def mlp(lr: float = 0.1):
    return Recipe(zoo.mlp(64, 32, 10), Shuffled(64), Momentum(lr), epochs=20)
"""

RULES = """
id = "mine-1.0"
name = "mine"
version = "1.0"
date = "2026-01-01"
source = "https://example.org/rules"
clock = "wall"
crossing = "confirmed"

[aggregation]
rule = "median"
runs = 3

[[divisions]]
name = "open"
may_change = []

[[tasks]]
task = "digits"
[tasks.target]
metric = "top1"
threshold = 0.96
direction = "higher"
low = 0.0
high = 1.0
split = "validation"
"""


@pytest.fixture
def call(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LEVELBENCH_STORE", raising=False)
    # A busy machine must not decide: times are then not judged, as on another machine (exit code 4).
    monkeypatch.setattr("levelbench.cli.rerun_verb._machine", lambda runs: "")

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            main(list(map(str, words)))
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return run


@pytest.fixture(scope="module")
def three_runs(tmp_path_factory):
    store = tmp_path_factory.mktemp("recorded") / "levelbench-results"
    with pytest.raises(SystemExit, match="0"):
        main(["run", "digits", "--framework", "numpy", "-n", "3", "--no-report", "--store", str(store)])
    return store


@pytest.fixture
def recorded(call, three_runs, tmp_path):
    shutil.copytree(three_runs, tmp_path / three_runs.name)
    return call


@pytest.fixture
def entry(recorded, tmp_path):
    words = ("--author", "Ann Lee", "--force", "-o", "board")
    recorded("board", "submit", "digits", *words)
    (path,) = (tmp_path / "board").rglob("*.json")
    return path


def test_recorded_runs_come_out_again_to_the_last_digit(recorded):
    code, out, _ = recorded("rerun", "digits", "--most", 3)
    assert code == 4
    assert "SAMPLES CONSISTENT: recorded runs of digits" in out
    assert "same seeds: 3 of 3 with the same losses and qualities to the last digit" in out
    assert "reached the target: 3 of 3 claimed, 3 of 3 again" in out


@pytest.mark.slow
def test_runs_made_again_say_which_settings_were_set_as_the_recorded_ones_do(call, tmp_path):
    call("run", "digits[lr=0.2]", "--framework", "numpy", "-n", 1, "--no-report")
    call("rerun", "digits", "--into", "again", "--most", 3)
    (recorded,), (again, *_) = (Store(tmp_path / name).records() for name in ("levelbench-results", "again"))
    assert recorded.header.chosen == again.header.chosen == ["lr"]


@pytest.mark.slow
def test_fresh_seeds_are_none_of_the_recorded_ones(recorded):
    code, out, _ = recorded("rerun", "digits", "--most", 3, "--fresh-seeds", "--json")
    found = json.loads(out)
    assert found["seeds"] == [3, 4, 5]
    assert found["same_seeds"] == []
    assert found["pace"] is None
    assert (code, found["kind"] in ("samples consistent", "cannot tell")) == (4, True)


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
    code, out, _ = call("show", "digits[recipe=small]", "--source")
    assert (code, out.count("def small(lr: float = 0.1):")) == (0, 1)
    code, out, _ = call("rerun", "digits[recipe=small]", "--most", 3, "--recorded-code")
    assert code == 4
    assert "3 of 3 with the same losses" in out
    assert "note: ran the code that the record holds" in out


def test_runs_of_several_specifications_are_refused(recorded):
    recorded("run", "digits[lr=0.1]", "--framework", "numpy", "-n", 1, "--no-report")
    code, _, err = recorded("rerun", "digits")
    assert (code, "they are of 2 specifications" in err) == (2, True)


@pytest.mark.slow
def test_runs_of_two_versions_of_the_code_are_refused(call, tmp_path):
    own = tmp_path / "own.py"
    for recipe in ("small", "small  # as before"):
        own.write_text(TASK_OF_ITS_OWN.format(recipe))
        assert call("run", "own.py", "--framework", "numpy", "-n", 1, "--no-report")[0] == 0
    code, _, err = call("rerun", "own", "--task-file", "own.py")
    assert (code, "they are of 2 versions of the code" in err) == (2, True)


@pytest.mark.slow
def test_an_honest_entry_has_the_samples_of_its_re_run_and_gets_a_badge(entry, recorded):
    code, out, _ = recorded("board", "verify", entry, "--same-seeds", "--most", 3, "--badge", "verified/a.json")
    assert code == 4
    assert "same seeds: 3 of 3 with the same quality at the target to the last digit" in out
    with Path("verified/a.json").open() as file:
        badge = json.load(file)
    assert (badge["kind"], badge["entry"], badge["runs"]) == ("samples consistent", entry.name, [3, 3])


@pytest.mark.slow
def test_a_site_shows_the_badge_of_this_very_entry(recorded, tmp_path):
    (tmp_path / "rules.toml").write_text(RULES)
    words = ("--author", "Ann Lee", "--email", "ann@example.org", "--ruleset", "rules.toml", "-o", "board")
    assert recorded("board", "submit", "digits", *words)[0] == 0
    (entry,) = (tmp_path / "board" / "digits").rglob("*.json")
    recorded("board", "verify", entry, "--same-seeds", "--most", 3, "--badge", "verified/a.json")
    build = "board", "build", "board", "-o", "site", "--verified", "verified"
    assert recorded(*build)[0] == 0
    (page,) = (tmp_path / "site" / "entries").glob("*.html")
    assert "re-run: samples consistent, samples 1.00 times [" in page.read_text()
    entry.write_text(entry.read_text() + "\n")
    recorded(*build)
    assert "re-run:" not in page.read_text()


@pytest.fixture
def board(recorded, tmp_path):
    (tmp_path / "rules.toml").write_text(RULES)
    words = ("--author", "Ann Lee", "--email", "ann@example.org", "--ruleset", "rules.toml", "-o", "board")
    assert recorded("board", "submit", "digits", *words)[0] == 0
    return tmp_path / "board"


@pytest.mark.slow
def test_the_first_entries_of_a_leaderboard_are_verified_and_get_badges(board, recorded):
    (entry,) = (board / "digits").rglob("*.json")
    words = ("--top", 2, "--same-seeds", "--most", 3, "--badge", "verified")
    code, out, _ = recorded("board", "verify", "board", *words)
    assert code == 4
    assert "samples consistent" in out
    assert Path("verified", entry.relative_to(board)).exists()


def test_an_entry_of_a_leaderboard_that_cannot_be_run_here_is_named(board, recorded):
    (entry,) = (board / "digits").rglob("*.json")
    changed(entry, settings={**json.loads(entry.read_text())["settings"], "scheme": "mine.py"})
    code, out, _ = recorded("board", "verify", "board", "--json")
    (found,) = json.loads(out)["entries"]
    assert (code, found["kind"], found["entry"]) == (4, "not run", str(entry.relative_to(board)).removesuffix(".json"))
    assert "names a file with code" in found["reason"]


@pytest.mark.parametrize("words", [("ENTRY", "--top", "3"), ("board", "--task-file", "own.py")])
def test_what_is_only_for_an_entry_or_a_leaderboard_is_refused(board, recorded, words):
    (entry,) = (board / "digits").rglob("*.json")
    assert recorded("board", "verify", *(entry if each == "ENTRY" else each for each in words))[0] == 2


@pytest.mark.slow
def test_a_badge_says_that_other_code_was_run(entry, recorded):
    changed(entry, provenance={"source_digest": "0" * 64})
    recorded("board", "verify", entry, "--same-seeds", "--most", 3, "--badge", "verified/a.json")
    (words,) = read_badges(Path("verified")).values()
    assert words.startswith("re-run: samples consistent with other code, samples 1.00 times [")


def test_a_file_that_is_no_badge_is_named(call, tmp_path):
    (tmp_path / "verified").mkdir()
    (tmp_path / "verified" / "a.json").write_text("[]")
    code, _, err = call("board", "build", tmp_path, "-o", "site", "--verified", "verified")
    assert (code, "it is not one of board verify --badge" in err) == (2, True)


@pytest.mark.slow
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


@pytest.fixture
def undecided(monkeypatch):
    """Fresh seeds cannot tell, as where a few seeds need half as much again by luck."""
    from levelbench.analysis import rerun

    judge = rerun.reproduction

    def judged(claimed, again, **more):
        found = judge(claimed, again, **more)
        if {each.seed for each in claimed} & {each.seed for each in again}:
            return found
        return replace(found, kind="cannot tell", samples=replace(found.samples, kind="cannot tell"))

    monkeypatch.setattr(rerun, "reproduction", judged)


@pytest.mark.slow
def test_where_fresh_seeds_cannot_tell_an_entry_is_run_with_its_own(entry, recorded, undecided):
    code, out, _ = recorded("board", "verify", entry, "--most", 3, "--seed", 100)
    assert (code, "; its own seeds need what is claimed" in out) == (4, True)


@pytest.mark.slow
def test_samples_divided_by_one_and_a_half_are_found_where_fresh_seeds_cannot_tell(entry, recorded, undecided):
    stated = json.loads(entry.read_text(encoding="utf-8"))
    for run in stated["runs"]:
        run["curve"]["samples"] = [round(each / 1.5) for each in run["curve"]["samples"]]
    entry.write_text(json.dumps(stated), encoding="utf-8")
    code, out, _ = recorded("board", "verify", entry, "--most", 3, "--seed", 100)
    assert (code, "with its own seeds, re-runs need more than 1.25 times as much: samples" in out) == (1, True)


@pytest.mark.slow
def test_evaluations_left_out_of_an_entry_are_found_where_each_seed_comes_out_alike_twice(entry, recorded, monkeypatch):
    stated = json.loads(entry.read_text(encoding="utf-8"))
    for run in stated["runs"]:
        curve = run["curve"]
        fewer = int(len(curve["quality"]) / 1.5)
        end = curve["quality"][-2:]
        run["curve"] = {name: values[:fewer] for name, values in curve.items()}
        run["curve"]["quality"][-2:] = end
    entry.write_text(json.dumps(stated), encoding="utf-8")
    machine = stated["provenance"]["environment"]["machine.id"]
    monkeypatch.setattr("levelbench.cli.rerun_verb._machine", lambda runs: machine)
    monkeypatch.setattr("levelbench.analysis.rerun._disturbed", lambda claimed, again: "the machine is busy")
    code, out, _ = recorded("board", "verify", entry, "--same-seeds", "--most", 3)
    assert (code, "each of the claimed seeds came out alike twice" in out) == (1, True)


def test_an_imported_entry_has_nothing_to_run(entry, recorded):
    imported = json.loads(entry.read_text())
    imported["origin"] = {"format": "dawnbench", "file": "a.json"}
    entry.write_text(json.dumps(imported))
    code, _, err = recorded("board", "verify", entry)
    assert (code, "it was imported from dawnbench, without code that could run here" in err) == (2, True)


def changed(entry, **parts):
    """The entry with other parts, in its place."""
    text = json.loads(entry.read_text())
    text.update({name: {**text[name], **part} if isinstance(part, dict) else part for name, part in parts.items()})
    entry.write_text(json.dumps(text))
    return entry


def test_runs_are_not_compared_with_themselves(recorded):
    code, _, err = recorded("rerun", "digits", "--into", "levelbench-results")
    assert (code, "it holds the claimed runs themselves" in err) == (2, True)


def test_an_entry_is_not_compared_with_the_runs_that_it_was_made_from(entry, recorded):
    code, _, err = recorded("board", "verify", entry, "--same-seeds", "--into", "levelbench-results")
    assert (code, "it holds the claimed runs themselves" in err) == (2, True)


def test_a_damaged_record_is_not_left_out_silently(recorded, tmp_path):
    path = min((tmp_path / "levelbench-results").rglob("*.jsonl"))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], lines[2].replace("0.", "1.", 1), *lines[3:]]))
    code, _, err = recorded("rerun", "levelbench-results/")
    assert (code, "line 3 is damaged" in err) == (2, True)


def test_a_task_file_is_of_the_recorded_task(recorded, tmp_path):
    other = tmp_path / "other.py"
    other.write_text("from levelbench.tasks.spam import task\n")
    code, _, err = recorded("rerun", "digits", "--task-file", other)
    assert (code, "the file is of the task spam, not digits" in err) == (2, True)


@pytest.mark.parametrize(
    "parts",
    [
        {"task": "theirs.py"},
        {"settings": {"ranks": 2, "scheme": "theirs.py:Foo"}},
        {"settings": {"ranks": 2, "engine": "mpi", "engine.options": "hosts=theirs"}},
    ],
    ids=["as its task", "as its scheme", "as options of its engine"],
)
def test_a_file_that_only_the_entry_names_is_not_run(entry, recorded, tmp_path, parts):
    (tmp_path / "theirs.py").write_text("open('ran', 'w')")
    code, _, err = recorded("board", "verify", changed(entry, **parts))
    assert (code, "--task-file FILE" in err) == (2, True)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"target": {"split": "test"}}, "its split is test, and the task's is validation"),
        ({"settings": {"evaluate_every": 3}}, "its setting evaluate_every is 3"),
    ],
)
def test_an_entry_of_another_measurement_is_refused(entry, recorded, parts, said):
    code, _, err = recorded("board", "verify", changed(entry, **parts))
    assert (code, said in err) == (2, True)


@pytest.mark.slow
def test_an_entry_of_ranks_is_run_on_ranks(call, tmp_path):
    assert call("run", "digits", "--ranks", 2, "-n", 3, "--no-report")[0] == 0
    call("board", "submit", "digits", "--author", "Ann Lee", "--force", "-o", "board")
    (path,) = (tmp_path / "board").rglob("*.json")
    _, out, err = call("board", "verify", path, "--same-seeds", "--most", 3)
    assert "same seeds: 3 of 3 with the same quality at the target to the last digit" in out, err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda run: run.update(status="failed"), "none of its runs has finished"),
        (lambda run: run["curve"].update(samples=[0 for _ in run["curve"]["samples"]]), "above zero"),
        (lambda run: run["curve"].update(samples=run["curve"]["samples"][:1]), "at every point"),
        (lambda run: run.update(seed=None), "the entry does not state its seeds"),
    ],
    ids=["failed", "zero", "short", "no seeds"],
)
def test_an_entry_that_says_too_little_is_refused_in_words(entry, recorded, change, said):
    text = json.loads(entry.read_text())
    for run in text["runs"]:
        change(run)
    entry.write_text(json.dumps(text))
    code, _, err = recorded("board", "verify", entry, "--same-seeds")
    assert (code, said in err) == (2, True)


def test_other_threads_are_named():
    assert _other_conditions([{"threads.settings.OMP_NUM_THREADS": "1", "numpy": "2"}], [{"numpy": "2"}]) == (
        "OMP_NUM_THREADS was 1 and is not set (set it alike)"
    )
    assert _other_conditions([{"numpy": "2"}], [{"numpy": "2"}]) == ""


@pytest.mark.slow
@pytest.mark.usefixtures("cold")
def test_files_of_the_working_folder_are_not_imported_by_a_run(recorded, tmp_path):
    (tmp_path / "msgspec.py").write_text("open('ran', 'w')")
    code, _, _ = recorded("rerun", "digits", "--most", 3)
    assert code == 4
    assert not (tmp_path / "ran").exists()
