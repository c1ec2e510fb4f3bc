"""Batch size: convergence, samples a second, time; the critical size and its coverage; answers to misuse."""

import dataclasses
import math

import msgspec
import numpy as np
import pytest
from benchmarks.analysis import SIZES, batch_groups, batch_trial, drawn, each_20_steps, each_epoch
from scipy import stats

from levelbench.analysis.batch_size import (
    LearningRateTrial,
    NoiseScale,
    choose_rate,
    noise_scale,
    scaled_rate,
    seen_samples,
    study_batch_size,
)
from levelbench.errors import UsageError
from levelbench.measure.statistics import Estimate
from levelbench.records.schema import Distribution
from levelbench.records.searches import Search, SearchedSide
from levelbench.report.batch_sizes import batch_size_tables
from levelbench.report.tables import to_text


@pytest.fixture
def groups():
    return batch_groups


def test_time_is_samples_over_samples_a_second_at_every_size(groups):
    found = study_batch_size(groups(drawn(np.random.default_rng(0)), per_s=lambda size: 10 * size))
    for point in found.points:
        assert point.time_s.value == pytest.approx(point.samples.value / point.samples_per_s.value)
        assert point.samples_per_s.value == pytest.approx(10 * point.size)
        assert point.samples.value == pytest.approx(point.steps.value * point.mean_size, rel=1e-3)


def test_the_critical_size_lies_where_samples_and_steps_are_twice_their_least(groups):
    at = study_batch_size(groups(drawn(np.random.default_rng(1)))).critical
    assert at.samples_at(at.size) == pytest.approx(2 * at.samples)
    assert at.samples_at(at.size) / at.size == pytest.approx(2 * at.steps)
    for size in SIZES:
        samples, steps = at.samples_at(size), at.samples_at(size) / size
        assert (steps / at.steps - 1) * (samples / at.samples - 1) == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize("every", [each_epoch, each_20_steps])
def test_the_critical_size_does_not_depend_on_how_often_runs_are_evaluated(groups, every):
    rng, found = np.random.default_rng(20), []
    for _ in range(10):
        samples = drawn(rng, 300.0, deviation=0.1)
        on_grid = study_batch_size(groups(samples, every=every))
        assert on_grid.points[0].samples.value > on_grid.critical.samples_at(32)
        exact = study_batch_size(groups(samples)).critical
        found.append(math.log(on_grid.critical.size / exact.size))
    # Through the samples at which a second evaluation confirms it, the size would be 0.5 or 2 times as large.
    assert abs(sum(found) / len(found)) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("every", [each_epoch, each_20_steps])
def test_its_interval_holds_the_truth_whatever_the_evaluations(every):
    rng = np.random.default_rng(21)
    held = [batch_trial(rng, every=every, deviation=0.1)["critical batch size"][0] for _ in range(60)]
    assert sum(held) >= stats.binom.ppf(0.001, 60, 0.95)


def test_evaluations_that_are_far_apart_are_said_to_widen_the_interval(groups):
    samples = drawn(np.random.default_rng(22))
    said = "lie between two evaluations"
    assert any(said in line for line in study_batch_size(groups(samples, every=lambda size: 8000)).lacks)
    assert not any(said in line for line in study_batch_size(groups(samples, every=lambda size: 500)).lacks)


def test_runs_that_bound_it_on_no_side_have_no_critical_size(groups):
    # All reach the target by their first evaluation.
    found = study_batch_size(groups({32: [800, 900], 128: [700, 950]}, every=lambda size: 1000))
    assert found.critical is None
    assert any("no estimate" in line for line in found.lacks)
    assert any("evaluate more often" in line for line in found.lacks)


def test_evaluations_at_the_target_that_nothing_confirmed_are_no_samples_without_it(groups):
    made = groups({32: [10_000, 11_000], 128: [15_000, 16_000, None]})
    runs = [each if each.reached else msgspec.structs.replace(each, samples_between=[18_000]) for each in made[1].runs]
    made[1] = type(made[1])(made[1].label, made[1].key, made[1].specification, tuple(runs))
    later = study_batch_size(made, {runs[-1].id: (40_000, 300)})
    sooner = study_batch_size(groups({32: [10_000, 11_000], 128: [15_000, 16_000, 18_000]}))
    assert later.critical.size > 0.5 * sooner.critical.size


