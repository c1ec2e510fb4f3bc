"""Weighted choice: some examples, or classes, come more often, or sooner, than others.

The one idea: with replacement the visits of an epoch are independent draws; without it an example is visited at most
once and a larger weight only brings it forward.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DefinitionError
from levelbench.training.datasets.base import Split
from levelbench.training.samplers.base import Epoch
from levelbench.training.samplers.columns import labels_of
from levelbench.training.samplers.ordered import EvenSampler
from levelbench.training.samplers.shuffled import generator_of

__all__ = ["Weighted"]


@dataclass(frozen=True)
class Weighted(EvenSampler):
    """Draws in proportion to ``weights``.

    There is a weight for each class, or for each example with ``by="example"``; ``None`` makes all classes equally
    likely, whatever their sizes. An epoch has ``draws`` visits (default: as many as there are examples). Without
    ``replacement`` the examples follow each other as in drawing from an urn (Efraimidis & Spirakis 2006).
    """

    weights: tuple[float, ...] | None = None
    by: str = "class"
    replacement: bool = True
    draws: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by not in ("class", "example") or (self.weights is None and self.by == "example"):
            raise DefinitionError(
                f"Weighted by {self.by!r}", "it is no way to weigh, or weights are missing", 'by="class" or "example"'
            )
        if self.weights is not None:
            given = np.asarray(self.weights, np.float64)
            least = 0.0 if self.replacement else np.nextafter(0.0, 1.0)
            if given.ndim != 1 or not (np.isfinite(given) & (given >= least)).all() or not given.sum() > 0:
                raise DefinitionError(
                    "the weights of Weighted",
                    "one is negative or not finite, all are zero, or one is zero where nothing comes twice",
                    "give finite weights, above zero without replacement",
                )
        if self.draws is not None and self.draws < 1:
            raise DefinitionError(f"Weighted with draws={self.draws}", "an epoch is empty", "choose draws >= 1")
        if self.replacement or self.draws is not None:
            object.__setattr__(self, "exact", False)
        object.__setattr__(self, "random_order", self.replacement)

    def probabilities(self, split: Split) -> NDArray[np.float64]:
        """The probability of each example at the first draw, shape (n,); they sum to 1."""
        asked = f"Weighted by {self.by} of {len(split)} examples"
        if self.by == "example":
            weights = np.asarray(self.weights, np.float64)
            if len(weights) != len(split):
                raise DefinitionError(asked, f"there are {len(weights)} weights", "give one for each example")
            return _normalised(weights)
        labels = labels_of(split, asked)
        counts = np.bincount(labels)
        if self.weights is None:
            by_class = 1.0 / np.maximum(counts, 1)
        elif len(self.weights) < len(counts):
            raise DefinitionError(
                asked, f"there are {len(self.weights)} weights for {len(counts)} classes", "give one for each class"
            )
        else:
            by_class = np.asarray(self.weights, np.float64)
        weights = by_class[labels]
        if not weights.sum() > 0:
            raise DefinitionError(asked, "no example has a weight above zero", "weigh a class that is there")
        return _normalised(weights)

    def expected_shares(self, split: Split) -> NDArray[np.float64] | None:
        """What each example's share of the visits is to be; ``None`` for a part of an urn, which has no formula."""
        if self.replacement:
            return self.probabilities(split)
        return np.full(len(split), 1.0 / len(split)) if self.visits(split) == len(split) else None

    def visits(self, split: Split) -> int:
        """Draws an epoch. ``DefinitionError`` for more than there are examples, where nothing comes twice."""
        draws = len(split) if self.draws is None else self.draws
        if not self.replacement and draws > len(split):
            raise DefinitionError(
                f"{draws} draws without replacement", f"there are {len(split)} examples", "draw fewer, or replace"
            )
        return draws

    def epoch(self, split: Split, seed: int, epoch: int) -> Epoch:
        """The draws in their order, cut into batches."""
        generator, shares, visits = generator_of(seed, epoch), self.probabilities(split), self.visits(split)
        if self.replacement:
            cumulative = np.cumsum(shares)
            # The sum may miss 1 by a rounding, and an example without weight must never be drawn.
            places = generator.random(visits) * cumulative[-1]
            last = int(np.flatnonzero(shares)[-1])
            return self.batched(np.minimum(np.searchsorted(cumulative, places, side="right"), last).astype(np.int64))
        # The first of independent exponential clocks of these rates rings with these probabilities.
        clocks = generator.standard_exponential(len(split)) / shares
        return self.batched(np.argsort(clocks, kind="stable")[:visits].astype(np.int64))


def _normalised(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = weights / weights.sum()
    return shares
