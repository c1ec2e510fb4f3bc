"""Checks qualities on answers that are made up: right, random, equal and lost ones in place of the network's outputs.

What a network happens to answer shows little: an untrained one gives most examples the same class, and a mean of
batches or a best value so far then equals the right figure. Where a quality reads the first output of an ordinary
classifier, tagger or regression, its outputs are therefore looked up by an example's inputs. A quality that infers
anything else (a translation, its own views of an image) is measured on the network's own outputs.
"""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, cast, final

import numpy as np
from numpy.typing import NDArray

from levelbench.checks.findings import Finding, failed, not_tried, passed
from levelbench.measure.crossing import sign_of
from levelbench.networks.executor import Array
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.input import Held
from levelbench.training.probes.bench import Bench, part_of, reordered
from levelbench.training.probes.formulas import values_of
from levelbench.training.probes.task import constant_answer
from levelbench.training.quality import Quality

Outputs = NDArray[np.float32]

_ROWS = 7
"""No number of rows that a quality asks for, and no divisor of one."""
_EXAMPLES = 128
_SHORT = 4096
_SURE = 12.0
_NOISE = 2.0


def qualities(bench: Bench, seed: int) -> Iterator[Finding]:
    """Each quality is a function of the outputs and the labels alone, and better where they agree."""
    wrong = False
    for each in (bench.quality, *bench.also):
        for finding in _Trial(bench, each, seed).findings():
            wrong = wrong or finding.status == "failed"
            yield finding
    if not wrong:
        yield passed("in any batches and order, after other outputs, and better for better outputs")


class _Unknown(Exception):
    """A quality infers what is no example of the split."""


@final
class _Rebatched:
    """The same examples in smaller batches than asked for."""

    def __init__(self, held: Held) -> None:
        self.backend, self.split, self._held = held.backend, held.split, held

    def batches(self, size: int = 1000) -> Iterator[tuple[Array, ...]]:
        return self._held.batches(min(size, _ROWS))

    def __len__(self) -> int:
        return len(self._held)


