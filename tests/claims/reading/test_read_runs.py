"""Runs of a store as claims: what records state, what lies beside them, and that a clean store has no finding."""

import gc
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.claims.run_store import SEEDS, environment, specification, team, write_run, write_runs

from levelbench.claims.lint import findings_of, lint
from levelbench.claims.reading.records import COMPARED, read_runs
from levelbench.cli.lint_verb import report_lines
from levelbench.errors import RecordError, UsageError
from levelbench.records import Store, Target, read_record
from levelbench.records.searches import Search, SearchedSide


def claims(folder, selector="digits", **more):
    return read_runs(selector, Store(folder), **more)


def claim(folder, selector="digits"):
    found = claims(folder, selector)
    assert len(found) == 1
    return found[0]


def shown(one):
    return [(each.code, each.severity, each.found) for each in findings_of(one) if each.severity != "not-stated"]


def test_a_clean_complete_group_of_runs_has_no_error_and_no_warning(tmp_path):
    assert shown(claim(write_runs(tmp_path))) == []


def test_two_clean_groups_that_ran_in_turns_have_none_either(tmp_path):
    write_runs(tmp_path)
    for seed in SEEDS:
        write_run(tmp_path, seed, spec=specification(framework="torch"), epoch_s=2.6, minute=2 * seed + 1)
    found = claim(tmp_path)
    assert shown(found) == []
    assert [side.timing.interleaved for side in found.sides] == [True, True]
    base, other = (side.name for side in found.sides)
    assert found.title == f"{other} against {base}"


def test_a_clean_study_of_scaling_has_none_either(tmp_path):
    write_runs(tmp_path)
    for ranks in (2, 4):
        write_runs(tmp_path, spec=specification(distribution=team(ranks)), epoch_s=2.0 / ranks + 0.1)
    found = claim(tmp_path)
    assert [(point.ranks, point.reached) for point in found.scaling] == [(1, True), (2, True), (4, True)]
    assert found.scaling_mode == "strong"
    assert shown(found) == []


def searched(store):
    """A search of two sides with two trials each, and the runs of both winners; the selector of the second's."""
    sides = []
    for lr in (0.1, 0.2):
        of = [specification(settings={"lr": lr, "batch": batch}) for batch in (64, 32)]
        trials = [read_record(write_run(store, 9, spec=spec)).header for spec in of]
        write_runs(store, spec=of[0])
        sides.append(SearchedSide(f"lr={lr}", [], [each.id for each in trials], 1.0, trials[0].key))
    search = Search("digits", "random", 9, 2, None, list(SEEDS), sides)
    (store / "searches").mkdir()
    search.path_in(store, "abc").write_bytes(search.as_text())
    return f"digits[key={sides[1].winner}]"


def test_what_the_search_behind_a_claim_states_is_counted(tmp_path):
    found = claim(tmp_path, searched(tmp_path))
    assert [side.tuning.trials for side in found.sides] == [2]
    assert found.uncounted == []


def test_runs_besides_the_trials_of_the_search_are_not(tmp_path):
    selector = searched(tmp_path)
    write_run(tmp_path, spec=specification(settings={"lr": 0.5, "batch": 64}))
    found = claim(tmp_path, selector)
    assert [each.what for each in found.uncounted] == ["1 done, of 1 other specification"]
    assert [code for code, _, _ in shown(found)] == ["LB103"]


def test_a_side_has_the_time_quality_clock_and_setup_of_its_records(tmp_path):
    side = claim(write_runs(tmp_path)).sides[0]
    assert (side.time_of, side.reported, side.runs_made, side.runs_reached) == ("target", "mean", 5, 5)
    assert side.time_s == pytest.approx(14.5, rel=0.02)
    assert side.interval[0] < side.time_s < side.interval[1]
    assert (side.quality.split, side.quality.stopping_split, side.quality.test_looks) == ("validation",) * 2 + (1,)
    assert (side.clock.policy, side.clock.whole, side.clock.data, side.clock.crossing) == (
        "wall",
        True,
        True,
        "confirmed",
    )
    assert side.performance == side.accuracy
    assert (side.performance.commit, side.performance.seeds) == ("4f1c2aa", list(SEEDS))
    assert (side.hardware.processor, side.hardware.cores, side.hardware.accelerators) == ("AMD EPYC 7763", 8, 0)
    assert side.data.stall_share == pytest.approx(0.05, abs=0.003)
    assert (side.workload.global_batch, side.workload.learning_rate, side.workload.ranks) == (64, 0.1, 1)


