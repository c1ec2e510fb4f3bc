"""The one gate: what it refuses, where it withholds a verdict, what it says beside one."""

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from levelbench.analysis.comparison import compare, compare_all
from levelbench.cli.reporting import doubt_lines, gate_lines
from levelbench.errors import IncomparableError
from levelbench.records import DatasetFacts, comparable
from levelbench.records.replicates import BEFORE_ENDED_AT, _carried_over
from levelbench.records.schema import around_recipes, source_of_text

FACTS = DatasetFacts(
    "digits", {"train": 100, "validation": 30, "test": 30}, {"x": "aa"}, "by index", "CC0", digests={"validation": "1f"}
)


@pytest.fixture
def sides(run, group):
    """Two groups of three runs; what is given replaces parts of the second one's."""

    def make(specification=None, seeds=range(3), **replaced):
        both = {"dataset": FACTS, "quality_digest": "q", "data_digest": "d", "source_digest": "s"}
        a = [run(1.0 + seed / 10, seed=seed, **both) for seed in range(3)]
        b = [run(1.1 + seed / 10, seed=seed, **{**both, **replaced}) for seed in seeds]
        return group("a", a), group("b", b, **(specification or {}))

    return make


def said(pair, **given):
    return [(each.weight, each.subject) for each in comparable(*pair, **given).caveats]


def test_equal_sides_have_nothing_against_them(sides):
    assert said(sides()) == []


@pytest.mark.parametrize(
    ("changed", "subject"),
    [
        ({"sizes": {"train": 100, "validation": 60, "test": 30}}, "split sizes"),
        ({"split_rule": "validation is the training split"}, "split rule"),
        ({"name": "letters"}, "dataset"),
        ({"digests": {"validation": "2e"}}, "labels"),
    ],
)
def test_another_split_is_refused(sides, changed, subject):
    pair = sides(dataset=msgspec.structs.replace(FACTS, **changed))
    assert said(pair) == [("refuse", subject)]
    with pytest.raises(IncomparableError, match="they differ in the"):
        compare(*pair)


def test_records_without_label_digests_are_compared_by_what_they_have(sides):
    assert said(sides(dataset=msgspec.structs.replace(FACTS, digests={}))) == []


def test_a_quality_computed_by_other_code_gives_figures_and_no_verdict(sides):
    pair = sides(quality_digest="other", source_digest="t")
    assert ("no verdict", "task definition") in said(pair)
    assert compare(*pair).verdict is None


def test_data_loaded_by_other_code_are_a_doubt_where_they_are_the_same_data(sides):
    pair = sides(data_digest="other", source_digest="t")
    assert ("doubt", "task definition") in said(pair)
    assert compare(*pair).verdict is not None


def test_another_recipe_of_the_same_task_in_another_file_is_what_is_compared(sides):
    assert said(sides(source_digest="t", specification={"recipe": "mine"})) == []


def test_an_edited_file_of_one_recipe_is_a_note(sides):
    assert said(sides(source_digest="t")) == [("note", "source")]


@pytest.mark.parametrize(
    ("prepared", "found"),
    [
        ({"prepared_s": 0.1}, []),
        ({"prepared_s": 9.0}, [("note", "preparation")]),
        ({"prepared_s": 0.1, "prepared_files": ["w.pt"]}, [("note", "preparation")]),
    ],
)
def test_a_preparation_that_is_longer_than_its_run_or_leaves_it_weights_is_a_note(sides, prepared, found):
    assert said(sides(wall_s=2.0, **prepared)) == found


@pytest.mark.parametrize("changed", [{"around_digest": "x"}, {"modules": {"helper": "bb"}}])
def test_code_around_the_recipes_that_differs_is_a_doubt(sides, changed):
    pair = sides(source_digest="t", **changed)
    assert said(pair) == [("doubt", "source")]
    where = next(iter(changed.get("modules", ["the task's file"])))
    assert f"differs too ({where})" in comparable(*pair).caveats[0].sentence


NORM = {"modules": {"norm.txt": "bb"}, "settings_read": ["norm.txt"]}


@pytest.mark.parametrize("recipe", ["mlp", "mine"])
def test_a_file_that_the_recipe_of_one_side_reads_is_part_of_the_comparison(sides, recipe):
    pair = sides(source_digest="t", **NORM, specification={"recipe": recipe})
    assert said(pair) == [("note", "source")]
    sentence = comparable(*pair).caveats[0].sentence
    assert sentence == "only b uses norm.txt: what it sets is part of the difference that was measured"


def test_the_framework_that_the_other_side_runs_on_is_not_of_one_side_alone(sides):
    framework = sides()[0].specification.framework
    read = {"modules": {framework: "bb"}, "settings_read": [framework]}
    assert said(sides(source_digest="t", **read, specification={"recipe": "mine"})) == []


def test_a_file_of_settings_that_changed_within_a_side_is_a_doubt(run, group):
    a = [run(1.0 + seed / 10, seed=seed, source_digest="s", quality_digest="q") for seed in range(3)]
    more = [{**NORM, "modules": {"norm.txt": digest}} for digest in ("bb", "bb", "cc")]
    b = [run(1.1 + n / 10, seed=n, source_digest="t", quality_digest="q", **each) for n, each in enumerate(more)]
    (caveat,) = comparable(group("a", a), group("b", b)).caveats
    assert (caveat.weight, "differs too (norm.txt)" in caveat.sentence) == ("doubt", True)


def test_a_failed_run_which_does_not_say_what_it_read_is_no_doubt_on_the_files(run, group):
    both = {"source_digest": "s", "quality_digest": "q"}
    a = [run(1.0 + seed / 10, seed=seed, **both, **NORM) for seed in range(3)]
    b = [run(1.1 + seed / 10, seed=seed, **{**both, "source_digest": "t"}, **NORM) for seed in range(2)]
    b.append(run(None, seed=2, status="failed", **{**both, "source_digest": "t"}))
    assert all("norm.txt" not in each.sentence for each in comparable(group("a", a), group("b", b)).caveats)


def test_a_text_without_its_recipes_comments_and_docstrings_is_the_same_for_edits_of_these():
    text = '"""Says."""\nX = 1\n\n@task.recipe\ndef small(lr=1):\n    return lr\n'
    edited = text.replace("Says", "Tells").replace("lr=1", "lr=2").replace("X = 1", "X = 1  # one")
    assert around_recipes(edited) == around_recipes(text) != around_recipes(text.replace("X = 1", "X = 2"))
    assert around_recipes(text.replace(".recipe", ".recipe(factors={})")) == around_recipes(text)
    assert around_recipes("not ( python") != around_recipes("")


def test_files_that_differ_are_a_doubt_where_the_records_do_not_say_in_what(sides):
    assert said(sides(source_digest="t", quality_digest="")) == [("doubt", "source")]


@pytest.fixture
def own_quality(run, group):
    """What is said of two commands whose programs report their quality: ``file`` is the program of both, if any."""

    def said(one, other, file=""):
        def side(label, command):
            source = file or source_of_text("", command).digest
            more = {"source_digest": source, "settings": {"command": command}, "scored_by": "program"}
            return group(label, [run(1.0 + seed / 10, seed=seed, **more) for seed in range(3)])

        found = comparable(side("a", one), side("b", other)).caveats
        return [(each.weight, each.sentence) for each in found if each.subject == "quality"]

    return said


