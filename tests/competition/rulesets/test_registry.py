"""Rulesets as data: the shipped ones agree with the tasks, and errors in a user's file name the wrong field."""

from __future__ import annotations

import math
from importlib.resources import files

import pytest

from levelbench import plugins
from levelbench.competition.rulesets import (
    folder_rulesets,
    read_ruleset,
    ruleset,
    ruleset_ids,
    rulesets,
    task_rules,
)
from levelbench.errors import DefinitionError, StoreError, UnknownNameError

TEXT = files("levelbench.competition.rulesets").joinpath("data/levelbench-1.0.toml").read_text()
OWN = TEXT.replace('"levelbench-1.0"', '"own-1.0"').replace('name = "levelbench"', 'name = "own"')


def test_the_rulesets_that_ship():
    others = ("dawnbench-0.9", "dawnbench-1.0", "levelbench-1.0", "mlperf-training-like-1.0")
    longer = tuple(f"mlperf-training-like-{runs}-runs-1.0" for runs in (10, 3, 40))
    assert ruleset_ids() == (
        "algoperf-0.6",
        "algoperf-self-tuning-0.6",
        *others,
        *longer,
        "speedrun-1-run-1.0",
        "speedrun-1.0",
    )
    assert [each.id for each in rulesets()] == list(ruleset_ids())


def test_algoperfs_two_rulesets_have_the_same_tasks():
    assert ruleset("algoperf-0.6").tasks == ruleset("algoperf-self-tuning-0.6").tasks


def test_our_rules_have_every_task_with_its_target_and_clock():
    rules = ruleset("levelbench-1.0")
    tasks = {name: plugins.load("task", name) for name in plugins.names("task")}
    assert {each.task for each in rules.tasks} == set(tasks)
    for each in rules.tasks:
        assert each.target == tasks[each.task].quality.as_target(), each.task
        assert rules.clock == tasks[each.task].clock


def test_inference_keeps_99_per_cent_of_the_training_target():
    for each in ruleset("levelbench-1.0").tasks:
        if each.inference is not None:
            share = 0.99 if each.target.direction == "higher" else 1.01
            assert each.inference.threshold == pytest.approx(share * each.target.threshold), each.task


@pytest.mark.parametrize(
    ("id", "task", "threshold"),
    [
        ("dawnbench-1.0", "CIFAR10", 0.94),
        ("dawnbench-1.0", "ImageNet", 0.93),
        ("dawnbench-1.0", "SQuAD", 0.75),
        ("dawnbench-0.9", "SQuAD", 0.73),
        ("algoperf-0.6", "algoperf-ogbg", 0.28098),
        ("algoperf-self-tuning-0.6", "algoperf-criteo1tb", 0.123735),
        ("mlperf-training-like-1.0", "resnet", 0.759),
        ("mlperf-training-like-1.0", "maskrcnn", 0.377),
    ],
)
def test_thresholds_are_those_of_the_competitions(id, task, threshold):
    found = task_rules(ruleset(id), task)
    assert found is not None
    assert found.target.threshold == threshold


def test_dawnbench_counts_the_first_crossing_of_one_run_and_rounds_seconds_up():
    rules = ruleset("dawnbench-1.0")
    assert (rules.aggregation.rule, rules.aggregation.runs, rules.crossing) == ("first-run", 1, "first")
    assert (rules.cost.rounding, rules.cost.on_demand_only) == ("ceil-seconds", True)


def test_mlperf_drops_one_run_at_each_end():
    aggregation = ruleset("mlperf-training-like-1.0").aggregation
    assert (aggregation.rule, aggregation.runs, aggregation.drop) == ("olympic", 5, 1)


def test_an_unknown_id_names_the_nearest_and_opens_no_file(tmp_path):
    with pytest.raises(UnknownNameError, match=r"close: levelbench-1\.0"):
        ruleset("levelbench-1.1")
    (tmp_path / "own.toml").write_text(OWN)
    with pytest.raises(UnknownNameError):
        ruleset(str(tmp_path / "own.toml"))


def test_a_task_that_the_rules_lack_is_none():
    assert task_rules(ruleset("dawnbench-1.0"), "digits") is None


