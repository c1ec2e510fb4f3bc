"""Records of inference, one file per process, and their summary."""

from contextlib import suppress

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.records.inference_records import DATA, OFFLINE, SERVER, SINGLE, latencies_ns, specification, write
from tests.records.stores import edit

from levelbench.errors import RecordError
from levelbench.records import key_of
from levelbench.records.inference import Audit, Driven, Generation, InferenceOutcome, InferenceRecord
from levelbench.records.inference_summary import Demand, Price, loadgen_estimate, score, summarise_inference

OTHER = replace(DATA, checksums={"images": "d" * 64})


def summary(tmp_path, arms=(("numpy", 1.0), ("torch", 1.5)), n=5, scenario=SINGLE, parts=None, **given):
    records = [
        [write(tmp_path, specification(name, scenario), seed, slow=slow, **(parts or {})) for seed in range(n)]
        for name, slow in arms
    ]
    return summarise_inference(records, **given)


def test_a_record_is_read_back_as_it_was_written(tmp_path):
    record = write(tmp_path, specification())
    assert record.status == "done"
    assert record.latencies_s == pytest.approx(latencies_ns(0) * 1e-9)
    assert record.facts.includes == ["transfer"]
    assert record.accuracy.value == 0.95
    assert record.header.specification == specification()


def test_latencies_that_are_not_whole_nanoseconds_are_refused(tmp_path):
    path = write(tmp_path, specification()).path
    edit(path, '"unit":"ns"', '"unit":"s"')
    with pytest.raises(RecordError, match="not whole nanoseconds"):
        InferenceRecord.read(path)


@pytest.mark.parametrize(
    "change", [{"preprocessing": "in"}, {"seed": 1}, {"audit": True}, {"scenario": OFFLINE}, {"data": OTHER}]
)
def test_whatever_changes_the_figures_changes_the_key(change):
    assert key_of(replace(specification(), **change)) != key_of(specification())


def test_a_generation_changes_the_key_and_none_leaves_those_of_earlier_records():
    assert key_of(replace(specification(), generation=Generation(4, 8))) != key_of(specification())
    known = "0513a20ed688587c014737c5a6b5bc2209a3b5dfb8249c0434167f5ea5bdbf93"
    assert key_of(specification()) == known


def test_a_generation_has_tokens_a_second_and_quantiles_of_both_times_over_processes(tmp_path):
    spec = specification(generation=Generation(4, 10))
    records = [write(tmp_path, spec, seed, throughput_per_s=100.0 + seed) for seed in range(5)]
    (entry,) = summarise_inference([records]).entries
    assert entry.token_rate.values == {seed: 10 * (100.0 + seed) for seed in range(5)}
    for figures in (entry.first_token, entry.per_token):
        assert [q for q, _ in figures] == [q for q, _ in entry.quantiles]
        for (_, mine), (_, whole) in zip(figures, entry.quantiles, strict=True):
            assert mine.estimate.value == pytest.approx(whole.estimate.value / 10, rel=1e-3)
            assert mine.estimate.interval.low < mine.estimate.value < mine.estimate.interval.high


def test_what_generates_nothing_has_no_figures_of_tokens(tmp_path):
    entry = summary(tmp_path).entries[0]
    assert (entry.first_token, entry.per_token, entry.token_rate) == ((), (), None)


def test_thinned_latencies_are_repeated_to_stand_for_all(tmp_path):
    record = write(tmp_path, specification(), n=1000, thinned=3, latencies=2999)
    assert len(record.latencies_s) == 2999
    assert np.median(record.latencies_s) == pytest.approx(np.median(latencies_ns(0, n=1000)) * 1e-9, rel=1e-3)


def test_each_process_is_one_value_and_the_interval_is_over_them(tmp_path):
    entry = summary(tmp_path).entries[0]
    (_, p50), *_ = entry.quantiles
    assert len(p50.values) == 5
    assert p50.estimate.n == 5
    assert p50.estimate.interval.low < p50.estimate.value < p50.estimate.interval.high


def test_one_process_has_the_interval_of_its_own_order_statistics(tmp_path):
    ((_, p50), *_) = summary(tmp_path, (("numpy", 1.0),), n=1).entries[0].quantiles
    assert p50.estimate.interval.method == "exact order statistics"


def test_a_percentile_is_loadgens_order_statistic(tmp_path):
    entry = summary(tmp_path, (("numpy", 1.0),), n=1).entries[0]
    (_, p90) = entry.quantiles[1]
    assert p90.estimate.value == pytest.approx(np.sort(latencies_ns(0))[3600] * 1e-9)


def test_a_percentile_with_too_few_queries_says_how_many_it_needs(tmp_path):
    entry = summary(tmp_path, parts={"n": 300}).entries[0]
    (_, p99) = entry.quantiles[2]
    assert p99.estimate is None
    assert "needs 368 queries" in p99.reason


