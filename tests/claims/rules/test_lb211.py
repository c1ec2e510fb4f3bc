"""LB211: nothing found is no proof of nothing, and no support of something."""

import pytest
from tests.claims.clean import changes, clean_claim, found, other_findings

from levelbench.claims.rules.lb211_absence_of_evidence import rule

C = "comparisons[0]"
NOTHING = {f"{C}.p_value": 0.4, f"{C}.interval": None, f"{C}.effect": None}
ONE = {"sides[0].runs_made": 1, "sides[1].runs_made": 1}

GUILTY = {
    "negligible, since nothing was found": (
        {**NOTHING, f"{C}.ratio": None, "title": "The monitor has negligible overhead."},
        ("warning", f"{C}.p_value"),
    ),
    "a ratio that its own test does not find": ({**NOTHING, f"{C}.ratio": 1.015}, ("warning", f"{C}.p_value")),
    "a p-value of one run each": ({f"{C}.p_value": 0.01, **ONE}, ("error", f"{C}.p_value")),
    "a p-value of two single runs": (
        {f"{C}.p_value": 0.4, "sides[0].runs_made": None, "sides[1].runs_made": None}
        | {"sides[0].reported": "single", "sides[1].reported": "single"},
        ("error", f"{C}.p_value"),
    ),
}
UNBOUNDED = {f"{C}.p_value": None, f"{C}.interval": None} | {
    f"sides[{at}].{name}": None for at in (0, 1) for name in ("interval", "quality.low", "quality.high")
}
GUILTY["no loss, without a bound"] = (
    {**UNBOUNDED, "title": "1.8 times the throughput at no loss of accuracy"},
    ("warning", "title"),
)
GUILTY["no loss, with an interval of one side only"] = (
    {**UNBOUNDED, "sides[0].quality.low": 0.75, "title": "Without loss."},
    ("warning", "title"),
)
GUILTY["no slowdown, with room for one"] = (
    {f"{C}.interval": (0.85, 1.2), f"{C}.of": "step", "title": "No measurable slowdown"},
    ("warning", f"{C}.interval"),
)
GUILTY["faster, with an interval that has 1 inside"] = (
    {f"{C}.interval": (0.93, 1.21), f"{C}.ratio": 1.06, f"{C}.p_value": None, "title": "Our scheduler is 6 % faster"},
    ("warning", f"{C}.interval"),
)
QUALITIES = {**UNBOUNDED, f"{C}.of": "quality", "title": "No quality loss"}
GUILTY["no loss, with intervals that have room for a large one"] = (
    {**QUALITIES}
    | {"sides[0].quality.low": 0.86, "sides[0].quality.high": 0.96}
    | {"sides[1].quality.low": 0.87, "sides[1].quality.high": 0.97},
    ("warning", "sides[0].quality.low"),
)
INNOCENT = {
    "no loss, with narrow intervals of both qualities": {
        **QUALITIES,
        **{"sides[0].quality.low": 0.941, "sides[0].quality.high": 0.945},
        **{"sides[1].quality.low": 0.94, "sides[1].quality.high": 0.944},
    },
    "an interval with 1 inside, of which the claim says so": {
        f"{C}.interval": (0.93, 1.21),
        f"{C}.ratio": 1.06,
        f"{C}.p_value": None,
        "title": "1.06 times as fast [0.93, 1.21]: six runs do not tell",
    },
    "equal qualities, with intervals of both": {
        **NOTHING,
        f"{C}.of": "quality",
        f"{C}.ratio": None,
        "title": "The accuracy does not change",
    },
    "no slowdown, within a narrow interval": {f"{C}.interval": (0.99, 1.02), f"{C}.of": "step", "title": "No slowdown"},
    "no loss of accuracy, beside a wide interval of the speed": {
        f"{C}.interval": (0.85, 2.9),
        f"{C}.of": "step",
        "title": "Without loss of accuracy",
    },
    "only that nothing was found": {**NOTHING, f"{C}.ratio": None, "title": "We found no difference."},
    "free software": {**UNBOUNDED, "title": "Our code is free software"},
    "no loss, with intervals of both qualities": {
        **UNBOUNDED,
        "sides[0].quality.low": 0.75,
        "sides[1].quality.low": 0.75,
        "title": "Without loss.",
    },
    "a condition of another claim": {**UNBOUNDED, "title": "1.8 times faster at the same accuracy"},
    "a difference that is found": {f"{C}.p_value": 0.01, f"{C}.interval": None},
    "called the same with an interval": {f"{C}.p_value": 0.4, f"{C}.interval": (0.99, 1.01), "title": "The same."},
    "nothing found, and nothing claimed": {**NOTHING, f"{C}.ratio": None},
    "no p-value": {f"{C}.p_value": None, f"{C}.interval": None, "title": "On par."},
    "one run of the base": {f"{C}.p_value": 0.01, "sides[1].runs_made": 1},
}