@pytest.mark.parametrize(
    ("one", "other", "values"),
    [
        ("python t.py --val-fraction 0.1", "python t.py --val-fraction=0.5", "--val-fraction 0.1 against 0.5"),
        ("python t.py", "python t.py --lr 1 --eval-batches 2", "--eval-batches nothing against 2"),
        ("VAL_SIZE=1 python t.py", "VAL_SIZE=2 python t.py", "VAL_SIZE 1 against 2"),
        ("python t.py data.valSplit=x", "python t.py data.valSplit=y", "data.valSplit x against y"),
    ],
)
@pytest.mark.parametrize("file", ["f", ""])
def test_options_that_may_change_what_a_program_scores_are_a_note(own_quality, one, other, values, file):
    ((weight, sentence),) = own_quality(one, other, file)
    assert (weight, f"under different options ({values})" in sentence) == ("note", True)


@pytest.mark.parametrize(
    "option", ["--lr {}", "--epochs={}", "--eval-every {}", "--eval_batch_size {}", "--data-workers {}", "--device {}"]
)
def test_of_options_of_one_program_that_change_how_it_learns_nothing_is_said(own_quality, option):
    assert own_quality(f"python t.py {option.format(1)}", f"python t.py {option.format(2)}", "f") == []


@pytest.mark.parametrize(
    ("one", "other", "weight"),
    [
        ("make X=1", "make X=2", "note"),
        ("python -m a.train --lr 1", "python -m a.train --lr 2", "note"),
        ("X=1 make -k bench", "X=2 make -k bench", "note"),
        ("make a X=1", "make b X=1", "doubt"),
        ("make -k a", "make -k b", "doubt"),
        ("python -m a.train", "python -m b.train", "doubt"),
    ],
)
def test_a_program_that_is_no_file_is_one_program_where_only_its_options_differ(own_quality, one, other, weight):
    ((found, sentence),) = own_quality(one, other)
    assert found == weight
    assert ("the programs differ" in sentence) is (weight == "doubt")


def test_runs_on_both_sides_are_refused_with_their_ids(run, group):
    runs = [run(1.0 + seed / 10, seed=seed) for seed in range(4)]
    with pytest.raises(IncomparableError, match="2 runs would be compared with themselves"):
        compare(group("a", runs[:3]), group("b", runs[1:3]))


def test_a_copy_of_a_run_under_another_id_is_refused_with_both_ids(run, group):
    a = [run(1.0 + seed / 10, seed=seed) for seed in range(3)]
    copy = msgspec.structs.replace(a[0], id="fffffff0", seed=7)
    for pair in ((group("a", a), group("b", [copy])), (group("a", [*a, copy]), group("b", [run(1.1)]))):
        with pytest.raises(IncomparableError, match=f"the runs {a[0].id} and fffffff0 are one run"):
            compare(*pair)


def test_copies_are_found_whatever_they_say_of_their_start(run, group):
    phases = {
        name: 0.123456789 + at * 0.001000301
        for at, name in enumerate(("data", "forward", "backward", "update", "other"))
    }
    one = run(1.0, seed=0, phases_s=phases)
    other = run(1.0, seed=7, phases_s=phases, started="2026-02-01T00:00:00.000+00:00")
    gate = comparable(group("a", [one]), group("b", [other]))
    assert [each.subject for each in gate.refusals] == ["copies"]
    with pytest.raises(IncomparableError) as refused:
        compare(group("a", [one]), group("b", [other]))
    assert "levelbench rm" in refused.value.do


def test_runs_of_other_seeds_with_the_same_losses_are_a_doubt(run, group):
    a = [run(1.0 + seed / 10, seed=seed, losses_digest=f"{seed}") for seed in range(3)]
    b = [run(1.1 + seed / 10, seed=seed, losses_digest="1") for seed in range(3)]
    found = [each.sentence for each in comparable(group("a", a), group("b", b)).caveats]
    (said,) = [each for each in found if "the same losses" in each]
    assert said.startswith("3 of 3 runs of b have other seeds and the same losses to the last digit")


def test_a_setting_without_effect_on_what_is_learnt_is_said(run, group):
    def told(**losses):
        a = [run(1.0, seed=seed, losses_digest=f"{seed}") for seed in range(3)]
        b = [run(1.1, seed=seed, losses_digest=losses.get(f"s{seed}", f"{seed}")) for seed in range(3)]
        found = comparable(group("a", a, settings={"lr": 1}), group("b", b, settings={"lr": 2})).caveats
        return [str(each) for each in found if each.subject == "settings"]

    assert told() == [
        "note: for every seed both sides have the same losses to the last digit: lr does not change what is learned"
    ]
    assert told(s1="other") == []


def test_a_difference_that_what_the_clock_leaves_out_makes_up_for_is_a_doubt(run, group):
    def told(out_a, out_b):
        a = [run(2.0, seed=seed, clock="mlperf", excluded_s={"prepare": out_a}) for seed in range(3)]
        b = [run(1.0, seed=seed, clock="mlperf", excluded_s={"prepare": out_b}) for seed in range(3)]
        return [each for each in comparable(group("a", a), group("b", b)).caveats if "leaves out" in each.sentence]

    assert told(0.1, 0.2) == told(2.0, 0.0) == []
    (caveat,) = told(0.1, 3.1)
    assert caveat.weight == "doubt"
    assert "leaves out 0.1 s of a and 3.1 s of b; with that, b takes 1.95 times as long instead of 0.5" in str(caveat)


@pytest.mark.parametrize(
    ("before_s", "started", "doubted"),
    [
        ((3.0, 9.0), "in place", True),
        ((3.0, 3.4), "in place", False),
        ((9.0, 3.0), "in place", False),
        ((3.0, 9.0), "fork", False),
    ],
)
@pytest.mark.parametrize("measure", ["cpu_s", "wall_s"])
def test_work_before_the_clock_of_a_tracked_run_that_makes_up_for_the_difference_is_a_doubt(
    run, group, before_s, started, doubted, measure
):
    def arm(label, time_s, spent_s):
        before = {"cpu_s": 1.0, measure: spent_s}
        more = {"started": started, "before_clock": before, "machine": {"id": "m1"}}
        return group(label, [run(time_s, seed=seed, environment=more) for seed in range(3)])

    found = comparable(arm("a", 8.0, before_s[0]), arm("b", 3.0, before_s[1])).caveats
    told = [each.sentence for each in found if "before their clocks" in each.sentence]
    start = "before their clocks started a took 3 s and b 9 s; with that, b takes 1.1"
    assert [each.startswith(start) for each in told] == [True] * doubted


@pytest.mark.parametrize(
    ("spent_s", "source", "doubted"),
    [(0.65, "one", True), (0.65, "other", False), (0.4, "one", False)],
    ids=["one program", "other imports", "alike"],
)
def test_a_third_of_a_second_of_work_before_the_clock_of_one_program_is_a_doubt(run, group, spent_s, source, doubted):
    def arm(label, time_s, cpu_s, source):
        before = {"cpu_s": cpu_s, "wall_s": cpu_s + 0.2}
        more = {"started": "in place", "before_clock": before, "machine": {"id": "m1"}}
        runs = [run(time_s, seed=seed, environment=more, source_digest=source) for seed in range(3)]
        return group(label, runs)

    found = comparable(arm("a", 0.9, 0.35, "one"), arm("b", 0.6, spent_s, source)).caveats
    told = [each.sentence for each in found if "before their clocks" in each.sentence]
    start = "before their clocks started a took 0.55 s and b 0.85 s; with that, b takes 1 times"
    assert [each.startswith(start) for each in told] == [True] * doubted