def test_each_run_has_its_curve_on_the_clock_and_its_file(tmp_path):
    runs = claim(write_runs(tmp_path)).sides[0].runs
    assert [run.seed for run in runs] == list(SEEDS)
    assert runs[2].curve.quality[-1] == pytest.approx(0.9078)
    assert runs[2].curve.time_s[-1] == pytest.approx(runs[2].time_s)
    assert runs[2].where.endswith(".jsonl")


def test_what_no_record_knows_stays_unknown(tmp_path):
    side = claim(write_runs(tmp_path)).sides[0]
    assert side.tuning.trials is None
    assert side.data.cold is None
    assert side.quality.tuning_split is None
    assert side.hardware.price_per_hour is None


def test_a_clock_without_preparation_does_not_say_whether_the_data_was_read_on_it(tmp_path):
    side = claim(write_runs(tmp_path, spec=specification(clock="mlperf"))).sides[0]
    assert (side.clock.initialisation, side.clock.data, side.data.in_memory) == (False, None, None)


def test_ratio_and_base_are_those_of_the_first_group(tmp_path):
    write_runs(tmp_path)
    write_runs(tmp_path, start=20, spec=specification(framework="torch"), epoch_s=1.0)
    one = claim(tmp_path).comparisons[0]
    assert (one.new, one.base, one.base_kind) == ("digits[framework=torch]", "digits[framework=numpy]", "same-scale")
    assert one.ratio == pytest.approx(14.5 / 7.5, rel=0.01)
    assert one.interval[0] < one.ratio < one.interval[1]


def test_where_a_run_did_not_arrive_there_is_no_ratio(tmp_path):
    write_runs(tmp_path)
    write_runs(tmp_path, start=20, spec=specification(framework="torch"), qualities=(0.5, 0.7, 0.8))
    found = claim(tmp_path)
    assert found.comparisons[0].ratio is None
    assert (found.sides[1].runs_made, found.sides[1].runs_reached, found.sides[1].time_s) == (5, 0, None)


@pytest.mark.parametrize("part", [{"target": 0.8}, {"crossing": "sustained"}, {"clock": "dawnbench"}])
def test_groups_with_another_target_crossing_or_clock_are_claims_of_their_own(tmp_path, part):
    write_runs(tmp_path)
    other = specification(**part) if "target" not in part else specification()
    if "target" in part:
        other = specification(target=type(other.target)("top1", part["target"]))
    write_runs(tmp_path, start=30, spec=other)
    assert [len(each.sides) for each in claims(tmp_path)] == [1, 1]


def test_many_groups_are_a_list_and_no_comparison(tmp_path):
    for rate in range(COMPARED + 1):
        write_run(tmp_path, spec=specification(settings={"lr": rate / 10, "batch": 64}), minute=rate)
    assert [len(each.sides) for each in claims(tmp_path)] == [1] * (COMPARED + 1)


def test_runs_of_the_same_specification_that_are_not_selected_are_uncounted(tmp_path):
    write_runs(tmp_path)
    found = claim(tmp_path, "digits[seed=0]").uncounted
    assert [(each.runs, each.same_specification, each.what) for each in found] == [(4, True, "4 done")]
    assert found[0].hours == pytest.approx(4 * 14.5 / 3600, rel=0.02)


def test_runs_with_other_settings_are_tuning_and_those_of_another_framework_are_not(tmp_path):
    write_runs(tmp_path)
    write_run(tmp_path, spec=specification(settings={"lr": 0.2, "batch": 64}))
    write_run(tmp_path, spec=specification(framework="torch"))
    found = claim(tmp_path, "digits[framework=numpy,lr=0.1]").uncounted
    assert [(each.runs, each.same_specification) for each in found] == [(1, False)]