PLANTED = "a ratio whose test finds nothing", {f"{C}.p_value": 0.4, f"{C}.interval": None}
IN_RECORDS = "comparisons of records state the interval of each ratio"


@pytest.mark.parametrize(
    "title",
    [
        "No significant difference.",
        "At no measurable overhead",
        "without loss of accuracy",
        "On par with Adam",
        "The same accuracy, at half the memory",
        "Pruning is practically lossless",
        "The logger comes for free",
        "Zero-cost logging",
        "Accuracy is preserved.",
        "No discernible difference",
    ],
)
def test_words_of_equality_are_understood(title):
    assert found(rule, changes(clean_claim(), {**NOTHING, "title": title})) == [("warning", f"{C}.p_value")]


def test_the_finding_says_what_the_test_could_not_show():
    (finding,) = rule.check(changes(clean_claim(), {**NOTHING, f"{C}.ratio": 1.015}))
    assert "1.015 times is claimed of 'new' and 'base', and its own test finds no difference (p = 0.4)" in finding.found


def test_no_other_rule_fires_on_its_fault():
    assert other_findings(rule, changes(clean_claim(), PLANTED[1])) == []


@pytest.mark.parametrize(
    "title",
    [
        "The overhead is within noise",
        "Checkpointing without slowing the training",
        "Virtually free tracing",
        "Accuracy-neutral compression",
        "No measurable difference to float32",
        "Lossless 4-bit quantisation",
    ],
)
def test_no_difference_in_other_words_needs_a_bound(title):
    assert found(rule, changes(clean_claim(), {**UNBOUNDED, "title": title})) == [("warning", "title")]


@pytest.mark.parametrize(
    "title",
    [
        "Telemetry has no noticeable effect on training speed",
        "Speed on a par with the baseline",
        "As fast as hand-written CUDA",
        "Matches the speed of C",
        "Zero overhead",
        "Comparable performance to NCCL",
        "The overhead of the profiler is minimal",
        "Step time is unchanged",
    ],
)
def test_no_difference_in_speed_needs_a_narrow_interval(title):
    wide = {f"{C}.interval": (0.86, 1.12), f"{C}.ratio": 0.98, f"{C}.of": "step", f"{C}.p_value": None}
    assert found(rule, changes(clean_claim(), {**wide, "title": title})) == [("warning", f"{C}.interval")]
    narrow = {**wide, f"{C}.interval": (0.97, 1.0)}
    assert found(rule, changes(clean_claim(), {**narrow, "title": title})) == []


@pytest.mark.parametrize("title", ["Overhead is not negligible", "Not as fast as C", "A non-negligible overhead"])
def test_words_that_deny_equality_are_no_claim_of_it(title):
    wide = {f"{C}.interval": (0.86, 1.12), f"{C}.ratio": 0.98, f"{C}.of": "step", f"{C}.p_value": None}
    assert found(rule, changes(clean_claim(), {**wide, "title": title})) == []


@pytest.mark.parametrize("title", ["Matches the accuracy of float32", "Comparable accuracy", "As accurate as float32"])
def test_an_equal_quality_is_what_is_claimed_where_only_qualities_are_compared(title):
    claim = changes(clean_claim(), {**UNBOUNDED, "title": title})
    assert found(rule, claim) == []
    assert found(rule, changes(claim, {f"{C}.of": "quality"})) == [("warning", "title")]