@pytest.mark.parametrize(("cpu_s", "weight"), [(9.0, "doubt"), (3.0, "note")], ids=["work", "waiting"])
def test_before_the_clock_of_different_frameworks_only_processor_time_is_a_doubt(run, group, cpu_s, weight):
    def arm(label, time_s, framework, cpu_s):
        more = {"started": "in place", "before_clock": {"cpu_s": cpu_s, "wall_s": 9.0 if label == "b" else 3.0}}
        runs = [run(time_s, seed=seed, environment=more, framework=framework) for seed in range(3)]
        return group(label, runs, framework=framework)

    found = comparable(arm("a", 8.0, "numpy", 3.0), arm("b", 3.0, "torch", cpu_s)).caveats
    assert [each.weight for each in found if "before their clocks" in each.sentence] == [weight]


@pytest.mark.parametrize(
    ("time_a_s", "evaluations_a", "time_b_s", "evaluations_b", "doubted"),
    [
        (10.0, 5, 7.0, 14, True),  # every 2 s against every 0.5 s: up to 3.5 s of the 3
        (10.0, 5, 2.0, 14, False),  # far more than evaluations explain
        (10.0, 5, 5.0, 5, False),  # as often by epochs, though not by seconds
        (7.0, 14, 10.0, 5, True),
        (7.0, 5, 10.0, 14, False),  # the slower side is the one that is evaluated more often
    ],
)
def test_evaluations_that_see_the_target_sooner_are_a_doubt_where_they_may_decide(
    run, group, time_a_s, evaluations_a, time_b_s, evaluations_b, doubted
):
    def arm(label, time_s, evaluations):
        runs = [run(time_s, seed=seed, evaluations=evaluations, epochs_to_target=10.0) for seed in range(3)]
        return group(label, runs)

    found = comparable(arm("a", time_a_s, evaluations_a), arm("b", time_b_s, evaluations_b)).caveats
    assert bool([each for each in found if "was evaluated every" in each.sentence]) is doubted


@pytest.mark.parametrize(
    ("time_b_s", "every_b_s", "doubted"),
    [
        (14.0, 5.0, True),  # confirmed at 14 s, and perhaps at its target right after 4 s
        (14.0, 1.0, False),  # as often
        (40.0, 5.0, False),  # far more than evaluations explain
        (20.0, 2.0, False),  # a slower program that is evaluated at the same epochs
    ],
)
def test_programs_that_print_their_quality_at_other_intervals_are_a_doubt_where_that_may_decide(
    run, group, time_b_s, every_b_s, doubted
):
    def arm(label, time_s, every_s):
        more = {"scored_by": "program", "first_evaluation_s": every_s, "evaluations": round(time_s / every_s)}
        earlier_s = [time_s - every_s, time_s - 2 * every_s]
        return group(label, [run(time_s, seed=seed, earlier_s=earlier_s, **more) for seed in range(3)])

    for sides in ((10.0, 1.0), (time_b_s, every_b_s)), ((time_b_s, every_b_s), (10.0, 1.0)):
        found = comparable(arm("a", *sides[0]), arm("b", *sides[1])).caveats
        assert [each.weight for each in found if "was evaluated every" in each.sentence] == ["doubt"] * doubted


@pytest.mark.parametrize(
    ("first_b", "before_b", "doubted"),
    [
        ((0.95, 0.96, 0.955), (0.96, 0.955, 0.96), True),
        ((0.95, 0.96, 0.955), (None, None, None), False),  # each in a process of its own
        ((0.93, 0.90, 0.93), (0.96, 0.955, 0.96), False),  # it only learns faster
        ((0.95, 0.96, 0.80), (0.96, 0.955, 0.96), False),
    ],
)
def test_runs_that_begin_where_the_one_before_in_their_process_ended_are_a_doubt(
    run, group, first_b, before_b, doubted
):
    def made(time_s, firsts, before):
        known = [{} if each is None else {BEFORE_ENDED_AT: each} for each in before]
        parts = zip(firsts, known, strict=True)
        return [
            run(time_s + seed / 100, seed=seed, scored_by="program", first_quality=first, environment=each)
            for seed, (first, each) in enumerate(parts)
        ]

    a, b = group("a", made(10.0, (0.8, 0.81, 0.79), (None, 0.95, 0.95))), group("b", made(5.0, first_b, before_b))
    for sides in ((a, b), (b, a)):
        told = [each.sentence for each in comparable(*sides).caveats if "the same process had ended" in each.sentence]
        assert [each.split()[0] for each in told] == ["b"] * doubted


def test_one_slow_import_from_a_cold_disk_is_no_work_before_the_clock(run, group):
    def arm(label, time_s, *waited_s):
        before = [{"started": "in place", "before_clock": {"cpu_s": 1.0, "wall_s": each}} for each in waited_s]
        return group(label, [run(time_s, seed=seed, environment=each) for seed, each in enumerate(before)])

    found = comparable(arm("a", 10.0, 2.0, 2.1, 2.0), arm("b", 8.0, 60.0, 2.0, 2.1)).caveats
    assert [each.sentence for each in found if "before their clocks" in each.sentence] == []


@pytest.mark.parametrize(
    ("before_b", "doubted"), [((5.0, 9.0, 8.0, 3.2, 7.0), False), ((5.0, 9.0, 8.0, 4.2, 7.0), True)]
)
def test_starts_that_overlap_as_on_a_busy_machine_are_no_work_before_the_clock(run, group, before_b, doubted):
    def arm(label, time_s, *took_s):
        before = [{"started": "in place", "before_clock": {"cpu_s": 1.0, "wall_s": each}} for each in took_s]
        return group(label, [run(time_s, seed=seed, environment=each) for seed, each in enumerate(before)])

    # The first start of a is from a cold disk.
    found = comparable(arm("a", 10.0, 60.0, 2.0, 4.0, 2.2, 3.0), arm("b", 6.0, *before_b)).caveats
    assert any("before their clocks" in each.sentence for each in found) is doubted


@pytest.mark.parametrize(
    ("after_s", "times_s", "doubted"),
    [
        ((0.1, 0.7), (4.0, 3.4), True),
        ((0.1, 0.45), (4.0, 3.4), True),
        ((0.1, 0.12), (4.0, 3.4), False),
        ((0.7, 0.1), (4.0, 3.4), False),
        ((0.7, 0.72), (4.0, 3.4), False),
        ((0.1, 0.7), (4.0, 3.95), False),
    ],
)
def test_time_after_a_program_has_said_that_it_is_trained_that_makes_up_for_the_difference_is_a_doubt(
    run, group, after_s, times_s, doubted
):
    def arm(label, time_s, more_s):
        held = {"held_out": "9 inputs (ab), given after training, private labels", "scored_by": "held-out"}
        return group(label, [run(time_s, seed=seed, wall_s=time_s + more_s, **held) for seed in range(4)])

    a, b = (arm(*each) for each in zip("ab", times_s, after_s, strict=True))
    found = [each for each in comparable(a, b).caveats if "after their clocks" in each.sentence]
    assert [each.weight for each in found] == ["doubt"] * doubted


def test_runs_that_all_have_the_same_qualities_are_a_doubt(run, group):
    a = [run(1.0 + seed / 10, seed=seed, qualities_digest=f"{seed // 2}") for seed in range(4)]
    b = [run(1.1 + seed / 10, seed=seed, qualities_digest="1") for seed in range(4)]
    found = [each.sentence for each in comparable(group("a", a), group("b", b)).caveats]
    (said,) = [each for each in found if "the same qualities" in each]
    assert said.startswith("all 4 runs of b have the same qualities to the last digit")


