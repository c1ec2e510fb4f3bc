"""Which runs of a store make an entry: all of a group, but none made for another purpose."""

from __future__ import annotations

import json
import shutil

import msgspec
import pytest
from tests.competition.made import ENVIRONMENT, TARGET, records

from levelbench.competition.entries import TuningEffort
from levelbench.competition.making import entries_of
from levelbench.errors import UsageError
from levelbench.records import Store, read_record
from levelbench.records.inference import runs_for_inference
from levelbench.records.schema import End
from levelbench.records.searches import Search, SearchedSide


def test_every_group_that_is_selected_makes_an_entry(put, terms, tmp_path):
    for seed in range(2):
        put(seed)
        put(seed, settings={"lr": 0.2})
    made = entries_of(["digits"], Store(tmp_path / "store"), terms)
    assert [len(entry.runs) for _, entry in made] == [2, 2]
    files = [file for file, _ in made]
    assert len(set(files)) == 2
    assert all(file.startswith("digits/training/Ada_mlp_2-cores-of-a-processor_numpy-") for file in files)


def test_trials_are_counted_in_the_store_where_they_are_not_stated(put, terms, tmp_path):
    put(0)
    for lr in (0.2, 0.3):
        put(0, settings={"lr": lr})
        put(1, settings={"lr": lr})
    store = Store(tmp_path / "store")
    ((_, entry),) = entries_of(["digits[lr=0.1]"], store, terms)
    assert entry.tuning.trials == 2
    assert entry.tuning.hours == pytest.approx(2 * (3.0 + 3.03) / 3600)
    assert "2 other specifications of digits[recipe=mlp], 4 runs" in entry.tuning.notes
    stated = msgspec.structs.replace(terms, tuning=TuningEffort(7))
    assert entries_of(["digits[lr=0.1]"], store, stated, count_trials=False)[0][1].tuning == TuningEffort(7)


def test_the_trial_that_won_a_search_is_no_run_of_an_entry_and_is_counted_as_tuning(put, terms, tmp_path):
    trials = [read_record(put(0, settings={"lr": lr})).header for lr in (0.1, 0.2, 0.3)]
    fresh = [put(seed, settings={"lr": 0.1}) for seed in (0, 1, 2)]
    sides = [SearchedSide("digits", [], [each.id for each in trials], 7.0, trials[0].key)]
    search = Search("digits", "random", 0, 3, None, [1, 2], sides)
    path = search.path_in(tmp_path / "store", "abc")
    path.parent.mkdir()
    path.write_bytes(search.as_text())
    for word in ("digits[lr=0.1]", "digits"):
        ((_, entry),) = entries_of([word], Store(tmp_path / "store"), terms)
        assert {run.record_id for run in entry.runs} == {read_record(each).header.id for each in fresh}
    assert (entry.tuning.trials, entry.tuning.hours) == (3, 7.0 / 3600)
    ((_, outside),) = entries_of([f"{tmp_path}/store[lr=0.1]"], Store(tmp_path / "none"), terms)
    assert (len(outside.runs), outside.tuning.trials) == (3, 3)


def name_beside_a_model(store, *ids):
    (store / "models").mkdir(exist_ok=True)
    text = json.dumps({"run": ids[0], "earlier": ids[1:], "quality": {"test": 0.9}})
    (store / "models" / "0-s0.json").write_text(text)


def test_a_run_that_was_made_to_infer_with_is_neither_an_entry_nor_a_trial(put, terms, tmp_path):
    path = tmp_path / "store"
    put(0)
    ids = [read_record(put(seed, settings={"lr": 0.3})).header.id for seed in (0, 1)]
    name_beside_a_model(path, *ids)
    ((_, entry),) = entries_of(["digits"], Store(path), terms)
    assert entry.settings["lr"] != 0.3
    assert entry.tuning.trials == 0
    ((_, asked),) = entries_of(["digits[lr=0.3]"], Store(path), terms)
    assert len(asked.runs) == 2


def test_a_run_that_was_made_to_infer_with_counts_where_it_took_a_seeds_place(put, terms, tmp_path):
    path = tmp_path / "store"
    name_beside_a_model(path, read_record(put(0)).header.id)
    put(1)
    ((_, entry),) = entries_of(["digits"], Store(path), terms)
    assert [run.seed for run in entry.runs] == [0, 1]
    put(0)
    ((_, entry),) = entries_of(["digits"], Store(path), terms)
    assert [run.seed for run in entry.runs] == [0, 1]


