"""What a search found: which trial is best, what the winner does on fresh seeds, what a claim may say of the effort."""

import dataclasses
import math

import pytest

from levelbench.analysis.tuning import TunedSide, TuningStudy, score_of, trial_of
from levelbench.errors import RecordError
from levelbench.records.searches import Search, SearchedSide, effort_behind, find_searches, trial_ids
from levelbench.report.notebook import SHOWN
from levelbench.report.tuning import sides_table, trials_table


@pytest.fixture
def trials(run):
    runs = [
        run(3.0, wall_s=4.0),
        run(None, quality={"validation": 0.85}, wall_s=9.0),
        run(1.5, wall_s=2.0),
        run(None, quality={"validation": 0.88}, wall_s=9.0),
        run(None, quality={"validation": math.nan}, wall_s=1.0),
        run(None, quality={}, status="failed", wall_s=0.5),
    ]
    return tuple(trial_of(number, {"lr": 0.1 * number}, each) for number, each in enumerate(runs, 1))


def test_the_fastest_is_best_then_the_nearest_miss_and_failures_last(trials):
    order = [each.number for each in sorted(trials, key=lambda each: each.score)]
    assert order[:4] == [3, 1, 4, 2]
    assert {*order[4:]} == {5, 6}


def test_where_lower_is_better_the_lower_miss_is_better(run, specification):
    from levelbench.records.schema import Target

    target = Target("loss", 1.0, "lower", high=None)
    near, far = (run(None, target=target, quality={"validation": loss}) for loss in (1.2, 3.0))
    assert score_of(near) < score_of(far)


def test_of_equal_trials_the_first_is_best(run):
    both = tuple(trial_of(number, {"lr": 1.0 * number}, run(2.0)) for number in (1, 2))
    assert TunedSide("digits", ("lr=log(1,3)",), both, "trials").best.number == 1


@pytest.fixture
def study(trials, run, group):
    fresh = group("digits", [run(2.0, seed=1), run(2.0, seed=2), run(2.0, seed=3)])
    side = TunedSide("digits", ("lr=log(0.1,1.0)",), trials, "trials", fresh)
    return TuningStudy("digits", "random", 0, (1, 2, 3), 6, 60.0, (side,))


def test_the_study_states_budget_and_what_the_best_trial_flattered(study):
    text = "\n".join([*study.answer(), *study.lines()])
    assert "lr=0.3 reached the target in 3 of 3 runs on fresh seeds in 2 s" in text
    assert "budget of each side: 6 trials, or 60 s" in text
    assert "took 1.5 s, the same settings 2 s on fresh seeds (geometric mean, +33%)" in text
    assert study.sides[0].spent_s == pytest.approx(25.5)
    assert study.sides[0].reached == 2


def test_a_table_and_a_line_have_the_same_statistic_and_name_it(study, run, group):
    side = study.sides[0]
    times = (1.0, 1.0, 1.0, 4.0, 16.0)
    every = group("all", [run(time, seed=at) for at, time in enumerate(times)])
    some = group("some", [*every.runs, run(None, seed=9)])
    for other, value, name in ((every, 2.3, "geometric mean"), (some, 1.0, "Kaplan-Meier median")):
        both = tuple(
            dataclasses.replace(side, label=label, fresh=fresh) for label, fresh in (("a", every), ("b", other))
        )
        found = dataclasses.replace(study, sides=both)
        table = sides_table(found)
        assert [row[-1].value for row in table.rows] == [pytest.approx(value, abs=0.01)] * 2
        assert f"Time on fresh seeds: {name}" in "\n".join(table.notes)
        assert sum(f"the same settings {value:.3g} s on fresh seeds ({name}" in line for line in found.lines()) == 2


def test_it_is_a_table_and_shows_itself_in_a_notebook(study):
    assert len(trials_table(study).rows) == 6
    assert sides_table(study).rows[0][0].text == "digits"
    html = SHOWN[type(study).__module__, type(study).__name__](study)
    assert "lr=log(0.1,1.0)" in html
    assert "it failed" in html


def search(trials_a, trials_b, spent=(10.0, 12.0), budget_s=None, planned=3):
    sides = [
        SearchedSide("a", ["lr=log(1,2)"], trials_a, spent[0], "A"),
        SearchedSide("b", ["lr=log(1,2)"], trials_b, spent[1], "B"),
    ]
    return Search("digits", "random", 0, planned, budget_s, [1, 2], sides)


def test_the_effort_behind_a_winner_is_that_of_all_searches_that_chose_it():
    found = effort_behind("A", [search(["1", "2", "3"], ["4", "5", "6"]), search(["7"], ["8"], planned=1)])
    assert (found.trials, found.spent_s, found.equal) == (4, 20.0, True)
    assert effort_behind("C", [search(["1"], ["2"])]) is None
    assert trial_ids([search(["1"], ["2"])]) == {"1", "2"}


def test_a_copy_of_a_search_adds_no_effort():
    one = search(["1", "2", "3"], ["4", "5", "6"])
    assert effort_behind("A", [one, one]) == effort_behind("A", [one])


def test_budgets_are_unequal_unless_trials_or_time_were():
    assert effort_behind("A", [search(["1", "2", "3"], ["4"])]).equal is False
    assert effort_behind("A", [search(["1", "2"], ["4"], budget_s=9.0)]).equal is True
    assert effort_behind("A", [search(["1", "2"], ["4"], budget_s=11.0)]).equal is False


def test_a_search_of_one_side_says_nothing_of_equality():
    alone = Search("digits", "random", 0, 1, None, [1], [SearchedSide("a", [], ["1"], 1.0, "A")])
    assert effort_behind("A", [alone]).equal is None


def test_a_search_is_read_as_it_was_written_and_a_broken_file_is_an_error(tmp_path):
    written = search(["1"], ["2"])
    path = written.path_in(tmp_path, "abc")
    path.parent.mkdir()
    path.write_bytes(written.as_text())
    assert list(find_searches(tmp_path)) == [written]
    path.write_text("{")
    with pytest.raises(RecordError, match="the search"):
        list(find_searches(tmp_path))


@pytest.mark.parametrize(("fresh_s", "said"), [(2.0, True), (1.0, False)])
def test_the_best_trial_is_called_lucky_only_where_fresh_runs_take_longer(trials, run, group, fresh_s, said):
    fresh = group("digits", [run(fresh_s, seed=seed) for seed in (1, 2, 3)])
    side = TunedSide("digits", ("lr=log(0.1,1)",), trials, "trials", fresh)
    lines = TuningStudy("digits", "random", 0, (1, 2, 3), 6, 60.0, (side,)).lines()
    assert any("partly luck" in line for line in lines) is said