@pytest.mark.parametrize(
    ("begun", "doubted"),
    [
        ((0.3, 0.88, 0.9, 0.91), True),
        ((0.3, 0.5, 0.51, 0.5), True),
        ((0.3, 0.28, 0.33, 0.31), False),
        ((0.3, 0.4, 0.6, 0.9), False),
        ((0.88, 0.3, 0.3, 0.3), False),
        ((0.3, 0.9, 0.9), False),
        ((0.864, 0.936, 0.936, 0.936), False),
        ((0.9, 0.903, 0.903, 0.903), False),
    ],
)
def test_runs_that_begin_better_than_the_first_one_did_beyond_chance_are_a_doubt(run, group, begun, doubted):
    facts = msgspec.structs.replace(FACTS, sizes={"train": 1000, "validation": 359, "test": 359})
    a = [run(1.0 + seed / 10, seed=seed, first_quality=0.3, evaluations=2, dataset=facts) for seed in range(4)]
    b = [run(1.1, seed=seed, first_quality=first, evaluations=2, dataset=facts) for seed, first in enumerate(begun)]
    found = [each.sentence for each in comparable(group("a", a), group("b", b)).caveats]
    told = [each for each in found if "on disk" in each]
    assert [each.startswith("the first run of b began at top1 0.3, the others at 0.") for each in told] == (
        [True] * doubted
    )


@pytest.mark.parametrize(("began_at", "doubted"), [(0.3, True), (0.89, False), (None, False)])
def test_runs_that_begin_better_than_the_first_one_that_they_replace_are_a_doubt(run, group, began_at, doubted):
    before = {} if began_at is None else {"first_run_began_at": began_at}
    a = [run(1.0 + seed / 10, seed=seed, first_quality=0.3) for seed in range(3)]
    b = [run(1.1, seed=seed, first_quality=0.88 + seed / 100, environment=before) for seed in range(3)]
    found = [each.sentence for each in comparable(group("a", a), group("b", b)).caveats if "on disk" in each.sentence]
    assert [
        each.startswith("the first run of b in its store began at top1 0.3, the others at 0.88") for each in found
    ] == ([True] * doubted)


@pytest.mark.parametrize(("first", "doubted"), [(5, True), (2, False), (0, False)])
def test_a_side_that_always_comes_after_others_in_a_process_is_a_doubt(run, group, first, doubted):
    after = {"run_before_ended_at": 0.9}
    a = [run(1.0 + seed / 10, seed=seed, environment={} if seed < first else after) for seed in range(5)]
    b = [run(0.1, seed=seed, environment=after) for seed in range(5)]
    found = [each.sentence for each in comparable(group("a", a), group("b", b)).caveats]
    told = [each for each in found if each.startswith("runs of b came after others in the same process")]
    assert [True for each in told] == [True] * doubted


@pytest.mark.parametrize(
    ("prepared_s", "second", "doubted"), [(1.0, True, True), (1.0, False, False), (0.0, True, False)]
)
def test_a_side_that_prepares_for_the_other_in_the_same_process_is_a_doubt(run, group, prepared_s, second, doubted):
    after = {"run_before_ended_at": 0.9}
    both = []
    for name, place in (("a", 0), ("b", 1)):
        made = [
            run(
                1.1,
                seed=seed,
                environment=after if place or seed else {},
                started=f"2026-11-{seed + 1:02}T00:00:0{abs(place - (seed == 3 and not second))}+00:00",
                phases_s={"train": 1.0, "prepare": 0.0 if place else prepared_s},
            )
            for seed in range(4)
        ]
        both.append(group(name, made))
    found = [each.sentence for each in comparable(*both).caveats if "in the same process" in each.sentence]
    assert [each.startswith("runs of b came after those of a with their seeds") for each in found] == [True] * doubted


@pytest.mark.parametrize(("left", "doubted"), [("its recipe left x", True), (None, False)])
def test_what_a_trial_left_for_the_runs_is_a_doubt(run, group, left, doubted):
    before = {} if left is None else {"first_run_left": left}
    both = [
        group(name, [run(1.0 + seed / 10, seed=seed, environment=given) for seed in range(3)])
        for name, given in (("a", {}), ("b", before))
    ]
    found = [each.sentence for each in comparable(*both).caveats if "before these runs" in each.sentence]
    assert found == ["in the store before these runs of b: its recipe left x"] * doubted


@pytest.mark.parametrize(("answers", "refused"), [((0.5, 0.55), True), ((0.5, 0.50001), False), ((0.5, None), False)])
def test_sides_on_which_the_same_answers_score_differently_get_no_verdict(run, group, answers, refused):
    both = [
        group(name, [run(1.0 + seed / 10, seed=seed, fixed_answers=score, dataset=FACTS) for seed in range(3)])
        for name, score in zip("ab", answers, strict=True)
    ]
    found = [each for each in comparable(*both).caveats if "made-up answers" in each.sentence]
    assert [each.weight for each in found] == ["no verdict"] * refused


@pytest.mark.slow
def test_first_qualities_as_chance_makes_them_are_no_doubt(run, group):
    qualities = np.random.default_rng(3).normal(0.9, 0.02, (2000, 10))
    for n in (4, 10):
        groups = [
            group("a", [run(1.0, seed=seed, first_quality=each) for seed, each in enumerate(own[:n])])
            for own in qualities
        ]
        assert sum(bool([*_carried_over(each)]) for each in groups) <= 2


@pytest.mark.parametrize(
    ("times_s", "doubted"),
    [
        ((3.0, 0.5, 0.5), True),
        ((1.7, 1.0, 1.0, 1.05, 1.0), True),
        ((1.7, 1.0, 1.0), False),
        ((3.0, 0.7, 1.4), False),
        ((0.5, 0.6, 3.0), False),
        ((0.5, 0.1, 0.1), False),
    ],
)
@pytest.mark.parametrize(
    ("made", "known"),
    [
        ({"scored_by": "program"}, True),
        ({"scored_by": "held-out"}, True),
        ({"source_name": "mine.py"}, True),
        ({"source_name": "levelbench.training.tasks.digits"}, False),
    ],
)
def test_a_program_or_own_task_whose_first_run_took_much_longer_to_its_first_evaluation_is_a_doubt(
    run, group, times_s, doubted, made, known
):
    runs = [run(each, seed=seed, first_evaluation_s=each, **made) for seed, each in enumerate(times_s)]
    told = [each.sentence for each in _carried_over(group("a", runs))]
    assert ["until its first evaluation" in each for each in told] == [True] * (doubted and known)


@pytest.mark.parametrize(("first_s", "said"), [(0.9, True), (0.3, False)])
def test_a_program_that_mostly_starts_up_is_a_note(run, group, first_s, said):
    def made(seeds):
        more = {"first_evaluation_s": first_s, "evaluations": 8, "scored_by": "program"}
        return [run(1.0 + 0.01 * seed, seed=seed, **more) for seed in seeds]

    found = comparable(group("a", made(range(3))), group("b", made(range(3, 6)))).caveats
    assert (
        any(each.subject == "start of programs" and "passed before its first" in each.sentence for each in found)
        is said
    )


@pytest.mark.parametrize(("epochs", "said"), [((4.0, 5.0), ["a"]), ((5.0, 4.0), ["b"]), ((4.0, 4.0), [])])
def test_a_program_that_counts_its_first_epoch_as_0_beside_one_that_does_not_is_a_note(run, group, epochs, said):
    def made(epoch, seeds):
        more = {"evaluations": 5, "epochs_to_target": epoch, "scored_by": "program"}
        return [run(1.0 + 0.01 * seed, seed=seed, **more) for seed in seeds]

    sides = (group(label, made(each, range(3))) for label, each in zip("ab", epochs, strict=True))
    found = comparable(*sides).caveats
    told = [each.sentence.split()[0] for each in found if each.subject == "epochs"]
    assert told == said
    assert not any("evaluated every" in each.sentence for each in found)


