"""Measures samplers: whether one draws what it promises, by chi-squared tests of its epochs, and how long it takes.

An exact sampler leaves nothing to chance, so a single example too many is enough to fail it; any other is tested on the
counts of its draws. The order of examples is tested too: a shuffled window visits everything once and is still biased.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UsageError
from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.sampling import DEFAULT_RULE, Sample, sample
from levelbench.measure.statistics import holm, p_text
from levelbench.measure.statistics.distributions import ChiSquared, chi_squared_survival, chi_squared_test
from levelbench.measure.stopping import StoppingRule
from levelbench.networks.executor import Array, Backend
from levelbench.training.datasets.base import Split
from levelbench.training.input import Loader
from levelbench.training.samplers import Epoch, Sampler, labels_of

_EXPECTED = 10.0
_MOST_BINS = 10

Counts = NDArray[np.float64]


@dataclass(frozen=True)
class BiasTest:
    """One test: of what, and its uncorrected result."""

    what: str
    found: ChiSquared


@dataclass(frozen=True)
class SamplingBias:
    """The tests that apply to a sampler; ``p_value`` is the smallest after Holm's correction."""

    tests: tuple[BiasTest, ...]
    epochs: int
    left_out: tuple[str, ...] = ()

    @property
    def p_value(self) -> float:
        """The probability that an unbiased sampler gives counts at least this uneven."""
        return min(holm([each.found.p_value for each in self.tests]), default=1.0)

    def biased(self, alpha: float = 0.001) -> bool:
        """Whether the p value is below ``alpha``."""
        return self.p_value < alpha

    def lines(self) -> list[str]:
        """One line of text per test."""
        lines = [
            f"{each.what}: chi-squared {each.found.statistic:.4g} on {each.found.degrees} degrees of freedom, "
            f"{p_text(each.found.p_value)}"
            for each in self.tests
        ]
        return [*lines, *self.left_out]


def sampling_bias(sampler: Sampler, split: Split, *, seed: int = 0, epochs: int = 10) -> SamplingBias:
    """Test ``epochs`` epochs of a sampler; labels that are not classes are not tested."""
    if epochs < 1 or len(split) < 2:
        raise UsageError(
            f"the bias of {epochs} epochs of {len(split)} examples",
            "there is nothing to count",
            "give at least 1 epoch of 2 examples",
        )
    drawn = [sampler.epoch(split, seed, epoch) for epoch in range(epochs)]
    tests: list[BiasTest] = []
    left_out: list[str] = []
    shares = sampler.expected_shares(split)
    if shares is None:
        left_out.append("visits and labels are not tested: the sampler's shares are unknown")
    else:
        tests.append(BiasTest("visits of examples", visit_test(drawn, shares, exact=sampler.exact)))
        if len(split.labels.shape) == 1 and np.dtype(split.labels.dtype).kind in "iu":
            labels = labels_of(split, "the test of labels")
            tests.append(BiasTest("labels", label_test(drawn, shares, labels, exact=sampler.exact)))
        else:
            left_out.append("labels are not tested: they are not classes")
    if sampler.random_order:
        tests.append(BiasTest("order", order_test(drawn, len(split))))
    else:
        left_out.append("order is not tested: the sampler does not promise a random order")
    return SamplingBias(tuple(tests), epochs, tuple(left_out))