def test_runs_that_were_given_up_are_censored_and_not_dropped(groups):
    samples = {32: [10_000] * 4 + [11_000], 128: [15_000, 16_000, 14_000], 1024: [None, None, 30_000]}
    made = groups(samples)
    seen = {
        run.id: (60_000, round(60_000 / each.specification.settings["batch"]))
        for each in made
        for run in each.runs
        if not run.reached
    }
    told, dropped = study_batch_size(made, seen), study_batch_size(made)
    assert told.critical.fit.censored == 2
    assert told.critical.size < dropped.critical.size
    assert any("do not say how many samples are too few: 2 runs" in line for line in dropped.lacks)


def given_up_at(groups, samples, most):
    """A study of runs of which those without samples had seen ``most``."""
    made = groups(samples)
    seen = {run.id: (most, most // 100) for each in made for run in each.runs if not run.reached}
    return study_batch_size(made, seen)


def test_the_law_is_tested_at_the_sizes_whose_runs_all_arrived(groups):
    flat = {16: [6000, 7000, 6500, 6200], 64: [6100, 6900, 6600, 6400], 256: [7000, 8000, 7400, 7600]}
    found = given_up_at(groups, {**flat, 512: [42_000, None, None, None]}, 65_000)
    assert found.critical.fit.misfit < 0.01
    assert any("samples do not follow the law" in line for line in found.lacks)
    assert any("which do not follow its law (lack of fit p = " in line for line in found.answers())


def test_a_law_that_could_not_be_tested_is_said_not_to_be(groups):
    found = given_up_at(groups, {32: [10_000, 11_000, None], 128: [15_000, 16_000, None]}, 60_000)
    assert found.critical.fit.misfit is None
    assert any("was not tested" in line for line in found.lacks)


def test_runs_that_diverge_count_in_the_share_and_not_in_the_law(groups, group):
    made = groups({32: [10_000, 11_000, 10_500], 128: [14_000, 14_500, 13_000], 512: [30_000, None, None]})
    runs = [msgspec.structs.replace(each, hopeless=not each.reached) for each in made[2].runs]
    made[2] = group("digits[batch=512]", runs, settings=made[2].specification.settings)
    found = study_batch_size(made)
    assert found.points[2].diverged == 2
    assert found.critical.fit.n == 7
    assert any("2 runs diverged" in line for line in found.lacks)


def test_the_largest_size_that_converges_comes_with_its_share_and_the_next_one(groups):
    found = study_batch_size(groups({32: [100, 110, 90], 64: [120, None, 130], 128: [None, None, 300]}))
    assert found.largest.size == 64
    assert (round(found.largest.share.low, 2), round(found.largest.share.high, 2)) == (0.21, 0.94)
    assert any(
        "64, where 2/3 [21, 94 %] reach the target, and 1/3 [6, 79 %] at 128" in line for line in found.answers()
    )


@pytest.mark.parametrize(
    ("ended", "said"), [("at a budget", "at 64 runs ended at a budget"), ("all epochs", "smaller ones do not: 64")]
)
def test_sizes_whose_runs_were_given_up_are_not_said_not_to_converge(groups, ended, said):
    small, large = groups({64: [None, None, None], 128: [950, 960, 980]})
    spent = [msgspec.structs.replace(run, trained_out=ended == "all epochs") for run in small.runs]
    found = study_batch_size([dataclasses.replace(small, runs=tuple(spent)), large])
    (line,) = [each for each in found.answers() if "largest batch size" in each]
    assert said in line
    assert ("smaller ones do not" in line) is (ended == "all epochs")


def test_if_all_sizes_converge_the_limit_is_beyond_them(groups):
    found = study_batch_size(groups(drawn(np.random.default_rng(3))))
    assert found.largest.size == 2048
    assert any("the limit is beyond the sizes that were tried" in line for line in found.answers())


@pytest.mark.parametrize(("evaluations", "clear"), [(5, False), (500, True)])
def test_no_size_is_the_fastest_by_its_pace_if_a_late_evaluation_could_undo_it(groups, evaluations, clear):
    per_s = {64: 1000.0, 128: 1030.0}
    made = groups({size: [1000, 1001, 1002, 1003, 1004] for size in per_s}, per_s=per_s.get, evaluations=evaluations)
    (line,) = [each for each in study_batch_size(made).answers() if "shortest time" in each]
    assert ("not clearly shorter than at 64" not in line) is clear


def test_the_fastest_size_trades_samples_for_samples_a_second(groups):
    per_s = {32: 1000.0, 128: 3000.0, 512: 4000.0}
    found = study_batch_size(groups({32: [100] * 3, 128: [120] * 3, 512: [400] * 3}, per_s=per_s.get))
    assert found.fastest.size == 128
    assert any("1.2 times the samples at 3 times as many a second" in line for line in found.answers())


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (lambda size: 0.01 * size, "linear in the batch size, 0.32 at 32"),
        (lambda size: 0.01 * size**0.5, "sqrt in the batch size"),
        (lambda size: 0.1, "0.1 at every size"),
        (lambda size: {32: 0.1, 64: 0.3}.get(size, 0.2), "one for each size, by no rule: 0.1 at 32, 0.3 at 64"),
    ],
)
def test_the_rule_of_the_rate_is_read_from_the_runs(groups, rate, said):
    found = study_batch_size(groups(drawn(np.random.default_rng(4)), rate=rate))
    assert said in found.rule


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ("lr=choice(0.1,0.2)", "0.1 at 32, not tuned; 0.2 at 64, tuned (2 trials)"),
        ("momentum=uniform(0,1)", "linear in the batch size, 0.1 at 32"),
    ],
)
def test_a_rate_that_a_search_chose_is_tuned_and_follows_no_rule(groups, space, said):
    made = groups({32: [100, 110], 64: [120, 130]}, rate=lambda size: 0.1 * size / 32)
    side = SearchedSide("digits", [space], ["a", "b"], 1.0, made[1].key)
    assert study_batch_size(made, searches=[Search("digits", "grid", 2, 2, None, [0, 1], [side])]).rule == said


