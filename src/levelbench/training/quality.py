"""Qualities: how good a network is on a split, and when it is good enough.

Whatever can be counted is counted in integers on the device, so that every framework gets the same figure to the last
bit for the same predictions; errors and surprisals are summed in float64. BLEU's options are fixed and are part of its
signature, with the version of sacrebleu that computed it.
"""

from __future__ import annotations

import itertools
import math
import re
import string
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from levelbench.errors import DataError, DefinitionError, MissingError, UnsupportedError
from levelbench.networks.executor import Array, Executor
from levelbench.networks.inspect import needed_nodes
from levelbench.networks.network import Network
from levelbench.networks.shapes import infer_shapes
from levelbench.records.schema import Target

if TYPE_CHECKING:
    from levelbench.training.datasets.episodes import Environment
    from levelbench.training.input import Held


@dataclass(frozen=True)
class Quality(ABC):
    """A metric with its scale and its target, which is tested on the validation split."""

    target: float
    metric: ClassVar[str]
    direction: ClassVar[Literal["higher", "lower"]]
    low: ClassVar[float]
    high: ClassVar[float]

    def as_target(self, threshold: float | None = None) -> Target:
        """The target as a record states it; ``threshold`` replaces the task's own."""
        value = self.target if threshold is None else threshold
        if not math.isfinite(self.low):
            raise DefinitionError(
                f"the quality {self.metric}",
                f"its lowest value, low, is {self.low:g}",
                "give a finite one, below which a value counts as wrong: -1000 for a coefficient of determination",
            )
        high = None if math.isinf(self.high) else self.high
        target = Target(self.metric, value, self.direction, self.low, high, "validation")
        target.require_on_scale()
        return target

    @property
    def signature(self) -> str:
        """The options and version that the score depends on, if any; kept in the record."""
        return ""

    def lacks(self) -> str | None:
        """``None`` if it can be measured here, else what has to be installed, in one line."""
        return None

    @abstractmethod
    def measure(self, executor: Executor, held: Held) -> float:
        """The metric over all examples of ``held``; leaves the executor's state as it was."""


@dataclass(frozen=True)
class _Share(Quality):
    """A share from 0 to 1; higher is better."""

    direction: ClassVar[Literal["higher", "lower"]] = "higher"
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 1.0


@dataclass(frozen=True)
class Top1(_Share):
    """The share of samples whose highest logit is that of their label.

    If logits are equal, the lowest class number wins. A sample with a NaN logit is never right.
    """

    metric: ClassVar[str] = "top1"

    def measure(self, executor: Executor, held: Held) -> float:
        """Correct over all; exact, as it is counted in integers."""
        return _accuracy(executor, held, lambda logits, labels: (logits.argmax(1) == labels) & _comparable(logits))


@dataclass(frozen=True)
class TopK(_Share):
    """The share of samples whose label is among the ``k`` highest logits; the metric's name is ``top<k>``.

    A label counts if fewer than k logits rank above its own. If logits are equal, the lowest class number comes first,
    and NaN ranks above all numbers, as in the ``argmax`` that :class:`Top1` takes. A label whose own logit is NaN, or
    that is not a class, never counts.
    """

    k: int = 5

    def __post_init__(self) -> None:
        if self.k < 1:
            raise DefinitionError(f"top-{self.k} accuracy", "k is below 1", "choose k >= 1")

    @property
    def metric(self) -> str:  # type: ignore[override]  # one name a k
        """For example ``top5``."""
        return f"top{self.k}"

    def measure(self, executor: Executor, held: Held) -> float:
        """Correct over all; exact, as it is counted in integers."""

        def within(logits: Array, labels: Array) -> Array:
            classes = held.backend.array(np.arange(int(logits.shape[1]), dtype=np.int64)[None])
            return _within(logits, labels, classes, self.k)

        return _accuracy(executor, held, within)


@dataclass(frozen=True)
class Top5(TopK):
    """:class:`TopK` with k = 5, as in ImageNet and DAWNBench."""


@dataclass(frozen=True)
class BalancedAccuracy(_Share):
    """The mean over classes of each class's accuracy (Brodersen et al. 2010).

    Classes without an example in the split are left out, as in scikit-learn.
    """

    metric: ClassVar[str] = "balanced_accuracy"

    def measure(self, executor: Executor, held: Held) -> float:
        """From exact counts by class."""
        predicted, labels = _host(executor, held, _predicted)
        examples = np.bincount(labels)
        right = np.bincount(labels[predicted == labels], minlength=len(examples))
        present = examples > 0
        return float(np.mean(right[present] / examples[present]))


