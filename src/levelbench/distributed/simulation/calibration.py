"""From measurements to a simulation with error bars.

The one idea: what was measured is known within an interval, so a simulation is repeated with parameters drawn from
those, all at once, and what comes out spreads as far as what is known allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from typing import final

import numpy as np

from levelbench.distributed.fitting import Fit, Round
from levelbench.distributed.simulation.model import Compute
from levelbench.distributed.simulation.networks import Network
from levelbench.errors import UsageError

__all__ = ["Known", "Uncertain", "link_of", "of_samples"]

_Z95 = 1.959963984540054


@final
@dataclass(frozen=True)
class Known:
    """A positive quantity and its 95 % interval."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.value <= self.high:
            raise UsageError(
                f"the interval [{self.low:.4g}, {self.high:.4g}] of {self.value:.4g}",
                "it does not hold its value, or is not above zero",
                "give low <= value <= high, all above zero",
            )

    def draw(self, generator: np.random.Generator) -> float:
        """Lognormal, with the interval's ends as its 2.5 % and 97.5 % points on their side of the value."""
        z = float(generator.standard_normal())
        end = self.high if z > 0 else self.low
        return self.value * exp(abs(z) / _Z95 * log(end / self.value))


@final
@dataclass(frozen=True)
class Uncertain:
    """How well a simulation's parameters are known. What is ``None`` is taken as exact.

    ``compute_s`` is that of the mean step of ``Compute``, ``alpha_s`` and ``beta`` those of the network's links between
    hosts; drawn each for itself.
    """

    compute_s: Known | None = None
    alpha_s: Known | None = None
    beta: Known | None = None

    def draw(self, compute: Compute, network: Network, seed: int, number: int) -> tuple[Compute, Network]:
        """Draw ``number`` of both; the same in every call."""
        generator = np.random.Generator(np.random.PCG64([seed, number, 0xCA11B]))
        factors = [
            1.0 if each is None else each.draw(generator) / each.value
            for each in (self.compute_s, self.alpha_s, self.beta)
        ]
        return compute.times(factors[0]), network.with_link(network.alpha_s * factors[1], network.beta * factors[2])


def of_samples(samples_s: tuple[float, ...]) -> Known:
    """The mean of measured step times with its interval, by the normal approximation: for 30 steps or more.

    Steps that follow one another are alike, so the interval is that of the means of ten stretches where there are 100
    steps or more (batch means).
    """
    values = np.array(samples_s)
    if len(values) >= 100:
        values = np.array([stretch.mean() for stretch in np.array_split(values, 10)])
    if len(values) < 2:
        raise UsageError(f"{len(values)} measured steps", "they show no spread", "measure at least 30")
    mean = float(values.mean())
    half = _Z95 * float(values.std(ddof=1)) / len(values) ** 0.5
    return Known(mean, max(mean - half, mean / 10), mean + half)


def link_of(fit: Fit, made_of: Round | None = None) -> tuple[Known, Known]:
    """Latency (s) and bandwidth (B/s) of a message, from a fitted operation that is ``made_of`` such (``rounds_of``).

    An end at zero or infinity, which a line through few sizes may well have, is taken as a hundredth of its value or a
    hundred times it.
    """
    found = []
    values = ((fit.alpha_s, fit.alpha_interval), (fit.beta_s_b, fit.beta_interval))
    for (whole, ends), part in zip(values, made_of.parts if made_of else (1.0, 1.0), strict=True):
        least = max(whole, ends.high / 100) * part
        if least <= 0:
            raise UsageError(
                "a link from a fitted operation", "it has no latency or no bandwidth", "measure more sizes"
            )
        found.append(Known(least, max(min(ends.low * part, least), least / 100), max(ends.high * part, least)))
    alpha, slope = found
    return alpha, Known(1 / slope.value, 1 / slope.high, 1 / slope.low)
