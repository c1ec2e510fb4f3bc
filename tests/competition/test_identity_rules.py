"""Rules about an entry's identity: a fault that only one of them finds, and a value just inside the rule."""

from __future__ import annotations

import pytest
from tests.competition.planting import GONE, codes, faster


def lasting(days):
    """A run that began the day before the entry is dated and took so many days."""

    def change(run):
        return faster(86_400 * days / run["curve"]["time_s"][-1])(run)

    return change


# code, kind, the planted fault, a similar but valid value
CASES = {
    "ruleset": ("B110", "training", {"ruleset": "levelbench-9.9"}, {"notes": "levelbench-9.9"}),
    "task": ("B111", "training", {"task": "digit"}, {"model": "digit"}),
    "threshold": ("B112", "training", {"target.threshold": 0.959}, {"target.threshold": 0.96}),
    "split": ("B112", "training", {"target.split": "test"}, {"runs[0].test_quality": {"test": 0.95}}),
    "no runs": ("B113", "training", {"runs": []}, {"inference": []}),
    "division": ("B123", "dawnbench", {"division": "closed"}, {"division": "open"}),
    "clock": ("B124", "training", {"clock": "dawnbench"}, {"clock": "wall"}),
    "no clock": ("B124", "training", {"clock": GONE}, {"clock": "wall"}),
    "crossing": ("B125", "training", {"crossing": "first"}, {"crossing": GONE}),
    "date": ("B117", "training", {"submitted": "2026-11-31"}, {"submitted": "2026-11-30"}),
    "unpadded date": ("B117", "training", {"submitted": "2026-11-3"}, {"submitted": "2026-11-30"}),
    "start": ("B117", "training", {"runs[0].started": "yesterday"}, {"runs[0].started": "2026-11-29T04:00+01:00"}),
    "day of a start": ("B117", "training", {"runs[0].started": "2026-11-29"}, {"runs[0].started": "2026-11-29T03:00Z"}),
    "no start": ("B128", "training", {"runs[0].started": GONE}, {"runs[0].started": "2026-11-29T03:00Z"}),
    "at once": (
        "B129",
        "training",
        {f"runs[{at}].started": "2026-11-29T03:00:00.05Z" for at in range(2)},
        {f"runs[{at}].started": f"2026-11-29T0{3 + at}:00:00Z" for at in range(5)},
    ),
    "future": ("B118", "training", {"submitted": "2026-12-03"}, {"submitted": "2026-12-02"}),
    "older than a run": (
        "B119",
        "training",
        {"runs[2].started": "2026-12-02T00:00:00Z"},
        {"runs[2].started": "2026-12-01T00:00:00Z"},
    ),
    "longer than there was time": (
        "B119",
        "training",
        {"runs[4]": lasting(3.1), "runs[4].energy_j": 1e6},
        {"runs[4]": lasting(2.9), "runs[4].energy_j": 1e6},
    ),
    "older than all": (
        "B120",
        "training",
        {"submitted": "0001-01-01", "price.read_on": "0001-01-01"},
        {},
    ),
    "older than rules": (
        "B120",
        "training",
        {"submitted": "2026-11-20", **{f"runs[{at}].started": f"2026-11-20T0{at}:00Z" for at in range(5)}},
        {"submitted": "2026-11-21", **{f"runs[{at}].started": f"2026-11-20T0{at}:00Z" for at in range(5)}},
    ),
    "blank": ("B121", "training", {"author.name": "  "}, {"author.name": "A"}),
    "blank model": ("B121", "training", {"model": "\u00a0"}, {"model": "m"}),
    "no address": ("B122", "training", {"author": {"name": "Ada"}}, {"author": {"name": "Ada", "email": "a@b"}}),
    "only these": (
        "B126",
        "training",
        {"notes": "Only some runs were submitted: no time"},
        {"notes": "All runs were submitted, not only some"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_found_by_its_rule_alone(clean, name):
    code, kind, guilty, _ = CASES[name]
    assert codes(clean, kind, guilty) == {code}


@pytest.mark.parametrize("name", CASES)
def test_a_value_just_inside_the_rules_has_no_finding(clean, name):
    _, kind, _, innocent = CASES[name]
    assert codes(clean, kind, innocent) == set()
