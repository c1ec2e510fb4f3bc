"""LB110: runs that end at a chosen moment, and curves that are cut or drawn by time alone."""

from pathlib import Path

from tests.claims.clean import QUALITIES, changes, clean_claim, found, other_findings
from tests.claims.run_store import QUALITIES as QUALITIES_OF_RUNS
from tests.claims.run_store import specification, write_runs

from levelbench.claims.rules.lb110_just_the_right_time import rule

LIMIT = "sides[0].clock.fixed_time_s"
SILENT = {"sides[0].runs_reached": None, "sides[0].runs": []}
WHOLE_RUN = {f"sides[{at}].time_of": "run" for at in (0, 1)}
HOURS = {f"sides[{at}].time_s": 3600.0 for at in (0, 1)}
UNKNOWN = {f"sides[{at}].runs_reached": None for at in (0, 1)}
BY_RATE = {
    "comparisons[0].of": "throughput",
    "comparisons[0].quality_compared": None,
    **WHOLE_RUN,
    **HOURS,
    **UNKNOWN,
}


def cut_curves(evaluations, side=0, **more):
    """Every run of a side with its first evaluations only."""
    columns = ("time_s", "quality", "epoch", "samples")
    planted = {
        f"sides[{side}].runs[{at}].curve.{name}": getattr(run.curve, name)[:evaluations]
        for at, run in enumerate(clean_claim().sides[side].runs)
        for name in columns
    }
    return {**planted, **more}


def equal_scaling(**more):
    planted = {}
    for at in range(3):
        planted |= {f"scaling[{at}].time_s": 1800.0, f"scaling[{at}].throughput": 100.0 * 2**at}
        planted |= {f"scaling[{at}].reached": None, f"scaling[{at}].fixed_time": None}
    return {**planted, **more}


def with_quality(qualities, **more):
    one = clean_claim().sides[0].runs[0]
    run = {"time_s": 30.0, "reached": None, "curve": {"time_s": list(one.curve.time_s), "quality": qualities}}
    run["curve"]["epoch"] = list(one.curve.epoch)
    return {"sides[0].runs": [{**run, **more}]}


TURNED = [*[value - 0.06 for value in QUALITIES[:9]], 0.7, 0.6, 0.55]

GUILTY = {
    "runs to the target were ended at a fixed time": (
        {**SILENT, LIMIT: 1800.0, "sides[0].time_s": 1800.0},
        ("error", LIMIT),
    ),
    "whole runs were ended at a fixed time": (
        {**SILENT, LIMIT: 1800.0, "sides[0].time_of": "run"},
        ("warning", LIMIT),
    ),
    "points of scaling ran for a fixed time": (
        {"scaling[2].fixed_time": True},
        ("error", "scaling[2].fixed_time"),
    ),
    "all points of scaling took the same time while the rate grew": (
        equal_scaling(),
        ("warning", "scaling[0].time_s"),
    ),
    "two runs of one length are compared by their rate": (BY_RATE, ("warning", "comparisons[0].of")),
    "every curve ends where it touches the target": (
        {**cut_curves(9), "sides[0].clock.crossing": "first"},
        ("warning", "sides[0].runs[0].curve"),
    ),
    "final evaluations of runs of many lengths": (
        {
            **cut_curves(9),
            "sides[0].clock.crossing": "final",
            "sides[0].runs[4]": {
                "time_s": 30.0,
                "curve": {"time_s": [20.0, 30.0], "quality": [0.9, 0.941], "epoch": [1.0, 2.0]},
            },
        },
        ("warning", "sides[0].runs[0].curve"),
    ),
    "the curves end before the runs": (
        cut_curves(6, **{f"sides[0].runs[{at}].reached": None for at in range(5)}),
        ("warning", "sides[0].runs[0].curve"),
    ),
    "a curve diverges at its end": (with_quality(TURNED), ("warning", "sides[0].runs[0].curve")),
    "curves in a figure are cut": ({"figures[0].curves_cut": True}, ("warning", "figures[0].curves_cut")),
    "convergence is drawn by time alone": (
        {"figures[0].x": "time"},
        ("warning", "figures[0].x"),
    ),
}
INNOCENT = {
    "a limit of time that every run reached its target before": {LIMIT: 1800.0},
    "a limit of time, with the runs that it ended shown": {
        **SILENT,
        LIMIT: 1800.0,
        "sides[0].runs_reached": 4,
    },
    "a step was repeated for a fixed time": {**SILENT, LIMIT: 60.0, "sides[0].time_of": "step"},
    "qualities after the same time are compared": {
        **SILENT,
        LIMIT: 1800.0,
        "sides[0].time_s": 1800.0,
        "comparisons[0].of": "quality",
    },
    "the steps of weak scaling take the same time": {
        f"scaling[{at}].{name}": value
        for at in range(3)
        for name, value in (("time_s", 0.2), ("reached", None), ("fixed_time", None))
    },
    "points of one time that reached their target": equal_scaling(
        **{f"scaling[{at}].reached": True for at in range(3)}
    ),
    "two runs of one length whose qualities are compared too": {**BY_RATE, "comparisons[0].quality_compared": True},
    "every curve ends where it is confirmed": cut_curves(10),
    "every curve of a fixed length ends at the target": {**cut_curves(9), "sides[0].clock.crossing": "final"},
    "a run that ends at the target and is not counted": {
        **with_quality([*QUALITIES[:11], 0.941], reached=False),
        "sides[0].quality.target": 0.9409,
    },
    "a run that diverges and is said not to have reached it": with_quality(TURNED, reached=False),
    "a curve that wavers": with_quality([*[value - 0.06 for value in QUALITIES[:9]], 0.84, 0.81, 0.80]),
    "convergence is drawn by epochs": {"figures[0].x": "epochs"},
    "nothing is drawn": {"figures": []},
}


