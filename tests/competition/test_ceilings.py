"""B190: figures that no machine could have made, by stated limits and by known ones."""

import json

import msgspec
import pytest
from tests.competition.conftest import REMOVE
from tests.competition.planting import faster

from levelbench.competition.checks import MachineLimits
from levelbench.competition.leaderboard import checked_folder
from levelbench.competition.rivals import doubts_at_rank
from levelbench.records.operations import measured_ceiling

PEAK = 5e10
# The entry is at 0.0022 of its ceiling: its fastest run trains 1079 samples in 1.001 s, at 1e5 operations each.
TIGHT = {"settings.flops_per_sample": 0.95 * PEAK / (1079 / 1.001)}


def found(clean, changes, **more):
    return [each for each in clean.find(clean.make("training", changes), **more) if each.code == "B190"]


def of_answers(clean, changes):
    """Severity and field of what is found of a measurement of 10.1 ms an answer on the average."""
    findings = clean.find(clean.make("inference", changes))
    return [(each.severity, each.field) for each in findings if each.code == "B190"]


def test_a_time_that_is_ten_times_under_the_bound_is_refused(clean):
    (finding,) = found(clean, {**TIGHT, "runs[2]": faster(0.1)})
    assert (finding.severity, finding.field) == ("error", "runs[2].curve.time_s")
    assert finding.found.endswith("operations a second; the machine's ceiling is 5e+10")


def test_what_a_fast_convolution_can_explain_is_for_the_reviewer(clean):
    (finding,) = found(clean, {**TIGHT, "runs[2]": faster(1 / 3)})
    assert finding.severity == "warning"


def test_a_time_at_the_bound_passes(clean):
    assert found(clean, TIGHT) == []


def test_one_evaluation_too_early_is_enough(clean):
    early = {**TIGHT, "runs[0].curve.time_s": lambda times: [times[0] / 10, *times[1:]]}
    assert [each.severity for each in found(clean, early)] == ["error"]


def test_a_time_that_no_division_survives_is_over_it(clean):
    (finding,) = found(clean, {**TIGHT, "runs[0].curve.time_s": lambda times: [5e-324, *times[1:]]})
    assert finding.found.startswith("inf operations a second")


@pytest.mark.parametrize("missing", ["settings.flops_per_sample", "provenance.environment"])
def test_where_one_of_the_two_is_missing_nothing_is_concluded(clean, missing):
    assert found(clean, {**TIGHT, "runs[2]": faster(0.1), missing: clean.remove}) == []


def test_a_ceiling_that_is_stated_too_high_gives_way_to_the_known_peak(clean):
    changes = {**TIGHT, "runs[2]": faster(0.1), "provenance.environment": {"ceiling.flop_s": "1e30"}}
    assert found(clean, changes) == []
    (finding,) = found(clean, changes, limits=lambda entry: MachineLimits(PEAK, "1 x V100"))
    assert finding.found.endswith("the peak of 1 x V100 is 5e+10")


def test_an_entry_that_states_neither_is_compared_with_what_is_known_and_only_warned(clean):
    gone = {"settings": {}, "provenance.environment": {}, "runs[0].curve.samples": clean.remove}
    limits = MachineLimits(PEAK, "1 x V100", TIGHT["settings.flops_per_sample"], "resnet56", samples_per_epoch=1079)
    assert found(clean, gone, limits=lambda entry: limits) == []
    (finding,) = found(clean, {**gone, "runs[0]": faster(0.1)}, limits=lambda entry: limits)
    assert (finding.severity, finding.do) == ("warning", "check whether its network is resnet56, or correct the times")


@pytest.mark.parametrize("stated", [1, True, "x", 0.0, 1e5])
def test_no_statement_that_is_lower_than_what_is_known_switches_it_off(clean, stated):
    changes = {"settings.flops_per_sample": stated, "runs[0]": faster(0.1)}
    limits = MachineLimits(PEAK, "1 x V100", TIGHT["settings.flops_per_sample"], "resnet56")
    (finding,) = found(clean, changes, limits=lambda entry: limits)
    assert (finding.severity, finding.field) == ("warning", "runs[0].curve.time_s")
    assert "operations a second of resnet56" in finding.found


def test_a_statement_that_is_too_high_by_itself_is_refused_whatever_is_known(clean):
    limits = MachineLimits(PEAK, "1 x V100", 1.05 * TIGHT["settings.flops_per_sample"], "resnet56")
    (finding,) = found(clean, {**TIGHT, "runs[0]": faster(0.1)}, limits=lambda entry: limits)
    assert finding.severity == "error"


def test_answers_are_compared_with_it_too(clean):
    flops = {"settings.flops_per_sample": 10 * PEAK * 20.4 / 2000}
    offline = {"inference[0].scenario": "offline", "inference[0].queries": 1, "inference[0].estimate_s": clean.remove}
    findings = clean.find(clean.make("inference", flops | offline))
    assert [(each.code, each.severity, each.field) for each in findings] == [
        ("B190", "error", "inference[0].duration_s")
    ]


