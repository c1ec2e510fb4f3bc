"""Whatever figures an author writes, a rule answers with findings and never falls over."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.claims.clean import changes, clean_claim

from levelbench.claims.rules import all_rules

CODES = ("LB107", "LB108", "LB109", "LB110", "LB111", "LB112", "LB130", "LB132", "LB301", "LB302", "LB303")
RULES = [rule for rule in all_rules() if rule.code in CODES]
SIDE = ("sides[0].", "sides[1].")
FIGURES = (
    *(f"{side}{name}" for side in SIDE for name in ("time_s", "cost_usd", "operations.flops", "operations.to_target")),
    *(f"{side}operations.precisions.{name}" for side in SIDE for name in ("bfloat16", "half")),
    *(f"{side}hardware.peak_flops.bfloat16" for side in SIDE),
    *(f"{side}workload.{name}" for side in SIDE for name in ("flops_per_sample", "samples_to_target")),
    *(f"{side}quality.{name}" for side in SIDE for name in ("value", "low", "high", "target")),
    *(f"scaling[{at}].{name}" for at in range(3) for name in ("time_s", "throughput")),
    *(f"standards[0].{name}" for name in ("time_s", "quality", "cost_usd", "flops_per_sample")),
    *(f"compositions[0].{name}" for name in ("claimed", "measured")),
    "sides[0].clock.fixed_time_s",
    "sides[0].runs[0].time_s",
    "sides[0].runs[0].curve.quality[8]",
    "comparisons[0].ratio",
)
WORDS = {
    "comparisons[0].of": [None, "operations", "throughput", "quality", "cost"],
    "sides[0].time_of": ["run", "step", "target"],
    "sides[0].clock.crossing": [None, "first", "final", "sustained"],
    "scaling_mode": [None, "weak"],
    "sides[0].quality.metric": ["BLEU", "loss"],
}
OPTIONAL = [path for path in FIGURES if not any(part in path for part in ("precisions", "peak_flops", "curve"))]


@st.composite
def odd(draw):
    value = st.sampled_from([0.0, 1e-300, 1e-9, 1.0, 1e15, 1e300])
    planted = draw(st.dictionaries(st.sampled_from(FIGURES), value, min_size=1, max_size=8))
    planted |= dict.fromkeys(draw(st.lists(st.sampled_from(OPTIONAL), max_size=3)))
    return planted | {path: draw(st.sampled_from(words)) for path, words in WORDS.items() if draw(st.booleans())}


@given(odd())
@settings(max_examples=30, deadline=None)
def test_odd_figures_are_answered_with_findings(planted):
    claim = changes(clean_claim(), planted)
    for rule in RULES:
        for finding in rule.check(claim):
            assert finding.code == rule.code
            assert finding.severity in ("error", "warning", "not-stated")
            assert "nan" not in finding.found.split()
            assert finding.field
