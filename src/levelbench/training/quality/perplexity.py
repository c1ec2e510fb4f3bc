"""Qualities of language models: how surprised a network is by text that it has not seen.

The one idea: both are the same mean of -log p of the true next token, in nats: perplexity is its exponential, and bits
per character the same in base 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from array_api_compat import array_namespace

from levelbench.networks.executor import Executor
from levelbench.training.quality.base import Quality

if TYPE_CHECKING:
    from levelbench.training.input.held import Held

__all__ = ["BitsPerCharacter", "Perplexity", "surprise"]

_ROWS = 100


def surprise(executor: Executor, held: Held, ignored: int | None = None) -> float:
    """The mean of -log softmax(logits)[label] over all labels of ``held``, in nats; those ``ignored`` do not count.

    Logits are (n, length, tokens), the first output; labels (n, length) of int64, the last column. Sums are formed in
    the network's precision within a batch of 100 rows, in double precision over the batches.
    """
    total, count = 0.0, 0
    for *inputs, labels in held.batches(_ROWS):
        (logits, *_) = executor.infer(*inputs)
        xp = array_namespace(logits)
        highest = xp.max(logits, axis=-1, keepdims=True)
        logits = logits - highest
        normalisers = xp.log(xp.sum(xp.exp(logits), axis=-1))
        chosen = xp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
        surprises = normalisers - chosen
        if ignored is None:
            count += math.prod(surprises.shape)
        else:
            counted = labels != ignored
            surprises = xp.where(counted, surprises, xp.zeros_like(surprises))
            count += int(np.asarray(held.backend.host(xp.sum(xp.astype(counted, xp.int64)))))
        total += float(np.asarray(held.backend.host(xp.sum(surprises))))
    return total / count if count else math.nan


@dataclass(frozen=True)
class Perplexity(Quality):
    """exp of the mean surprise: from how many equally likely tokens the network would have to guess."""

    ignored: int | None = None
    metric: ClassVar[str] = "perplexity"
    direction: ClassVar[Literal["higher", "lower"]] = "lower"
    low: ClassVar[float] = 1.0
    high: ClassVar[float] = math.inf

    def measure(self, executor: Executor, held: Held) -> float:
        """Infinite where it is larger than any number."""
        mean = surprise(executor, held, self.ignored)
        return math.exp(mean) if not mean > 700 else math.inf


@dataclass(frozen=True)
class BitsPerCharacter(Quality):
    """The mean surprise in bits, of a network whose tokens are characters."""

    ignored: int | None = None
    metric: ClassVar[str] = "bits_per_character"
    direction: ClassVar[Literal["higher", "lower"]] = "lower"
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = math.inf

    def measure(self, executor: Executor, held: Held) -> float:
        """In bits."""
        return surprise(executor, held, self.ignored) / math.log(2.0)
