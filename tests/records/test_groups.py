from __future__ import annotations

import math

import msgspec
import pytest

from levelbench.records import Source, Store, Target, comparable, group_runs, parse_item, read_record, summarise
from levelbench.records.summary import in_order, labels_of


@pytest.fixture
def fill(tmp_path, make_header, make_events, make_run):
    def make(n=1, qualities=(0.5, 0.91, 0.92), status="done", first=0, **parts):
        for seed in range(first, first + n):
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


def test_labels_have_the_values_that_differ_and_groups_come_in_order_of_occurrence(fill):
    fill(2, framework="torch")
    fill(2, framework="numpy")
    store = fill(1, framework="numpy", settings={"lr": 0.2, "hidden": 128})
    assert [(group.label, group.n) for group in group_runs(store.summaries())] == [
        ("digits[framework=torch,lr=0.1]", 2),
        ("digits[framework=numpy,lr=0.1]", 2),
        ("digits[framework=numpy,lr=0.2]", 1),
    ]


def test_labels_of_different_tasks_need_no_settings(fill):
    fill(task="digits")
    store = fill(task="fashion-mnist", framework="torch", settings={"lr": 0.5})
    assert [group.label for group in group_runs(store.records())] == ["digits", "fashion-mnist"]


def test_targets_and_rules_distinguish_groups_and_labels_can_be_parsed(fill):
    fill()
    fill(target=Target("accuracy", 0.8))
    fill(clock="dawnbench", settings={"lr": 0.1, "note": "a,b", "hidden": 128})
    store = fill(budget_s=5.0, evaluate_every="2 epochs")
    labels = [group.label for group in group_runs(store.records())]
    assert len(set(labels)) == 4
    assert all(parse_item(label)[0] == "digits" for label in labels)
    assert 'note="a,b"' in labels[2]


def test_a_run_that_missed_its_target_counts_and_an_interrupted_one_is_separate(fill):
    fill(1)
    fill(1, qualities=(0.5, 0.6), first=1)
    fill(1, status="failed")
    store = fill(1, status="interrupted")
    (group,) = group_runs(store.records())
    assert (group.n, group.reached, len(group.unfinished)) == (3, 1, 1)
    assert group.times() == [pytest.approx(3.0), None, None]
    assert group.given_up() == [pytest.approx(2.0), math.inf]


def test_of_several_runs_of_one_seed_the_earliest_counts_and_a_failure_always_does(fill):
    fill(2)
    fill(2, status="failed")
    (group,) = group_runs(fill(2).records())
    assert [(run.seed, run.status) for run in sorted(group.runs, key=lambda run: run.started)] == [
        (0, "done"), (1, "done"), (0, "failed"), (1, "failed"),
    ]  # fmt: skip
    assert [run.seed for run in group.repeats] == [0, 1]
    assert min(run.started for run in group.repeats) > max(run.started for run in group.runs)


def test_groups_that_took_turns_are_ordered_by_label_and_others_by_time(fill):
    for lr, first in ((30.0, 0), (10.0, 0), (2.0, 0), (10.0, 1), (2.0, 1)):
        store = fill(1, settings={"lr": lr}, first=first)
    groups = in_order(group_runs(store.records()))
    assert [group.specification.settings["lr"] for group in groups] == [30.0, 2.0, 10.0]


def test_reaching_the_target_at_the_first_evaluation_is_a_doubt(fill):
    late, soon = fill(1).records()[0], fill(1, qualities=(0.92, 0.93), first=1).records()[-1]
    assert not any("first evaluation" in each for each in summarise(late).suspect)
    (doubt,) = [each for each in summarise(soon).suspect if "first evaluation" in each]
    assert "--every" in doubt
    assert not any("first evaluation" in each for each in summarise(soon, crossing="final").suspect)


def test_a_specification_without_ended_runs_makes_no_group(fill):
    assert group_runs(fill(2, status="interrupted").records()) == []