@dataclass(frozen=True)
class MeanIoU(_Share):
    """The mean over classes of intersection over union of pixels, as in Pascal VOC (Everingham et al. 2015, section 4).

    Outputs are logits (n, classes, ...), the target the class of each place (n, ...). Pixels of the whole split are
    counted together, the background is a class like any other, a class that is neither there nor predicted is left out,
    and places of the target ``ignored`` (255 in VOC's own masks) count nowhere. A NaN logit makes a pixel's class none.
    """

    ignored: int | None = None
    metric: ClassVar[str] = "miou"

    def measure(self, executor: Executor, held: Held) -> float:
        """From exact counts.

        :raises DataError: when outputs and targets are of different places.
        """
        both = there = predicted = np.zeros(0, np.int64)
        for *inputs, targets in held.batches(_ROWS):
            logits = executor.infer(*inputs)[0]
            found, truth = (np.asarray(held.backend.host(each)) for each in (_predicted(logits), targets))
            if found.shape != truth.shape:
                shapes = f"outputs of shape {tuple(logits.shape)} and targets of shape {truth.shape}"
                raise DataError("measuring mean IoU", shapes, "give outputs (n, classes, ...) and targets (n, ...)")
            counted = np.ones(truth.shape, bool) if self.ignored is None else truth != self.ignored
            size = max(int(logits.shape[1]), int(truth[counted].max(initial=0)) + 1, len(both))
            parts = (truth[counted & (found == truth)], truth[counted], found[counted & (found >= 0)])
            both, there, predicted = (
                np.bincount(part, minlength=size) + np.pad(sum_, (0, size - len(sum_)))
                for part, sum_ in zip(parts, (both, there, predicted), strict=True)
            )
        union = there + predicted - both
        return float(np.mean(both[union > 0] / union[union > 0]))


@dataclass(frozen=True)
class AUROC(_Share):
    """The area under the receiver operating characteristic of two classes: P(score of a 1 > score of a 0).

    The score is the logit of class 1 minus that of class 0, or the only output if there is just one.
    """

    metric: ClassVar[str] = "auroc"

    def measure(self, executor: Executor, held: Held) -> float:
        """From ranks over the whole split; a pair of equal scores counts as 0.5."""
        logits, labels = _host(executor, held, lambda logits: logits)
        flat = logits.reshape(len(logits), -1).astype(np.float64)
        if flat.shape[1] > 2:
            raise UnsupportedError("the area under the ROC", f"there are {flat.shape[1]} classes", "use it for two")
        return area_under_roc(flat[:, -1] - (flat[:, 0] if flat.shape[1] == 2 else 0.0), labels)


@dataclass(frozen=True)
class HitRate(_Share):
    """The share of rows whose relevant item is among the ``k`` highest scores: HR@k; the metric's name is ``hr<k>``.

    Outputs are scores (n, items); the target is 1 at the one relevant item of a row, else 0. Equal scores count against
    it, and so does NaN, so that scores without information get 0. As in He et al. 2017 and MLPerf's recommendation
    (v0.5 to v0.7), where 99 items that the user has not rated are the others.
    """

    k: int = 10

    def __post_init__(self) -> None:
        if self.k < 1:
            raise DefinitionError(f"a hit among {self.k}", "k is below 1", "choose k >= 1")

    @property
    def metric(self) -> str:  # type: ignore[override]  # one name a k
        """For example ``hr10``."""
        return f"hr{self.k}"

    def measure(self, executor: Executor, held: Held) -> float:
        """Over all rows; exact, as ranks are integers."""
        return float(np.mean(_ranks(executor, held) < self.k))


@dataclass(frozen=True)
class NDCG(HitRate):
    """The mean of 1 / log2(1 + rank) of the relevant item, 0 past rank ``k``: NDCG@k, named ``ndcg<k>``.

    Ranks start at 1 and are those of :class:`HitRate`. With one relevant item the ideal gain is 1 (He et al. 2015).
    """

    @property
    def metric(self) -> str:  # type: ignore[override]  # one name a k
        """For example ``ndcg10``."""
        return f"ndcg{self.k}"

    def measure(self, executor: Executor, held: Held) -> float:
        """Over all rows, in float64."""
        ranks = _ranks(executor, held)
        return float(np.mean(np.where(ranks < self.k, 1 / np.log2(ranks + 2.0), 0.0)))


