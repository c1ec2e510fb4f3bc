"""The simulator's model of training: parameter sizes, step times, and how precisely they are known.

Messages need bytes and clocks need seconds, so a network is its parameters in order, and its computation is a sample
of measured times. Measurements are known only within an interval, so a simulation is repeated with parameters drawn
from these intervals, and its spread shows the uncertainty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import exp, log, prod, sqrt
from types import MappingProxyType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from levelbench.distributed.simulation.networks import Interconnect
from levelbench.distributed.sweep import Fit, Round
from levelbench.errors import UsageError


@final
@dataclass(frozen=True)
class ModelShape:
    """The trainable parameters by name, in the order in which the network uses them, and the bytes per element."""

    parameters: Mapping[str, tuple[int, ...]]
    itemsize: int = 4

    def __post_init__(self) -> None:
        if not self.parameters or not self.elements:
            raise UsageError("the simulation of a model", "it has no parameters", "give the shapes of some")

    @property
    def elements(self) -> int:
        """The elements of all parameters."""
        return sum(prod(shape) for shape in self.parameters.values())

    @property
    def nbytes(self) -> int:
        """The bytes of all parameters, or of all gradients."""
        return self.elements * self.itemsize


@final
@dataclass(frozen=True)
class StandIn:
    """A small model that the scheme's code handles in place of a large one."""

    shapes: Mapping[str, tuple[int, ...]]
    weights: Mapping[str, float]
    """Each parameter's share of the backward pass; they sum to 1."""
    scale: float
    """Bytes of the large model per byte of this one, whose elements are float32."""

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """New parameters with distinct values."""
        return {
            name: np.arange(1, prod(shape) + 1, dtype=np.float32).reshape(shape) for name, shape in self.shapes.items()
        }


def stand_in(model: ModelShape, elements: int = 2048, parts: int = 8) -> StandIn:
    """A small version of ``model``: neighbouring parameters are merged into at most ``parts`` flat, similar-sized ones.

    Every parameter counts equally in the time of the backward pass, since the layers of a network differ more in
    parameters than in time. A model of at most ``elements`` elements is not changed.
    """
    shapes = model.parameters
    if model.elements <= elements:
        return StandIn(shapes, dict.fromkeys(shapes, 1 / len(shapes)), model.itemsize / 4)
    groups: list[tuple[int, int]] = []
    size = count = 0
    for shape in shapes.values():
        size, count = size + prod(shape), count + 1
        if size * parts >= model.elements:
            groups.append((size, count))
            size = count = 0
    if count:
        groups.append((size, count))
    small = {f"part {at}": (max(1, round(size * elements / model.elements)),) for at, (size, _) in enumerate(groups)}
    weights = {name: count / len(shapes) for name, (_, count) in zip(small, groups, strict=True)}
    return StandIn(small, weights, model.nbytes / (4 * sum(size for (size,) in small.values())))