@pytest.mark.parametrize(
    ("decimals", "rounded_s", "doubted"),
    [
        (4, 8.1, True),  # the same training, but 0.945 does not pass for 0.95
        (None, 8.1, True),
        (4, 9.9, False),  # far less than the difference
        (2, 8.1, False),  # both alike
    ],
)
def test_programs_that_print_other_numbers_of_digits_are_a_doubt_where_rounding_may_decide(
    run, group, decimals, rounded_s, doubted
):
    def made(time_s, decimals):
        more = {"evaluations": 9, "decimals": decimals, "if_rounded_s": [1.0, 1.0, rounded_s, time_s]}
        return [run(time_s + seed / 100, seed=seed, scored_by="program", **more) for seed in range(3)]

    a, b = group("a", made(10.0, decimals)), group("b", made(8.0, 2))
    told = [[each for each in comparable(*pair).caveats if each.subject == "digits"] for pair in ((a, b), (b, a))]
    assert [len(each) for each in told] == [doubted] * 2
    assert all(
        "b reports its quality to 2 decimals, and a to more" in each.sentence for found in told for each in found
    )


@pytest.mark.parametrize(
    ("shares", "decimals", "doubted"),
    [
        (((10_000, 9), (2_000, 9)), (4, 4), True),
        (((10_000, 9), (360, 9)), (4, None), False),  # what is printed to four decimals looks like shares of 10,000
        (((10_000, 9), (5_000, 2)), (4, 4), False),  # six shares of 10,000 may all be even
        (((2_000, 9), (2_000, 9)), (4, 4), False),
        (((2_000, 9), None), (None, None), False),
    ],
)
def test_programs_whose_qualities_are_shares_of_other_numbers_of_examples_are_a_doubt(
    run, group, shares, decimals, doubted
):
    sides = [
        group(label, [run(1.0, seed=seed, scored_by="program", shares_of=of, decimals=digits) for seed in range(3)])
        for label, of, digits in zip("ab", shares, decimals, strict=True)
    ]
    found = [each.sentence for each in comparable(*sides).caveats if each.subject == "examples"]
    assert [each.partition("examples, ")[2] for each in found] == [
        "those of a of 10,000 and those of b of 2,000: score both on the same ones"
    ] * doubted


@pytest.mark.parametrize(
    ("moves", "doubted"),
    [
        (((2, 0, 8, 40.0), (0, 2, 8, 40.0)), True),
        (((0, 0, 8, 40.0), (0, 2, 8, 40.0)), False),  # neither falls
        (((2, 0, 8, 40.0), (0, 0, 8, 40.0)), False),  # a steady curve does not repeat itself
        (((2, 0, 8, 40.0), (0, 2, 8, 1.0)), False),  # one with few digits does
        (((2, 0, 8, 40.0), (1, 2, 8, 40.0)), False),
        (((2, 0, 8, 40.0), (0, 1, 1, 40.0)), False),  # too short to tell
        (((2, 0, 8, 40.0), None), False),
    ],
)
def test_a_program_that_reports_the_best_quality_so_far_beside_one_that_does_not_is_a_doubt(run, group, moves, doubted):
    a, b = (
        group(label, [run(1.0, seed=seed, scored_by="program", moves=own) for seed in range(3)])
        for label, own in zip("ab", moves, strict=True)
    )
    told = [
        [each.sentence for each in comparable(*pair).caveats if each.subject == "best so far"]
        for pair in ((a, b), (b, a))
    ]
    assert [len(each) for each in told] == [doubted] * 2
    words = "the quality of b never falls and stays exactly the same 6 of 24 times, and that of a falls 6 of 24 times"
    assert all(words in each for found in told for each in found)


def test_rounding_that_lets_missed_runs_reach_their_target_is_a_doubt(run, group):
    def made(time_s, decimals, rounded_s=()):
        more = {"evaluations": 9, "decimals": decimals, "if_rounded_s": list(rounded_s)}
        return [run(time_s, seed=seed, scored_by="program", **more) for seed in range(3)]

    sides = group("a", made(None, None, [math.inf, math.inf, 9.0])), group("b", made(10.0, 2))
    (found,) = [each for each in comparable(*sides).caveats if each.subject == "digits"]
    assert "if both did so, 3 more of 3 runs of a reach the target" in found.sentence


@pytest.mark.parametrize(("prepare_s", "left_out_s", "said"), [(0.9, 0.0, True), (0.3, 0.0, False), (9.0, 9.0, False)])
def test_a_program_that_tells_its_phases_and_mostly_prepares_is_pointed_to_the_clock_that_leaves_it_out(
    run, group, prepare_s, left_out_s, said
):
    def made(seeds):
        more = {"first_evaluation_s": prepare_s + 0.05, "evaluations": 8, "scored_by": "program"}
        more |= {"phases_s": {"prepare": prepare_s, "train": 0.1}, "excluded_s": {"prepare": left_out_s}}
        return [run(1.0 + 0.01 * seed, seed=seed, **more) for seed in seeds]

    found = comparable(group("a", made(range(3))), group("b", made(range(3, 6)))).caveats
    told = [each.sentence for each in found if each.subject == "start of programs"]
    assert bool(told) is said
    assert all(each.endswith("is its phase prepare: --clock mlperf leaves that out") for each in told)


@pytest.mark.parametrize(("later_s", "doubted"), [(0.4, True), (1.2, False)])
def test_a_first_run_that_took_much_longer_to_prepare_is_a_doubt(run, group, later_s, doubted):
    a = [run(3.0 + seed / 10, seed=seed) for seed in range(3)]
    b = [run(3.1, seed=seed, phases_s={"prepare": later_s if seed else 2.0}) for seed in range(3)]
    found = [each.sentence for each in comparable(group("a", a), group("b", b)).caveats]
    (told,) = [each for each in found if "on disk" in each] or [""]
    assert told.startswith("the first run of b took 2 s to prepare, the others 0.4 s at most") is doubted


@pytest.mark.parametrize(("started", "said"), [("in place", True), ("from outside", False)])
def test_a_first_run_that_is_slow_to_prepare_may_be_the_first_of_a_sweep_in_one_process(run, group, started, said):
    there = {"environment": {"started": started}}
    a = [run(3.0 + seed / 10, seed=seed, **there) for seed in range(3)]
    b = [run(3.1, seed=seed, phases_s={"prepare": 0.1 if seed else 2.0}, **there) for seed in range(3)]
    (told,) = [each.sentence for each in comparable(group("a", a), group("b", b)).caveats if "on disk" in each.sentence]
    assert told.endswith("start one for each") is said


def test_a_first_run_whose_first_step_took_much_longer_is_a_doubt(run, group):
    a = [run(3.0 + seed / 10, seed=seed, first_step_s=2.0) for seed in range(3)]
    b = [run(3.1, seed=seed, first_step_s=0.4 if seed else 2.0) for seed in range(3)]
    (told,) = [each.sentence for each in comparable(group("a", a), group("b", b)).caveats if "on disk" in each.sentence]
    assert told.startswith("the first run of b took 2 s for its first step, the others 0.4 s at most")


def test_interrupted_runs_that_are_left_out_are_a_doubt(sides, run, group):
    a, b = sides()
    cut = replace(b, unfinished=(run(1.0, seed=9, status="interrupted"),))
    found = [each.sentence for each in comparable(a, cut).caveats]
    assert any(each.startswith("1 run of b was interrupted and not counted") for each in found)


@pytest.mark.parametrize(("wall_s", "doubted"), [(0.5, False), (9.0, True)])
def test_a_run_that_was_interrupted_and_made_again_is_doubted_if_it_took_longer(sides, run, wall_s, doubted):
    a, b = sides()
    cut = replace(b, unfinished=(run(1.0, seed=b.runs[0].seed, status="interrupted", wall_s=wall_s),))
    found = [each.sentence for each in comparable(a, cut).caveats]
    assert any("interrupted and not counted" in each for each in found) is doubted