def _ranks(executor: Executor, held: Held) -> NDArray[Any]:
    """How many items of each row rank before the relevant one, (n,), counted on the device.

    :raises DataError: when there is not one score for each item, or not one relevant item in each row.
    """
    found = []
    for *inputs, targets in held.batches():
        (scores, *_) = executor.infer(*inputs)
        # One score a row would be broadcast, so that nothing ranked before the relevant item.
        if tuple(scores.shape) != tuple(targets.shape):
            shapes = f"scores of shape {tuple(scores.shape)} and targets of shape {tuple(targets.shape)}"
            raise DataError("ranking the items of each row", shapes, "give the network one output for each item")
        xp, relevant = array_namespace(scores), targets > 0
        own = xp.where(relevant, scores, 0.0).sum(1)[:, None]
        # Its own score is among those that are not below it, unless it is NaN, which ranks after all.
        ranks = xp.where(relevant.sum(1) == 1, (~(scores < own)).sum(1) - 1, -1)
        found.append(np.asarray(held.backend.host(ranks)))
    every = np.concatenate(found)
    if rows := int((every < 0).sum()):
        what = f"{rows:,} of {len(every):,} rows do not have exactly one relevant item"
        raise DataError("ranking the items of each row", what, "make the target of one item 1 and of all others 0")
    return every


def area_under_roc(scores: NDArray[np.float64], labels: NDArray[Any]) -> float:
    """Mann and Whitney's U of the positives over all pairs (Hanley & McNeil 1982); NaN if a class is missing.

    ``scores`` (n,) and ``labels`` (n,), where nonzero means positive. A NaN score makes the area NaN.
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
    """Whether each label is among the k highest logits, (n,), on the device."""
    chosen = classes == labels[:, None]
    # ``where`` and a sum, since frameworks spell a gather differently; a product would make NaN of infinite logits.
    own = array_namespace(logits).where(chosen, logits, 0.0).sum(1)[:, None]
    before = (logits > own) | (logits != logits) | ((logits == own) & (classes < labels[:, None]))
    return (before.sum(1) < k) & (own[:, 0] == own[:, 0]) & chosen.any(1)


def _accuracy(executor: Executor, held: Held, right: Callable[[Array, Array], Array]) -> float:
    """The share of examples that are right, counted on the device; ``right`` takes logits and labels."""
    correct = 0
    for *inputs, labels in held.batches():
        correct = correct + right(executor.infer(*inputs)[0], labels).sum()
    return int(np.asarray(held.backend.host(correct))) / len(held)


def _comparable(logits: Array) -> Array:
    """Whether each row is free of NaN, (n,): the maximum of a row with a NaN is NaN, which equals nothing."""
    highest = array_namespace(logits).max(logits, axis=1)
    return highest == highest


def _predicted(logits: Array) -> Array:
    """The class of the highest logit, (n,); -1, which is not a class, for rows with a NaN."""
    return array_namespace(logits).where(_comparable(logits), logits.argmax(1), -1)


def _host(executor: Executor, held: Held, of: Callable[[Array], Array]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The result of ``of`` on the logits, and the labels, over the whole split on the host."""
    values, truth = [], []
    for *inputs, labels in held.batches():
        values.append(np.asarray(held.backend.host(of(executor.infer(*inputs)[0]))))
        truth.append(np.asarray(held.backend.host(labels)))
    return np.concatenate(values), np.concatenate(truth)


@dataclass(frozen=True)
class _Unbounded(Quality):
    """A figure from 0, the best value, without an upper limit; lower is better."""

    direction: ClassVar[Literal["higher", "lower"]] = "lower"
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = math.inf