@final
@dataclass(frozen=True)
class Compute:
    """What a rank computes in a step.

    Forward and backward take ``mean_s``, with a lognormal spread of ``sigma_s`` from step to step, or are drawn from
    the measured ``samples_s``, whose mean is ``mean_s``.

    All times are for ``batch`` examples per rank; for other batches, ``fixed_s`` stays and the rest is proportional.
    ``update_s`` is the optimizer's time for all parameters, ``encode_s`` the scheme's own time per step, such as for
    compression. ``slow`` has the factors by which some ranks are slower.
    """

    mean_s: float
    sigma_s: float = 0.0
    samples_s: tuple[float, ...] = ()
    batch: int = 1
    fixed_s: float = 0.0
    forward_share: float = 1 / 3
    update_s: float = 0.0
    encode_s: float = 0.0
    slow: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if not 0 <= self.fixed_s <= self.mean_s or self.sigma_s < 0 or self.batch < 1:
            raise UsageError(
                f"a step of {self.mean_s:.4g} s with spread {self.sigma_s:.4g} s and {self.fixed_s:.4g} s fixed",
                "these cannot be the times of a step",
                "give 0 <= fixed_s <= mean_s, sigma_s >= 0 and a batch of at least 1",
            )

    @staticmethod
    def measured(samples_s: tuple[float, ...], batch: int, **others: Any) -> Compute:
        """From at least two measured steps, which are resampled."""
        if len(samples_s) < 2:
            raise UsageError(f"{len(samples_s)} measured steps", "too few to show a spread", "measure at least two")
        values = np.array(samples_s)
        return Compute(
            float(values.mean()), float(values.std(ddof=1)), tuple(map(float, samples_s)), batch=batch, **others
        )

    def at(self, batch: float) -> Compute:
        """Scaled to another number of examples per rank."""
        if self.mean_s == 0:
            return self
        factor = (self.fixed_s + (self.mean_s - self.fixed_s) * batch / self.batch) / self.mean_s
        return self.times(factor, batch=max(1, round(batch)))

    def times(self, factor: float, **others: Any) -> Compute:
        """``factor`` times as long, spread included."""
        return replace(
            self,
            mean_s=self.mean_s * factor,
            sigma_s=self.sigma_s * factor,
            samples_s=tuple(each * factor for each in self.samples_s),
            fixed_s=min(self.fixed_s, self.mean_s * factor),
            **others,
        )

    def draw(self, rank: int, steps: int, seed: int) -> NDArray[np.float64]:
        """Seconds of each step of a rank, shape (steps,)."""
        generator = np.random.Generator(np.random.PCG64([seed, rank, 0x51A1]))
        return self._drawn(generator, (steps,)) * self.slow.get(rank, 1.0)

    def draw_all(self, ranks: int, steps: int, seed: int) -> NDArray[np.float64]:
        """Seconds of each step of all ranks, shape (ranks, steps): other draws from the same distribution as `draw`."""
        generator = np.random.Generator(np.random.PCG64([seed, 0xA11]))
        factors = np.ones((ranks, 1))
        for rank, factor in self.slow.items():
            factors[rank] = factor
        return self._drawn(generator, (ranks, steps)) * factors

    def _drawn(self, generator: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
        if self.samples_s:
            return np.asarray(generator.choice(np.array(self.samples_s), shape))
        if self.sigma_s == 0 or self.mean_s == 0:
            return np.full(shape, self.mean_s)
        spread = sqrt(log(1 + (self.sigma_s / self.mean_s) ** 2))
        return np.asarray(self.mean_s * np.exp(spread * generator.standard_normal(shape) - spread**2 / 2))


_Z95 = 1.959963984540054


@final
@dataclass(frozen=True)
class Calibrated:
    """A positive quantity and its 95 % interval."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.value <= self.high:
            raise UsageError(
                f"the interval [{self.low:.4g}, {self.high:.4g}] of {self.value:.4g}",
                "it does not contain the value, or is not above zero",
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
    """How precisely a simulation's parameters are known; ``None`` means exactly.

    ``compute_s`` belongs to the mean step of ``Compute``, ``encode_s`` to the scheme's own time, ``alpha_s`` and
    ``beta`` to the network's links between hosts; each is drawn independently.
    """

    compute_s: Calibrated | None = None
    alpha_s: Calibrated | None = None
    beta: Calibrated | None = None
    encode_s: Calibrated | None = None

    def draw(self, compute: Compute, network: Interconnect, seed: int, number: int) -> tuple[Compute, Interconnect]:
        """Draw number ``number`` of both, the same in every call."""
        generator = np.random.Generator(np.random.PCG64([seed, number, 0xCA11B]))
        factors = [
            1.0 if each is None else each.draw(generator) / each.value
            for each in (self.compute_s, self.alpha_s, self.beta, self.encode_s)
        ]
        drawn = replace(network, alpha_s=network.alpha_s * factors[1], beta=network.beta * factors[2])
        return compute.times(factors[0], encode_s=compute.encode_s * factors[3]), drawn


def of_samples(samples_s: tuple[float, ...]) -> Calibrated:
    """The mean of measured step times with its interval, by the normal approximation, for 30 steps or more.

    Consecutive steps are correlated, so with 100 steps or more the interval is that of the means of ten batches (batch
    means).
    """
    values = np.array(samples_s)
    if len(values) >= 100:
        values = np.array([stretch.mean() for stretch in np.array_split(values, 10)])
    if len(values) < 2:
        raise UsageError(f"{len(values)} measured steps", "too few to show a spread", "measure at least 30")
    mean = float(values.mean())
    half = _Z95 * float(values.std(ddof=1)) / len(values) ** 0.5
    return Calibrated(mean, max(mean - half, mean / 10), mean + half)


def link_of(fit: Fit, made_of: Round | None = None) -> tuple[Calibrated, Calibrated]:
    """Latency (s) and bandwidth (B/s) of a message, from a fitted operation that consists of ``made_of``.

    An interval that reaches zero or infinity, as a fit to few sizes may, is cut at a hundredth of the value or a
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
        found.append(Calibrated(least, max(min(ends.low * part, least), least / 100), max(ends.high * part, least)))
    alpha, slope = found
    return alpha, Calibrated(1 / slope.value, 1 / slope.high, 1 / slope.low)
