"""Which records of inference a word selects."""

from dataclasses import replace

import pytest
from msgspec import structs
from tests.records.inference_records import OFFLINE, SINGLE, specification, write

from levelbench.errors import RecordError, UnknownNameError
from levelbench.records.inference import InferenceRecord
from levelbench.records.process_selection import arms_among, named_processes, select_processes


@pytest.fixture
def store(tmp_path):
    """Processes 0 and 1 are single-stream on numpy, 2 on torch, 3 is offline; 3 is the newest."""
    for seed, (framework, scenario) in enumerate(
        [("numpy", SINGLE), ("numpy", SINGLE), ("torch", SINGLE), ("numpy", OFFLINE)]
    ):
        write(tmp_path, specification(framework, scenario), seed, n=100, end=seed != 1)
    return tmp_path


@pytest.mark.parametrize(
    ("word", "seeds"),
    [
        ("", [3, 2, 1, 0]),
        ("digits", [3, 2, 1, 0]),
        ("digits[scenario=offline]", [3]),
        ("[framework=torch]", [2]),
        ("[lr=0.05,seed=1]", [1]),
        ("[status=interrupted]", [1]),
        ("latest", [3]),
        ("latest:2", [3, 2]),
        ("fashion-mnist", []),
        ("[lr=0.06]", []),
    ],
)
def test_a_word_selects_a_task_the_latest_or_records_with_these_parts(store, word, seeds):
    assert [each.header.seed for each in select_processes(InferenceRecord, store, word)] == seeds


def test_a_file_a_folder_and_the_beginning_of_an_id_can_be_selected(store):
    first = select_processes(InferenceRecord, store)[-1]
    assert [each.path for each in select_processes(InferenceRecord, store, str(first.path))] == [first.path]
    assert len(select_processes(InferenceRecord, store / "elsewhere", f"{store}/inference")) == 4
    write(store, specification("jax"), 12345, n=100)
    assert [each.header.id for each in select_processes(InferenceRecord, store, "id12")] == ["id12345"]
    assert select_processes(InferenceRecord, store, "id1") == []


def test_the_limit_is_kept(store):
    assert [each.header.seed for each in select_processes(InferenceRecord, store, "digits", 2)] == [3, 2]


def test_a_filter_by_a_name_that_no_record_has_is_refused(store):
    with pytest.raises(UnknownNameError, match="close: scenario"):
        select_processes(InferenceRecord, store, "[scenari=offline]")


def test_a_damaged_record_is_left_out_unless_its_path_is_given(store):
    path = select_processes(InferenceRecord, store)[0].path
    path.write_text("{}\n")
    assert len(select_processes(InferenceRecord, store)) == 3
    with pytest.raises(RecordError):
        select_processes(InferenceRecord, store, str(path))


def test_arms_that_differ_only_in_the_framework_are_one_measurement(store):
    measurements = arms_among(named_processes(InferenceRecord, store, ["digits"]))
    seeds = [[[each.header.seed for each in arm] for arm in arms] for arms in measurements]
    assert seeds == [[[0], [2]], [[3]]]


def test_records_of_two_machines_are_two_measurements(store):
    one, other = (write(store / each, specification(), 0, n=100) for each in "ab")
    environment = {"machine": {"id": "m2"}}
    other = replace(other, header=structs.replace(other.header, environment=environment))
    assert len(arms_among([one, other])) == 2


def test_the_newest_record_of_a_repeated_process_counts(store):
    old, new = (write(store / each, specification(), 0, n=100) for each in "ab")
    ((arm,),) = arms_among([old, new])
    assert [each.path for each in arm] == [new.path]
