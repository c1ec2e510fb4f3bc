"""What a board's rules ask of inference, in words: for its column's title, the note under the ranking and the rules.

The one idea: a latency is one scenario's own figure (a 90th percentile, a mean), so whoever shows it says which.
"""

from __future__ import annotations

import msgspec

from levelbench.records.rulesets.schema import InferenceRules
from levelbench.records.schema import Target
from levelbench.records.submissions.latencies import QUANTILES
from levelbench.report.numbers import number
from levelbench.report.site.parts import target_text
from levelbench.report.site.payload import BoardPayload

__all__ = ["compared", "inference_facts", "inference_note"]


def compared(rules: InferenceRules | None) -> str:
    """Which scenario's figure the column of latency has, in short; empty without one.

    >>> compared(InferenceRules(["single-stream", "server"]))
    'single-stream, 90th percentile'
    """
    if rules is None or not rules.scenarios:
        return ""
    first = rules.scenarios[0]
    return f"{first}, {_percentile(first)}" if first in QUANTILES else f"{first}, mean"


def _percentile(scenario: str) -> str:
    return f"{QUANTILES[scenario] * 100:g}th percentile"


def inference_note(payload: BoardPayload) -> str:
    """How the two columns of inference are made; empty where the rules have no inference."""
    rules = payload.inference
    if rules is None or not rules.scenarios:
        return ""
    first = rules.scenarios[0]
    if first in QUANTILES:
        figure = f"the {_percentile(first)} of {first}, as LoadGen's early stopping estimates it"
    else:
        figure = f"the mean of {first}"
    kept = "" if rules.threshold is None else f", whose answers keep {_kept(rules.threshold, payload.target)}"
    return (
        f"Latency is {figure}{kept}. Of several processes it is the median; one process has no interval. A million "
        "answers cost the price of the time that they take, or what the author states where there is no price. "
        "Entries measured in another scenario are listed without a rank."
    )


def inference_facts(rules: InferenceRules | None, target: Target) -> list[tuple[str, str]]:
    """Each rule with its name."""
    if rules is None:
        return []
    found = [("Scenarios of inference", ", ".join(rules.scenarios)), ("Latency compares", compared(rules))]
    if rules.threshold is not None:
        found.append(("Answers of inference keep", _kept(rules.threshold, target)))
    found.append(("Least queries of inference", _queries(rules)))
    if rules.least_duration_s:
        found.append(("Least time of inference", f"{number(rules.least_duration_s)} s"))
    if rules.latency_bound_s is not None:
        found.append(("Latency bound of server", f"{number(rules.latency_bound_s)} s"))
    return found


def _kept(threshold: float, target: Target) -> str:
    return target_text(msgspec.structs.replace(target, threshold=threshold)).partition(" on the ")[0]


def _queries(rules: InferenceRules) -> str:
    """The count of most scenarios, then those that have one of their own; empty where there is no such rule."""
    own = [f"{scenario}: {rules.least(scenario):,}" for scenario in rules.scenarios if scenario in rules.queries]
    others = len(own) < len(rules.scenarios) and rules.least_queries
    plain = [f"{rules.least_queries:,}" + (" of every other scenario" if own else "")] if others else []
    return "; ".join(own + plain)
