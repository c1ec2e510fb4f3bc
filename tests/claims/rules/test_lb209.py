"""LB209: rates and speed-ups without the limit beside them."""

from tests.claims.clean import changes, clean_claim, found, other_findings

from levelbench.claims.rules.lb209_no_bound_shown import rule

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


def test_no_other_rule_fires_on_its_fault():
    assert other_findings(rule, changes(clean_claim(), NO_LINE)) == []