def test_a_trial_of_the_same_settings_in_another_search_is_not_one_with_other_settings(tmp_path):
    write_runs(tmp_path)
    trial = read_record(write_run(tmp_path, 8, minute=50)).header.id
    search = Search("digits", "random", 8, 2, None, [9], [SearchedSide("digits", [], [trial], 1.0, "another")])
    search.path_in(tmp_path, "random-8").parent.mkdir()
    search.path_in(tmp_path, "random-8").write_bytes(search.as_text())
    assert claim(tmp_path).uncounted == []


def test_an_interrupted_run_is_uncounted_unless_its_seed_was_run_again(tmp_path):
    write_runs(tmp_path)
    write_run(tmp_path, 3, cut=True, minute=50)
    assert claim(tmp_path).uncounted == []
    write_run(tmp_path, 9, cut=True, minute=51)
    assert [each.what for each in claim(tmp_path).uncounted] == ["1 interrupted"]


def test_the_latest_run_stands_for_its_whole_group(tmp_path):
    write_runs(tmp_path)
    for selector in ("latest", "latest:2", Store(tmp_path).rows()[0].id):
        found = claim(tmp_path, selector)
        assert found.sides[0].runs_made == len(SEEDS)
        assert found.uncounted == []


def test_runs_with_other_settings_in_a_store_are_not_stated_and_no_accusation(tmp_path):
    write_runs(tmp_path)
    write_runs(tmp_path, spec=specification(settings={"lr": 0.2, "batch": 64}))
    found = claim(tmp_path, "latest")
    assert [each.same_specification for each in found.uncounted] == [False]
    assert shown(found) == []
    assert any(each.code == "LB103" and each.field == "uncounted[0]" for each in findings_of(found))


def test_runs_that_are_shown_in_another_claim_of_the_same_selection_are_counted(tmp_path):
    write_runs(tmp_path)
    write_runs(tmp_path, spec=specification(crossing="final", settings={"lr": 0.2, "batch": 64}))
    assert [each.uncounted for each in claims(tmp_path)] == [[], []]


def test_a_comparison_names_the_test_that_the_verdict_uses(tmp_path):
    write_runs(tmp_path)
    for seed in SEEDS:
        write_run(tmp_path, seed, spec=specification(framework="torch"), epoch_s=2.6, minute=2 * seed + 1)
    assert "paired by seed" in claim(tmp_path).comparisons[0].test
    write_run(tmp_path, 9, spec=specification(framework="torch"), epoch_s=2.6, minute=50)
    found = claim(tmp_path)
    assert found.comparisons[0].test == "Welch's t on the logarithms of the times"
    assert any("not paired by seed: the seeds differ (0-4 against 0-4, 9)" in each for each in found.caveats)


def test_what_the_gate_refuses_has_no_ratio_and_says_why(tmp_path):
    write_runs(tmp_path)
    write_runs(tmp_path, spec=specification(framework="torch"), data="letters")
    found = claim(tmp_path)
    assert found.comparisons[0].ratio is None
    assert any(each.startswith("refuse: ") and "differ in the name of the data" in each for each in found.caveats)
    report = lint([("store", found)], ())
    assert (report.fails("error"), report.fails(None)) == (True, False)
    assert f"0 warnings, {report.refusals()} refusals" in report_lines(report, "warning")[-1]


def test_a_whole_store_has_nothing_beside_it(tmp_path):
    write_runs(tmp_path)
    assert claim(tmp_path, f"{tmp_path.resolve()}/").uncounted == []


def test_one_file_of_a_store_has_the_rest_of_it_beside_it(tmp_path):
    path = write_run(tmp_path, 0)
    write_run(tmp_path, 1)
    found = claim(tmp_path, str(path))
    assert [run.where for run in found.sides[0].runs] == [str(path)]
    assert found.uncounted[0].same_specification