@final
class _Trial:
    """One quality on a copy of the validation split."""

    def __init__(self, bench: Bench, quality: Quality, seed: int) -> None:
        self._bench, self._quality, self._seed = bench, quality, seed
        held_out = bench.dataset.validation
        # A quality that infers an example many times is measured on fewer.
        made_up = all(isinstance(each, np.ndarray) and each[:1].size <= _SHORT for each in held_out.columns)
        self._split = part_of(held_out, 4 * _EXAMPLES if made_up else _EXAMPLES)
        self._training = bench.start_training(seed)
        self._executor = self._training.executor
        self._generator = np.random.default_rng(seed)

    def findings(self) -> Iterator[Finding]:
        """What is wrong with it."""
        held = self._held(part_of(self._split, _EXAMPLES))
        before = self._contents(held)
        self._quality.measure(self._bench.start_training(self._seed).executor, held)
        if before != self._contents(held):
            found = f"{self._quality.metric} changes the examples of the split"
            do = "copy an array before you change it: the next evaluation reads it again"
            yield failed(found, do, probe="data left alone")
            return
        answers = self._answers()
        try:
            try:
                if answers is None:
                    raise _Unknown
                yield from _until_failed(self._by_answers(answers))
            except _Unknown:
                self._split = part_of(self._split, _EXAMPLES)
                yield from _until_failed(self._by_weights())
        finally:
            cast(Any, self._executor).__dict__.pop("infer", None)

    def _contents(self, held: Held) -> list[bytes]:
        return [self._bench.host(each).tobytes() for columns in held.batches() for each in columns]

    def _held(self, split: Split | None = None) -> Held:
        # A copy: what a quality does to it does not reach the next measurement.
        some = split or self._split
        return self._bench.held(reordered(some, np.arange(len(some))))

    # With made-up outputs.

    def _answers(self) -> _Answers | None:
        split, truth = self._split, self._split.labels
        if split.targets != 1 or not isinstance(truth, np.ndarray) or not len(split):
            return None
        batches = [
            tuple(self._bench.host(each) for each in columns[:-1]) for columns in self._bench.held(split).batches()
        ]
        outputs = self._executor.infer(*[self._bench.backend.array(each[:_ROWS]) for each in batches[0]])
        if len(outputs) != 1:
            return None
        shape, keys = tuple(map(int, outputs[0].shape[1:])), [key for each in batches for key in _keys(each)]
        kind = _kind_of(shape, truth)
        return None if not kind else _Answers(kind, shape, keys, truth, self._bench.dataset)

    def _measure(self, quality: Quality, held: Any, answers: _Answers, outputs: Outputs) -> float:
        """The quality where the network answers ``outputs``."""
        places = {key: at for at, key in enumerate(answers.keys)}
        host, array = self._bench.host, self._bench.backend.array

        def infer(*inputs: Array) -> tuple[Array, ...]:
            found = [places.get(key, -1) for key in _keys(tuple(host(each) for each in inputs))]
            if all(at < 0 for at in found):
                raise _Unknown
            rows = outputs[found].copy()
            # Rows that are no examples fill up a batch.
            rows[[at < 0 for at in found]] = 0
            return (array(rows),)

        cast(Any, self._executor).infer = infer
        return float(quality.measure(self._executor, held))

    def _by_answers(self, answers: _Answers) -> Iterator[Finding]:
        quality, metric = self._quality, self._quality.metric
        random, other = (answers.random(self._generator) for _ in range(2))
        fresh = copy.deepcopy(quality)

        def measured(outputs: Outputs, held: Any = None, of: Quality = quality) -> float:
            return self._measure(of, held or self._held(), answers, outputs)

        first = measured(random)
        for _ in range(4):
            if not _same(again := measured(random), first):
                found = f"{metric} is {first:.4g} and {again:.4g} for the same outputs"
                do = "use all examples and no random numbers, and keep nothing from one call to the next"
                yield failed(found, do, probe="repeated")
                return
        yield from self._same_in_batches(first, lambda held: measured(random, held))
        second = measured(other)
        expected = self._measure(fresh, self._held(), answers, other)
        third = measured(random)
        if not (_same(second, expected) and _same(first, third)):
            found = f"{metric} is {second:.4g} for outputs of which a new one says {expected:.4g}, and {third:.4g} for"
            found += f" the first outputs again, where it was {first:.4g}"
            do = "keep nothing from one call of measure() to the next: no cache, best value or average"
            yield failed(found, do, probe="other weights")
            return
        yield from self._by_formula(answers, random, first)
        if answers.kind == "classes":
            # Figures differ in what they make of a class that is never answered.
            silent = random.copy()
            silent[:, int(answers.truth[0])] = random.min() - 1
            yield from self._by_formula(answers, silent, measured(silent))
        # As far below chance as the others are above it.
        worse = 2 * random.mean(axis=0, keepdims=True) - random
        if answers.kind in ("classes", "numbers") and values_of(quality, worse, answers.truth):
            yield from self._by_formula(answers, worse, measured(worse))
        yield from self._extremes(answers, first, measured)

    def _by_formula(self, answers: _Answers, outputs: Outputs, measured: float) -> Iterator[Finding]:
        truth = values_of(self._quality, outputs, answers.truth)
        if truth and not any(_same(measured, each) for each in truth):
            shown = " or ".join(f"{each:.6g}" for each in truth)
            found = f"{self._quality.metric} is {measured:.6g} for outputs whose {self._quality.metric} is {shown}"
            yield failed(found, "correct the formula, or give the figure another name", probe="formula")

    def _extremes(self, answers: _Answers, random: float, measured: Callable[[Outputs], float]) -> Iterator[Finding]:
        """Right outputs are better than random ones and reach the target; equal and lost ones do not."""
        quality, metric = self._quality, self._quality.metric
        sign, target = sign_of(quality.direction), quality.target
        best = measured(answers.right())
        if math.isnan(best) or not quality.low <= random <= quality.high:
            # Off its scale: another probe's finding.
            return
        if _same(best, random) and _same(measured(answers.random(self._generator)), best):
            yield failed(f"{metric} is {best:.4g} whatever the network answers", "compare the outputs with the labels",
                         probe="direction")  # fmt: skip
            return
        if sign * best < sign * random:
            found = f"{metric} is {best:.4g} where every answer is right and {random:.4g} where many are wrong, and"
            yield failed(
                f"{found} {quality.direction} is better", "correct the direction, or the measure", probe="direction"
            )
            return
        constants = [measured(each) for each in answers.constant()]
        tied, *named = constants
        # A single class is 1, or -1, of right answers whatever is answered.
        open_to_one = answers.kind in ("classes", "tokens") and sign * tied <= max(sign * each for each in named)
        if answers.kind != "numbers" and not open_to_one and _same(tied, best):
            what = "items" if answers.kind == "items" else "classes"
            found = f"{metric} is {tied:.4g} for a network that gives all {what} the same score"
            advice = {
                "items": "let ties count against the relevant item",
                "classes": "let one class win a tie, as argmax does",
            }
            yield failed(found, advice[what], probe="ties")
            return
        gaps = answers.right().copy()
        gaps[::2] = np.nan
        if not _same(best, random) and _same(self._lost(gaps, measured), best):
            found = f"{metric} is {best:.4g} for right outputs, and also where every second one is NaN"
            yield failed(found, "count an example as wrong unless its outputs are numbers", probe="not finite")
            return
        if quality is not self._bench.quality:
            return
        if sign * best < sign * target and not _same(best, target):
            found = f"with the best answer to each different input {metric} is {best:.4g}, and the target is {target:g}"
            do = "lower the target, or correct the labels of equal inputs: no network can do better"
            yield failed(found, do, probe="reach")
            return
        lost = self._lost(np.full_like(answers.right(), np.nan), measured)
        if sign * lost >= sign * target:
            found = f"{metric} is {lost:.4g} for a network whose outputs are all NaN"
            yield failed(found, "count an example as wrong unless its outputs are numbers", probe="not finite")
            return
        empty = max(constants, key=lambda each: -math.inf if math.isnan(each) else sign * each)
        known = constant_answer(quality, self._bench.dataset.validation.labels)
        if sign * empty >= sign * target and (known is None or sign * known < sign * target):
            found = (
                f"{metric} is {empty:.4g} for a network that answers every example alike, and the target is {target:g}"
            )
            yield failed(found, "choose a target that needs the inputs", probe="constant")

    def _lost(self, outputs: Outputs, measured: Callable[[Outputs], float]) -> float:
        """The quality of outputs with NaN; NaN where it refuses them."""
        try:
            with np.errstate(all="ignore"):
                return measured(outputs)
        except _Unknown:
            raise
        except Exception:  # noqa: BLE001  # refusing NaN is right, too
            return math.nan

    def _same_in_batches(self, value: float, measured: Callable[[Any], float], slack: float = 0.0) -> Iterator[Finding]:
        """The same value in small batches and in another order."""
        metric = self._quality.metric
        try:
            small = measured(_Rebatched(self._held()))
        except _Unknown:
            raise
        except Exception as error:  # noqa: BLE001  # user code may raise anything
            found = f"{metric} raises {type(error).__name__} with batches of {_ROWS}: {error}"
            yield failed(found, "take batches of any size: the last one is smaller", probe="batch size")
            return
        if not _same(value, small, slack):
            found = f"{metric} is {value:.6g}, and {small:.6g} if the split comes in batches of {_ROWS}"
            do = "add up over all rows and divide once: no mean of the batches' figures, no padding, no rest left out"
            yield failed(found, do, probe="batch size")
            return
        turned = measured(self._held(reordered(self._split, self._generator.permutation(len(self._split)))))
        if not _same(value, turned, slack):
            found = f"{metric} is {value:.6g}, and {turned:.6g} for the same examples in another order"
            yield failed(found, "let each example count alike, wherever it stands", probe="order of examples")

    # With the network's own outputs.

    def _by_weights(self) -> Iterator[Finding]:
        cast(Any, self._executor).__dict__.pop("infer", None)
        quality, executor = self._quality, self._executor
        first = float(quality.measure(executor, self._held()))
        # Rounding depends on the batch and may change an answer.
        slack = 1.5 / len(self._split)
        yield from self._same_in_batches(
            first, lambda held: float(quality.measure(executor, held)), slack * _scale(quality)
        )
        kept = {name: self._bench.host(each).copy() for name, each in executor.parameters.items()}
        other = self._bench.start_training(self._seed + 1).executor
        fresh = copy.deepcopy(quality)
        executor.parameters.update(
            {name: self._bench.backend.array(self._bench.host(each).copy()) for name, each in other.parameters.items()}
        )
        second, expected = (float(each.measure(executor, self._held())) for each in (quality, fresh))
        executor.parameters.update({name: self._bench.backend.array(each) for name, each in kept.items()})
        third = float(quality.measure(executor, self._held()))
        if not (_same(second, expected) and _same(first, third)):
            found = f"{quality.metric} is {first:.4g}, and {third:.4g} on the same weights after others"
            do = "keep nothing from one call of measure() to the next: no cache, best value or average"
            yield failed(found, do, probe="other weights")
            return
        yield not_tried(f"{quality.metric} on outputs that are made up: its network has others than one score a class")