def test_the_early_stopping_estimate_discards_what_loadgen_does(tmp_path):
    entry = summary(tmp_path, (("numpy", 1.0),), n=1, parts={"n": 2287}).entries[0]
    # 194 of 2,287 queries are discarded at the 90th percentile: LoadGen's own output.
    assert entry.estimate.estimate.value == pytest.approx(np.sort(latencies_ns(0, n=2287))[2287 - 195] * 1e-9)


def test_the_estimate_of_several_processes_is_the_largest_and_bounds_the_quantile_of_all():
    rng = np.random.default_rng(0)
    below = 0
    for _ in range(200):
        levels = np.exp(rng.normal(0, 0.3, 3))
        taken = {seed: rng.lognormal(0, 0.2, 1000) * level for seed, level in enumerate(levels)}
        told = loadgen_estimate(taken, SINGLE).estimate
        below += told.value < np.quantile(np.concatenate(list(taken.values())), 0.9)
        assert told.interval is None
    # By the middle of the three, 185 of 200.
    assert below <= 2


def test_below_64_queries_there_is_no_estimate(tmp_path):
    entry = summary(tmp_path, parts={"n": 63}).entries[0]
    assert entry.estimate.estimate is None
    assert "needs 64 queries" in entry.estimate.reason


def test_a_million_answers_cost_the_time_that_they_take(tmp_path):
    entry = summary(tmp_path, price=Price(3.6)).entries[0]
    assert entry.cost.value == pytest.approx(3.6 / 3600 * 1e6 / entry.throughput.estimate.value)
    assert entry.cost.interval.low < entry.cost.value < entry.cost.interval.high


def test_the_slower_framework_gets_slower_with_the_ratio(tmp_path):
    first, second = summary(tmp_path).entries
    assert first.verdict is None
    assert second.verdict.kind == "SLOWER"
    assert second.verdict.ratio == pytest.approx(1.5, rel=0.1)


@pytest.mark.parametrize(
    ("quality", "demand", "kept"),
    [
        (0.95, Demand(), True),
        (0.9406, Demand(), True),
        (0.94, Demand(), False),
        (0.94, Demand(target=0.9), True),
        (0.94, Demand(share=0.98), True),
    ],
)
def test_the_closed_rule_requires_a_share_of_the_references_quality(tmp_path, quality, demand, kept):
    found = summary(tmp_path, n=1, parts={"quality": quality}, demand=demand)
    assert found.entries[0].quality.kept is kept


def test_without_a_reference_the_quality_cannot_be_judged(tmp_path):
    spec = specification(model=replace(specification().model, kind="file", quality=None))
    found = summarise_inference([[write(tmp_path, spec)]]).entries[0].quality
    assert found.kept is None
    assert "--target-accuracy" in found.reason


def test_one_process_that_broke_a_rule_makes_the_arm_invalid(tmp_path):
    spec = specification(scenario=SERVER)
    broken = {"valid": False, "reasons": ["early stopping: 0 of 445 late, 14 more on time are needed"]}
    records = [write(tmp_path, spec, 0), write(tmp_path, spec, 1, **broken)]
    entry = summarise_inference([records]).entries[0]
    assert not entry.valid
    assert entry.reasons == ("early stopping: 0 of 445 late, 14 more on time are needed",)


def test_an_arm_that_failed_has_its_reason_and_no_figures(tmp_path):
    failed = write(tmp_path, specification(), events=[InferenceOutcome("failed", "it has no LRN")])
    entry = summarise_inference([[failed]]).entries[0]
    assert (entry.status, entry.reason, entry.valid) == ("failed", "it has no LRN", False)
    assert entry.mean.estimate is None


def test_an_audit_that_failed_in_one_process_has_failed(tmp_path):
    spec = specification()
    records = [
        write(tmp_path, spec, seed, audits=[Audit("caching", passed, "so")])
        for seed, passed in enumerate([True, False])
    ]
    assert [each.passed for each in summarise_inference([records]).entries[0].audits] == [False]


def test_a_negative_count_of_a_driver_is_refused():
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(
            {"kind": "driven", "queries": -1, "samples": 1, "duration_s": 1.0, "latencies": 1, "valid": True}, Driven
        )


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.binary(max_size=12), st.integers(0, 12))
def test_a_damaged_record_is_read_or_refused_and_never_crashes_the_reader(tmp_path_factory, at, put, cut):
    folder = tmp_path_factory.getbasetemp() / "damaged"
    folder.mkdir(exist_ok=True)
    path = folder / "record.jsonlines"
    if not (folder / "whole").exists():
        (folder / "whole").write_bytes(write(folder, specification(), n=20).path.read_bytes())
    whole = (folder / "whole").read_bytes()
    place = at % len(whole)
    path.write_bytes(whole[:place] + put + whole[place + cut :])
    with suppress(RecordError):
        assert InferenceRecord.read(path).status in ("done", "interrupted")


def test_offline_is_scored_by_the_time_per_sample(tmp_path):
    record = write(tmp_path, specification(scenario=OFFLINE), throughput_per_s=250.0)
    assert score(record, OFFLINE) == 0.004