def test_a_broken_record_is_an_error_unless_problems_are_collected(tmp_path):
    write_runs(tmp_path)
    (tmp_path / "digits" / "broken.jsonl").write_text("{}\n")
    with pytest.raises(RecordError):
        claims(tmp_path)
    problems = []
    assert len(claims(tmp_path, problems=problems)) == 1
    assert len(problems) == 1


def test_to_select_nothing_is_an_error(tmp_path):
    write_runs(tmp_path)
    with pytest.raises(UsageError, match="none of the 5 runs"):
        claims(tmp_path, "digits[lr=0.7]")


def test_runs_at_two_commits_are_stated_with_both(tmp_path):
    write_run(tmp_path, 0)
    write_run(tmp_path, 1, env=environment(git={"commit": "b0b0b0b", "dirty": True}))
    setup = claim(tmp_path).sides[0].performance
    assert (setup.commit, setup.dirty) == ("4f1c2aa and b0b0b0b", True)


def test_an_accelerator_that_the_ranks_used_is_the_hardware(tmp_path):
    names = {"nvidia_driver": "550", "names": ["Tesla V100-SXM2-16GB"] * 8}
    spec = specification(device="cuda", framework="torch")
    hardware = claim(write_runs(tmp_path, spec=spec, env=environment(accelerators=names))).sides[0].hardware
    assert (hardware.description, hardware.accelerators) == ("1 x Tesla V100-SXM2-16GB", 1)


@pytest.mark.parametrize(
    "odd",
    [{"machine": 1.5}, {"accelerators": []}, {"accelerators": {"names": "a V100"}}, {"framework": [1]}, {"git": "x"}],
)
def test_an_environment_of_other_types_is_not_stated_and_no_crash(tmp_path, odd):
    side = claim(write_runs(tmp_path, env={**environment(), **odd})).sides[0]
    assert side.runs_made == 5


def test_a_processor_that_is_a_table_is_its_model(tmp_path):
    machine = {"id": "m", "cpu": {"model": "Xeon E5-2670"}, "cores_allowed": 8}
    hardware = claim(write_runs(tmp_path, env=environment(machine=machine))).sides[0].hardware
    assert hardware.description == "8 cores of Xeon E5-2670"


@settings(max_examples=10)
@given(st.lists(st.floats(0, 1) | st.just(float("nan")), min_size=1, max_size=6))
def test_whatever_the_qualities_are_a_claim_is_made_and_linted(qualities):
    with tempfile.TemporaryDirectory() as folder:
        write_run(Path(folder), qualities=qualities)
        for one in claims(Path(folder)):
            findings_of(one)


def test_runs_of_which_none_came_to_an_end_are_no_claim(tmp_path):
    write_run(tmp_path, 0, cut=True)
    with pytest.raises(UsageError, match="none of the 1 runs has finished"):
        claims(tmp_path)


def test_the_mean_of_equal_qualities_is_not_rounded_below_them(tmp_path):
    flat = (0.5, 0.6, 0.7, 0.8, 0.85, 0.95, 0.95)
    spec = specification(target=Target("top1", 0.95))
    for seed in (0, 1, 2):
        equal = [each - 0.0004 * seed for each in flat]
        write_run(tmp_path, seed, spec=spec, qualities=equal, minute=seed)
    quality = claim(tmp_path).sides[0].quality
    assert quality.low <= quality.value == 0.95 <= quality.high


def test_reading_leaves_the_collector_as_it_was(tmp_path):
    write_runs(tmp_path)
    gc.disable()
    try:
        read_runs("digits", Store(tmp_path))
        assert not gc.isenabled()
    finally:
        gc.enable()
    read_runs("digits", Store(tmp_path))
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("metric", "split"), [("test_acc", "test"), ("val_loss", "validation"), ("top1", "validation")]
)
def test_a_program_says_by_the_name_of_its_quality_which_data_stopped_it(tmp_path, metric, split):
    spec = specification(target=Target(metric, 0.9), scored_by="program")
    assert claim(write_runs(tmp_path, spec=spec)).sides[0].quality.stopping_split == split