@pytest.mark.parametrize("which", ["inputs", "whole_inputs"])
def test_other_inputs_with_the_same_labels_are_refused(run, group, which):
    a, b = (
        [run(1.0 + seed, seed=seed, dataset=msgspec.structs.replace(FACTS, **{which: {"validation": digest}}))]
        for seed, digest in enumerate(("1f", "2e"))
    )
    assert ("refuse", "inputs") in said((group("a", a), group("b", b)))
    assert ("refuse", "inputs") not in said((group("a", a), group("b", [run(2.0, seed=1, dataset=FACTS)])))


def test_runs_of_one_side_alone_without_checksums_withhold_the_verdict(sides):
    (caveat,) = comparable(*sides(chained=False)).caveats
    assert str(caveat) == (
        "no verdict: 3 runs were written without checksums, so edits to them go unnoticed, and all of them are "
        "of b: run them again"
    )


def test_runs_of_both_sides_without_checksums_are_a_doubt(run, group):
    runs = [[run(1.0 + seed, seed=seed, chained=False)] for seed in range(2)]
    found = [str(each) for each in comparable(group("a", runs[0]), group("b", runs[1])).caveats]
    assert "doubt: 2 runs were written without checksums, so edits to them go unnoticed: run them again" in found


def test_a_refusal_names_some_copies_and_counts_the_others(run, group):
    runs = [
        [run(1.0, seed=seed, id=f"{seed:08x}", started="now") for seed in seeds] for seeds in (range(6), range(6, 12))
    ]
    with pytest.raises(IncomparableError) as refused:
        comparable(group("a", runs[0]), group("b", runs[1])).require()
    assert str(refused.value).count("are one run") == 4
    assert "; and so for 7 more" in str(refused.value)


def test_a_record_that_contradicts_itself_is_refused(sides, monkeypatch):
    from levelbench.errors import RecordError

    a, b = sides()

    class Contradicting:
        def __init__(self, run):
            self.run, self.contradictions = run, ["its steps took longer than it did"]

        def __getattr__(self, name):
            return getattr(self.run, name)

    object.__setattr__(b, "runs", (Contradicting(b.runs[0]), *b.runs[1:]))
    with pytest.raises(RecordError, match=f"run {b.runs[0].id} contradicts itself: its steps took longer"):
        compare(a, b)


def environment(**parts):
    return {"machine": {"id": "m1"}, **parts}


@pytest.mark.parametrize(
    ("there", "here", "weight", "subject"),
    [
        ({"framework": {"threads": 1}}, {"framework": {"threads": 2}}, "doubt", "threads"),
        ({"threads": {"settings": {"OMP_NUM_THREADS": "1"}}}, {}, "doubt", "threads"),
        ({"malloc": {"MALLOC_ARENA_MAX": "1"}}, {}, "doubt", "memory allocator"),
        ({"started": "fork"}, {"started": "spawn"}, "doubt", "start of processes"),
        ({"started": "fork"}, {}, "doubt", "start of processes"),
        ({"libraries": {"numpy": "2.4"}}, {"libraries": {"numpy": "2.5"}}, "doubt", "versions"),
        ({"libraries": {"blas": {"name": "mkl"}}}, {"libraries": {"blas": {"name": "blis"}}}, "doubt", "versions"),
        ({"libraries": {"onnx": "1.0"}}, {"libraries": {"onnx": "1.1"}}, "note", "versions"),
        ({"git": {"commit": "aa"}}, {"git": {"commit": "bb"}}, "note", "commit"),
    ],
)
def test_what_differs_about_the_software_is_said_with_both_values(run, group, there, here, weight, subject):
    a = [run(1.0 + seed / 10, seed=seed, environment=environment(**there)) for seed in range(3)]
    b = [run(1.0 + seed / 10, seed=seed, environment=environment(**here)) for seed in range(3)]
    pair = group("a", a), group("b", b)
    assert said(pair) == [(weight, subject)]
    assert " against " in comparable(*pair).caveats[0].sentence
    assert compare(*pair).verdict is not None


def test_what_another_framework_does_not_load_is_no_difference(run, group):
    a = [run(1.0 + seed / 10, seed=seed, environment=environment(libraries={"numpy": "2.4"})) for seed in range(3)]
    loaded = environment(libraries={"numpy": "2.4", "torch": "2.9"}, threads={"loaded": {"libgomp": 2}})
    b = [run(1.0 + seed / 10, seed=seed, environment=loaded, framework="torch") for seed in range(3)]
    assert said((group("a", a), group("b", b, framework="torch"))) == []


def test_a_side_of_one_run_has_a_machine_too(run, group):
    runs = [run(1.0, seed=0, environment={"machine": {"id": name}}) for name in ("m1", "m2")]
    assert ("no verdict", "machine") in said((group("a", runs[:1]), group("b", runs[1:])))


def test_another_machine_withholds_the_verdict_and_is_a_doubt_where_one_is_asked_for(sides):
    pair = sides(environment={"machine": {"id": "m2"}})
    assert said(pair) == [("no verdict", "machine")]
    assert said(pair, across_machines=True) == [("doubt", "machine")]


def test_a_doubt_is_said_once_with_the_runs_of_each_side_and_the_gravest_figure(run, group):
    a = [run(1.0, seed=seed, suspect=[f"others kept {seed}.5 cores busy"]) for seed in range(2)]
    b = [run(1.0, seed=0, suspect=["others kept 9.5 cores busy"]), run(1.1, seed=1)]
    assert [str(each) for each in comparable(group("a", a), group("b", b)).caveats] == [
        "doubt: 2 of 2 runs of a and 1 of 2 runs of b: others kept 9.5 cores busy"
    ]


def test_a_doubt_about_several_sides_is_one_sentence_in_every_comparison_that_it_concerns(run, group):
    def side(name, *cores):
        suspects = [[f"others kept {each} cores busy"] if each else [] for each in cores]
        return group(name, [run(1.0 + seed / 10, seed=seed, suspect=each) for seed, each in enumerate(suspects)])

    found, _ = compare_all([side("a", 1, 2, 1), side("b", 3, 1, 1), side("c", 0, 0, 0), side("d", 1, 0, 0)], 0.02, 0.95)
    doubts = [[each.sentence for each in one.caveats if each.weight == "doubt"] for one in found]
    assert doubts == [["3 of 3 runs of a and of b, and 1 of 3 runs of d: others kept 3 cores busy"]] * 3
    assert [len(doubt_lines([one.a, one.b], found)) for one in found] == [0, 0, 0]
    assert sum("cores busy" in line for line in gate_lines(found)) == 1


def test_a_comparison_shows_the_doubts_of_its_own_sides_alone(run, group):
    suspect = {"b": ["hot"], "c": ["swap"]}
    groups = [group(name, [run(1.0, seed=at, suspect=suspect.get(name, [])) for at in range(3)]) for name in "abc"]
    found, _ = compare_all(groups, 0.02, 0.95)
    doubts = [[each.sentence for each in one.caveats if each.weight == "doubt"] for one in found]
    assert doubts == [["3 of 3 runs of b: hot"], ["3 of 3 runs of c: swap"]]


def test_unequal_budgets_are_a_note(sides):
    pair = sides(specification={"budget_epochs": 3.0})
    assert said(pair) == [("note", "budgets")]
    assert "9 against 3 epochs" in comparable(*pair).caveats[0].sentence


def test_unpaired_seeds_are_said_with_both_ranges(sides):
    (found,) = comparable(*sides(seeds=[0, 1, 2, 5])).caveats
    assert found.sentence == "not paired by seed: the seeds differ (0-2 against 0-2, 5)"


