"""Qualities of classifiers: labels are classes (n,), and the network's first output has a score a class, (n, classes).

The one idea: what can be counted is counted in integers on the device, so every framework gives the same figure to the
last bit for the same predictions; only ranks over a whole split (AUROC) bring scores to the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from levelbench.errors import DefinitionError, UnsupportedError
from levelbench.networks.executor import Array, Executor
from levelbench.training.quality.base import Quality

if TYPE_CHECKING:
    from levelbench.training.input.held import Held

__all__ = ["AUROC", "BalancedAccuracy", "Top1", "Top5", "TopK", "area_under_roc"]


@dataclass(frozen=True)
class _Share(Quality):
    """A share, from 0 to 1, of which more is better."""

    direction: ClassVar[Literal["higher", "lower"]] = "higher"
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0


@dataclass(frozen=True)
class Top1(_Share):
    """The share of samples whose highest logit is that of their label.

    Of equal logits the class of the lower number is the highest. A sample with a logit that is NaN is never right.
    """

    metric: ClassVar[str] = "top1"

    def measure(self, executor: Executor, held: Held) -> float:
        """Correct over all, exact: counted in integers."""
        correct = 0
        for *inputs, labels in held.batches():
            (logits, *_) = executor.infer(*inputs)
            correct = correct + ((logits.argmax(1) == labels) & _comparable(logits)).sum()
        return int(np.asarray(held.backend.host(correct))) / len(held)


@dataclass(frozen=True)
class TopK(_Share):
    """The share of samples whose label is among the ``k`` highest logits; the metric's name is ``top<k>``.

    A label is among them if fewer than k logits are above its own. Of equal logits the class of the lower number comes
    first, and NaN is above all numbers, as for the ``argmax`` that :class:`Top1` takes. A label whose own logit is NaN,
    or that is no class at all, is never among them.
    """

    k: int = 5

    def __post_init__(self) -> None:
        if self.k < 1:
            raise DefinitionError(f"top-{self.k} accuracy", "it counts nothing", "choose k >= 1")

    @property
    def metric(self) -> str:  # type: ignore[override]  # one name a k
        """``top5`` for five."""
        return f"top{self.k}"

    def measure(self, executor: Executor, held: Held) -> float:
        """Correct over all, exact: counted in integers."""
        correct = 0
        for *inputs, labels in held.batches():
            (logits, *_) = executor.infer(*inputs)
            correct = correct + _within(logits, labels, _classes(held, logits), self.k)
        return int(np.asarray(held.backend.host(correct))) / len(held)


@dataclass(frozen=True)
class Top5(TopK):
    """:class:`TopK` of five: ImageNet's and DAWNBench's."""


@dataclass(frozen=True)
class BalancedAccuracy(_Share):
    """The mean over classes of the share of each class that is right (Brodersen et al. 2010).

    Classes without an example in the split are left out, as scikit-learn does.
    """

    metric: ClassVar[str] = "balanced_accuracy"

    def measure(self, executor: Executor, held: Held) -> float:
        """From counts by class, which are exact."""
        predicted, labels = _host(executor, held, _predicted)
        examples = np.bincount(labels)
        right = np.bincount(labels[predicted == labels], minlength=len(examples))
        present = examples > 0
        return float(np.mean(right[present] / examples[present]))


@dataclass(frozen=True)
class AUROC(_Share):
    """The area under the receiver operating characteristic of two classes: P(score of a 1 > score of a 0).

    The score is the logit of class 1 less that of class 0, or the only output where there is but one.
    """

    metric: ClassVar[str] = "auroc"

    def measure(self, executor: Executor, held: Held) -> float:
        """From ranks over the whole split; 0.5 counts where two scores are equal."""
        logits, labels = _host(executor, held, lambda logits: logits)
        flat = logits.reshape(len(logits), -1).astype(np.float64)
        if flat.shape[1] > 2:
            raise UnsupportedError("the area under the ROC", f"there are {flat.shape[1]} classes", "use it for two")
        return area_under_roc(flat[:, -1] - (flat[:, 0] if flat.shape[1] == 2 else 0.0), labels)


def area_under_roc(scores: NDArray[np.float64], labels: NDArray[Any]) -> float:
    """Mann and Whitney's U of the positives over all pairs (Hanley & McNeil 1982); NaN where a class is absent.

    ``scores`` (n,) and ``labels`` (n,), not zero meaning positive. A score that is NaN makes the area NaN.
    """
    positive = np.asarray(labels) != 0
    ones, zeros = int(positive.sum()), int((~positive).sum())
    if not (ones and zeros) or np.isnan(scores).any():
        return float("nan")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    middle_ranks = np.cumsum(counts) - (counts - 1) / 2
    rank_sum = float(middle_ranks[inverse][positive].sum())
    return (rank_sum - ones * (ones + 1) / 2) / (ones * zeros)


def _within(logits: Array, labels: Array, classes: Array, k: int) -> Array:
    """How many labels are among the k highest logits, as a scalar on the device."""
    chosen = classes == labels[:, None]
    # A choice and a sum, as every framework spells a gather otherwise; a product would make NaN of infinite logits.
    own = array_namespace(logits).where(chosen, logits, 0.0).sum(1)[:, None]
    before = (logits > own) | (logits != logits) | ((logits == own) & (classes < labels[:, None]))
    return ((before.sum(1) < k) & (own[:, 0] == own[:, 0]) & chosen.any(1)).sum()


def _comparable(logits: Array) -> Array:
    """Rows without a NaN, (n,): the highest of a row with one is NaN, and equals nothing."""
    highest = array_namespace(logits).max(logits, axis=1)
    return highest == highest


def _predicted(logits: Array) -> Array:
    """The class of the highest logit, (n,); -1, which is no class, in rows with a NaN."""
    return array_namespace(logits).where(_comparable(logits), logits.argmax(1), -1)


def _classes(held: Held, logits: Array) -> Array:
    """0, 1, 2, ... as a native row."""
    return held.backend.array(np.arange(int(logits.shape[1]), dtype=np.int64)[None])


def _host(executor: Executor, held: Held, of: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """What ``of`` makes of the logits, and the labels, over the whole split on the host."""
    values, truth = [], []
    for *inputs, labels in held.batches():
        values.append(np.asarray(held.backend.host(of(executor.infer(*inputs)[0]))))
        truth.append(np.asarray(held.backend.host(labels)))
    return np.concatenate(values), np.concatenate(truth)
