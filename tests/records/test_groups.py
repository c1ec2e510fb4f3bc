from __future__ import annotations

import pytest

from levelbench.records import Store, Target, group_runs, parse_item


@pytest.fixture
def fill(tmp_path, make_header, make_events, make_run):
    def make(n=1, qualities=(0.5, 0.91, 0.92), status="done", **parts):
        for seed in range(n):
            started = f"2026-03-01T12:00:{len(list(tmp_path.rglob('*.jsonl'))):02d}+00:00"
            events = [] if status == "interrupted" else make_events(qualities, status=status)
            make_run(tmp_path, make_header(seed=seed, started=started, **parts), events)
        return Store(tmp_path)

    return make


def test_runs_of_one_specification_make_one_group_named_after_the_task(fill):
    groups = group_runs(fill(3).records())
    assert [(group.label, group.n, group.reached) for group in groups] == [("digits", 3, 3)]
    assert groups[0].times() == [pytest.approx(3.0)] * 3
    assert groups[0].given_up() == []


def test_groups_are_named_by_what_tells_them_apart_in_the_order_in_which_they_are_met(fill):
    fill(2, framework="torch")
    fill(2, framework="numpy")
    store = fill(1, framework="numpy", settings={"lr": 0.2, "hidden": 128})
    assert [(group.label, group.n) for group in group_runs(store.summaries())] == [
        ("digits[framework=torch,lr=0.1]", 2),
        ("digits[framework=numpy,lr=0.1]", 2),
        ("digits[framework=numpy,lr=0.2]", 1),
    ]


def test_two_tasks_need_no_settings_to_be_told_apart(fill):
    fill(task="digits")
    store = fill(task="fashion-mnist", framework="torch", settings={"lr": 0.5})
    assert [group.label for group in group_runs(store.records())] == ["digits", "fashion-mnist"]


def test_targets_and_rules_tell_groups_apart_too_and_labels_can_be_read_back(fill):
    fill()
    fill(target=Target("accuracy", 0.8))
    fill(clock="dawnbench", settings={"lr": 0.1, "note": "a,b", "hidden": 128})
    store = fill(budget_s=5.0, evaluate_every="2 epochs")
    labels = [group.label for group in group_runs(store.records())]
    assert len(set(labels)) == 4
    assert all(parse_item(label)[0] == "digits" for label in labels)
    assert 'note="a,b"' in labels[2]


def test_a_run_that_never_reached_counts_and_one_that_was_interrupted_is_kept_apart(fill):
    fill(1)
    fill(1, qualities=(0.5, 0.6))
    fill(1, status="failed")
    store = fill(1, status="interrupted")
    (group,) = group_runs(store.records())
    assert (group.n, group.reached, len(group.unfinished)) == (3, 1, 1)
    assert group.times() == [pytest.approx(3.0), None, None]
    assert group.given_up() == [pytest.approx(2.0), pytest.approx(3.0)]


def test_a_specification_of_which_nothing_ended_makes_no_group(fill):
    assert group_runs(fill(2, status="interrupted").records()) == []