def visit_test(drawn: list[Epoch], shares: Counts, *, exact: bool = False) -> ChiSquared:
    """Test of the visits of each example; neighbours are pooled until ten visits are expected.

    If epochs are ``exact``, each must visit every example once, or the p value is 0.
    """
    if exact:
        return _exact_result([np.bincount(each.order, minlength=len(shares)) for each in drawn], np.ones(len(shares)))
    counts = _visits(drawn, len(shares))
    wanted = shares * counts.sum()
    if counts[wanted == 0].any():
        return ChiSquared(math.inf, len(shares) - 1, 0.0)
    begins = np.cumsum(wanted) - wanted
    cells = np.unique((begins + 1e-9) // _EXPECTED, return_inverse=True)[1]
    return _chi_squared(np.bincount(cells, counts), np.bincount(cells, wanted))


def label_test(drawn: list[Epoch], shares: Counts, labels: NDArray[np.int64], *, exact: bool = False) -> ChiSquared:
    """Test of the visits of each class. If epochs are ``exact``, each must match the data, or the p value is 0."""
    classes = int(labels.max()) + 1
    if exact:
        counts = np.bincount(labels, minlength=classes).astype(np.float64)
        return _exact_result([np.bincount(labels[each.order], minlength=classes) for each in drawn], counts)
    visits = _visits(drawn, len(labels))
    observed = np.bincount(labels, visits, classes)
    return _chi_squared(observed, np.bincount(labels, shares, classes) * observed.sum())


def order_test(drawn: list[Epoch], examples: int) -> ChiSquared:
    """Test of an example's position in the data against its position in the epoch, in up to 10 by 10 cells.

    With many epochs, an order that repeats from epoch to epoch shows as well: its counts vary by more than chance.
    """
    visits = sum(len(each.order) for each in drawn)
    bins = int(min(_MOST_BINS, examples, math.sqrt(visits / _EXPECTED), *(len(each.order) for each in drawn)))
    if bins < 2:
        return ChiSquared(0.0, 0, 1.0)
    table = np.zeros((bins, bins))
    for each in drawn:
        when = np.arange(len(each.order)) * bins // len(each.order)
        table += np.bincount(each.order * bins // examples * bins + when, minlength=bins * bins).reshape(bins, bins)
    wanted = table.sum(axis=1, keepdims=True) * table.sum(axis=0) / table.sum()
    possible = wanted > 0
    # A permutation has fixed margins in each epoch, which widens a cell's variance by n / (n - 1).
    correction = 1.0 - len(drawn) / visits
    statistic = correction * float(((table - wanted)[possible] ** 2 / wanted[possible]).sum())
    degrees = (int(possible.any(axis=1).sum()) - 1) * (int(possible.any(axis=0).sum()) - 1)
    return ChiSquared(statistic, degrees, chi_squared_survival(statistic, degrees) if degrees else 1.0)


def _visits(drawn: list[Epoch], examples: int) -> Counts:
    return np.bincount(np.concatenate([each.order for each in drawn]), minlength=examples).astype(np.float64)


def _exact_result(counts: list[NDArray[np.intp]], wanted: Counts) -> ChiSquared:
    """The result for counts that leave nothing to chance: a p value of 1 if all agree, else 0."""
    parts = [(each - wanted) ** 2 / np.maximum(wanted, 1.0) for each in counts]
    statistic = float(np.sum(parts))
    return ChiSquared(statistic, max(1, len(wanted) - 1), 1.0 if statistic == 0 else 0.0)


def _chi_squared(observed: NDArray[Any], expected: NDArray[Any]) -> ChiSquared:
    return chi_squared_test(observed, expected) if len(observed) > 1 else ChiSquared(0.0, 0, 1.0)


def dataset_latency(
    loader: Loader,
    until: StoppingRule = DEFAULT_RULE,
    *,
    backend: Backend | None = None,
    clock: Clock = HOST,
    warmup: str | int = "auto",
) -> Sample:
    """Seconds per minibatch of ``loader``, as a sample; its ``estimate`` has the interval.

    On a device that computes asynchronously, ``backend`` makes each call wait for its batch. The loader stays open.
    With workers that read ahead, the first batches of an epoch take longer than the rest, which shows in the values.
    """
    batches = _endless_batches(loader)

    def work() -> None:
        batch = next(batches)
        if backend is not None:
            backend.finish(batch)

    return sample(work, until, clock=clock, warmup=warmup, name="dataset latency")


def _endless_batches(loader: Loader) -> Iterator[tuple[Array, ...]]:
    epoch = 0
    while True:
        yield from loader.batches(epoch)
        epoch += 1
