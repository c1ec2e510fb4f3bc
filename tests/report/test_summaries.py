import dataclasses
import math
from pathlib import Path

import pytest
from msgspec import structs

from levelbench.analysis.ties import time_estimate
from levelbench.records.summary import summarise
from levelbench.report.runs import (
    groups_table,
    mean_and_range,
    phases_by_group,
    runs_table,
    spread_of_restarts,
    spread_of_times,
    spread_of_values,
)
from levelbench.report.tables import Absent, Number, Reached, lay_out, to_text

GOLDEN = Path(__file__).parent.parent / "golden"


def column(table, key):
    at = [each.key for each in table.columns].index(key)
    return [row[at] for row in table.rows]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", ["groups", "missed", "phases", "runs"])
def test_the_tables_print_as_the_golden_files_say(name, width, two_arms, one_missed, golden):
    groups = [group for group, _ in two_arms]
    missed = [group for group, _ in one_missed]
    table = {
        "groups": lambda: groups_table(groups),
        "missed": lambda: groups_table(missed),
        "phases": lambda: phases_by_group(groups),
        "runs": lambda: runs_table([run for group in missed for run in (*group.runs, *group.unfinished)]),
    }[name]()
    golden(f"report_{name}_{width}", to_text(table, width))


def test_the_main_table_names_the_clock_and_gives_every_time_an_interval(two_arms):
    table = groups_table([group for group, _ in two_arms])
    assert "time to accuracy (wall), s" in lay_out(table).headers
    assert all(cell.low < cell.value < cell.high for cell in column(table, "time_to_accuracy_s"))


def test_runs_that_all_need_the_same_samples_have_an_interval_with_room_for_a_late_evaluation(make, group):
    runs = group([make(seed=seed, rate=3.0) for seed in range(1, 8)])[0][0]
    found = column(groups_table([runs]), "samples_to_target")[0]
    assert len({run.samples_to_target for run in runs.runs}) == 1
    assert found.low < found.value < found.high


def test_a_missed_run_makes_the_time_a_kaplan_meier_median_and_is_counted(one_missed):
    group = one_missed[0][0]
    table = groups_table([group])
    assert column(table, "reached")[0] == Reached(3, 5, *[pytest.approx(each, abs=1e-3) for each in (0.231, 0.882)])
    assert time_estimate(group).statistic == "Kaplan-Meier median"
    assert any("Kaplan-Meier" in note for note in table.notes)


def test_where_no_run_reached_the_target_there_is_no_time_but_a_reason(make, group):
    only = group([make(seed=seed, rate=0.05) for seed in (1, 2)])[0][0]
    assert spread_of_times(only).cell == Absent("no run reached the target")


def test_where_too_few_reached_it_there_is_no_median(make, group):
    only = group([make(seed=1), make(seed=2, rate=0.05), make(seed=3, rate=0.05)])[0][0]
    assert isinstance(spread_of_times(only).cell, Absent)


def test_a_single_run_gives_a_number_without_an_interval(make, group):
    cell = spread_of_times(group([make()])[0][0]).cell
    assert isinstance(cell, Number)
    assert cell.low is None


def test_seconds_that_the_clock_leaves_out_are_shown_with_the_score(make, group):
    only = group([make(seed=seed, clock="dawnbench") for seed in (1, 2, 3)])[0][0]
    left_out = column(groups_table([only]), "left_out_s")[0]
    assert left_out.value == pytest.approx(sum(run.excluded_s["evaluate"] for run in only.runs) / 3)


def test_on_the_wall_clock_nothing_is_left_out_and_no_column_says_so(two_arms):
    assert "left_out_s" not in [each.key for each in groups_table([group for group, _ in two_arms]).columns]


def test_groups_on_different_clocks_name_theirs_in_the_row(make, group):
    groups = group([make(), make(clock="dawnbench", settings={"hidden": 64})])
    table = groups_table([each for each, _ in groups])
    assert [cell.text for cell in column(table, "clock")] == ["wall", "dawnbench"]


def test_energy_that_was_not_measured_says_why(two_arms):
    cells = column(groups_table([group for group, _ in two_arms]), "energy_j")
    assert cells == [Absent("energy: no RAPL counter under /sys/class/powercap")] * 2


def test_phases_of_a_group_sum_to_the_last_column(two_arms):
    for row in phases_by_group([group for group, _ in two_arms]).rows:
        *phases, whole = [cell.value for cell in row[1:]]
        assert sum(phases) == pytest.approx(whole)


def test_the_run_list_has_a_row_a_run_and_no_time_for_a_miss(make):
    table = runs_table([summarise(make()), summarise(make(seed=2, rate=0.05))])
    assert [isinstance(cell, Number) for cell in column(table, "time_to_accuracy_s")] == [True, False]
    assert [isinstance(cell, Number) for cell in column(table, "given_up_s")] == [False, True]


def test_figures_that_are_not_finite_count_as_absent_and_the_rest_says_how_many(make):
    for make_spread in (spread_of_values, mean_and_range):
        cell = make_spread([1.0, math.nan, 2.0, math.inf]).cell
        assert cell.remark == "(2 of 4)"
        assert math.isfinite(cell.value)
        assert make_spread([math.nan, math.inf]).cell == Absent("not a finite number in any run")
        assert make_spread([]).cell == Absent()
    assert math.isfinite(mean_and_range([1.7e308, 1.7e308]).cell.value)


def test_the_extremes_of_few_runs_are_marked_as_observed():
    assert mean_and_range([0.5, 0.25]).cell.observed
    assert spread_of_values([5.0, 9.0, 6.0]).cell.observed
    assert not spread_of_values([5.0, 9.0, 6.0, 5.0, 7.0, 8.0]).cell.observed


def test_where_runs_missed_the_expected_time_with_restarts_counts_what_they_cost(one_missed):
    group = one_missed[0][0]
    cost = sum(run.given_up_s for run in group.runs if not run.reached)
    reached = sum(time for time in group.times() if time is not None)
    assert spread_of_restarts(group).cell.value == pytest.approx((reached + cost) / 3)


def test_where_every_run_reached_there_is_no_column_on_restarts(two_arms):
    assert "restarts_s" not in [each.key for each in groups_table([group for group, _ in two_arms]).columns]


def test_phases_that_are_none_fold_into_other(make, group):
    ((only, _),) = group([make()])
    run = structs.replace(only.runs[0], phases_s={"forward": 2.0, "=cmd|x": 1.0, "other": 0.5})
    table = phases_by_group([dataclasses.replace(only, runs=(run,))])
    assert [each.key for each in table.columns] == ["group", "forward_s", "other_s", "all_s"]
    assert [cell.value for cell in table.rows[0][1:]] == [2.0, 1.5, 3.5]