@pytest.mark.parametrize("samples", [2000, 1])
def test_a_latency_that_is_too_short_for_one_answer_is_refused_though_the_whole_time_is_not(clean, samples):
    flops = {"settings.flops_per_sample": 0.5 * PEAK * 0.0101, "inference[0].samples": samples}
    slow = {"inference[0].quantiles_s": {"0.9": 0.0011, "0.99": 0.02}, "inference[0].estimate_s": 0.0012}
    assert of_answers(clean, flops | slow) == [
        ("error", "inference[0].quantiles_s"),
        ("warning", "inference[0].estimate_s"),
    ]


def test_a_query_of_several_samples_may_take_as_long_as_they_need(clean):
    eight = {"inference[0].scenario": "multi-stream", "inference[0].samples": 16000}
    flops = {"settings.flops_per_sample": 0.5 * PEAK * 0.0101}
    assert ("warning", "inference[0].quantiles_s") in of_answers(clean, flops | eight)
    assert of_answers(clean, {"settings.flops_per_sample": 0.1 * PEAK * 0.0101} | eight) == []


def head(flop_s, *, device="cpu", machine="m1", threads="2", cores=2, folder="networks"):
    specification = {"arm": {"device": device}} if folder == "networks" else {"device": device}
    return {
        "kind": folder,
        "id": f"{machine}{device}{flop_s:g}",
        "specification": specification,
        "environment": {
            "machine": {"id": machine, "cores_allowed": cores},
            "threads": {"settings": {"OMP_NUM_THREADS": threads}},
        },
        "ceilings": {"flop_s": {"float32": {"value": flop_s}, "float64": {"value": flop_s / 2}}},
    }


def write(store, *heads):
    for at, each in enumerate(heads):
        place = store / each["kind"] / "title" / "2026-11-21" / f"{at}.jsonlines"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(each) + "\n")


def test_the_highest_ceiling_of_the_same_machine_device_cores_and_threads_counts(tmp_path):
    others = [head(9e9, device="cuda"), head(9e9, machine="m2"), head(9e9, threads="1"), head(9e9, cores=4)]
    write(tmp_path, head(1e9), head(2e9, folder="operators"), *others)
    environment = head(0.0)["environment"]
    measured = measured_ceiling(tmp_path, environment, "cpu")
    assert (measured.flop_s, measured.precision, measured.record) == (2e9, "float32", "m1cpu2e+09")


@pytest.mark.parametrize(
    ("device", "precision", "measured", "known"),
    [
        ("cpu", "float32", "float32", True),
        ("cpu", "bfloat16", "float32", False),
        ("cpu", "bfloat16", "bfloat16", True),
        ("cuda", "float32", "float32", False),
        ("cuda", "float32", "float16", True),
    ],
)
def test_a_ceiling_of_slower_arithmetic_than_may_have_run_is_ignored(tmp_path, device, precision, measured, known):
    own = head(1e9, device=device)
    own["ceilings"]["flop_s"] = {"float64": {"value": 1e8}, measured: {"value": 1e9}}
    write(tmp_path, own)
    assert (measured_ceiling(tmp_path, own["environment"], device, precision) is not None) == known


@pytest.mark.parametrize("text", ["", "{", "[]\n", json.dumps({"id": "a"}) + "\n"])
def test_a_record_that_cannot_be_read_has_no_ceiling(tmp_path, text):
    write(tmp_path, head(1e9))
    next(tmp_path.rglob("*.jsonlines")).write_text(text)
    assert measured_ceiling(tmp_path, head(0.0)["environment"], "cpu") is None


def test_a_store_without_measurements_has_none(tmp_path):
    assert measured_ceiling(tmp_path, {}, "cpu") is None


def test_the_limits_of_an_entry_may_come_from_the_caller(clean, tmp_path):
    entry = clean.make("training", {"settings": {}, "provenance.environment": {}})
    place = tmp_path / "digits" / "training" / "ada_mlp.json"
    place.parent.mkdir(parents=True)
    place.write_bytes(msgspec.json.encode(entry))
    limits = MachineLimits(1.0, "1 x V100", 1e9, "resnet56")
    _, findings = checked_folder(tmp_path, today=clean.today, limits=lambda entry: limits)
    assert {each.code for each in findings} == {"B185", "B190"}


def test_a_network_without_convolutions_has_no_fast_algorithm_that_could_explain_it(clean):
    limits = MachineLimits(fast=1.0)
    (finding,) = found(clean, {**TIGHT, "runs[2]": faster(1 / 3)}, limits=lambda entry: limits)
    assert finding.severity == "error"


def test_the_recipe_that_an_entry_names_is_certain(clean):
    gone = {"settings": {}, "provenance.environment": {}, "runs[0]": faster(0.1)}
    limits = MachineLimits(PEAK, "2 cores", TIGHT["settings.flops_per_sample"], "the recipe mlp", certain=True)
    (finding,) = found(clean, gone, limits=lambda entry: limits)
    assert finding.severity == "error"


