"""``list inference`` and ``show`` on records of inference: what is printed, and what is refused."""

import json

import pytest
from tests.records.inference_records import OFFLINE, specification, write

NAMES = ("numpy", "onnxruntime")


@pytest.fixture
def measured(tmp_path):
    folder = tmp_path / "measured"
    for seed in range(2):
        for slow, name in enumerate(NAMES, 1):
            write(folder, specification(name), seed, slow=float(slow), n=800)
    write(folder, specification(scenario=OFFLINE), 7, n=1)
    return folder


def test_a_process_is_a_row_with_its_scenario_and_percentiles(call, measured, golden):
    code, out, _ = call("list", "inference", "digits[seed=0]", "--store", measured)
    assert code == 0
    golden("list_inference", out)


def test_rows_sort_by_any_column_and_what_is_not_there_stands_last(call, measured):
    rows = json.loads(call("list", "inference", "--sort", "-p90_s", "--json", "--store", measured)[1])
    times = [row["p90_s"] for row in rows]
    assert times[-1] is None
    assert times[:-1] == sorted(times[:-1], reverse=True)
    assert len(json.loads(call("list", "inference", "--limit", "2", "--json", "--store", measured)[1])) == 2


def test_an_unknown_column_is_refused_with_the_nearest(call, measured):
    code, _, err = call("list", "inference", "--sort", "p90", "--store", measured)
    assert code == 2
    assert "close: p90_s" in err


def test_a_store_without_inference_says_how_to_measure_some(call, tmp_path):
    code, out, _ = call("list", "inference", "--store", tmp_path)
    assert (code, "try levelbench infer digits" in out) == (0, True)


def test_the_list_of_runs_says_that_there_is_inference(call, store, measured):
    assert "list inference" not in call("list", "runs", "--store", store)[1]
    assert "levelbench list inference" in call("list", "runs", "--store", measured)[1]


def test_show_prints_what_infer_printed(call, measured):
    code, out, _ = call("show", "digits[scenario=single-stream]", "--store", measured)
    assert code == 0
    assert "digits[mlp], single-stream" in out
    assert "UNCLEAR: onnxruntime takes " in out
    assert "a verdict needs 3 or more of each" in out
    assert out.count("record (done): ") == 4


def test_show_of_one_process_is_that_process_alone(call, measured):
    out = call("show", next(measured.rglob("*-s7-*")), "--store", measured)[1]
    assert "digits[mlp], offline" in out
    assert out.count("record (done): ") == 1


def test_show_as_json_is_a_measurement_each(call, measured):
    found = json.loads(call("show", "[recipe=mlp,scenario=single-stream]", "--json", "--store", measured)[1])
    assert [[result["arm"]["framework"] for result in each["results"]] for each in found] == [list(NAMES)]


def test_a_view_of_training_is_refused_of_inference(call, measured):
    code, _, err = call("show", "[scenario=offline]", "--clock", "wall", "--store", measured)
    assert code == 2
    assert "no phases, clock, crossing or target" in err


def test_runs_come_first_and_what_is_neither_is_told_as_before(call, store):
    write(store, specification(), 0, n=800)
    assert "aaaa0001" in call("show", "digits[framework=numpy,seed=1]", "--store", store)[1]
    code, _, err = call("show", "digits[framework=jax]", "--store", store)
    assert code == 2
    assert "digits[framework=jax]" in err