def _until_failed(findings: Iterator[Finding]) -> Iterator[Finding]:
    """The findings up to the first failure: what follows is its effect."""
    for each in findings:
        yield each
        if each.status == "failed":
            return


def _scale(quality: Quality) -> float:
    return quality.high - quality.low if math.isfinite(quality.high - quality.low) else 1.0


def _same(a: float, b: float, slack: float = 0.0) -> bool:
    if math.isinf(a) or math.isinf(b):
        return a == b
    return (math.isnan(a) and math.isnan(b)) or abs(a - b) <= 1e-4 * max(1e-3, abs(a), abs(b)) + slack


def _keys(columns: tuple[NDArray[Any], ...]) -> list[int]:
    return [hash(tuple(part.tobytes() for part in row)) for row in zip(*columns, strict=True)]


def _kind_of(shape: tuple[int, ...], truth: NDArray[Any]) -> str:
    """What outputs of this shape answer: a class an example, one a token, an item of each row, or numbers."""
    if (
        truth.dtype.kind in "iu"
        and truth.shape[1:] == shape[:-1]
        and shape
        and shape[-1] > int(truth.max())
        and shape[-1] > 1
    ):
        return "classes" if truth.ndim == 1 else "tokens" if truth.ndim == 2 else ""
    if truth.dtype.kind == "f" and [each for each in shape if each != 1] == [
        each for each in truth.shape[1:] if each != 1
    ]:
        # Of each row one item is relevant, with a target of 1, and the others are not.
        one = truth.ndim == 2 and truth.shape[1] > 1 and bool(np.all((truth == 1).sum(axis=1) == 1))
        return "items" if one and np.count_nonzero(truth) == len(truth) else "numbers"
    return ""


