"""LB206: a p-value without a size, or of a size that does not matter."""

from pathlib import Path

from tests.claims.clean import changes, clean_claim, found, other_findings
from tests.claims.run_store import specification, write_runs

from levelbench.claims.rules.lb206_significance_without_effect import rule

C = "comparisons[0]"
NO_SIZE = {f"{C}.ratio": None, f"{C}.interval": None, f"{C}.effect": None}
NO_TIMES = {f"{C}.base_time_s": None, "sides[0].time_s": None, "sides[1].time_s": None}
P = {f"{C}.p_value": 0.001}

GUILTY = {
    "a p-value alone": ({**P, **NO_SIZE, **NO_TIMES}, ("warning", f"{C}.effect")),
    "of qualities that are not given": (
        {**P, **NO_SIZE, f"{C}.of": "quality", "sides[1].quality.value": None},
        ("warning", f"{C}.effect"),
    ),
    "significant, and within 2 %": (
        {**P, f"{C}.ratio": 1.01, f"{C}.interval": (1.005, 1.015)},
        ("warning", f"{C}.interval"),
    ),
    "significant, and a tenth of a standard deviation": (
        {**P, f"{C}.effect": -0.1, f"{C}.interval": None},
        ("warning", f"{C}.effect"),
    ),
}
INNOCENT = {
    "no p-value, no size": {f"{C}.p_value": None, **NO_SIZE, **NO_TIMES},
    "a p-value with both times": {**P, **NO_SIZE},
    "a p-value with a ratio": {**P, f"{C}.interval": None, f"{C}.effect": None},
    "an interval that reaches beyond 2 %": {**P, f"{C}.interval": (1.005, 1.03)},
    "within 2 %, and called the same": {f"{C}.p_value": 0.4, f"{C}.interval": (0.99, 1.01)},
    "no difference found, and a small effect": {f"{C}.p_value": 0.4, f"{C}.effect": 0.1},
}


PLANTED = "a p value, and an effect that is negligible", {"comparisons[0].effect": 0.05}


def planted_in(store: Path) -> str:
    write_runs(store, noise=0.0001)
    write_runs(store, start=20, spec=specification(framework="torch"), epoch_s=2.01, noise=0.0001)
    return "digits"


IN_RECORDS = "half a per cent between two groups that hardly vary", planted_in


def test_the_test_behind_a_p_value_is_asked_for():
    assert found(rule, changes(clean_claim(), {f"{C}.test": None})) == [("not-stated", f"{C}.test")]


def test_no_other_rule_fires_on_its_fault():
    planted = changes(clean_claim(), {**P, f"{C}.effect": 0.1})
    assert other_findings(rule, planted) == []
