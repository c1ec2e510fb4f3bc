"""What a board's rules ask of inference, in words: for the note under the ranking and for the rules.

The one idea: a figure of inference is one scenario's own (a 90th percentile, a mean, a rate), so whoever shows it says
which.
"""

from __future__ import annotations

import msgspec

from levelbench.records.rulesets.schema import InferenceRules
from levelbench.records.schema import Target
from levelbench.records.submissions.scenarios import RankedScenario, own_scenario
from levelbench.report.site.brief import brief
from levelbench.report.site.parts import target_text
from levelbench.report.site.payload import BoardPayload

__all__ = ["inference_facts", "inference_note", "kept_text"]


def inference_note(payload: BoardPayload) -> str:
    """How the two columns of inference are made; empty where the rules have no inference."""
    rules = payload.inference
    scenario = payload.scenario or own_scenario(rules)
    if scenario is None:
        return ""
    kept = kept_text(rules, payload.target)
    whose = f", whose answers keep {kept}" if kept else ""
    return (
        f"{_figure(scenario)}{whose}. Of several processes it is the median; one process has no interval. A million "
        "answers cost the price of the time that they take, or what the author states where there is no price. "
        "Each scenario has a ranking of its own."
    )


def _figure(scenario: RankedScenario) -> str:
    """What the column has, as the beginning of a sentence."""
    if scenario.name == "offline":
        return "Throughput is the samples a second of offline, which asks for all of them at once"
    if scenario.name == "server":
        return f"Throughput is the queries a second, at random times, of which 99 % are answered {_bound(scenario)}"
    if scenario.name == "dawnbench":
        return "Latency is the mean of dawnbench"
    return f"Latency is the {scenario.measure} of {scenario.title}, as LoadGen's early stopping estimates it"


def _bound(scenario: RankedScenario) -> str:
    return "in time" if scenario.bound_s is None else scenario.title.removeprefix(f"{scenario.name} ")


def inference_facts(rules: InferenceRules | None, target: Target) -> list[tuple[str, str]]:
    """Each rule with its name."""
    if rules is None:
        return []
    found = [("Scenarios of inference", f"{', '.join(rules.scenarios)}; each is ranked by itself")]
    if rules.threshold is not None:
        found.append(("Answers of inference keep", kept_text(rules, target)))
    found.append(("Least queries of inference", _queries(rules)))
    if rules.least_duration_s:
        found.append(("Least time of inference", f"{brief(rules.least_duration_s)} s"))
    if rules.latency_bound_s is not None:
        found.append(("Latency bound of server", f"{brief(rules.latency_bound_s)} s"))
    elif "server" in rules.scenarios:
        found.append(("Latency bound of server", "chosen by the author; each bound is ranked by itself"))
    return found


def kept_text(rules: InferenceRules | None, target: Target) -> str:
    """The quality that answers of inference keep; empty where the rules ask for none."""
    if rules is None or rules.threshold is None:
        return ""
    return target_text(msgspec.structs.replace(target, threshold=rules.threshold)).partition(" on the ")[0]


def _queries(rules: InferenceRules) -> str:
    """The count of most scenarios, then those that have one of their own; empty where there is no such rule."""
    own = [f"{scenario}: {rules.least(scenario):,}" for scenario in rules.scenarios if scenario in rules.queries]
    others = len(own) < len(rules.scenarios) and rules.least_queries
    plain = [f"{rules.least_queries:,}" + (" of every other scenario" if own else "")] if others else []
    return "; ".join(own + plain)