def test_seeds_that_are_the_same_and_not_equally_often_are_said(run, group):
    a, b = [run(1.0, seed=seed) for seed in (0, 0, 1)], [run(1.1, seed=seed) for seed in (0, 1)]
    found = [each.sentence for each in comparable(group("a", a), group("b", b)).caveats if each.subject == "pairing"]
    assert found == ["not paired by seed: a seed has more runs on one side than on the other"]


@pytest.mark.parametrize(
    ("replaced", "expected"),
    [
        ({"planned_runs": 3}, []),
        ({"replaced": 1}, [("note", "fresh runs")]),
        ({"replaced": 2}, [("doubt", "fresh runs")]),
    ],
)
def test_runs_added_after_a_look_and_runs_made_again_are_told(sides, replaced, expected):
    assert said(sides(**replaced)) == expected


@pytest.mark.parametrize(
    ("planned", "effect", "expected"),
    [
        ((3, 3, 3, 4), None, ["the runs of a were made in several steps (3, then 4 runs were asked for"]),
        ((3, 3, 3, 3), None, ["the runs of a were made in several steps (3 runs were asked for, and there are 4"]),
        ((3, 3, 3, 4), 0.05, []),
        ((1, 4, 4, 4), None, []),
    ],
)
def test_runs_that_were_added_after_a_look_are_a_doubt(run, group, planned, effect, expected):
    runs = [run(1.0, seed=seed, planned_runs=n, planned_effect=effect) for seed, n in enumerate(planned)]
    other = [run(1.1, seed=seed, planned_runs=4) for seed in range(4)]
    found = [each.sentence for each in comparable(group("a", runs), group("b", other)).caveats]
    assert [text[: len(start)] for text, start in zip(found, expected, strict=True)] == expected


@pytest.mark.parametrize("why", [{}, {"replaced": 1}, {"unfinished": True}])
def test_a_run_that_began_after_later_ones_is_a_doubt_unless_it_is_known_why(run, group, why):
    starts = {0: "12:00", 1: "12:09", 2: "12:02"}
    counts = {1: why.get("replaced", 0)}
    made = [(seed, {"started": f"2026-01-01T{at}", "replaced": counts.get(seed, 0)}) for seed, at in starts.items()]
    left = group("a", [run(1.0, seed=seed, planned_runs=3, **each) for seed, each in made])
    if "unfinished" in why:
        left = replace(left, unfinished=(run(1.0, seed=1, status="interrupted"),))
    found = comparable(left, group("b", [run(1.1, seed=seed) for seed in range(3)])).caveats
    expected = [] if why else ["run 1 of a began after later ones, as where some were removed and made again"]
    assert [each.sentence.partition(":")[0] for each in found if each.subject == "looks"] == expected


@pytest.mark.parametrize("replaced", [0, 1])
def test_the_last_runs_of_one_side_that_no_longer_took_turns_are_a_doubt_unless_it_is_known_why(run, group, replaced):
    def side(label, starts):
        made = [{"started": f"2026-01-01T12:{at:02d}:00", "planned_runs": 4} for at in starts]
        again = [{"replaced": replaced * (at > 9)} for at in starts]
        return group(label, [run(1.0 + s / 9, seed=s, **made[s], **again[s]) for s in range(4)])

    found = comparable(side("a", [0, 3, 4, 7]), side("b", [1, 2, 11, 12])).caveats
    expected = [] if replaced else ["run 2 of b began after later ones of the others, though earlier ones took turns"]
    assert [each.sentence.partition(", as")[0] for each in found if each.subject == "looks"] == expected


def test_runs_that_were_asked_for_and_are_not_here_are_a_doubt(run, group):
    def doubts(seeds, **replaced):
        left = group("a", [run(1.0, seed=seed, planned_runs=5, **replaced) for seed in seeds])
        return [
            each.sentence
            for each in comparable(left, group("b", [run(1.1, seed=9)])).caveats
            if each.subject == "missing runs"
        ]

    (found,) = doubts([0, 1, 4])
    assert found.startswith("of a 5 runs were asked for by one command, and 3 are left")
    (found,) = doubts([4])
    assert found.startswith("of a 5 runs were asked for by one command, and 1 is left")
    assert doubts(range(5)) == doubts(range(3), planned_effect=0.05) == []
    (found,) = doubts([0, 1, 4], planned_effect=0.05)
    assert found.startswith("of a --until-clear made seeds 0 to 4, and 2-3 are missing")

    def asked(first, seeds, **replaced):
        at = {"machine": {"id": "m1"}, "first_seed": first}
        return [run(1.0, seed=seed, environment=at, **{"planned_runs": 2, **replaced}) for seed in seeds]

    def missing(runs):
        found = comparable(group("a", runs), group("b", [run(1.1, seed=9)])).caveats
        return [each.sentence for each in found if each.subject == "missing runs"]

    assert missing([*asked(0, [0, 1]), *asked(7, [7, 8])]) == []
    (found,) = missing([*asked(2, [2]), *asked(1, [1]), *asked(0, [0])])
    assert found.startswith("of a seeds 0-3 were asked for, and 3 is missing")
    looks = {"planned_runs": 5, "planned_effect": 0.05}
    assert missing([*asked(0, range(5), **looks), *asked(100, range(100, 105), **looks)]) == []
    assert missing([*asked(0, range(3), planned_runs=3), *asked(0, [3, 4], **looks)]) == []
    (found,) = missing([*asked(37, [38, 39], **looks), *asked(40, range(40, 45), **looks)])
    assert found.startswith("of a seeds 37-44 were asked for, and 37 is missing")
    (found,) = missing([*asked(0, [0]), *asked(7, [8])])
    assert found.startswith("of a seeds 0-1, 7-8 were asked for, and 1, 7 are missing")
    picked = {"planned_runs": 0, "environment": {"machine": {"id": "m1"}, "seed_picked": True}}
    left = group("a", [run(1.0, seed=seed, **picked) for seed in (1, 2, 5)])
    found = [each.sentence for each in comparable(left, group("b", [run(1.1, seed=9)])).caveats]
    assert any(each.startswith("of a its program took seeds 0 to 5, and 0, 3-4 are missing") for each in found)


def test_a_text_that_changed_between_runs_of_one_program_is_a_doubt(run, group):
    def told(read, **settings):
        runs = [run(1.0, seed=seed, files_read=each, settings=settings) for seed, each in enumerate(read)]
        found = comparable(group("a", [run(1.1, seed=seed) for seed in range(2)]), group("b", runs)).caveats
        return [str(each) for each in found if each.subject == "files read"]

    assert told([{"a.py": "1"}, {"a.py": "1", "cache.txt": "2"}]) == []
    assert told([{"a.py": "1"}, {"a.py": "2"}], prepare="make a.py") == []
    assert told([{"a.py": "1"}, {"a.py": "2"}]) == [
        "doubt: runs of b read different versions of a.py: run all of them again"
    ]


def test_settings_that_tracked_programs_read_and_do_not_share_are_a_note(run, group):
    def told(one, other, started="in place"):
        facts = {"environment": {"machine": {"id": "m1"}, "started": started}}
        sides = (group(name, [run(1.0, files_read=read, **facts)]) for name, read in (("a", one), ("b", other)))
        return [str(each) for each in comparable(*sides).caveats if each.subject == "settings read"]

    assert told({"a.yaml": "1", "$LR": "2"}, {"a.yaml": "1", "b.yaml": "3"}) == []
    assert told({"a.yaml": "1"}, {"a.yaml": "2"}) == ["note: their programs read different versions of a.yaml"]
    assert told({"$LR": "1"}, {"$LR": "2"}) == ["note: their programs read different values of $LR"]
    assert told({"a.yaml": "1"}, {"a.yaml": "2"}, "from outside") == []


