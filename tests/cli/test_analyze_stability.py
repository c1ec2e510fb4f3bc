"""``levelbench analyze stability``: what it reads, prints and writes, and what it answers if runs are too few."""

import csv
import json
import shutil

import msgspec
import pytest
from tests.report.pages import needs_matplotlib

from levelbench.records import RecordWriter, read_record

MISSES = [0.90, 0.92, 0.93, 0.94]


def test_the_variation_stands_beside_the_share_that_arrives(call, store, write):
    write(7, "cccc0007", MISSES)
    code, out, _ = call("analyze", "stability", "digits[framework=numpy]", "--store", store)
    assert code == 0
    assert "5/6 [44 %, 97 %]" in out
    assert "variation, %" in out
    assert "restarts" in out
    assert "1 of 6 runs of digits missed the target" in out


def test_every_group_of_a_store_is_analysed_by_itself(call, store):
    code, out, _ = call("analyze", "stability", "--store", store, "--json")
    assert code == 0
    found = json.loads(out)
    assert [each["label"] for each in found["groups"]] == ["digits[framework=numpy]", "digits[framework=torch]"]
    one = found["groups"][0]
    assert (one["reached"], one["n"], one["share"]["method"]) == (5, 5, "Wilson score")
    assert [each["effect"] for each in one["needed"]] == [0.01, 0.02, 0.05, 0.1, 0.2]
    assert one["group"]["time_to_accuracy_s"]["n"] == 5


def test_several_tasks_are_groups_of_their_own(call, store, write):
    for seed in range(3):
        write(seed, f"dddd000{seed}", task="other")
    code, out, _ = call("analyze", "stability", "--store", store, "--wide")
    assert code == 0
    assert "other" in out
    assert "digits[framework=numpy]" in out


def test_the_same_seeds_in_two_stores_tell_the_seed_from_the_rest(call, store, tmp_path):
    from tests.cli.conftest import REACHES, specification, write_run

    for seed in range(5):
        write_run(
            tmp_path / "again", specification(), seed, f"eeee000{seed}", REACHES, 1 + 0.02 * seed, minute=40 + seed
        )
    words = ("digits[framework=numpy]", f"{tmp_path}/again")
    _, out, _ = call("analyze", "stability", *words, "--store", store, "--json")
    (group,) = json.loads(out)["groups"]
    assert group["n"] == 5
    parts = {each["source"]: each for each in group["parts"]}
    assert parts["seed"]["ratio"]["method"] == "Wald's, exact"
    assert "six hours" in parts["session"]["reason"]


def test_effects_are_those_that_are_asked_for(call, store):
    _, out, _ = call("analyze", "stability", "--store", store, "--effect", "0.03", "--json")
    assert [each["effect"] for each in json.loads(out)["groups"][0]["needed"]] == [0.03]


def test_another_target_reads_the_same_runs_anew(call, store):
    code, out, _ = call("analyze", "stability", "--store", store, "--target", "0.99")
    assert code == 4
    assert "0/5 [0 %, 43 %]" in out
    assert "no run of digits[framework=numpy] reached the target" in out


def test_one_run_gets_an_answer_and_no_number(call, write, tmp_path):
    write(0, "aaaa0000")
    code, out, _ = call("analyze", "stability", "--store", tmp_path / "store")
    assert code == 4
    assert "one run of digits reached the target, and one has no spread: make more" in out


def test_interrupted_runs_are_a_doubt_since_ending_the_slow_ones_selects_results(call, store, write):
    write(8, "cccc0008", status="interrupted")
    _, out, _ = call("analyze", "stability", "digits[framework=numpy]", "--store", store)
    assert "doubt: 1 run of digits was interrupted and not counted" in out


def test_a_renamed_copy_of_a_run_is_refused(call, store):
    (first,) = store.rglob("*aaaa0000.jsonl")
    record = read_record(first)
    header = msgspec.structs.replace(record.header, id="aaaa0009", seed=9)
    with RecordWriter.create(store, header) as writer:
        for event in (*record.evaluations, record.end):
            writer.append(event)
    code, _, err = call("analyze", "stability", "digits[framework=numpy]", "--store", store)
    assert code != 0
    assert "are one run" in err


def test_runs_of_two_machines_are_split(call, store, write):
    for seed in (0, 1, 10, 11):
        write(seed, f"cccc00{seed:02d}", machine="m2")
    _, out, _ = call("analyze", "stability", "digits[framework=numpy]", "--store", store, "--json")
    assert [each["n"] for each in json.loads(out)["groups"]] == [5, 4]