def test_a_run_whose_network_was_kept_is_an_ordinary_one(tmp_path):
    name_beside_a_model(tmp_path, "one", "two")
    (tmp_path / "models" / "kept.json").write_text('{"run": "three", "for_inference": false, "earlier": ["four"]}')
    assert runs_for_inference(tmp_path) == {"one", "two", "four"}


def test_a_damaged_file_next_to_a_model_names_no_run(tmp_path):
    name_beside_a_model(tmp_path, "one", "two")
    (tmp_path / "models" / "broken.json").write_text('{"run": ')
    assert runs_for_inference(tmp_path) == {"one", "two"}


def test_a_selection_of_some_seeds_is_refused_without_a_reason(put, terms, tmp_path):
    for seed in range(3):
        put(seed)
    store = Store(tmp_path / "store")
    with pytest.raises(UsageError, match="2 runs of the same group are left out") as caught:
        entries_of(["digits[seed=1]"], store, terms)
    assert "--only-these --because" in caught.value.do
    because = msgspec.structs.replace(terms, only_these="the rules\nwant one")
    ((_, entry),) = entries_of(["digits[seed=1]"], store, because)
    assert entry.notes == "Only some runs were submitted: the rules want one"
    assert [run.seed for run in entry.runs] == [1]


def test_runs_that_were_removed_and_made_again_are_refused_without_a_reason(
    make_header, make_events, make_run, terms, tmp_path
):
    for seed, minute in ((0, 1), (1, 9), (2, 2)):
        head = make_header(seed=seed, started=f"2026-03-01T12:0{minute}:00.000+00:00", target=TARGET)
        head = msgspec.structs.replace(head, environment=ENVIRONMENT, planned_runs=3)
        make_run(tmp_path / "store", head, make_events((0.9 + 0.001 * seed, 0.961, 0.97), 1.0 + 0.01 * seed))
    with pytest.raises(UsageError, match="run 1 of this group began after later ones"):
        entries_of(["digits"], Store(tmp_path / "store"), terms)


def test_runs_of_another_machine_are_another_group(put, terms, tmp_path):
    other = {**ENVIRONMENT, "machine": {**ENVIRONMENT["machine"], "id": "m2"}}
    put(0)
    put(1, environment=other)
    made = entries_of(["digits"], Store(tmp_path / "store"), terms)
    assert [len(entry.runs) for _, entry in made] == [1, 1]


def test_an_interrupted_run_is_finished_first(put, terms, tmp_path):
    put(0)
    path = put(1)
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    assert not any(isinstance(each, End) for each in records(path))
    with pytest.raises(UsageError, match="interrupted") as caught:
        entries_of(["digits"], Store(tmp_path / "store"), terms)
    assert "finish interrupted runs" in caught.value.do


@pytest.mark.parametrize(("longer", "refused"), [(False, False), (True, True)])
def test_an_interrupted_run_that_was_made_again_is_left_out_unless_it_had_taken_longer(
    make_header, make_events, make_run, terms, tmp_path, longer, refused
):
    header = msgspec.structs.replace(make_header(seed=0, target=TARGET), environment=ENVIRONMENT)
    path = make_run(tmp_path / "store", header, make_events((0.9, 0.961, 0.97), 3.0 if longer else 0.5))
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    again = msgspec.structs.replace(header, id="b" * 16, started="2026-03-01T12:09:00.000+00:00")
    make_run(tmp_path / "store", again, make_events((0.9, 0.961, 0.97), 1.0))
    store = Store(tmp_path / "store")
    if refused:
        with pytest.raises(UsageError, match="1 run of the same group is left out"):
            entries_of(["digits"], store, terms)
    else:
        ((_, entry),) = entries_of(["digits"], store, terms)
        assert [run.seed for run in entry.runs] == [0]


def test_a_copy_of_a_folder_is_the_same_runs(put, terms, tmp_path):
    for seed in range(2):
        put(seed)
    shutil.copytree(tmp_path / "store", tmp_path / "copy")
    ((_, entry),) = entries_of([str(tmp_path / "copy")], Store(tmp_path / "store"), terms)
    assert len(entry.runs) == 2