@dataclass(frozen=True)
class _Error(_Unbounded):
    """A mean over all elements of all targets, in their unit."""

    def measure(self, executor: Executor, held: Held) -> float:
        """Over all elements at once, not a mean of means.

        :raises DataError: when the shapes of outputs (n, ...) and targets differ by more than axes of size 1.
        """
        total, count = 0.0, 0
        for *inputs, targets in held.batches():
            outputs = np.asarray(held.backend.host(executor.infer(*inputs)[0])).astype(np.float64)
            wanted = np.asarray(held.backend.host(targets)).astype(np.float64)
            # (n, 1) and (n,) are common in regressions of a single number, and broadcasting would make (n, n) of them.
            if [size for size in outputs.shape[1:] if size != 1] != [size for size in wanted.shape[1:] if size != 1]:
                found = f"outputs of shape {outputs.shape} and targets of shape {wanted.shape}"
                raise DataError(f"measuring {self.metric}", found, "give the network outputs of the targets' shape")
            total += self._sum(outputs.reshape(wanted.shape) - wanted)
            count += wanted.size
        return self._mean(total / count)

    @abstractmethod
    def _sum(self, errors: NDArray[Any]) -> float:
        """The quantity to add up over batches."""

    def _mean(self, mean: float) -> float:
        return mean


@dataclass(frozen=True)
class RMSE(_Error):
    """The root of the mean squared error."""

    metric: ClassVar[str] = "rmse"

    def _sum(self, errors: NDArray[Any]) -> float:
        return float((errors * errors).sum())

    def _mean(self, mean: float) -> float:
        return math.sqrt(mean)


@dataclass(frozen=True)
class Reconstruction(RMSE):
    """The RMSE of a network that passes on at most ``code`` numbers of each example from its inputs to its outputs."""

    code: int = 1

    def measure(self, executor: Executor, held: Held) -> float:
        """As :class:`RMSE`.

        :raises UnsupportedError: for a network that passes on more, or a native one, whose paths are unknown.
        """
        width = None if executor.network is None else narrowest(executor.network)
        if width is None or width > self.code:
            found = "its paths are unknown" if width is None else f"its code has {width:,}"
            do = f"build it of levelbench's operators, with all paths through one value of {self.code} an example"
            raise UnsupportedError(f"reconstruction from {self.code} numbers", found, do)
        return super().measure(executor, held)


def narrowest(network: Network) -> int | None:
    """The fewest numbers of an example in a value without which the first output is independent of all inputs.

    One of eight bytes counts as two, since as much could be packed into it.

    ``None`` if there is no such value of known size.
    """
    graph, output = network.model.graph, network.outputs[0].name
    inputs = {each.name for each in network.inputs}
    widths = [
        math.prod(sizes) * (2 if value.dtype in ("float64", "int64", "uint64") else 1)
        for name, value in infer_shapes(network).items()
        if value.shape and value.shape[0] == "batch"
        if len(sizes := [size for size in value.shape[1:] if isinstance(size, int)]) == len(value.shape) - 1
        if not inputs & needed_nodes(graph, [output], {name})[1]
    ]
    return min(widths, default=None)


@dataclass(frozen=True)
class MAE(_Error):
    """The mean absolute error."""

    metric: ClassVar[str] = "mae"

    def _sum(self, errors: NDArray[Any]) -> float:
        return float(np.abs(errors).sum())


_ROWS = 100


def surprisal(executor: Executor, held: Held, ignored: int | None = None) -> float:
    """The mean of -log softmax(logits)[label] over all labels of ``held`` except those ``ignored``, in nats.

    Logits are (n, length, tokens), the first output; labels (n, length) of int64, the last column. Sums use the
    network's precision within a batch of 100 rows and double precision across batches.
    """
    total, count = 0.0, 0
    for *inputs, labels in held.batches(_ROWS):
        (logits, *_) = executor.infer(*inputs)
        xp = array_namespace(logits)
        highest = xp.max(logits, axis=-1, keepdims=True)
        logits = logits - highest
        normalisers = xp.log(xp.sum(xp.exp(logits), axis=-1))
        chosen = xp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
        surprisals = normalisers - chosen
        if ignored is None:
            count += math.prod(surprisals.shape)
        else:
            counted = labels != ignored
            surprisals = xp.where(counted, surprisals, xp.zeros_like(surprisals))
            count += int(np.asarray(held.backend.host(xp.sum(xp.astype(counted, xp.int64)))))
        total += float(np.asarray(held.backend.host(xp.sum(surprisals))))
    return total / count if count else math.nan