def test_it_fits_80_columns(call, store, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = call("analyze", "stability", "--store", store)
    # Only a terminal folds sentences.
    said = ("doubt:", "all ")
    assert max(len(line) for line in out.splitlines() if not line.startswith(said)) <= 80


def test_tables_are_written_with_the_curve(call, store, tmp_path):
    words = ("--csv", tmp_path / "s.csv", "--markdown", tmp_path / "s.md")
    code, _, _ = call("analyze", "stability", "--store", store, *words)
    assert code == 0
    rows = list(csv.DictReader((tmp_path / "s.csv").read_text().splitlines()))
    assert float(rows[0]["variation"]) == pytest.approx(0.01, rel=0.9)
    steps = list(csv.DictReader((tmp_path / "s-curve.csv").read_text().splitlines()))
    assert [float(each["share_reached"]) for each in steps[:5]] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert (tmp_path / "s.md").read_text().startswith("# Stability")


@needs_matplotlib
def test_the_curves_are_drawn(call, store, tmp_path):
    code, out, _ = call("analyze", "stability", "--store", store, "--plot", tmp_path / "s.svg")
    assert code == 0
    assert f"plot: {tmp_path / 's.svg'}" in out
    assert "<svg" in (tmp_path / "s.svg").read_text()


@needs_matplotlib
def test_more_curves_than_a_figure_can_tell_apart_are_refused(call, write, tmp_path):
    for at in range(9):
        write(0, f"aaaa000{at}", threshold=0.9 + at / 1000)
    code, _, err = call("analyze", "stability", "--store", tmp_path / "store", "--plot", tmp_path / "s.svg")
    assert code == 2
    assert "9 curves are too many" in err


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--level", "2"), "not a confidence level"),
        (("--effect", "0"), "above zero"),
        (("nothing",), "nothing"),
    ],
)
def test_what_cannot_be_meant_is_refused(call, store, words, found):
    code, _, err = call("analyze", "stability", *words, "--store", store)
    assert code == 2
    assert found in err


def test_an_empty_store_says_what_to_run(call, tmp_path):
    code, _, err = call("analyze", "stability", "--store", tmp_path / "none")
    assert code == 2
    assert "levelbench run digits" in err


def test_a_damaged_record_is_no_missing_run(call, store):
    (damaged,) = store.rglob("*aaaa0002.jsonl")
    damaged.write_text(damaged.read_text().replace('"forward"', '"farward"', 1))
    code, _, err = call("analyze", "stability", "digits", "--store", store)
    assert code != 0
    assert damaged.name in err


def test_copies_of_a_store_are_one_run_each(call, store, tmp_path):
    shutil.copytree(store, tmp_path / "copy")
    _, out, _ = call("analyze", "stability", f"{store}/", f"{tmp_path}/copy", "--store", store, "--json")
    assert [each["n"] for each in json.loads(out)["groups"]] == [5, 5]


@pytest.mark.parametrize(
    "words", [["latest:1", "--store", "{store}"], ["{path}"], ["other[seed=2]", "--store", "{store}"]]
)
def test_runs_that_were_not_selected_are_not_called_missing(call, store, write, words):
    path = [write(seed, f"eeee000{seed}", task="other", planned=3) for seed in range(3)][-1]
    _, out, _ = call("analyze", "stability", *(each.format(store=store, path=path) for each in words))
    assert out.count("1 of 3 runs of other was selected") == 1
    assert "left: " not in out


def test_runs_that_another_machine_made_are_not_called_missing(call, store, write):
    for seed in range(6):
        qualities = [0.90, 0.95, 0.962, 0.965] if seed % 2 else [0.91, 0.94, 0.95, 0.962, 0.965]
        machine = "m1" if seed < 3 else "m2"
        write(seed, f"eeee000{seed}", qualities, 1 + seed / 100, task="other", machine=machine, planned=6)
    _, out, _ = call("analyze", "stability", "other", "--store", store)
    assert "other on machine 2 of 2" in out
    assert "were asked for" not in out


@needs_matplotlib
def test_no_figure_is_drawn_if_no_run_arrived_and_the_answer_says_so(call, store, tmp_path):
    plot = ("--plot", tmp_path / "s.svg")
    code, out, _ = call("analyze", "stability", "digits", "--store", store, "--target", "0.99", *plot)
    assert code == 4
    assert "no plot: no run reached the target" in out
    assert not (tmp_path / "s.svg").exists()
