"""LB130: a target that is touched once, lost again, or never reached."""

from pathlib import Path

from tests.claims.clean import QUALITIES, changes, clean_claim, found, other_findings
from tests.claims.run_store import QUALITIES as QUALITIES_OF_RUNS
from tests.claims.run_store import specification, write_runs

from levelbench.claims.rules.lb130_crossing_not_confirmed import rule

CROSSING = "sides[0].clock.crossing"
CURVE = "sides[0].runs[2].curve"
NONE = {f"sides[0].runs[{at}].curve": None for at in range(5)}


def rows(**by_index):
    """Qualities of the third run: ``i9=0.93`` is its tenth evaluation."""
    return {f"{CURVE}.quality[{name[1:]}]": quality for name, quality in by_index.items()}


ONCE = rows(i9=0.938, i10=0.9395, i11=0.9381)
LOST = rows(i10=0.9389, i11=0.9391)
LOSS = {
    "sides[0].quality.metric": "validation loss",
    "sides[0].quality.direction": "lower",
    "sides[0].quality.target": 0.3,
    "scaling": [],
}
FALLING = {"time_s": [10.0, 20.0, 30.0, 40.0], "epoch": [1.0, 2.0, 3.0, 4.0]}


def losses(*values):
    return {**LOSS, "sides[0].runs": [{"time_s": 30.0, "reached": True, "curve": {**FALLING, "quality": list(values)}}]}


GUILTY = {
    "touched once and called confirmed": (ONCE, ("error", CURVE)),
    "touched once by a rule that needs no more": ({**ONCE, CROSSING: "first"}, ("warning", CURVE)),
    "touched once by an unknown rule": ({**ONCE, CROSSING: None}, ("warning", CURVE)),
    "ends at the first touch and is called confirmed": (
        {
            f"{CURVE}.{name}": list(getattr(clean_claim().sides[0].runs[2].curve, name)[:9])
            for name in ("time_s", "quality", "epoch", "samples")
        },
        ("error", CURVE),
    ),
    "confirmed and lost at the end": (LOST, ("warning", CURVE)),
    "lost at the end and called kept": ({**LOST, CROSSING: "sustained"}, ("error", CURVE)),
    "lost at the end where the end alone counts": ({**LOST, CROSSING: "final"}, ("error", CURVE)),
    "never reached and counted": (
        {f"{CURVE}.quality": [min(0.939, each) for each in clean_claim().sides[0].runs[2].curve.quality]},
        ("error", CURVE),
    ),
    "the time is before any evaluation had it": (
        {"sides[0].runs[2].time_s": 21.0},
        ("error", "sides[0].runs[2].time_s"),
    ),
    "the time is of a touch that was lost before the target was confirmed": (
        {**rows(i4=0.9402), CROSSING: "first", "sides[0].runs[2].time_s": 15.0},
        ("warning", "sides[0].runs[2].time_s"),
    ),
    "a loss touches its target once": (losses(0.5, 0.29, 0.32, 0.31), ("error", "sides[0].runs[0].curve")),
    "the rule is the first crossing and there are no curves": ({**NONE, CROSSING: "first"}, ("warning", CROSSING)),
}
INNOCENT = {
    "timed by a benchmark whose rule is known": {**NONE, CROSSING: None, "sides[0].clock.policy": "mlperf"},
    "the first crossing, which the curve confirms": {CROSSING: "first"},
    "touched early, lost, and confirmed later": rows(i6=0.9402, i7=0.939),
    "touched once by a run that is not counted": {**ONCE, "sides[0].runs[2].reached": False},
    "touched once by a run that failed": {**ONCE, "sides[0].runs[2].failed": True},
    "the last evaluation alone counts and has it": {
        **rows(i8=0.938, i9=0.938, i10=0.938),
        CROSSING: "final",
        "sides[0].runs[2].time_s": 36.0,
    },
    "the boundary itself": rows(i8=0.94, i9=0.94, i10=0.94, i11=0.94),
    "a loss that stays below its target": losses(0.5, 0.3, 0.29, 0.28),
    "nobody knows whether more is better": {
        **ONCE,
        "sides[0].quality.metric": "score",
        "sides[0].quality.direction": None,
    },
    "a time that is rounded to the evaluation before": {"sides[0].runs[2].time_s": 23.5},
    "a time that is interpolated": {"sides[0].runs[2].time_s": 24.5, CROSSING: "interpolated"},
    "a confirmed target without curves": NONE,
    "the time of a step": {**ONCE, "sides[0].time_of": "step"},
}


LOST_AT_THE_END = [*QUALITIES[:-1], 0.9312]

PLANTED = "a run loses its target again", {"sides[0].runs[0].curve.quality": LOST_AT_THE_END}


def planted_in(store: Path) -> str:
    qualities = (*QUALITIES_OF_RUNS[:7], 0.91, 0.88)
    write_runs(store, spec=specification(crossing="first"), qualities=qualities)
    return "digits"


IN_RECORDS = "the target counts from the first touch, and is lost again", planted_in


def test_a_time_to_the_target_without_curves_is_asked_for_its_rule():
    assert found(rule, changes(clean_claim(), {**NONE, CROSSING: None})) == [("not-stated", CROSSING)]


def test_the_finding_holds_the_evaluation_that_touched_and_the_next():
    (finding,) = rule.check(changes(clean_claim(), ONCE))
    assert "1 of 5 curves of 'new' never reaches the target of 0.94 twice in a row: 0.94" in finding.found
    assert ", then 0.938 at " in finding.found
    assert finding.found.endswith("it is said to be confirmed")
    assert finding.where == "new/3.jsonl"


def test_a_curve_whose_columns_differ_in_length_is_not_judged():
    assert found(rule, changes(clean_claim(), {f"{CURVE}.quality": [0.9, 0.941, 0.9]})) == []


def test_the_fault_alone_is_found_by_no_other_rule():
    assert other_findings(rule, changes(clean_claim(), ONCE)) == []
