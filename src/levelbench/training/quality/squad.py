"""SQuAD's qualities: F1 and exact match of the span that a network points at.

The comparison is that of the official ``evaluate-v1.1.py``: text is put into lower case, loses punctuation, articles
and extra white space, and the best of the reference answers counts.

The one idea: the network is asked for the best span, not for the best start and the best end: start and end are chosen
together, the end not ahead of the start and not too far behind it.
"""

from __future__ import annotations

import re
import string
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from levelbench.networks.executor import Executor
from levelbench.training.quality.base import Quality

if TYPE_CHECKING:
    from levelbench.training.input.held import Held

__all__ = ["SpanExactMatch", "SpanF1", "best_spans", "exact_match", "f1", "normalised"]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ROWS = 100


def normalised(answer: str) -> str:
    """Lower case, without ASCII punctuation, articles and extra white space."""
    bare = answer.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def f1(prediction: str, answers: Sequence[str]) -> float:
    """The harmonic mean of precision and recall of the words, with the answer for which it is highest."""
    return max(_f1(normalised(prediction).split(), normalised(answer).split()) for answer in answers)


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """1.0 where the prediction is one of the answers, else 0.0."""
    return float(any(normalised(prediction) == normalised(answer) for answer in answers))


def _f1(prediction: list[str], answer: list[str]) -> float:
    same = sum((Counter(prediction) & Counter(answer)).values())
    if not same:
        return 0.0
    precision, recall = same / len(prediction), same / len(answer)
    return 2 * precision * recall / (precision + recall)


def best_spans(starts: NDArray[Any], ends: NDArray[Any], longest: int) -> NDArray[np.int64]:
    """(n, 2): first and last token of the span with the highest sum of logits, ``longest`` tokens at most.

    ``starts`` and ``ends`` are (n, length). Of equal spans the first and shortest.
    """
    length = starts.shape[1]
    best = np.full(starts.shape, -np.inf, np.float64)
    last = np.zeros(starts.shape, np.int64)
    for more in range(min(longest, length)):
        scores = starts[:, : length - more].astype(np.float64) + ends[:, more:]
        better = scores > best[:, : length - more]
        best[:, : length - more] = np.where(better, scores, best[:, : length - more])
        last[:, : length - more] = np.where(better, np.arange(more, length), last[:, : length - more])
    first = best.argmax(axis=1)
    return np.stack([first, last[np.arange(len(last)), first]], axis=1)


@dataclass(frozen=True)
class _Span(Quality):
    """A mean over questions of how well the predicted span fits.

    The split's ``reference`` has a :class:`levelbench.training.datasets.texts.passages.Passage` a question.
    """

    longest: int = 30
    direction: ClassVar[Literal["higher", "lower"]] = "higher"
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0

    @staticmethod
    @abstractmethod
    def compare(prediction: str, answers: Sequence[str]) -> float:
        """From 0 to 1."""

    def measure(self, executor: Executor, held: Held) -> float:
        """The mean over all questions; start and end logits are the network's first two outputs."""
        passages: Any = held.split.reference
        total, at = 0.0, 0
        for columns in held.batches(_ROWS):
            starts, ends, *_ = executor.infer(*columns[: -held.split.targets])
            for first, last in best_spans(held.backend.host(starts), held.backend.host(ends), self.longest).tolist():
                total += self.compare(passages[at].text(first, last), passages[at].answers)
                at += 1
        return total / at


@dataclass(frozen=True)
class SpanF1(_Span):
    """The mean over questions of the F1 of words between the predicted span and the best of its answers."""

    metric: ClassVar[str] = "f1"
    compare = staticmethod(f1)


@dataclass(frozen=True)
class SpanExactMatch(_Span):
    """The share of questions whose predicted span is one of the answers, after normalisation."""

    metric: ClassVar[str] = "exact_match"
    compare = staticmethod(exact_match)
