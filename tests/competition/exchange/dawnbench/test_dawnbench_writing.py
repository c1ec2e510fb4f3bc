"""DAWNBench's own CI accepts the entries that are written, and they are read back as the same submission."""

import json

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from levelbench.competition.entries import (
    Author,
    Code,
    Hardware,
    Inference,
    Submission,
    SubmittedCurve,
    SubmittedRun,
    SystemPrice,
    curve_digest,
)
from levelbench.competition.exchange.dawnbench import failed_checks, read_entry, read_folder
from levelbench.competition.exchange.dawnbench.entries import TASKS, keep, put_back, rules_of, write_entry
from levelbench.errors import UsageError


def submission(task=TASKS[0], mode="training", **more):
    facts = {
        "schema": 1,
        "ruleset": "dawnbench-1.0",
        "task": task.task,
        "mode": mode,
        "author": Author("A. Author", "a@example.org"),
        "submitted": "2020-02-29",
        "model": "ResNet 9",
        "framework": "PyTorch 1.0",
        "hardware": Hardware("1 V100"),
        "target": rules_of(task).target,
        "clock": "dawnbench",
        "crossing": "first",
    }
    return Submission(**{**facts, **more})


def run(*qualities, seconds=36.0, **more):
    curve = SubmittedCurve([seconds * at for at in range(1, len(qualities) + 1)], list(qualities), **more)
    return SubmittedRun(curve, curve_digest=curve_digest(curve))


def without_origin(entry):
    return msgspec.structs.replace(entry, origin=None)


def figures(path):
    return [[float(cell) for cell in line.split("\t")] for line in path.read_text().splitlines()[1:]]


NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=30)
SECONDS = st.floats(1e-9, 1e7)
SHARES = st.floats(0.5, 1.0)
SETTINGS = st.dictionaries(
    NAMES, st.integers(-(2**62), 2**62) | st.floats(-1e9, 1e9) | NAMES | st.booleans(), max_size=3
)
PRICES = st.none() | st.floats(1e-4, 1e4).map(SystemPrice)
CODES = st.builds(Code, st.none() | st.just("https://example.org/x"), st.none() | st.just("b" * 40))


@st.composite
def trained(draw):
    task = draw(st.sampled_from(TASKS))
    qualities = [*draw(st.lists(SHARES, max_size=4)), 0.99]
    n = len(qualities)
    columns = st.lists(SHARES, min_size=n, max_size=n)
    others = {"top1": draw(columns.map(lambda values: [*values[1:], 0.97]))} if task.task == "imagenet" else {}
    curve = SubmittedCurve(
        sorted(draw(st.lists(SECONDS, min_size=n, max_size=n))), qualities, [float(i) for i in range(n)]
    )
    curve = msgspec.structs.replace(curve, others=others)
    facts = {"price": draw(PRICES), "code": draw(CODES), "settings": draw(SETTINGS), "model": draw(NAMES)}
    return submission(task, runs=[SubmittedRun(curve, curve_digest=curve_digest(curve))], **facts)


@st.composite
def answered(draw):
    task = draw(st.sampled_from(TASKS))
    rules = {"cifar10": 10000, "imagenet": 50000, "squad": 10570}[task.task]
    mean = draw(SECONDS)
    measured = Inference(
        "dawnbench",
        rules,
        rules,
        mean * rules,
        mean_latency_s=mean,
        quality=draw(st.floats(0.95, 1.0)),
        quality_samples=rules,
        batch=1,
        cost_usd=draw(st.none() | st.floats(1e-9, 1.0)),
    )
    return submission(task, "inference", inference=[measured], code=draw(CODES), settings=draw(SETTINGS))


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(entry=trained() | answered())
def test_what_is_written_passes_the_ci_and_reads_as_the_same_submission(entry, tmp_path):
    paths, losses = write_entry(entry, tmp_path)
    task = next(each for each in TASKS if each.task == entry.task)
    assert failed_checks(paths[0], task, paths[0].parent.name) == []
    assert without_origin(read_entry(paths[0], root=tmp_path)) == entry
    assert losses == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | NAMES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)
KEYS = NAMES | st.sampled_from(["a.b", "misc.x", ".x", "..", "a:json", "misc"])


