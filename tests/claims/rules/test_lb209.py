"""LB209: rates and speed-ups without the limit beside them."""

from msgspec.structs import replace
from tests.claims.clean import changes, clean_claim, found, other_findings

from levelbench.claims.rules.lb209_no_bound_shown import rule
from levelbench.claims.view import Claim, ComparisonView, CompositionView, Operations, Side, WorkloadView

F = "figures[2]"
NO_LINE = {f"{F}.bound_shown": False}
NOTHING = {"bound": None, f"{F}.bound_shown": None}
NO_SHARE = {"sides[0].operations.share_of_peak": None}

GUILTY = {
    "a speed-up without the line of ideal scaling": NO_LINE,
    "and a limit only in the text": {**NO_LINE, "bound": "linear scaling"},
    "throughput without a roof": {**NO_LINE, f"{F}.y": "throughput"},
    "operations without a roof": {**NO_LINE, f"{F}.y": "operations", "bound": None},
}
INNOCENT = {
    "a curve of quality has no limit to show": {**NO_LINE, f"{F}.y": "quality"},
    "the limit is in the figure": {"bound": None},
    "the limit is in the text": {f"{F}.bound_shown": None},
    "no scaling, and the rate has its share of the peak": {**NOTHING, "scaling": []},
}


FINDING = "warning", f"{F}.bound_shown"

PLANTED = "a speed-up is drawn without its limit", {"figures[2].bound_shown": False}
IN_RECORDS = "a record draws nothing"


def test_the_limit_of_scaling_and_of_a_rate_is_asked_for():
    assert found(rule, changes(clean_claim(), {**NOTHING, **NO_SHARE})) == [
        ("not-stated", "bound"),
        ("not-stated", "sides[0].operations.share_of_peak"),
    ]


def rated(title="A kernel at 3 TFLOP/s", **operations):
    side = Side(name="ours", operations=Operations(flops=3e12, **operations))
    return Claim(title=title, sides=(side, Side(name="theirs", operations=Operations(flops=2e12))))


def test_the_limit_of_a_rate_is_asked_for_where_the_rate_is_claimed():
    asked = [("not-stated", f"sides[{at}].operations.share_of_peak") for at in (0, 1)]
    compared = (ComparisonView(new="ours", base="theirs"),)
    assert found(rule, rated()) == asked
    assert found(rule, rated("Trained in two days")) == []
    assert found(rule, replace(rated("Trained in two days"), comparisons=compared)) == asked


def test_a_rate_that_is_the_peak_or_whose_share_is_stated_needs_no_other_limit():
    assert found(rule, rated(counted_as="the peak of the matrix unit")) == [
        ("not-stated", "sides[1].operations.share_of_peak")
    ]
    assert (
        found(rule, replace(rated(share_of_peak=0.7), comparisons=(ComparisonView(new="ours", base="theirs"),))) == []
    )


def test_a_speed_up_over_one_process_has_a_limit_unless_it_is_taken_apart():
    one, eight = (Side(name=f"{n}", workload=WorkloadView(ranks=n)) for n in (1, 8))
    claim = Claim(
        title="Eight ranks",
        sides=(one, eight),
        comparisons=(ComparisonView(new="8", base="1", base_kind="one-process"),),
    )
    assert found(rule, claim) == [("not-stated", "bound")]
    assert found(rule, replace(claim, compositions=(CompositionView(parts={"ranks": 3.4, "kernel": 2.0}),))) == []


def test_no_other_rule_fires_on_its_fault():
    assert other_findings(rule, changes(clean_claim(), NO_LINE)) == []