@dataclass(frozen=True)
class Perplexity(_Unbounded):
    """exp of the mean surprisal: among how many equally likely tokens the network would have to guess."""

    ignored: int | None = None
    metric: ClassVar[str] = "perplexity"
    low: ClassVar[float] = 1.0

    def measure(self, executor: Executor, held: Held) -> float:
        """Infinite on overflow."""
        mean = surprisal(executor, held, self.ignored)
        return math.exp(mean) if not mean > 700 else math.inf


@dataclass(frozen=True)
class BitsPerCharacter(_Unbounded):
    """The mean surprisal in bits of a network whose tokens are characters."""

    ignored: int | None = None
    metric: ClassVar[str] = "bits_per_character"

    def measure(self, executor: Executor, held: Held) -> float:
        return surprisal(executor, held, self.ignored) / math.log(2.0)


@dataclass(frozen=True)
class BitsPerByte(_Unbounded):
    """The surprisal in bits of all tokens over the number of bytes that they stand for: comparable between tokenisers.

    The split's ``reference`` has the number of bytes of each row's labels.
    """

    metric: ClassVar[str] = "bits_per_byte"

    def measure(self, executor: Executor, held: Held) -> float:
        """Over all rows at once.

        :raises DataError: when the split does not say how many bytes its rows have.
        """
        count: int = sum(held.split.reference or ())
        if not count:
            found = "the split has no bytes in its reference"
            raise DataError(f"measuring {self.metric}", found, "give it the number of bytes of each row's labels")
        tokens: int = math.prod(held.split.labels.shape)
        return surprisal(executor, held) / math.log(2.0) * tokens / count


@dataclass(frozen=True)
class MeanReturn(Quality):
    """The mean return of episodes of ``environment`` in which actions are drawn by the softmax of the logits.

    Each row of a split is a state in which an episode begins. A run draws new ones for each evaluation, so that no
    network is chosen for the states that it was measured in. Actions are drawn, because the likeliest ones of a policy
    that has hardly begun to learn may be good by luck. The draws of an episode depend on its first state alone.
    """

    environment: Environment
    metric: ClassVar[str] = "mean_return"
    direction: ClassVar[Literal["higher", "lower"]] = "higher"

    @property
    def low(self) -> float:  # type: ignore[override]  # the environment's
        """No episode has a lower return."""
        return self.environment.lowest

    @property
    def high(self) -> float:  # type: ignore[override]  # the environment's
        """The highest return that is possible."""
        return self.environment.highest

    def measure(self, executor: Executor, held: Held) -> float:
        """Without a discount, over one episode a row."""
        from levelbench.training.datasets.episodes import drawn, play
        from levelbench.training.pixels import words

        array, host = held.backend.array, held.backend.host

        def total(states: NDArray[np.float32]) -> float:
            seeds, steps = np.zeros(len(states), np.uint64), itertools.count()
            for at, bits in enumerate(np.ascontiguousarray(states).view(np.uint32).T):
                seeds = words(seeds ^ bits, at)

            def act(now: NDArray[np.float32]) -> NDArray[np.int64]:
                draws = (words(seeds, next(steps)) >> np.uint64(11)) * 2.0**-53
                logits: NDArray[np.float64] = np.asarray(host(executor.infer(array(now))[0]), np.float64)
                return drawn(logits, draws)[0]

            return float(play(self.environment, act, states.astype(np.float64)).sum())

        return math.fsum(total(np.asarray(host(columns[0]))) for columns in held.batches()) / len(held)


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(answer: str) -> str:
    """Lower case, without ASCII punctuation, articles and extra white space."""
    bare = answer.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def f1(prediction: str, answers: Sequence[str]) -> float:
    """The harmonic mean of the words' precision and recall, for the answer that gives the highest."""
    return max(_word_f1(normalised(prediction).split(), normalised(answer).split()) for answer in answers)


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """1.0 if the prediction is one of the answers, else 0.0."""
    return float(any(normalised(prediction) == normalised(answer) for answer in answers))


def _word_f1(prediction: list[str], answer: list[str]) -> float:
    same = sum((Counter(prediction) & Counter(answer)).values())
    if not same:
        return 0.0
    precision, recall = same / len(prediction), same / len(answer)
    return 2 * precision * recall / (precision + recall)