def test_runs_of_an_edited_task_are_never_pooled_and_the_label_names_the_source(tmp_path, make_header, make_run):
    for text in ("12e45678" + "a" * 56, "b" * 64):
        make_run(tmp_path, msgspec.structs.replace(make_header(), source=Source("digits", text, "…")))
    store = Store(tmp_path)
    groups = group_runs(store.records())
    assert {group.label for group in groups} == {"digits[source=12e45678]", "digits[source=bbbbbbbb]"}
    assert [group.n for group in groups] == [1, 1]
    for group in groups:
        # A label selects the runs that it names, from the index and from records that are read.
        assert [row.id for row in store.rows(group.label)] == [run.id for run in group.runs]
        assert [each.header.id for each in Store(tmp_path / "none").records(f"{tmp_path}[{group.label[7:]}")] == [
            run.id for run in group.runs
        ]
    quoted = store.rows('digits[source="12e45678"]')
    assert [row.source_digest[:8] for row in quoted] == ["12e45678"]


def test_a_group_picks_its_own_records(tmp_path, make_header, make_run):
    for text in ("a" * 64, "b" * 64):
        make_run(tmp_path, msgspec.structs.replace(make_header(), source=Source("digits", text, "…")))
    records = Store(tmp_path).records()
    owned = [group.own(records) for group in group_runs(records)]
    assert sorted(len(each) for each in owned) == [1, 1]
    assert all(
        group.source_digest == own[0].header.source.digest
        for group, own in zip(group_runs(records), owned, strict=True)
    )


@pytest.mark.parametrize("part", ["split", "direction", "low", "high"])
def test_every_part_of_a_target_distinguishes_groups(make_specification, part):
    values = {"split": "test", "direction": "lower", "low": -1.0, "high": 2.0}
    target = msgspec.structs.replace(Target("accuracy", 0.9), **{part: values[part]})
    labels = labels_of([make_specification(), make_specification(target=target)])
    assert len(set(labels)) == 2
    assert all(part in label for label in labels)


def test_labels_distinguish_a_boolean_from_a_number_but_not_equal_numbers(make_specification):
    on, one = (make_specification(settings={"x": value}) for value in (True, 1))
    assert labels_of([on, one]) == ["digits[x=true]", "digits[x=1]"]
    assert labels_of([make_specification(settings={"x": value}) for value in (1, 1.0)]) == ["digits", "digits"]


def test_a_setting_that_only_some_have_is_in_their_labels(make_specification):
    assert labels_of([make_specification(settings={"x": 1}), make_specification(settings={})]) == [
        "digits[x=1]",
        "digits",
    ]


def test_runs_read_on_different_clocks_are_never_pooled(fill):
    fill(2)
    groups = group_runs(fill(1, clock="dawnbench").records())
    assert [(group.label, group.n) for group in groups] == [("digits[clock=wall]", 2), ("digits[clock=dawnbench]", 1)]


def test_settings_that_are_the_same_in_all_runs_of_a_recipe_are_left_out_of_labels(fill):
    fill(recipe="plain", settings={"lr": 0.1, "hidden": 8}, budget_epochs=15.0)
    store = fill(recipe="fast", settings={"lr": 0.4, "width": 4}, crossing="final", budget_epochs=2.0)
    labels = [group.label for group in group_runs(store.records())]
    assert labels == ["digits[recipe=plain]", "digits[recipe=fast]"]


def test_a_setting_that_differs_between_runs_of_one_recipe_is_in_the_label(fill):
    fill(recipe="plain", settings={"hidden": 8, "lr": 0.1, "epochs": 60})
    fill(recipe="plain", settings={"hidden": 16, "lr": 0.1, "epochs": 60})
    store = fill(recipe="fast", settings={"width": 4, "lr": 0.4, "epochs": 10})
    labels = [group.label for group in group_runs(store.records())]
    assert labels == ["digits[recipe=plain,hidden=8]", "digits[recipe=plain,hidden=16]", "digits[recipe=fast]"]