PLANTED = "convergence is drawn by time alone", {"figures[0].x": "time"}


def planted_in(store: Path) -> str:
    write_runs(store, spec=specification(crossing="first"), qualities=QUALITIES_OF_RUNS[:6])
    return "digits"


IN_RECORDS = "every run ends with its first evaluation at the target", planted_in


def test_a_time_to_the_target_before_the_limit_is_asked_how_many_runs_reached_it():
    claim = changes(clean_claim(), {**SILENT, LIMIT: 1800.0})
    assert found(rule, claim) == [("not-stated", "sides[0].runs_reached")]


def test_curves_by_time_alone_are_asked_for_their_epochs():
    bare = {f"sides[0].runs[{at}].curve.{name}": None for at in range(5) for name in ("epoch", "samples")}
    claim = changes(clean_claim(), bare)
    assert found(rule, claim) == [("not-stated", "sides[0].runs[0].curve.samples")]


def test_a_figure_of_which_the_axis_is_unknown_is_asked_for_it():
    assert found(rule, changes(clean_claim(), {"figures[0].x": None})) == [("not-stated", "figures[0].x")]


def test_a_figure_of_which_nobody_says_what_it_shows_is_asked_for_it():
    planted = {"figures[0].x": None, "figures[0].y": None}
    assert found(rule, changes(clean_claim(), planted)) == [("not-stated", "figures[0].y")]


RULED = {"sides[0].clock.crossing": "first", "sides[0].reported": "olympic"}


def test_where_a_rule_ends_several_runs_and_drops_the_fastest_nobody_chose_the_moment():
    claim = changes(clean_claim(), {**cut_curves(9), **RULED})
    assert found(rule, claim) == [("not-stated", "sides[0].runs[0].curve")]


def test_a_single_run_that_such_a_rule_ends_is_still_a_touch():
    claim = changes(clean_claim(), {**cut_curves(9), **RULED})
    claim = changes(claim, {"sides[0].runs": claim.sides[0].runs[:1]})
    assert found(rule, claim) == [("warning", "sides[0].runs[0].curve")]


def test_the_finding_counts_the_curves():
    (finding,) = rule.check(changes(clean_claim(), {**cut_curves(9), "sides[0].clock.crossing": "first"}))
    assert finding.found == "5 of 5 curves of 'new' end with the first evaluation at the target"
    assert finding.where == "new/1.jsonl"


def test_the_fault_alone_is_found_by_no_other_rule():
    assert other_findings(rule, changes(clean_claim(), {"scaling[2].fixed_time": True})) == []