def test_rules_scale_the_rate_from_the_base():
    assert scaled_rate("linear", 0.05, 256, 64) == 0.2
    assert scaled_rate("sqrt", 0.05, 256, 64) == 0.1
    assert scaled_rate("none", 0.05, 256, 64) == 0.05


def test_the_chosen_rate_takes_the_fewest_samples_and_says_if_it_is_the_last_one():
    trials = [
        LearningRateTrial(64, 0.1, 900, 0.96),
        LearningRateTrial(64, 0.2, 500, 0.97),
        LearningRateTrial(64, 0.4, math.inf, 0.3),
    ]
    assert choose_rate(trials).rate == 0.2
    assert not choose_rate(trials).edge
    assert choose_rate(trials[:2]).edge


def test_if_no_trial_arrives_the_one_that_came_closest_is_chosen():
    trials = [
        LearningRateTrial(64, 0.1, math.inf, 0.8),
        LearningRateTrial(64, 0.2, math.inf, 0.9),
        LearningRateTrial(64, 1, math.inf, math.nan),
    ]
    assert choose_rate(trials).rate == 0.2
    assert choose_rate(trials[:2], higher=False).rate == 0.1


def test_batches_that_an_epoch_cuts_count_with_what_they_had(groups, group):
    made = groups(drawn(np.random.default_rng(5)))
    runs = [
        msgspec.structs.replace(each, steps_to_target=round(each.samples_to_target / 700)) for each in made[-1].runs
    ]
    made[-1] = group("digits[batch=2048]", runs, settings=made[-1].specification.settings)
    found = study_batch_size(made)
    assert found.points[-1].mean_size == pytest.approx(700, rel=0.05)
    assert any("700" in line and "at 2048" in line for line in found.caveats)


def test_a_size_that_no_run_reached_the_target_at_has_the_mean_of_what_they_had_seen(groups):
    made = groups({32: [900, 950], 64: [1200, 1250], 1024: [None, None]})
    found = study_batch_size(made, {run.id: (5000, 10) for run in made[2].runs})
    assert found.points[2].mean_size == pytest.approx(500)