def best_spans(starts: NDArray[Any], ends: NDArray[Any], longest: int) -> NDArray[np.int64]:
    """(n, 2): first and last token of the span with the highest sum of logits, at most ``longest`` tokens long.

    ``starts`` and ``ends`` are (n, length). Among equal spans the first and shortest wins.
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
class _Span(_Share):
    """A mean over questions of how well the predicted span matches.

    The split's ``reference`` has a :class:`levelbench.training.datasets.text.Passage` for each question.
    """

    longest: int = 30

    @staticmethod
    @abstractmethod
    def compare(prediction: str, answers: Sequence[str]) -> float:
        """From 0 to 1."""

    def measure(self, executor: Executor, held: Held) -> float:
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
    """The mean over questions of the word F1 between the predicted span and the closest answer."""

    metric: ClassVar[str] = "f1"
    compare = staticmethod(f1)


@dataclass(frozen=True)
class SpanExactMatch(_Span):
    """The share of questions whose predicted span is one of the answers after normalisation."""

    metric: ClassVar[str] = "exact_match"
    compare = staticmethod(exact_match)


_TRANSLATED_ROWS = 250
# Prefixes grow by this many tokens at a time, so that a framework that compiles by shape compiles few shapes.
_PREFIX_STEP = 8


def greedy(
    infer: Callable[[Array], tuple[Array, ...]],
    array: Callable[[NDArray[Any]], Array],
    host: Callable[[Array], NDArray[Any]],
    rows: int,
    longest: int,
) -> NDArray[np.int64]:
    """(rows, longest): the most likely next token, repeatedly, until each row has its ``END``, and 0 after it.

    ``infer`` takes the tokens so far, (rows, some length) of int64 starting with ``BEGIN``, and returns logits (rows,
    that length, tokens), in which position i depends only on tokens up to i.
    """
    from levelbench.training.datasets.text import BEGIN, END

    prefix = np.zeros((rows, longest + 1), np.int64)
    prefix[:, 0] = BEGIN
    done = np.zeros(rows, bool)
    for at in range(longest):
        width = min(longest, (at // _PREFIX_STEP + 1) * _PREFIX_STEP)
        (logits, *_) = infer(array(np.ascontiguousarray(prefix[:, :width])))
        chosen = np.asarray(host(logits[:, at].argmax(-1)))
        prefix[:, at + 1] = np.where(done, 0, chosen)
        done |= chosen == END
        if done.all():
            break
    return prefix[:, 1:]


@dataclass(frozen=True)
class Bleu(Quality):
    """Corpus BLEU from 0 to 100: mixed case, tokenised as 13a, exponential smoothing, one reference.

    The split's inputs are the encoder's, then the decoder's ``target_ids``; its ``reference`` has the texts and
    ``decode(ids)``.
    """

    metric: ClassVar[str] = "bleu"
    direction: ClassVar[Literal["higher", "lower"]] = "higher"
    low: ClassVar[float] = 0.0
    high: ClassVar[float] = 100.0

    def measure(self, executor: Executor, held: Held) -> float:
        """Translate all of ``held`` greedily and compare with the references."""
        return float(
            _scorer().corpus_score(self.translations(executor, held), [list(held.split.reference or ())]).score
        )

    def translations(self, executor: Executor, held: Held) -> list[str]:
        """The network's translation of each example, at most as long as the split's targets."""
        reference: Any = held.split.reference
        found: list[str] = []
        for columns in held.batches(_TRANSLATED_ROWS):
            *encoded, targets = columns[: -held.split.targets]
            rows, longest = targets.shape

            def infer(prefix: Array, encoded: list[Array] = encoded) -> tuple[Array, ...]:
                return executor.infer(*encoded, prefix)

            ids = greedy(infer, held.backend.array, held.backend.host, rows, longest)
            found += [reference.decode(row) for row in ids.tolist()]
        return found

    @property
    def signature(self) -> str:
        """The options and version as sacrebleu states them; to be kept with every score."""
        scorer = _scorer()
        # It includes the number of references, which is known only after some were scored.
        scorer.corpus_score(["a"], [["a"]])
        return str(scorer.get_signature())

    def lacks(self) -> str | None:
        return None if find_spec("sacrebleu") else 'sacrebleu is not installed: pip install "levelbench[text]"'


def _scorer() -> Any:
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise MissingError("BLEU", f"sacrebleu is not installed ({error})", 'pip install "levelbench[text]"') from None
    return BLEU(tokenize="13a", smooth_method="exp", lowercase=False, effective_order=False)