@pytest.mark.parametrize(
    ("view", "found"),
    [
        ({}, []),
        ({"clock": "dawnbench"}, []),
        ({"threshold": 0.91}, ["target"]),
        ({"crossing": "first"}, ["crossing rule"]),
    ],
)
def test_another_target_or_rule_than_the_runs_own_is_a_doubt(tmp_path, make_header, make_run, view, found):
    def arm(lr):
        paths = [make_run(tmp_path, make_header(seed=seed, settings={"lr": lr})) for seed in range(3)]
        return group_runs([summarise(read_record(path), **view) for path in paths])[0]

    gate = comparable(arm(0.1), arm(0.2))
    told = [each for each in gate.caveats if each.sentence.startswith("the runs were made for another")]
    assert [(each.subject, each.weight) for each in told] == [(subject, "doubt") for subject in found]


def test_a_recipe_whose_settings_differ_leaves_the_labels_of_others_short(fill):
    fill(recipe="plain", settings={"hidden": 8}, budget_epochs=4.0)
    fill(recipe="plain", settings={"hidden": 16}, budget_epochs=4.0)
    fill(recipe="fast", settings={"width": 4}, budget_epochs=2.0)
    store = fill(recipe="fast", settings={"width": 4}, budget_epochs=3.0)
    assert [group.label for group in group_runs(store.records())] == [
        "digits[recipe=plain,hidden=8]",
        "digits[recipe=plain,hidden=16]",
        "digits[recipe=fast,budget_epochs=2.0]",
        "digits[recipe=fast,budget_epochs=3.0]",
    ]


def test_a_budget_that_is_the_length_of_the_schedule_is_not_in_labels(fill):
    fill(settings={"epochs": 12}, budget_epochs=12.0)
    store = fill(settings={"epochs": 60}, budget_epochs=60.0)
    assert [group.label for group in group_runs(store.records())] == ["digits[epochs=12]", "digits[epochs=60]"]
    store = fill(settings={"epochs": 60}, budget_epochs=12.0)
    assert len({group.label for group in group_runs(store.records())}) == 3


def test_labels_show_what_was_set_unless_all_have_it_in_common(make_specification):
    one, other = (make_specification(settings={"lr": 0.2, "hidden": each}) for each in (64, 128))
    assert labels_of([one], chosen=[["lr"]]) == ["digits[lr=0.2]"]
    assert labels_of([one, other], chosen=[["lr", "hidden"], ["lr"]]) == ["digits[hidden=64]", "digits[hidden=128]"]
    assert labels_of([one], chosen=[["recipe"]]) == [f"digits[recipe={one.recipe}]"]


def test_a_default_is_in_a_label_only_where_the_rest_would_select_another_side_too(make_specification):
    usual, wide, fast, both = (
        make_specification(settings={"hidden": hidden, "lr": lr})
        for hidden, lr in [(64, 1), (128, 1), (64, 2), (128, 2)]
    )
    assert labels_of([wide, fast], chosen=[["hidden"], ["lr"]]) == ["digits[hidden=128]", "digits[lr=2]"]
    assert labels_of([usual, fast], chosen=[[], ["lr"]]) == ["digits[lr=1]", "digits[lr=2]"]
    assert labels_of([wide, fast, both], chosen=[["hidden"], ["lr"], ["hidden", "lr"]]) == [
        "digits[hidden=128,lr=1]",
        "digits[hidden=64,lr=2]",
        "digits[hidden=128,lr=2]",
    ]


def test_labels_of_recipes_show_what_was_set_and_none_of_their_defaults(make_specification):
    plain = make_specification(recipe="plain", settings={"lr": 0.1})
    fast = make_specification(recipe="fast", settings={"lr": 0.4})
    assert labels_of([plain, fast], chosen=[[], ["recipe", "lr"]]) == [
        "digits[recipe=plain]",
        "digits[recipe=fast,lr=0.4]",
    ]


def test_where_an_older_record_does_not_say_what_was_set_labels_show_only_what_differs(make_specification):
    one, other = (make_specification(framework=each, settings={"lr": 0.2}) for each in ("numpy", "torch"))
    assert labels_of([one, other], chosen=[["lr"], None]) == ["digits[framework=numpy]", "digits[framework=torch]"]


def test_a_group_is_named_by_what_its_records_say_was_set(fill):
    store = fill(2, settings={"lr": 0.2}, chosen=["lr"])
    assert [group.label for group in group_runs(store.records())] == ["digits[lr=0.2]"]