def test_of_several_rates_at_a_size_the_one_with_most_runs_counts_and_that_is_said(groups):
    more = groups({64: [5_000]}, rate=lambda size: 9.0)
    found = study_batch_size([*groups({64: [9_000, 9_100], 128: [9_500, 9_800]}), *more])
    assert found.points[0].rate == pytest.approx(0.64)
    assert any("batch size 64 has runs at 2 learning rates" in line for line in found.caveats)


def test_weak_scaling_multiplies_the_batch_by_the_ranks(groups):
    team = Distribution(4, "all-reduce", {}, "process", "gloo", "weak", "none")
    made = groups({64: [9_000, 9_100], 128: [9_500, 9_800]})
    made = [
        type(each)(each.label, each.key, msgspec.structs.replace(each.specification, distribution=team), each.runs)
        for each in made
    ]
    assert [point.size for point in study_batch_size(made).points] == [256, 512]


def test_samples_that_do_not_grow_give_a_bound_and_no_critical_size(groups):
    rng = np.random.default_rng(11)
    found = study_batch_size(
        groups(
            {
                size: [round(1e7 / (1 + size / 1e4) * math.exp(0.01 * rng.standard_normal())) for _ in range(5)]
                for size in SIZES
            }
        )
    )
    assert found.critical is None
    assert any("do not grow up to a batch size of 2048" in line for line in found.lacks)


def test_a_curve_of_another_shape_is_said_to_be_one(groups):
    rng = np.random.default_rng(12)
    found = study_batch_size(
        groups(
            {size: [round(10 * size**2 * math.exp(0.02 * rng.standard_normal())) for _ in range(5)] for size in SIZES}
        )
    )
    assert any("do not follow the law" in line for line in found.lacks)


def test_equal_samples_at_every_size_and_run_have_no_interval(groups):
    found = study_batch_size(groups({size: [100_000 * (300 + size)] * 3 for size in SIZES}))
    assert found.critical.size == pytest.approx(300, rel=1e-3)
    assert found.critical.interval is None
    assert any("exactly on one curve" in line for line in found.lacks)


def test_one_run_a_size_is_said_to_be_too_few(groups):
    found = study_batch_size(groups(drawn(np.random.default_rng(6), runs=1)))
    assert any("a size with one run cannot tell luck from size" in line for line in found.lacks)


def test_as_many_runs_as_the_law_has_parameters_have_no_critical_size(groups):
    found = study_batch_size(groups({32: [9000], 64: [10_000]}))
    assert found.critical is None
    assert any("2 runs are too few for a critical batch size" in line for line in found.lacks)


def test_if_no_run_arrives_it_is_said_what_to_give_them(groups):
    made = groups({64: [None] * 3, 128: [None] * 3})
    found = study_batch_size(
        made, {run.id: (500, round(500 / each.specification.settings["batch"])) for each in made for run in each.runs}
    )
    assert found.critical is None
    assert found.largest is None
    assert any("no run of 6 reached the target" in line and "--epochs" in line for line in found.lacks)
    assert "at no batch size does half of the runs reach the target" in found.answers()[0]


def test_schedules_of_fixed_length_have_no_critical_size(groups, group):
    made = [
        group(each.label, each.runs, settings=each.specification.settings, crossing="final")
        for each in groups(drawn(np.random.default_rng(7)))
    ]
    found = study_batch_size(made)
    assert found.critical is None
    assert any("take the same samples at every batch size" in line for line in found.lacks)


def test_the_noise_scale_stands_beside_the_critical_size(groups):
    noise = NoiseScale(Estimate(250.0, None, 1, "single value"), 64, ((100.0, 200.0),))
    found = study_batch_size(groups(drawn(np.random.default_rng(8))), noise=noise)
    assert any("gradient noise scale: 250 examples, over training at batch size 64" in each for each in found.answers())


def test_the_noise_scale_of_a_run_is_the_ratio_of_sums():
    runs = [[(100, 10.0, 2.0), (200, 30.0, -0.5)], [(100, 20.0, 1.0), (200, 40.0, 1.0)]]
    found = noise_scale(runs, 64)
    assert found.value.value == pytest.approx(math.sqrt(40 / 1.5 * 30))
    assert found.curve == ((100, 5.0),)


