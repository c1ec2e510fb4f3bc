"""LB201: a speed-up without the absolute figure behind it."""

from tests.claims.clean import changes, clean_claim, found, other_findings

from levelbench.claims.rules.lb201_speed_up_without_base import rule

C = "comparisons[0]"
NO_TIMES = {f"{C}.base_time_s": None, "sides[1].time_s": None, "scaling": []}
ONE_RANK_BASE = {"sides[1].workload.ranks": 1, f"{C}.base_kind": None}
ALONE = {"comparisons": [], "scaling": [], "sides[0].time_s": None, "sides[1].time_s": None}

GUILTY = {
    "neither the comparison nor its base has a time": (NO_TIMES, ("warning", f"{C}.base_time_s")),
    "the base is no side of the claim": (
        {f"{C}.base": "the literature", f"{C}.base_time_s": None},
        ("warning", f"{C}.base_time_s"),
    ),
    "only the time of something else is given": (
        {f"{C}.base_time_s": None, f"{C}.of": "kernel", "scaling": []},
        ("warning", f"{C}.base_time_s"),
    ),
    "only a rate is given, of a comparison of times": (
        {**NO_TIMES, "sides[1].throughput": 390.0},
        ("warning", f"{C}.base_time_s"),
    ),
    "a ratio of costs without the cost": (
        {f"{C}.of": "cost", f"{C}.base_time_s": None, "sides[1].cost_usd": None},
        ("warning", f"{C}.base_time_s"),
    ),
    "a figure of speed-ups without any time": (ALONE, ("warning", "figures[2].y")),
}
INNOCENT = {
    "the base's own time stands in its side": {f"{C}.base_time_s": None},
    "the comparison has it": {"sides[1].time_s": None},
    "a point of the base's scaling has it": {**NO_TIMES, "scaling": [{"side": "base", "ranks": 1, "time_s": 13.5}]},
    "a whole run is compared": {f"{C}.base_time_s": None, f"{C}.of": "run", "sides[1].time_of": "run"},
    "the base's rate is given, and the rate is compared": {
        **NO_TIMES,
        "sides[1].throughput": 390.0,
        f"{C}.of": "throughput",
    },
    "no ratio is claimed": {**NO_TIMES, f"{C}.ratio": None},
    "a ratio of qualities is no speed-up": {**NO_TIMES, f"{C}.of": "quality"},
    "the base has one rank and is said to be serial": {**ONE_RANK_BASE, f"{C}.base_kind": "serial"},
    "a figure of speed-ups whose points have rates": {
        **ALONE,
        "scaling": [{"side": "new", "ranks": 2, "throughput": 900.0}],
    },
}


PLANTED = "the ratio has no absolute base", {"comparisons[0].base_time_s": None, "sides[1].time_s": None}
IN_RECORDS = "ratios come with their base"


def test_what_a_base_of_fewer_ranks_is_must_be_said():
    assert found(rule, changes(clean_claim(), ONE_RANK_BASE)) == [("not-stated", f"{C}.base_kind")]


def test_no_other_rule_fires_on_its_fault():
    planted = changes(clean_claim(), {f"{C}.base": "the literature", f"{C}.base_time_s": None})
    assert [each for each in other_findings(rule, planted) if each.severity != "not-stated"] == []


def test_several_ratios_to_one_base_are_one_finding():
    three = {f"comparisons[{at}]": {"new": "new", "base": "eager", "ratio": 1.5 + at} for at in range(3)}
    (finding,) = rule.check(changes(clean_claim(), three))
    assert finding.field == "comparisons[0].base_time_s"
    assert "said to be 1.5 (and 2 more to it), but no absolute figure" in finding.found
