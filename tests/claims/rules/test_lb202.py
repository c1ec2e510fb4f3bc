"""LB202: rates over equal work, averaged arithmetically."""

from tests.claims.clean import changes, clean_claim, found, other_findings

from levelbench.claims.rules.lb202_rates_averaged_arithmetically import rule
from levelbench.measure.statistics import arithmetic_mean, harmonic_mean

R = "summaries[1]"
SAMPLES = 500_000.0
APART = (25.0, 30.0, 35.0, 40.0, 60.0)
RATES = [SAMPLES / time_s for time_s in APART]
WIDE = {f"sides[0].runs[{at}].time_s": time_s for at, time_s in enumerate(APART)}

GUILTY = {
    "the runs say that it is the plain mean, 7 % more": (
        {**WIDE, f"{R}.by": "arithmetic", f"{R}.value": arithmetic_mean(RATES)},
        ("error", f"{R}.by"),
    ),
    "it is called harmonic and is the plain mean": (
        {**WIDE, f"{R}.value": arithmetic_mean(RATES)},
        ("error", f"{R}.by"),
    ),
    "nobody says how, and it is the plain mean": (
        {**WIDE, f"{R}.by": None, f"{R}.value": arithmetic_mean(RATES)},
        ("error", f"{R}.by"),
    ),
    "it is stated, and the runs are unknown": ({f"{R}.by": "arithmetic", f"{R}.value": 9999.0}, ("warning", f"{R}.by")),
    "it is stated, and neither n nor value is": (
        {f"{R}.by": "arithmetic", f"{R}.n": None, f"{R}.value": None},
        ("warning", f"{R}.by"),
    ),
}
INNOCENT = {
    "the harmonic mean of runs far apart": {**WIDE, f"{R}.value": harmonic_mean(RATES)},
    "an arithmetic mean of times": {f"{R}.of": "times", f"{R}.by": "arithmetic"},
    "one rate": {f"{R}.by": "arithmetic", f"{R}.n": 1},
    "the median of rates": {f"{R}.by": "median"},
    "rates over equal times, where the plain mean is right": {
        f"{R}.by": "arithmetic",
        "sides[0].clock.fixed_time_s": 60.0,
        "sides[1].clock.fixed_time_s": 60.0,
    },
}


PLANTED = "the mean rate is an arithmetic one", {"summaries[1].by": "arithmetic"}
IN_RECORDS = "no rates are summarised"


def test_the_finding_says_by_how_much():
    planted = changes(clean_claim(), {**WIDE, f"{R}.by": "arithmetic", f"{R}.value": arithmetic_mean(RATES)})
    (finding,) = rule.check(planted)
    assert "harmonic mean is 13158" in finding.found.replace(",", "")
    assert finding.found.endswith("so it is 9.11 % too high")


def test_an_unnamed_mean_is_asked_for():
    assert found(rule, changes(clean_claim(), {f"{R}.by": None})) == [("not-stated", f"{R}.by")]


def test_no_other_rule_fires_on_its_fault():
    assert other_findings(rule, changes(clean_claim(), {f"{R}.by": "arithmetic"})) == []