def test_programs_that_read_different_data_files_are_doubted_whatever_the_files_are_called(run, group):
    def told(one, other, **facts):
        sides = (group(name, [run(1.0, data_read=read, **facts)]) for name, read in (("a", one), ("b", other)))
        return [str(each) for each in comparable(*sides).caveats if each.subject == "data files"]

    assert told({"a.npz": "1"}, {"../a.npz": "1"}) == told({"a.npz": "1"}, {}) == []
    assert told({"a.npz": "1", "b.npz": "2"}, {"a.npz": "1"}) == [
        "doubt: they read different data files (b.npz against nothing more): whether both learn from and are scored on "
        "the same is unknown"
    ]
    (found,) = told({"a.npz": "1", "b.npz": "2"}, {"a.npz": "1"}, environment=WATCHED)
    assert "(b.npz against nothing more, unless another program read them)" in found
    (found,) = told({"a.npz": "1"}, {"a.npz": "2"}, scored_by="held-out")
    assert found.startswith("note: they read different data files (a.npz against a.npz)")


WATCHED = {"machine": {"id": "m1"}, "started": "from outside"}


@pytest.mark.parametrize(
    ("by", "said"),
    [
        (1, "note: some of the 5 runs of b read big.h5, unless another program did"),
        (3, "doubt: they read different data files (nothing more against big.h5): whether"),
    ],
)
def test_data_that_few_runs_of_a_side_read_may_have_been_read_by_another_program(run, group, by, said):
    read = [{"a.npz": "1"} | ({"big.h5": "2"} if seed < by else {}) for seed in range(5)]
    one = [run(1.0, seed=seed, data_read={"a.npz": "1"}, environment=WATCHED) for seed in range(5)]
    other = [run(1.0, seed=seed, data_read=each, environment=WATCHED) for seed, each in enumerate(read)]
    (found,) = [str(each) for each in comparable(group("a", one), group("b", other)).caveats if "big.h5" in str(each)]
    assert found.startswith(said)


def test_a_file_of_its_own_for_each_run_is_data_that_all_runs_read(run, group):
    one = [run(1.0, seed=seed, data_read={"a.npz": "1"}, environment=WATCHED) for seed in range(5)]
    read = [{"a.npz": "1", f"more-{seed}.npz": f"m{seed}"} for seed in range(5)]
    other = [run(1.0, seed=seed, data_read=each, environment=WATCHED) for seed, each in enumerate(read)]
    found = comparable(group("a", one), group("b", other)).caveats
    assert [each.weight for each in found if each.subject == "data files"] == ["doubt"]


@pytest.mark.parametrize(("by", "weight"), [(2, "note"), (3, "doubt")])
def test_versions_of_a_file_that_few_runs_read_are_a_note(run, group, by, weight):
    read = [{"best.ckpt": str(seed)} if seed < by else {} for seed in range(5)]
    runs = [run(1.0, seed=seed, data_read=each, environment=WATCHED) for seed, each in enumerate(read)]
    found = comparable(group("a", runs), group("b", [run(1.1, seed=seed) for seed in range(5)])).caveats
    assert [each.weight for each in found if "versions of best.ckpt" in str(each)] == [weight]


@pytest.mark.parametrize(
    ("other", "weight"),
    [
        ({"x_4.npz": "4"}, "note"),
        ({"x_3.npz": "5"}, "doubt"),
        ({"y_4.npz": "4"}, "doubt"),
    ],
)
def test_more_files_of_a_kind_that_both_sides_read_are_a_note(run, group, other, weight):
    read = {f"x_{at}.npz": str(at) for at in range(4)}
    sides = (group(name, [run(1.0, data_read=each)]) for name, each in (("a", read), ("b", {**read, **other})))
    (found,) = (each for each in comparable(*sides).caveats if each.subject == "data files")
    assert found.weight == weight


def test_runs_of_one_side_that_read_changed_data_are_a_doubt(run, group):
    runs = [run(1.0, seed=seed, data_read={"a.npz": str(seed)}) for seed in range(2)]
    found = comparable(group("a", runs), group("b", [run(1.1, seed=seed) for seed in range(2)])).caveats
    assert "doubt: runs of a read different versions of a.npz: run all of them again" in map(str, found)


def test_arguments_of_a_program_that_its_settings_do_not_tell_are_said(run, group):
    def told(*arguments):
        runs = [
            run(1.0, seed=seed, settings={"name": "b"}, environment={"machine": {"id": "m1"}, "arguments": text})
            for seed, text in enumerate(arguments)
        ]
        other = [run(1.1, seed=seed, environment={"machine": {"id": "m1"}}) for seed in range(2)]
        found = comparable(group("a", other), group("b", runs)).caveats
        return [str(each) for each in found if each.subject == "arguments"]

    assert told("--name b --seed 17 --out runs/0", "--name=b --seed 18 --out runs/1") == []
    assert len(told("--config conf/a.yaml", "--config conf/b.yaml")) == 2
    assert told("--fast -1 train", "--fast -1 train") == [
        "note: their programs had different arguments: none against --fast -1 train"
    ]
    doubt, note = told("--lr 0.02", "--lr 0.005")
    assert doubt.startswith(
        "doubt: runs of b had different arguments: --lr 0.02 against --lr 0.005: pass what they set to track("
    )
    assert note == "note: their programs had different arguments: none against --lr 0.005 --lr 0.02"


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["--workers 2"] * 4, {"--workers 2"}),
        (["--lr .1", "--lr=0.1", "--lr 1e-1", "--lr 0.10"], {"--lr 0.1"}),
        (["0", "1", "2", "3"], set()),
        (["-s 0", "-s 1", "-s 2", "-s 3"], set()),
        (["--seed 7"] * 4, set()),
    ],
)
def test_an_argument_is_the_seed_where_it_is_called_so_or_goes_along_with_it(run, group, arguments, found):
    def runs(given):
        return [run(1.0, seed=seed, environment={"arguments": text}) for seed, text in enumerate(given)]

    caveats = comparable(group("a", runs([""] * 4)), group("b", runs(arguments))).caveats
    told = [str(each) for each in caveats if each.subject == "arguments"]
    note = [f"note: their programs had different arguments: none against {each}" for each in sorted(found)]
    assert told == note


def test_a_seed_that_was_run_twice_is_said(run, group):
    a, b = (
        replace(group("a", [run(1.0 + seed / 10, seed=seed) for seed in range(3)]), repeats=again)
        for again in ((run(1.0, seed=1),), ())
    )
    assert said((a, b)) == [("note", "seeds")]


def test_the_gravest_comes_first_and_several_comparisons_hold_what_each_found(sides, group, run):
    pair = sides(quality_digest="other", seeds=[4, 5, 6], suspect=["steps vary"])
    assert [weight for weight, _ in said(pair)] == ["no verdict", "doubt", "note"]
    found, refusals = compare_all(pair, 0.02, 0.95)
    assert [each.weight for each in found[0].caveats] == ["no verdict", "doubt", "note"]
    assert refusals == []


def test_niceness_that_is_not_recorded_is_0(run, group):
    def environment(niceness):
        return {"machine": {"id": "m1"}, "threads": {"settings": {}, **({"niceness": niceness} if niceness else {})}}

    nice, usual = (
        group(name, [run(1.0 + seed / 10, seed=seed, environment=environment(n)) for seed in range(3)])
        for name, n in (("a", 10), ("b", 0))
    )
    found = [str(each) for each in comparable(nice, usual).caveats if each.subject == "niceness"]
    assert found == ["doubt: niceness differs: 10 against 0"]
