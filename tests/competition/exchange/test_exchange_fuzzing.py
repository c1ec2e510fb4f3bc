"""Whatever a file contains, a reader returns a value or raises an error that says what to do."""

import json
import math

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from levelbench.competition.entries import encode, parse_submission
from levelbench.competition.exchange.algoperf import read_results
from levelbench.competition.exchange.dawnbench import read_folder
from levelbench.competition.exchange.dawnbench.entries import parse_json, parse_tsv
from levelbench.errors import LevelbenchError

RECORD = {
    "version": "v1.0",
    "author": "A",
    "authorEmail": "a",
    "framework": "F",
    "codeURL": "u",
    "model": "M",
    "hardware": "H",
    "timestamp": "2019-04-14",
    "costPerHour": 3.06,
    "latency": 28.6,
    "cost": 7e-6,
    "top1Accuracy": 94.9,
    "misc": {"momentum": 0.9},
}
CURVE = b"epoch\thours\ttop1Accuracy\n1\t0.01\t90.5\n2\t0.02\t94.0\n"
NASTY = [None, True, 0, -1, 2**70, 1e308, -0.0, math.nan, math.inf, "", "\x00", "1", "2020-02-30", "\u202e", "x" * 5000]
NASTY += [[], {}, [[None]], {"": {"a": [1]}}, ["x"] * 600]
VALUES = st.sampled_from(NASTY) | st.integers() | st.floats() | st.text(max_size=5)
CELLS = st.sampled_from(["", "nan", "inf", "-1", "1e400", "1_0", "94", "0.5", "٣", "x"]) | st.floats().map(repr)
FEW = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def outcome(parse, data):
    try:
        return parse(data, "a file", [])
    except LevelbenchError as error:
        return error


def changed(good):
    """``good`` with some of its members replaced by anything."""
    return st.dictionaries(st.sampled_from(sorted(good)) | st.text(max_size=5), VALUES, max_size=3).map(
        lambda other: {**good, **other}
    )


@FEW
@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    for parse in (parse_json, parse_tsv):
        assert isinstance(outcome(parse, data), dict | LevelbenchError)


@FEW
@given(record=changed(RECORD), mode=st.sampled_from(["train", "inference"]))
def test_an_entry_with_anything_in_its_fields_is_read_or_is_a_sentence(tmp_path, record, mode):
    """What is read is a submission that can be written down and read again."""
    place = tmp_path / "CIFAR10" / mode
    place.mkdir(parents=True, exist_ok=True)
    (place / "a.json").write_text(json.dumps(record))
    (place / "a.tsv").write_bytes(CURVE)
    entries, problems = read_folder(place)
    assert len(entries) + len(problems) == 1
    for each in entries:
        assert parse_submission(encode(each)) == each


@FEW
@given(rows=st.lists(st.lists(CELLS, min_size=2, max_size=4), max_size=4), head=st.permutations(CURVE.split()[:3]))
def test_a_curve_with_anything_in_its_cells_is_read_or_is_a_sentence(tmp_path, rows, head):
    place = tmp_path / "CIFAR10" / "train"
    place.mkdir(parents=True, exist_ok=True)
    (place / "a.json").write_text(json.dumps(RECORD))
    (place / "a.tsv").write_bytes(b"\n".join([b"\t".join(head), *("\t".join(row).encode() for row in rows)]))
    entries, problems = read_folder(place)
    assert len(entries) + len(problems) == 1
    for each in entries:
        assert parse_submission(encode(each)) == each


@FEW
@given(
    rows=st.lists(st.lists(CELLS, min_size=1, max_size=3), max_size=4),
    meta=changed({"workload.target_metric_name": "accuracy", "workload.validation_target_value": 0.9, "gpu_count": 1}),
)
def test_a_log_with_anything_in_it_is_read_or_is_a_sentence(tmp_path, rows, meta):
    trial = tmp_path / "a" / "study_0" / "mnist_jax" / "trial_0"
    trial.mkdir(parents=True, exist_ok=True)
    (trial / "meta_data_0.json").write_text(json.dumps(meta))
    lines = ["accumulated_submission_time,validation/accuracy", *(",".join(row) for row in rows)]
    (trial / "eval_measurements.csv").write_text("\n".join(lines))
    entries, problems = read_results(tmp_path)
    assert entries or problems
    for each in entries:
        assert parse_submission(encode(each)) == msgspec.structs.replace(each)