@pytest.mark.parametrize("runs", [[], [[(100, 10.0, -2.0)]]])
def test_gradients_below_their_noise_have_no_scale_and_say_so(runs):
    found = noise_scale(runs, 64)
    assert found.value is None
    assert "no gradient noise scale" in found.reason


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"environment": {"machine": {"id": "m2"}}}, "several machines"),
        ({"settings": {"hidden": 7}}, "they also differ in hidden"),
    ],
)
def test_runs_that_differ_in_something_else_are_refused(groups, other, said):
    made = [*groups({64: [900, 910]}), *groups({128: [950, 980]}, **other)]
    with pytest.raises(UsageError, match=said):
        study_batch_size(made)


def test_runs_of_another_machine_are_refused_even_if_their_seeds_have_run_before(groups):
    here, there = (
        groups({64: [900, 910], 128: [950, 980]}),
        groups({64: [900, 910]}, environment={"machine": {"id": "m2"}}),
    )
    with pytest.raises(UsageError, match="several machines"):
        study_batch_size([dataclasses.replace(here[0], repeats=there[0].runs), here[1]])


@pytest.mark.parametrize(
    ("replaced", "said"),
    [
        ({"target": msgspec.structs.replace}, "2 targets: 0.9, 0.95"),
        ({"clock": "mlperf"}, "2 clocks"),
        ({"task": "other"}, "2 tasks"),
        ({"evaluate_every": "10 epochs"}, "2 intervals between evaluations"),
    ],
)
def test_mixed_targets_clocks_and_tasks_are_refused(groups, group, replaced, said):
    a, b = groups({64: [900, 910], 128: [950, 980]})
    if "target" in replaced:
        replaced = {"target": msgspec.structs.replace(b.specification.target, threshold=0.95)}
    b = group(b.label, b.runs, settings=b.specification.settings, **replaced)
    with pytest.raises(UsageError, match=said):
        study_batch_size([a, b])


def team_of(ranks, scheme, **settings):
    return Distribution(ranks, scheme, settings, "process", "gloo")


@pytest.mark.parametrize(
    ("teams", "said"),
    [
        ([team_of(2, "all-reduce"), team_of(2, "top-k")], "2 schemes: all-reduce, top-k"),
        ([team_of(2, "all-reduce"), team_of(4, "all-reduce")], "2 numbers of ranks: 2, 4"),
        ([None, team_of(4, "all-reduce")], "2 numbers of ranks: 1, 4"),
        ([None, team_of(1, "all-reduce")], "2 schemes: all-reduce, none"),
        ([team_of(2, "top-k", ratio=0.1), team_of(2, "top-k", ratio=0.01)], "they also differ in scheme.ratio"),
    ],
)
def test_several_distributions_are_refused(groups, group, teams, said):
    a, b = groups({64: [900, 910], 128: [950, 980]})
    sides = [
        group(each.label, each.runs, settings=each.specification.settings, distribution=team)
        for each, team in zip((a, b), teams, strict=True)
    ]
    with pytest.raises(UsageError, match=said):
        study_batch_size(sides)


def test_a_size_that_never_varies_is_refused_with_the_command_that_varies_it(groups):
    with pytest.raises(UsageError, match=r"all runs have batch=64.*--sizes"):
        study_batch_size(groups({64: [900, 910]}))


def test_runs_without_a_batch_size_are_refused(run, group):
    with pytest.raises(UsageError, match="--batch-setting"):
        study_batch_size([group("digits", [run(1.0)])])


def test_no_runs_are_refused():
    with pytest.raises(UsageError, match="none has ended"):
        study_batch_size([])


def test_what_runs_had_seen_comes_from_their_last_evaluation(tmp_path):
    from tests.cli.conftest import specification, write_run

    from levelbench.records import read_record

    path = write_run(tmp_path, specification(), 0, "aaaa0000", [0.1, 0.2])
    assert seen_samples([read_record(path)]) == {"aaaa0000": (1280, 20)}