@final
class _Answers:
    """Made-up outputs of shape (n, ...) for the examples of a split, the same for equal inputs."""

    def __init__(
        self, kind: str, shape: tuple[int, ...], keys: list[int], truth: NDArray[Any], dataset: Dataset
    ) -> None:
        self.kind, self.keys, self.truth = kind, keys, truth
        self._shape, self._dataset = (len(truth), *shape), dataset
        last: dict[int, int] = {key: at for at, key in enumerate(keys)}
        self._place = np.array([last[key] for key in keys])
        self._groups: dict[int, list[int]] = {}
        for at, key in enumerate(keys):
            self._groups.setdefault(key, []).append(at)

    def right(self) -> Outputs:
        """The best answer to each different input: its most frequent label, or its mean target."""
        wanted = self.truth.copy()
        for places in self._groups.values():
            if len(places) > 1 and self.kind in ("numbers", "items"):
                wanted[places] = self.truth[places].mean(axis=0)
            elif len(places) > 1 and self.kind == "classes":
                wanted[places] = Counter(self.truth[places].tolist()).most_common(1)[0][0]
            elif len(places) > 1:
                wanted[places] = self.truth[places[0]]
        return self._scores(wanted, _SURE)

    def _scores(self, wanted: NDArray[Any], sure: float) -> Outputs:
        if self.kind == "numbers":
            return np.asarray(wanted.reshape(self._shape), np.float32)
        if self.kind == "items":
            return np.asarray(sure * wanted.reshape(self._shape), np.float32)
        scores = np.zeros(self._shape, np.float32)
        valid = np.maximum(wanted, 0)[..., None]
        np.put_along_axis(scores, valid, np.float32(sure), -1)
        return scores

    def random(self, generator: np.random.Generator) -> Outputs:
        """Right and wrong ones."""
        noise = generator.standard_normal(self._shape)
        # Unequal shares of what is right: a mean of batches is another figure then.
        sure = np.linspace(0.2, 2.0, self._shape[0]).reshape(-1, *[1] * (len(self._shape) - 1))
        if self.kind == "numbers":
            spread = max(float(np.std(self.truth)), 1e-3)
            made = self._scores(self.truth, 1.0) + spread * noise * sure
        else:
            made = _NOISE * noise + sure * self._scores(self.truth, _NOISE)
        found: Outputs = np.asarray(made, np.float32)[self._place]
        return found

    def constant(self) -> list[Outputs]:
        """Outputs equal for all examples: equal scores first, then each class or item; or means of training."""
        if self.kind == "numbers":
            train = np.asarray(self._dataset.train.labels, np.float64)
            made = [np.broadcast_to(each, self.truth.shape) for each in (train.mean(axis=0), np.median(train, axis=0))]
            return [self._scores(np.asarray(each), 1.0) for each in made]
        if self.kind == "items":
            places = np.eye(self.truth.shape[1])[:32]
            made = [np.zeros_like(self.truth), *(np.broadcast_to(each, self.truth.shape) for each in places)]
            return [self._scores(each, _SURE) for each in made]
        classes = np.unique(self.truth[self.truth >= 0])[:32]
        return [
            np.zeros(self._shape, np.float32),
            *(self._scores(np.full_like(self.truth, each), _SURE) for each in classes),
        ]
