"""Rules that rank by samples, steps or energy, and rules that test the mean of the final qualities."""

from __future__ import annotations

from importlib.resources import files

import msgspec
import numpy as np
import pytest
from scipy import stats
from tests.competition.conftest import REMOVE
from tests.competition.made import records
from tests.competition.scored import OURS, TARGET, submission

from levelbench.cli.board_limits import known_limits
from levelbench.competition.checks import MachineLimits
from levelbench.competition.entries import (
    SubmittedCurve,
    SubmittedRun,
    curve_digest,
    encode,
    file_digest,
    parse_submission,
)
from levelbench.competition.figures import rank
from levelbench.competition.making import make
from levelbench.competition.rivals import doubts_at_rank
from levelbench.competition.rulesets import Aggregation
from levelbench.competition.scoring import score
from levelbench.competition.site.build import build


def run(samples=4000, *, steps=None, energy=None, qualities=(0.9, 0.94, 0.95), status="done", method="rapl"):
    """A run whose second of two evaluations at the target is its last, after ``samples`` and ``steps``."""
    counts = [samples // 4, samples // 2, samples]
    curve = SubmittedCurve(
        [1.0, 2.0, 3.0], list(qualities), samples=counts, steps=None if steps is None else [1, 2, steps]
    )
    return SubmittedRun(curve, status=status, energy_j=energy, energy_method=method if energy else None)


def by(ranked_by, **aggregation):
    how = Aggregation(**{"rule": "median", "runs": 3, **aggregation})
    crossing = "final" if how.rule == "mean-test" else OURS.crossing
    return msgspec.structs.replace(OURS, ranked_by=ranked_by, aggregation=how, crossing=crossing)


def test_the_samples_at_the_confirmed_target_count():
    found = score(submission([run(4000), run(4400), run(4200)]), by("samples"))
    assert found.samples.value == 4200
    assert found.time.value == 3.0


def test_a_run_that_missed_the_target_never_has_enough_samples():
    missed = run(9000, qualities=(0.9, 0.9, 0.9))
    assert score(submission([run(4000), run(4100), missed]), by("samples")).samples.sample == (4000, 4100, None)


def test_steps_that_a_run_does_not_state_leave_no_figure_and_say_which_run():
    found = score(submission([run(steps=30), run(), run(steps=31)]), by("steps"))
    assert (found.steps.value, found.steps.how) == (None, "runs[1] does not state its steps")


def test_energy_is_that_of_whole_runs_and_names_its_method():
    found = score(submission([run(energy=each) for each in (40.0, 42.0, 50.0)]), by("energy")).energy
    assert found.value == 42.0
    assert found.how.endswith("of whole runs, by rapl")


def test_energies_of_two_methods_are_not_one_figure():
    runs = [run(energy=40.0), run(energy=41.0, method="nvml-counter"), run(energy=42.0)]
    assert "different methods" in score(submission(runs), by("energy")).energy.how


@pytest.mark.parametrize("energy", [-1.0, 1e30, float("inf")])
def test_an_impossible_energy_leaves_no_figure(energy):
    assert "impossible" in score(submission([run(energy=energy)] * 3), by("energy")).energy.how


def test_samples_are_ranked_by_the_test_of_times():
    few = score(submission([run(each) for each in (4000, 4100, 4200, 4100)]), by("samples")).samples
    many = score(submission([run(each) for each in (8000, 8100, 8300, 8200)]), by("samples")).samples
    close = score(submission([run(each) for each in (4000, 4200, 4300, 4100)]), by("samples")).samples
    first, second, third = rank([few, close, many], by_test=True)
    assert (first.worst, second.best, third.best) == (2, 1, 3)


def test_a_curve_without_steps_has_the_digest_that_it_always_had():
    old = SubmittedCurve([1.0], [0.5], samples=[10])
    assert curve_digest(old) == "10bf29d8a7d801798ae16ac5ffdcb120d444cc83a182421b7804a884342f3c1e"
    assert b"steps" not in encode(submission([SubmittedRun(old)]))
    assert parse_submission(encode(submission([SubmittedRun(old)]))).runs[0].curve.steps is None


def mean_test(level=0.05, runs=2):
    return by("time", rule="mean-test", level=level, runs=runs)


def final(*qualities, **parts):
    return submission([run(qualities=(0.5, 0.6, each)) for each in qualities], crossing="final", **parts)


@pytest.mark.parametrize("direction", ["higher", "lower"])
@pytest.mark.parametrize("seed", range(8))
def test_the_mean_passes_where_scipys_one_sided_t_test_does(direction, seed):
    rng = np.random.default_rng(seed)
    target = msgspec.structs.replace(TARGET, direction=direction, threshold=0.5)
    task = msgspec.structs.replace(OURS.tasks[2], target=target)
    qualities = rng.normal(0.5 + (0.01 if direction == "higher" else -0.01), 0.02, size=int(rng.integers(3, 20)))
    rules = msgspec.structs.replace(mean_test(0.05), tasks=[task])
    found = score(final(*qualities.tolist(), target=target), rules).time
    side = "greater" if direction == "higher" else "less"
    assert (found.value is not None) == (stats.ttest_1samp(qualities, 0.5, alternative=side).pvalue < 0.05)


def test_the_time_under_the_mean_test_is_the_mean_over_all_runs_with_scipys_interval():
    entry = final(0.95, 0.951, 0.952, 0.953)
    ends = [3.0, 3.5, 4.0, 4.1]
    runs = [
        msgspec.structs.replace(each, curve=msgspec.structs.replace(each.curve, time_s=[1.0, 2.0, end]))
        for each, end in zip(entry.runs, ends, strict=True)
    ]
    found = score(msgspec.structs.replace(entry, runs=runs), mean_test()).time
    low, high = stats.t.interval(0.95, 3, np.mean(ends), stats.sem(ends))
    assert (found.value, found.low, found.high) == pytest.approx((np.mean(ends), low, high))


def test_single_runs_may_miss_the_target_if_the_mean_does_not():
    found = score(final(0.9399, 0.945, 0.946, 0.947, 0.948), mean_test(0.05))
    assert (found.time.value, found.reached) == (3.0, 4)
    assert "censored" not in found.flags


def test_a_mean_that_is_not_sure_enough_has_no_figure_and_says_its_p_value():
    found = score(final(0.9399, 0.945, 0.941), mean_test(0.01)).time
    p_value = stats.ttest_1samp([0.9399, 0.945, 0.941], 0.94, alternative="greater").pvalue
    assert found.value is None
    assert f"p = {p_value:.3g}; " in found.how
    assert "the rules require 0.94 with p < 0.01" in found.how


def test_one_run_has_no_test_of_its_mean():
    assert score(final(0.99), mean_test()).time.how == "one run: a test of the mean needs two"


@pytest.mark.parametrize(("quality", "passes"), [(0.94, True), (0.9399, False)])
def test_equal_final_qualities_pass_where_they_are_at_the_target(quality, passes):
    assert (score(final(quality, quality, quality), mean_test()).time.value is not None) == passes


def test_a_failed_run_is_not_left_out_of_the_mean():
    entry = final(0.95, 0.951, 0.952)
    runs = [*entry.runs, run(status="failed")]
    found = score(msgspec.structs.replace(entry, runs=runs), mean_test()).time
    assert found.how == "1 of 4 runs failed: the mean is over all runs"


def test_steps_under_the_mean_test_are_those_of_whole_runs():
    entry = submission([run(steps=30 + at, qualities=(0.5, 0.6, 0.95 + 0.001 * at)) for at in range(3)])
    found = score(entry, by("steps", rule="mean-test", level=0.05, runs=2)).steps
    assert found.sample == (30, 31, 32)


def test_the_check_says_that_an_entry_lacks_what_its_rules_rank_by(clean):
    rules = msgspec.structs.replace(OURS, id="own-1.0", name="own", version="1.0", ranked_by="steps")
    found = clean.find(clean.make(changes={"ruleset": "own-1.0"}), known={rules.id: rules})
    assert [each.found for each in found if each.code == "B263"] == [
        "own-1.0 ranks by steps; runs[0] does not state its steps"
    ]


def test_the_check_refuses_an_entry_whose_mean_is_not_at_the_target(clean):
    how = Aggregation(rule="mean-test", level=1e-6, runs=2)
    rules = msgspec.structs.replace(OURS, id="own-1.0", name="own", version="1.0", crossing="final", aggregation=how)
    entry = clean.make(changes={"ruleset": "own-1.0", "crossing": "final", "runs[0].curve.quality[5]": 0.9599})
    assert "B140" in clean.codes(entry, known={rules.id: rules})
    assert "B140" not in clean.codes(
        entry, known={rules.id: msgspec.structs.replace(rules, aggregation=msgspec.structs.replace(how, level=0.5))}
    )


def test_a_board_begins_with_what_its_rules_rank_by(clean, tmp_path):
    own = (files("levelbench.competition.rulesets") / "data/levelbench-1.0.toml").read_text()
    own = own.replace('"levelbench-1.0"', '"own-1.0"').replace('name = "levelbench"', 'name = "own"')
    add = tmp_path / "board" / "rulesets" / "own.toml"
    add.parent.mkdir(parents=True)
    add.write_text(own.replace("[aggregation]", 'ranked_by = "energy"\n[aggregation]', 1))
    path = tmp_path / "board" / "digits" / "training" / "one.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(encode(clean.make(changes={"ruleset": "own-1.0"})))
    built = build(tmp_path / "board", tmp_path / "site", today=clean.today)
    assert [each.column for each in built.rankings] == ["energy", "time", "cost"]
    assert built.rankings[0].rows[0].figure == "40 J [40, 40]"
    assert "energy of whole runs, by rapl" in built.rankings[0].rows[0].said
    page = (tmp_path / "site" / "digits_own-1.0.html").read_text()
    assert page.index("Energy of training") < page.index("Time to accuracy</span>")


def test_submit_fills_in_the_steps_of_the_records(put, terms):
    runs = make(records(*(put(seed) for seed in range(5))), terms).runs
    assert all(run.curve.steps and len(run.curve.steps) == len(run.curve.time_s) for run in runs)


def test_an_entry_of_before_the_steps_still_agrees_with_its_records(put, terms, clean):
    paths = [put(seed) for seed in range(5)]
    entry = make(records(*paths), terms)
    runs = [msgspec.structs.replace(run, curve=msgspec.structs.replace(run.curve, steps=None)) for run in entry.runs]
    old = msgspec.structs.replace(
        entry, runs=[msgspec.structs.replace(run, curve_digest=curve_digest(run.curve)) for run in runs]
    )
    assert "B183" not in clean.codes(old, records={file_digest(path): str(path) for path in paths})


STEPS = "runs[0].curve.steps"


@pytest.mark.parametrize(
    ("ranked_by", "changes", "doubted"),
    [
        ("samples", {}, False),
        ("samples", {"provenance.split_sizes": {"train": 2158}}, True),
        # An epoch of reinforcement learning is what all environments play between two updates.
        (
            "samples",
            {"provenance.split_sizes": {"train": 2158}, "settings.environments": 13, "settings.length": 83},
            False,
        ),
        ("steps", {"settings.batch": 64, STEPS: [17, 34, 51, 68, 85, 102]}, False),
        ("steps", {"settings.batch": 64, STEPS: [7, 14, 21, 28, 35, 42]}, True),
        ("steps", {"settings.batch": 32, "settings.accumulate": 2, STEPS: [17, 34, 51, 68, 85, 102]}, False),
        ("steps", {"settings.batch": 64, "provenance.split_sizes": {"train": 2158}}, True),
    ],
)
def test_fewer_samples_or_steps_than_follow_from_the_rest_are_doubted(clean, ranked_by, changes, doubted):
    assert ("B139" in codes_under(clean, ranked_by, changes)) == doubted


@pytest.mark.parametrize(("rollouts", "doubted"), [(False, True), (True, False)])
def test_settings_of_rollouts_excuse_few_samples_only_where_the_task_has_them(clean, rollouts, doubted):
    limits = MachineLimits(recipes=frozenset({"mlp"}), rollouts=rollouts)
    changes = {"provenance.split_sizes": {"train": 2158}, "settings.environments": 1, "settings.length": 1}
    entry = clean.make(changes={**changes, "settings.recipe": "mlp"})
    findings = clean.find(entry, limits=lambda entry: limits)
    assert ("runs[0].curve.samples" in {each.field for each in findings if each.code == "B139"}) == doubted


@pytest.mark.parametrize(("task", "rollouts"), [("digits", False), ("cartpole", True), ("no-such-task", False)])
def test_which_tasks_have_rollouts_is_known_of_installed_ones(clean, task, rollouts):
    assert known_limits(clean.make(changes={"task": task})).rollouts == rollouts


def test_the_evaluation_that_states_too_few_steps_is_the_one_that_is_named(clean):
    rules = msgspec.structs.replace(OURS, id="own-1.0", name="own", version="1.0", ranked_by="steps")
    stated = {"ruleset": rules.id, "settings.batch": 64, STEPS: [7, 34, 51, 68, 85, 102]}
    found = clean.find(clean.make(changes=stated), known={rules.id: rules})
    said = [each.found for each in found if each.code == "B139" and each.field == STEPS]
    assert said == ["7 steps, where 16.8594 follow from samples and batch"]


@pytest.mark.parametrize(
    ("ranked_by", "changes"),
    [
        ("samples", {"provenance.split_sizes": REMOVE}),
        ("samples", {"runs[2].curve.epoch": REMOVE}),
        ("steps", {STEPS: [17, 34, 51, 68, 85, 102]}),
        ("steps", {"settings.batch": 64, STEPS: [7, 14, 21, 28, 35, 42], "runs[0].curve.samples": REMOVE}),
    ],
)
def test_leaving_out_what_samples_or_steps_are_compared_with_is_doubted_too(clean, ranked_by, changes):
    assert "B139" in codes_under(clean, ranked_by, changes)


@pytest.mark.parametrize(("every", "doubted"), [("1 epoch", False), ("2 epochs", True), ("100 steps", False)])
def test_epochs_that_follow_faster_than_is_evaluated_are_doubted(clean, every, doubted):
    assert ("B139" in codes_under(clean, "samples", {"settings.evaluate_every": every})) == doubted


@pytest.mark.parametrize(
    ("every", "column", "values", "doubted"),
    [
        ("1 epoch", "epoch", [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], False),
        ("1 epoch", "epoch", [1.0, 2.0, 3.0, 4.0, 6.0, 7.0], True),
        ("1 epoch", "epoch", [2.0, 3.0, 4.0, 5.0, 6.0, 7.0], True),
        ("50 steps", "steps", [50, 100, 150, 200, 250, 270], False),
        ("50 steps", "steps", [50, 100, 150, 200, 300, 350], True),
    ],
)
def test_an_evaluation_that_is_left_out_between_two_is_doubted(clean, every, column, values, doubted):
    rules = msgspec.structs.replace(OURS, id="own-1.0", name="own", version="1.0", ranked_by="samples")
    stated = {"ruleset": rules.id, "settings.evaluate_every": every, f"runs[0].curve.{column}": values}
    found = clean.find(clean.make(changes=stated), known={rules.id: rules})
    assert any(each.code == "B139" and " apart, " in each.found for each in found) == doubted


def codes_under(clean, ranked_by, changes):
    rules = msgspec.structs.replace(OURS, id="own-1.0", name="own", version="1.0", ranked_by=ranked_by)
    entry = clean.make(changes={"ruleset": "own-1.0", "provenance.split_sizes": {"train": 1079}, **changes})
    return clean.codes(entry, known={rules.id: rules})


def test_energy_that_no_processor_gets_by_with_is_doubted_in_the_row(clean):
    rules = msgspec.structs.replace(OURS, id="own-1.0", name="own", version="1.0", ranked_by="energy")
    entry = clean.make(changes={"ruleset": "own-1.0", "runs[0].energy_j": 1e-4})
    findings = [each for each in clean.find(entry, known={rules.id: rules}) if each.code == "B158"]
    assert [each.severity for each in findings] == ["warning"]
    assert "energy is impossible or tiny" in doubts_at_rank(findings)[0]


@pytest.mark.parametrize(("ends", "doubted"), [((0.97, 0.97, 0.97), True), ((0.97, 0.97, 0.968), False)])
def test_a_mean_test_of_equal_qualities_is_doubted_in_the_row(clean, ends, doubted):
    rules = msgspec.structs.replace(mean_test(0.05, runs=3), id="own-1.0", name="own", version="1.0")
    qualities = {f"runs[{at}].curve.quality[5]": end for at, end in enumerate(ends)}
    changes = {"ruleset": "own-1.0", "crossing": "final", "runs": lambda runs: runs[:3]}
    findings = clean.find(clean.make(changes={**changes, **qualities}), known={rules.id: rules})
    assert any("all final qualities are 0.97" in each for each in doubts_at_rank(findings)) == doubted
