"""LB303: speed-ups of single optimisations, multiplied."""

import pytest
from tests.claims.clean import changes, clean_claim, found, other_findings

from levelbench.claims.rules.lb303_composition_as_product import rule

CLAIMED, KEPT = "compositions[0].claimed", "compositions[0].quality_kept"
DAWNBENCH = {"stochastic depth": 1.25, "4 GPUs": 4.0}


def composed(parts=DAWNBENCH, **more):
    return changes(clean_claim(), {"compositions[0]": {"parts": parts, **more}})


GUILTY = {
    "DAWNBench's stochastic depth on four GPUs": (
        {"claimed": 5.0, "measured": 1.62, "quality_kept": True},
        ("error", CLAIMED),
    ),
    "the product is claimed and nothing was measured": ({"claimed": 5.0}, ("error", CLAIMED)),
    "the product is claimed, rounded": (
        {"claimed": 9.0, "parts": {"8-bit": 3.0, "sparse": 3.1}},
        ("error", CLAIMED),
    ),
    "less than the product is claimed and still less was measured": (
        {"claimed": 4.0, "measured": 1.62, "quality_kept": True},
        ("error", CLAIMED),
    ),
    "the quality is lost": ({"claimed": 3.1, "measured": 3.1, "quality_kept": False}, ("error", KEPT)),
}
INNOCENT = {
    "what was measured is claimed": {"claimed": 1.62, "measured": 1.62, "quality_kept": True},
    "the product is claimed and was measured": {"claimed": 5.0, "measured": 4.9, "quality_kept": True},
    "less is claimed than was measured": {"claimed": 1.5, "measured": 1.62, "quality_kept": True},
    "more than the product was measured": {"claimed": 5.2, "measured": 5.3, "quality_kept": True},
    "one part alone": {"parts": {"4 GPUs": 4.0}, "claimed": 4.0},
    "nothing is claimed of them together": {},
}


def claim(planted):
    return composed(**planted)


PLANTED = (
    "the product of two speed-ups is claimed, and together they give less",
    {"compositions[0].claimed": 1.38, "compositions[0].measured": 1.16},
)
IN_RECORDS = "single speed-ups are not multiplied"


@pytest.mark.parametrize(
    ("composition", "field"),
    [({"claimed": 2.0}, "compositions[0].measured"), ({"claimed": 1.6, "measured": 1.62}, KEPT)],
    ids=["what they give together", "whether the quality is kept"],
)
def test_what_would_decide_is_asked_for(composition, field):
    assert found(rule, composed(**composition)) == [("not-stated", field)]


def test_the_finding_holds_what_was_claimed_measured_and_multiplied():
    (finding,) = rule.check(composed(claimed=5.0, measured=1.62, quality_kept=True))
    assert "1.25 (stochastic depth) x 4 (4 GPUs) are claimed as 5 times" in finding.found
    assert "together give 1.62 times: 32.4 % of the product 5" in finding.found


def test_the_fault_alone_is_found_by_no_other_rule():
    assert other_findings(rule, composed(claimed=5.0, measured=1.62, quality_kept=True)) == []
