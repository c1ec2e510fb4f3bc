"""LB203: a mean of ratios."""

from hypothesis import given
from hypothesis import strategies as st
from tests.claims.clean import changed, changes, clean_claim, found, other_findings

from levelbench.claims.rules.lb203_ratios_averaged import rule
from levelbench.claims.view import Summarised

S = "summaries[2]"


def suite(ratios=(2.0, 0.5), **summary):
    """The clean claim with ratios of several tasks and one summary of them."""
    claim = clean_claim()
    for at, ratio in enumerate(ratios):
        claim = changed(claim, f"comparisons[{at}]", {"new": "new", "base": "base", "of": "cost", "ratio": ratio})
    stated = {"n": len(ratios), "deterministic": True, "raw_available": True, **summary}
    return changed(claim, S, {"what": "speed-up over all tasks", "of": "ratios", **stated})


GUILTY = {
    "the plain mean, as the comparisons show": {"by": "arithmetic", "value": 1.25},
    "the plain mean of ratios that are not shown": {"by": "arithmetic", "value": 3.0, "n": 9},
    "the harmonic mean": {"by": "harmonic", "value": 0.8},
    "nobody says how, and it is the plain mean of the comparisons": {"by": None, "value": 1.25},
    "the plain mean without the best and the worst": {"by": "olympic", "value": 1.1, "n": 7},
}
INNOCENT = {
    "the geometric mean": {"by": "geometric", "value": 1.0},
    "the median": {"by": "median", "value": 1.25},
    "one ratio": {"by": "arithmetic", "value": 2.0, "n": 1},
    "a mean of costs": {"of": "costs", "by": "arithmetic", "value": 1.25},
}


RATIOS = Summarised("speed-up over all tasks", "ratios", "arithmetic", n=3, value=1.31, deterministic=True)

FINDING = "error", f"{S}.by"


def claim(planted):
    return suite(**planted)


PLANTED = "ratios are averaged", {"summaries[2]": RATIOS}
IN_RECORDS = "no ratios are summarised"


def test_the_finding_says_what_the_other_direction_would_say():
    (finding,) = rule.check(suite(by="arithmetic", value=1.25))
    assert "geometric: 1)" in finding.found
    assert "inverses it would be 0.8" in finding.found


def test_an_unnamed_mean_is_asked_for():
    assert found(rule, suite(by=None, value=1.0)) == [("not-stated", f"{S}.by")]


@given(st.floats(0.5, 2.0))
def test_a_mean_of_equal_ratios_is_every_mean_at_once(ratio):
    assert found(rule, suite((ratio, ratio), by=None, value=ratio)) == [("not-stated", f"{S}.by")]


def test_no_other_rule_fires_on_its_fault():
    planted = changes(clean_claim(), {"summaries[0].of": "ratios", "summaries[0].interval_by": "bootstrap"})
    assert other_findings(rule, planted) == []