@pytest.mark.parametrize(
    ("settings", "doubted"),
    [
        ({"recipe": "mlp"}, ""),
        ({"recipe": "mine", "flops_per_sample": 1e5}, "author's own figure: the task has no recipe 'mine'"),
        ({"recipe": "mlp ", "flops_per_sample": 1e5}, "author's own figure: the task has no recipe 'mlp '"),
        ({"recipe": "mine"}, "the cost of a sample is not stated: the task has no recipe 'mine'"),
        ({"flops_per_sample": 1.0}, "the recipe is not stated"),
        ({"recipe": " ", "flops_per_sample": 1.0}, "the recipe is not stated"),
    ],
)
def test_an_entry_whose_author_alone_says_what_its_network_costs_is_doubted_in_the_row(clean, settings, doubted):
    limits = MachineLimits(PEAK, "2 cores", recipes=frozenset({"mlp"}))
    findings = clean.find(clean.make("training", {"settings": settings}), limits=lambda entry: limits)
    said = [each for each in doubts_at_rank(_warned(findings)) if "the speed cannot be checked" in each]
    assert len(said) == bool(doubted)
    assert all(each.endswith(doubted) for each in said)


def _warned(findings):
    return [each for each in findings if each.severity == "warning"]


def test_evaluations_that_follow_each_other_too_fast_are_doubted_though_the_first_was_slow(clean):
    times = {"runs[0].curve.time_s": lambda times: [5.01 + 0.2 * at for at in range(len(times))]}
    (finding,) = found(clean, {**TIGHT, **times, "runs[0].time_to_target_s": clean.remove})
    assert (finding.severity, finding.field) == ("warning", "runs[0].curve.time_s")
    assert "between two evaluations" in finding.found


def test_steps_within_an_interval_that_take_less_than_a_microsecond_are_doubted(clean):
    steps = {"runs[0].curve.steps": [10, *(10 + 3_000_000 * epoch for epoch in range(1, 6))]}
    findings = clean.find(clean.make("training", steps), limits=lambda entry: MachineLimits())
    assert [each.field for each in findings if each.code == "B190"] == ["runs[0].curve.time_s"]


def test_steps_that_take_less_than_a_microsecond_are_doubted_whatever_a_sample_costs(clean):
    steps = [10_000_000 * epoch for epoch in range(1, 7)]
    findings = clean.find(clean.make("training", {"runs[0].curve.steps": steps}), limits=lambda entry: MachineLimits())
    assert [each.field for each in findings if each.code == "B190"] == ["runs[0].curve.time_s"]


def test_a_curve_without_samples_and_epochs_cannot_be_checked_and_says_so(clean):
    gone = {"runs[0].curve.samples": clean.remove, "runs[0].curve.epoch": clean.remove, "settings": {}}
    limits = MachineLimits()
    findings = clean.find(clean.make("training", gone), limits=lambda entry: limits)
    assert [(each.severity, each.field) for each in findings if each.code == "B191"] == [("warning", "runs.curve")]


@pytest.mark.parametrize(("changes", "fields"), [
    ({}, set()),
    ({"runs[0].curve.samples": REMOVE}, {("B191", "runs.curve")}),
    ({"runs[0].curve.samples": [1, 2, 3, 4, 5, 6]}, {("B139", "runs[0].curve.samples")}),
    ({"runs[0].curve.epoch": REMOVE}, {("B139", "runs.curve.samples")}),
    ({"settings.evaluate_every": REMOVE}, {("B139", "settings.evaluate_every")}),
])  # fmt: skip
def test_of_an_installed_task_what_says_how_much_was_trained_may_not_be_left_out(clean, changes, fields):
    limits = MachineLimits(PEAK, "2 cores", 1e5, "the recipe mlp", recipes=frozenset({"mlp"}))
    stated = {"settings.recipe": "mlp", "settings.evaluate_every": "1 epoch", "provenance.split_sizes": {"train": 1079}}
    findings = clean.find(clean.make("training", stated | changes), limits=lambda entry: limits)
    assert {(each.code, each.field) for each in findings if each.severity == "warning"} == fields


@pytest.mark.parametrize(
    ("settings", "doubted"), [({}, True), ({"recipe": "mlp"}, False), ({"flops_per_sample": 1e3}, True)]
)
def test_a_measurement_of_inference_that_hides_what_an_answer_costs_is_doubted(clean, settings, doubted):
    limits = MachineLimits(PEAK, "2 cores", recipes=frozenset({"mlp"}))
    findings = clean.find(clean.make("inference", {"settings": settings}), limits=lambda entry: limits)
    assert [each.field for each in findings if (each.code, each.severity) == ("B191", "warning")] == (
        ["settings"] if doubted else []
    )