def test_a_size_that_is_not_clearly_faster_is_no_winner(groups):
    found = study_batch_size(groups({32: [1000, 1300, 1150], 64: [1020, 1250, 1120]}))
    assert "not clearly shorter than at 32: make more runs" in found.answers()[0]
    found = study_batch_size(groups({32: [2000, 2050, 2010], 64: [1020, 1050, 1030]}))
    assert found.answers()[0].startswith("shortest time to the target: 1.03 s at batch size 64, against 2.02 s at 32")


def test_one_run_of_a_size_makes_no_winner(groups):
    assert "one run of a size is too few" in study_batch_size(groups({32: [1000], 64: [900]})).answers()[0]


def test_a_critical_size_from_two_sizes_is_said_to_be_untested(groups):
    lacks = " ".join(study_batch_size(groups({64: [1000, 1050, 1020], 128: [1650, 1700, 1680]})).lacks)
    assert "two sizes fit every critical size exactly" in lacks
    assert "outside the sizes that were tried, 64 to 128" in lacks


def test_runs_that_count_no_samples_have_no_critical_size_and_say_why(groups):
    made = groups({64: [1000, 1050, 1020], 128: [1650, 1700, 1680]})
    uncounted = {"samples_to_target": None, "samples_between": ()}
    made = [
        dataclasses.replace(each, runs=tuple(msgspec.structs.replace(run, **uncounted) for run in each.runs))
        for each in made
    ]
    found = study_batch_size(made)
    assert found.critical is None
    assert any("do not say how many samples" in line for line in found.lacks)
    assert "do not say how many samples they have seen" in to_text(batch_size_tables(found)[0])


def test_a_size_that_never_reaches_the_target_was_tried_all_the_same(groups):
    made = groups({64: [1000, 1050, 1020], 128: [1650, 1700, 1680], 1024: [None] * 3})
    lacks = " ".join(study_batch_size(made).lacks)
    assert "runs reached the target at two sizes alone, which fit every critical size" in lacks
    assert "outside the sizes that reached the target, 64 to 128" in lacks


def test_the_sentence_has_the_figures_of_the_table_where_runs_missed(groups):
    found = study_batch_size(groups({32: [2000, None, 2100, None, None, 2050], 64: [1000, 1010, 1020, 990, 995, 1005]}))
    slow, fast = found.points
    more, sooner = fast.samples.value / slow.samples.value, fast.samples_per_s.value / slow.samples_per_s.value
    assert found.answers()[0].endswith(f"{more:.3g} times the samples at {sooner:.3g} times as many a second")


def test_a_size_whose_missed_runs_were_given_up_as_soon_is_not_clearly_slower(groups):
    made = groups({32: [1000, 1010, 1005, 990], 64: [950, None, None, 940]})
    runs = [each if each.reached else msgspec.structs.replace(each, given_up_s=0.9) for each in made[1].runs]
    made[1] = type(made[1])(made[1].label, made[1].key, made[1].specification, tuple(runs))
    assert "not clearly shorter" in study_batch_size(made).answers()[0]


def by_program(groups, samples, step):
    """Groups of a program whose steps have ``step`` examples at every batch size."""
    return [
        type(each)(
            each.label,
            each.key,
            msgspec.structs.replace(each.specification, scored_by="program"),
            tuple(msgspec.structs.replace(run, steps_to_target=run.samples_to_target // step) for run in each.runs),
        )
        for each in groups(samples)
    ]


def test_steps_that_are_parts_of_a_batch_are_said_to_be_and_not_the_rest_of_an_epoch(groups):
    found = study_batch_size(by_program(groups, {32: [960, 992, 960], 64: [960, 960, 992]}, 32))
    said = " ".join([*found.caveats, *found.lacks])
    assert "batch sizes 32 and 64 all have 32 examples a step" in said
    assert "call run.step once a batch" in said
    assert "alone" not in said
    assert "ends with a rest" not in said


def test_of_a_program_more_runs_are_made_by_itself(groups):
    found = study_batch_size(by_program(groups, {32: [960], 320: [1280]}, 32))
    assert "-n 5" not in " ".join([*found.answers(), *found.lacks])
    with pytest.raises(UsageError, match="Run the program itself at several sizes"):
        study_batch_size(by_program(groups, {32: [960, 992]}, 32))
