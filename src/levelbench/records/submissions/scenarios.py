"""Which measurements of inference are ranked together: those of one scenario under one condition.

The one idea: a rate that is kept within 15 ms and one within 100 ms answer two questions, and so do queries of 8
samples and of 64: the latency bound of a server and the samples in a query of multi-stream belong to what is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Literal

from msgspec import Struct

from levelbench.records.rulesets.schema import InferenceRules
from levelbench.records.submissions.schema import Inference

__all__ = ["MOST_SCENARIOS", "QUANTILES", "RankedScenario", "by_scenario", "is_apart", "own_scenario", "scenario_of"]

QUANTILES = {"single-stream": 0.9, "multi-stream": 0.99, "server": 0.99}
"""The quantile of each scenario's latency (LoadGen's defaults); ``dawnbench`` is a mean, ``offline`` has none."""

MOST_SCENARIOS = 50
"""In how many an entry is ranked: bounds and queries are its author's choice, as many as a file has room for."""

_OF_THROUGHPUT = frozenset({"server", "offline"})


class RankedScenario(Struct, frozen=True, gc=False):
    """A scenario; of ``server`` also the latency bound in seconds, of ``multi-stream`` the samples in a query.

    ``None``: the scenario has no such condition, or nobody states it.
    """

    name: str
    bound_s: float | None = None
    samples: int | None = None

    @property
    def column(self) -> Literal["latency", "throughput"]:
        """What its measurements are ranked by: LoadGen's own figure of the scenario."""
        return "throughput" if self.name in _OF_THROUGHPUT else "latency"

    @property
    def title(self) -> str:
        """The scenario with its condition.

        >>> RankedScenario("server", 0.015).title, RankedScenario("multi-stream", samples=8).title
        ('server within 15 ms', 'multi-stream, 8 samples a query')
        """
        if self.bound_s is not None:
            return f"{self.name} within {' '.join(_bound(self.bound_s))}"
        if self.samples is not None:
            return f"{self.name}, {self.samples:,} sample{'s' * (self.samples != 1)} a query"
        return self.name

    @property
    def words(self) -> str:
        """The title and which figure it is that is ranked.

        >>> RankedScenario("single-stream").words, RankedScenario("server", 0.015).words
        ('single-stream, 90th percentile', 'server within 15 ms, queries a second')
        """
        return f"{self.title}, {self.measure}"

    @property
    def measure(self) -> str:
        """What is measured in it: a percentile or mean of latency, queries or samples a second."""
        if self.name == "server":
            return "queries a second"
        if self.name == "offline":
            return "samples a second"
        return f"{QUANTILES[self.name] * 100:g}th percentile" if self.name in QUANTILES else "mean"

    @property
    def slug(self) -> str:
        """The scenario with its condition as part of a file's name: ``server-15ms``, ``multi-stream-8``.

        Of lower-case letters, digits, dots and dashes alone, and short, whatever bound is stated.

        >>> RankedScenario("server", 1e-9).slug, RankedScenario("server", 1e300).slug
        ('server-1ns', 'server-1e300s')
        """
        condition = "" if self.bound_s is None else f"-{''.join(_bound(self.bound_s))}".replace("+", "")
        return self.name + (condition if self.samples is None else f"-{self.samples}")


def _bound(seconds: float) -> tuple[str, str]:
    """A latency bound with its unit: milliseconds, but where they would need an exponent."""
    if 1e-7 <= seconds < 1e3:
        return f"{1e3 * seconds:g}", "ms"
    return (f"{1e9 * seconds:g}", "ns") if seconds < 1.0 else (f"{seconds:g}", "s")


def scenario_of(found: Inference, rules: InferenceRules) -> RankedScenario:
    """What a measurement is ranked with. The rules' latency bound holds where they have one, else the stated one.

    Bounds that agree to six digits are one.
    """
    if found.scenario == "server":
        return _server(found.latency_bound_s if rules.latency_bound_s is None else rules.latency_bound_s)
    if found.scenario == "multi-stream" and found.queries and found.samples % found.queries == 0:
        return RankedScenario("multi-stream", samples=found.samples // found.queries)
    return RankedScenario(found.scenario)


def _server(bound_s: float | None) -> RankedScenario:
    return RankedScenario("server", None if bound_s is None else float(f"{bound_s:.6g}"))


def by_scenario(measured: Sequence[Inference], rules: InferenceRules) -> dict[RankedScenario, list[Inference]]:
    """What an entry is ranked in, each with its measurements: in the order of the rules, then as they are stated.

    Measurements of scenarios that the rules do not have are in none, nor those beyond ``MOST_SCENARIOS``.
    """
    found: dict[RankedScenario, list[Inference]] = {}
    for name in rules.scenarios:
        for each in measured:
            if each.scenario == name:
                found.setdefault(scenario_of(each, rules), []).append(each)
    return dict(islice(found.items(), MOST_SCENARIOS))


def own_scenario(rules: InferenceRules | None) -> RankedScenario | None:
    """The scenario on the board of the task itself, beside training: the first of the rules, without a condition."""
    if rules is None or not rules.scenarios:
        return None
    first = rules.scenarios[0]
    return _server(rules.latency_bound_s) if first == "server" else RankedScenario(first)


def is_apart(scenario: RankedScenario | None, rules: InferenceRules | None) -> bool:
    """Whether entries ranked in ``scenario`` have a board of their own."""
    return scenario is not None and scenario != own_scenario(rules)