def test_a_file_of_ones_own_is_read(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    assert read_ruleset(path).id == "own-1.0"
    assert read_ruleset(path).tasks == ruleset("levelbench-1.0").tasks


def test_a_scale_without_a_lowest_value_is_written_as_minus_infinity(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(OWN.replace("low = 0.0", "low = -inf"))
    assert read_ruleset(path).tasks[0].target.ends == (-math.inf, 1.0)


def test_a_scale_without_an_end_is_written_as_infinity():
    found = task_rules(ruleset("levelbench-1.0"), "charlm")
    assert found is not None
    assert (found.target.high, found.target.direction) == (None, "lower")


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('id = "own-1.0"', 'id = "own-2.0"', "id is 'own-2.0'"),
        ('clock = "wall"', 'clock = "sand"', "clock is 'sand'"),
        ("runs = 5", "runs = 0", "aggregation.runs is 0"),
        ("runs = 5", "runs = 2\ndrop = 1", "aggregation.drop is 1"),
        ("runs = 5", 'runs = 5\nwindows = "upper"', "aggregation.windows is set: it needs the rule olympic"),
        ("runs = 5", "runs = 5\nbest_of = 2", "aggregation.best_of is 2"),
        ("runs = 5", 'runs = 5\nwindows = "middle"', "Invalid enum value 'middle'"),
        ("runs = 5", 'runs = "5"', "aggregation.runs"),
        ("runs = 5", "runs = 5\nrun = 5", "unknown field `run` - at `aggregation`"),
        ('rule = "median"', 'rule = "mean"', "aggregation.rule"),
        ('rule = "median"', 'rule = "mean-test"', "aggregation.level is not set: mean-test needs one above 0"),
        ('rule = "median"', 'rule = "mean-test"\nlevel = 1.0', "aggregation.level is 1"),
        ('rule = "median"', 'rule = "mean-test"\nlevel = 0.01', "crossing is 'confirmed': mean-test judges runs"),
        ("runs = 5", "runs = 5\nlevel = 0.01", "aggregation.level is 0.01: only the rule mean-test has it"),
        ('crossing = "confirmed"', 'crossing = "confirmed"\nranked_by = "epochs"', "Invalid enum value 'epochs'"),
        ("[aggregation]", 'deadline = "soon"\n[aggregation]', "deadline is 'soon', not a day"),
        ("[aggregation]", 'deadline = "2026-01-01"\n[aggregation]', "deadline is 2026-01-01, before the date"),
        ("[aggregation]", "[machine]\n[aggregation]", "machine is empty: fix processor, cores"),
        ("[aggregation]", "[machine]\ncore = 2\n[aggregation]", "unknown field `core` - at `machine`"),
        (
            "[tasks.inference]",
            '[tasks.private]\nlabels = "abc"\nkey = "k"\n[tasks.inference]',
            "tasks[0].private.labels is 'abc'",
        ),
        (
            "[tasks.inference]",
            f'[tasks.private]\nlabels = "{"0" * 64}"\nkey = "k"\n[tasks.inference]',
            "tasks[0].private.key is 'k': write it as levelbench board keys show prints it",
        ),
        ("threshold = 0.96", "threshold = 96.0", "tasks[0].target.threshold is 96"),
        ("threshold = 0.9504", "threshold = 95.04", "tasks[0].inference.threshold is 95.04"),
        ('task = "spam"', 'task = "digits"', "has the name 'digits' of another task"),
        ('scenarios = ["single-stream",', 'scenarios = ["single_stream",', "tasks[0].inference.scenarios[0]"),
        ("least_queries = 662", "least_queries = -5", "tasks[0].inference.least_queries is -5"),
        ('date = "2026-11-21"', 'date = "yesterday"', "date is 'yesterday'"),
        ('name = "open"', 'name = "closed"', "divisions lists 'closed' twice"),
        ('name = "closed"', 'name = "Closed!"', "divisions[0].name is 'Closed!': use at most 40 lower-case"),
        ("may_change = []", 'may_change = ["lr"]', "divisions[1].may_change is set: open may change anything"),
        ('direction = "higher"', 'direction = "up"', "target.direction"),
        ("[aggregation]", "[aggregation", "not TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_by_its_field(tmp_path, old, new, field):
    assert old in OWN
    (tmp_path / "own.toml").write_text(OWN.replace(old, new, 1))
    with pytest.raises(DefinitionError) as caught:
        read_ruleset(tmp_path / "own.toml")
    assert field in caught.value.found


def test_a_file_may_not_call_itself_by_an_id_that_ships(tmp_path):
    (tmp_path / "own.toml").write_text(TEXT)
    assert read_ruleset(tmp_path / "own.toml") == ruleset("levelbench-1.0")
    (tmp_path / "own.toml").write_text(TEXT.replace("runs = 5", "runs = 1"))
    with pytest.raises(DefinitionError, match="ships with other content"):
        read_ruleset(tmp_path / "own.toml")


def test_a_file_that_is_not_there_or_too_large_is_an_error(tmp_path):
    with pytest.raises(StoreError):
        read_ruleset(tmp_path / "absent.toml")
    (tmp_path / "large.toml").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(DefinitionError, match="larger than"):
        read_ruleset(tmp_path / "large.toml")


def test_a_leaderboards_own_rules_extend_the_shipped_ones(tmp_path):
    assert sorted(folder_rulesets(tmp_path)) == list(ruleset_ids())
    (tmp_path / "rulesets").mkdir()
    (tmp_path / "rulesets" / "own.toml").write_text(OWN)
    assert sorted(folder_rulesets(tmp_path)) == sorted([*ruleset_ids(), "own-1.0"])