@settings(max_examples=40, deadline=None)
@given(
    record=st.dictionaries(KEYS.filter(lambda key: key != "misc"), JSON, max_size=3), misc=st.dictionaries(KEYS, JSON)
)
def test_what_has_no_place_is_kept_by_name_and_put_back(record, misc):
    whole = {**record, "misc": misc} if misc else record
    assert put_back(keep(whole)) == whole


def test_an_entry_that_was_read_is_written_with_all_that_it_said(pod, tmp_path):
    entry = read_entry(pod, root=pod.parents[2])
    paths, losses = write_entry(entry, tmp_path)
    assert paths[0].relative_to(tmp_path) == pod.relative_to(pod.parents[2])
    assert json.loads(paths[0].read_text()) == json.loads(pod.read_text())
    assert figures(paths[1]) == [pytest.approx(row, rel=2e-16) for row in figures(pod.with_suffix(".tsv"))]
    assert losses == []


def test_a_price_of_null_stays_null(clone, tmp_path):
    path = write_entry(read_entry(clone.training(costPerHour=None)), tmp_path).paths[0]
    assert json.loads(path.read_text())["costPerHour"] is None


def test_a_file_is_called_by_the_convention(tmp_path):
    entry = submission(author=Author("A/../B", "x"), runs=[run(0.95)])
    assert write_entry(entry, tmp_path).paths[0].relative_to(tmp_path).as_posix() == (
        "CIFAR10/train/A-..-B_ResNet-9_1-V100_PyTorch-1.0.json"
    )


def test_the_run_of_median_time_is_written_and_the_others_are_reported(tmp_path):
    runs = [run(0.9, 0.95, seconds=each) for each in (30.0, 10.0, 20.0)]
    paths, losses = write_entry(submission(runs=runs), tmp_path)
    assert read_entry(paths[0]).runs[0].curve.time_s == [20.0, 40.0]
    assert any("3 runs" in each for each in losses)


def test_runs_that_never_arrive_take_part_in_the_median(tmp_path):
    assert write_entry(submission(runs=[run(0.95), run(0.9), run(0.95)]), tmp_path)
    with pytest.raises(UsageError, match="1 of its 3 runs"):
        write_entry(submission(runs=[run(0.95), run(0.9), run(0.9)]), tmp_path)


def test_what_the_format_cannot_say_is_listed(tmp_path):
    entry = submission(
        author=Author("A", None, "Org"),
        hardware=Hardware("1 V100", nodes=2),
        price=SystemPrice(3.06, "https://example.org/prices"),
        runs=[msgspec.structs.replace(run(0.95, samples=[50000]), seed=3)],
        notes="said",
        clock="wall",
    )
    losses = " ".join(write_entry(entry, tmp_path).losses)
    for field in ("organisation", "nodes", "source", "seed", "samples", "notes", "clock", "curve.epoch"):
        assert field in losses


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (submission(runs=[run(0.93)]), "0 of its 1 runs"),
        (submission(runs=[]), "no runs"),
        (msgspec.structs.replace(submission(), task="digits"), "no task"),
        (submission(TASKS[1], runs=[run(0.95)]), "top1"),
        (submission(mode="inference", inference=[]), "alone"),
        (submission(mode="inference", inference=[Inference("single-stream", 9, 9, 1.0, 0.1)]), "no quality"),
        (submission(mode="inference", inference=[Inference("dawnbench", 9, 9, 1.0, 0.1, quality=0.9)]), "below"),
    ],
)
def test_what_the_ci_would_refuse_is_not_written(entry, said, tmp_path):
    with pytest.raises(UsageError, match=said):
        write_entry(entry, tmp_path)
    assert not list(tmp_path.rglob("*"))


def test_every_real_entry_is_written_and_read_as_it_was(real, tmp_path):
    entries, _ = read_folder(real)
    for each in entries:
        assert write_entry(each, tmp_path).losses == []
    again, problems = read_folder(tmp_path)
    assert problems == []
    assert [without_origin(each) for each in again] == [without_origin(each) for each in entries]
    assert [each.origin.fields for each in again] == [each.origin.fields for each in entries]
