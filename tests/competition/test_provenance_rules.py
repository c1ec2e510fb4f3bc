"""Rules about price, code, data and texts: a fault that only one finds, and a value just inside the rule."""

from __future__ import annotations

import pytest
from tests.competition.planting import DIGEST, GONE, codes

# code, kind, the planted fault, a similar but valid value
CASES = {
    "no price": ("B160", "training", {"price": GONE}, {"price.usd_per_hour": 0.001}),
    "no source": ("B161", "training", {"price.source": GONE}, {"price.source": "http://example.org"}),
    "source": ("B161", "training", {"price.source": "a friend"}, {"price.source": "https://example.org/?a=b"}),
    "no price day": ("B162", "training", {"price.read_on": GONE}, {"price.read_on": "2026-01-01"}),
    "price long ago": ("B165", "training", {"price.read_on": "2025-11-01"}, {"price.read_on": "2025-12-01"}),
    "price below any": ("B166", "training", {"price.usd_per_hour": 0.0009}, {"price.usd_per_hour": 0.001}),
    "price of nothing": ("B164", "training", {"price.usd_per_hour": 1e-300}, {"price.usd_per_hour": 0.001}),
    "price of a world": ("B164", "training", {"price.usd_per_hour": 1e300}, {"price.usd_per_hour": 1e7}),
    "price day": ("B162", "training", {"price.read_on": "1 May"}, {"price.read_on": "2026-12-01"}),
    "price of the future": ("B162", "training", {"price.read_on": "2027-01-01"}, {"price.read_on": "2026-12-02"}),
    "spot": ("B163", "training", {"price.on_demand": False}, {"price.on_demand": True}),
    "on demand?": ("B163", "training", {"price.on_demand": GONE}, {"price.on_demand": True}),
    "no code": ("B170", "training", {"code.url": GONE}, {"code.dirty": GONE}),
    "branch": (
        "B171",
        "training",
        {"code": {"url": "https://example.org/ada/digits"}},
        {"code": {"url": "https://example.org/ada/digits", "commit": "0a1b2c3d4e"}},
    ),
    "script link": ("B172", "training", {"code.url": "ftp://example.org/0a1b2c3d"}, {"code.url": "http://b.org/x"}),
    "dirty": ("B173", "training", {"code.dirty": True}, {"code.dirty": False}),
    "commit": ("B174", "training", {"code.commit": "main"}, {"code.commit": "deadbee"}),
    "no checksums": ("B175", "training", {"provenance.checksums": GONE}, {"provenance.dataset": GONE}),
    "checksum": (
        "B176",
        "training",
        {"provenance.checksums": {"x": "00"}},
        {"provenance.checksums": {"x": "00" * 32}},
    ),
    "synthetic": ("B177", "training", {"provenance.synthetic": True}, {"provenance.synthetic": GONE}),
    "no record": ("B178", "training", {"runs[0].record_digest": GONE}, {"runs[0].record_id": GONE}),
    "record digest": ("B176", "training", {"runs[0].record_digest": "0"}, {"runs[0].record_digest": DIGEST}),
    "software": ("B180", "training", {"provenance.software": GONE}, {"provenance.software": {"a": "1"}}),
    "no tuning": ("B181", "training", {"tuning": {}}, {"tuning": {"trials": 0}}),
    "tuning": ("B182", "training", {"tuning.hours": -1.0}, {"tuning.hours": 0.0}),
    "bidi": ("B220", "training", {"model": "mlp\u202egnp"}, {"model": "mlp\u00e9\u6f22"}),
    "escape": ("B220", "training", {"author.organisation": "a\x1b[2J"}, {"author.organisation": "a [2J"}),
    "line in a name": ("B220", "training", {"model": "a\nb"}, {"notes": "a\nb"}),
    "text of a run": ("B220", "training", {"runs[1].error": "a\x00b"}, {"runs[1].error": "a\nb"}),
    "name of a setting": ("B220", "training", {"settings": {"l\u200br": 1}}, {"settings": {"l-r": 1}}),
    "name of nothing": ("B220", "training", {"author.name": "Ada\u2800"}, {"author.name": "Ad\u00e0"}),
    "joiner": ("B220", "training", {"author.name": "A\u034fda"}, {"notes": "a \u2764\ufe0f"}),
    "forged": ("B222", "training", {"author.name": "\u0410da Lovelace"}, {"author.name": "\u0410\u0434\u0430 L"}),
    "origin": (
        "B127",
        "training",
        {"origin": {"format": "dawnbench", "file": "a.json"}},
        {"notes": "dawnbench"},
    ),
    "markup": ("B221", "training", {"notes": "<script>alert(1)</script>"}, {"notes": "loss < 1 and > 0"}),
    "frame": (
        "B221",
        "training",
        {"runs[0].error": "TypeError in a.py, in <modul>"},
        {"runs[0].error": "TypeError in a.py, line 3, in <module>"},
    ),
    "handler": ("B221", "training", {"model": 'x" onerror="alert(1)'}, {"model": 'one = "two"'}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_found_by_its_rule_alone(clean, name):
    code, kind, guilty, _ = CASES[name]
    assert codes(clean, kind, guilty) == {code}


@pytest.mark.parametrize("name", CASES)
def test_a_value_just_inside_the_rules_has_no_finding(clean, name):
    _, kind, _, innocent = CASES[name]
    assert codes(clean, kind, innocent) == set()


STATED = {
    "price": GONE,
    "ruleset": "dawnbench-1.0",
    "task": "cifar10",
    "target.threshold": 0.94,
    "target.split": "test",
    "inference[0].scenario": "dawnbench",
    "inference[0].queries": 10000,
    "inference[0].samples": 10000,
    "inference[0].duration_s": 102.0,
    "inference[0].quality_samples": 10000,
}


@pytest.mark.parametrize(("cost", "found"), [(2.7e-7, set()), (GONE, {"B160"}), (1e-300, {"B160", "B206"})])
def test_an_entry_that_is_ranked_by_the_cost_it_states_gets_no_note_about_its_price(clean, cost, found):
    assert codes(clean, "inference", STATED | {"inference[0].cost_usd": cost}) == found
