"""Checks a recipe's network and loss together: what the loss depends on, and whether a lower one means a better figure.

A loss that ignores the labels, pairs them with other examples or has the wrong sign falls like a right one. It differs
in what it depends on (the label of every example, and its own), and in what becomes of the quality as it falls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from levelbench.checks.findings import Finding, failed, not_tried, noted, passed
from levelbench.measure.clocks import HOST
from levelbench.measure.crossing import sign_of
from levelbench.networks.executor import Array, Executor
from levelbench.networks.native import NativeNetwork
from levelbench.training.datasets.base import Split
from levelbench.training.probes.bench import Bench, chance_loss, part_of, reordered

_EXAMPLES = 8
_DRAWS = 16
_APART = 5.0
_IGNORED = 0.8
_ROUNDING = 1e-3
_EXPLODING = 100.0
_MOST_CLASSES, _NOISES = 32, 4
_SURE = (0.5, 1.0, 3.0, 10.0)
_CUT = 0.05


def outputs(bench: Bench, seed: int) -> Iterator[Finding]:
    """An example's outputs do not depend on the others of its batch, nor are they probabilities before a softmax."""
    executor, rows = bench.executor(bench.plain, seed), bench.rows(2 * _EXAMPLES)
    inputs = rows[: -bench.dataset.train.targets]
    count = len(rows[-1])
    if count < 2:
        yield not_tried("there is one example")
        return
    host = bench.host
    whole = [host(each).astype(np.float64) for each in executor.infer(*inputs)]
    first = [host(each).astype(np.float64) for each in executor.infer(*[each[: count // 2] for each in inputs])]
    for ours, its in zip(whole, first, strict=True):
        if ours.shape[:1] != (count,) or its.shape[:1] != (count // 2,) or ours.shape[1:] != its.shape[1:]:
            continue
        off = float(np.abs(ours[: count // 2] - its).max(initial=0))
        if off > _ROUNDING * max(float(np.abs(ours).max(initial=0)), 1e-6):
            more = count - count // 2
            found = f"the outputs of {count // 2} examples change by {off:.2g} if {more} more are in their batch"
            do = "let inference treat each example by itself: no statistics of the batch, no noise, nothing kept"
            yield failed(found, do)
            return
    if (
        leak := _sees_answers(bench, executor, [bench.host(each) for each in inputs], bench.host(rows[-1]))
    ) is not None:
        found = (
            f"the outputs at a place of column {leak} depend on later tokens of it, which are the labels of that place"
        )
        yield failed(found, "mask later places, as a causal attention does: a prediction must not see its answer")
        return
    scores = whole[0]
    if not bench.recipe.network.has_loss:
        sums = scores.sum(axis=-1) if scores.ndim == 2 else np.zeros(1)
        if scores.ndim == 2 and scores.shape[1] > 1 and (scores >= 0).all() and np.abs(sums - 1).max() < 1e-4:
            found = "the outputs are shares that add up to 1, and cross-entropy applies a softmax to them again"
            yield failed(found, "return the scores before the softmax, or give a loss that takes shares")
            return
    # Shares may be 0, too, and evidence is not negative; these have losses of their own.
    if chance_loss(bench.dataset) is not None and scores.ndim == 2 and 1 < scores.shape[1] >= bench.dataset.classes:
        cut = float((scores == 0).mean())
        if _CUT < cut < 1 and scores.min() == 0 and np.abs(scores.sum(axis=-1) - 1).max() > 1e-4:
            found, do = f"{cut:.0%} of the scores are 0, and none is below", "leave out the ReLU after the last layer"
            yield noted(found, do) if bench.recipe.network.has_loss else failed(found, do)
            return
    yield passed("each example's outputs are its own")


def _sees_answers(bench: Bench, executor: Executor, inputs: list[NDArray[Any]], labels: NDArray[Any]) -> int | None:
    """The column of tokens whose next ones are the labels, where outputs depend on tokens after their place."""
    for at, tokens in enumerate(inputs):
        if tokens.ndim != 2 or tokens.shape != labels.shape or tokens.dtype.kind not in "iu" or labels.shape[1] < 4:
            continue
        if (tokens[:, 1:] != labels[:, :-1]).mean() > 0.01:
            continue
        half = labels.shape[1] // 2
        others = tokens.copy()
        # Tokens of the data, in the places of others.
        others[:, half:] = np.roll(others[:, half:], 1, axis=0)
        others[:, half:] = np.roll(others[:, half:], 1, axis=1)
        ends = []
        for each in (tokens, others):
            columns = [*inputs[:at], each, *inputs[at + 1 :]]
            ends.append(bench.host(executor.infer(*map(bench.backend.array, columns))[0]).astype(np.float64))
        if ends[0].shape[:2] != labels.shape:
            continue
        before = [each[:, :half] for each in ends]
        if np.abs(before[0] - before[1]).max() > _ROUNDING * max(float(np.abs(before[0]).max()), 1e-6):
            return at
    return None


def loss(bench: Bench, seed: int) -> Iterator[Finding]:
    """The loss depends on the labels of every example, each with its own inputs; at first it is no monster."""
    executor = bench.executor(bench.plain, seed)
    batch = tuple(np.array(bench.host(each)) for each in bench.rows(_EXAMPLES))
    targets = bench.dataset.train.targets
    rows = len(batch[-1])
    if rows < 3:
        yield not_tried("there are too few examples")
        return
    first = _mean_loss(bench, executor, batch, 1)[0]
    chance = chance_loss(bench.dataset)
    own = bench.recipe.network.has_loss
    if not own and chance is not None and math.isfinite(first) and first > _EXPLODING * max(chance, 0.1):
        found = f"it is {first:.3g} before training, where giving each class its share costs {chance:.3g}"
        yield failed(found, "lower the initial weights, or bring the inputs to a range of about -1 to 1")
        return
    if not own:
        # levelbench's own cross-entropy is tested elsewhere.
        yield passed(f"it is {first:.3g} before training")
        return
    base, ignored, tried = first, 0, 0
    for row in range(rows):
        other = next((at for at in range(rows) if any((c[at] != c[row]).any() for c in batch[-targets:])), None)
        if other is None:
            continue
        swapped = [column.copy() for column in batch]
        for column in swapped[-targets:]:
            column[row] = column[other]
        tried += 1
        ignored += _mean_loss(bench, executor, tuple(swapped), 1)[0] == base
    if tried and ignored > _IGNORED * tried:
        found = f"it does not depend on the labels of {ignored} of {tried} examples: with others it is the same"
        yield failed(found, "compare each example's outputs with its label, and take the mean over all examples")
        return
    # The same pairs in another order: dropout falls on other rows, so means over draws are compared.
    order = np.random.default_rng(seed).permutation(rows)
    turned = tuple(column[order] for column in batch)
    draws = 1 if _mean_loss(bench, executor, batch, 2)[1] == 0 else _DRAWS
    (mean, error), (other_mean, other_error) = (_mean_loss(bench, executor, each, draws) for each in (batch, turned))
    slack = _APART * math.hypot(error, other_error) + _ROUNDING * max(abs(mean), 1e-6)
    if abs(mean - other_mean) > slack:
        found = f"it is {mean:.4g}, and {other_mean:.4g} for the same examples with the same labels in another order"
        yield failed(found, "pair each example's outputs with its own label")
        return
    if (each := _ignored_class(bench, seed)) is not None:
        found = f"it does not depend on the outputs of examples of class {each}, which is a class of the data"
        yield failed(found, "give each class its share of the loss: ignore_index is for labels of no class")
        return
    if (scored := _scored(bench, seed)) is not None:
        random = np.random.default_rng(seed)
        if (each := _ignored_score(scored, random)) is not None:
            found = f"it does not depend on the score of class {each}, for any example"
            yield failed(found, "compare the scores of all classes with the label: the quality takes the highest")
            return
        if misled := _misled(scored, random):
            yield failed(*misled)
            return
    if sides := _other_side(bench, seed):
        yield failed(sides, "swap the two shares of the loss, or correct the sign of the difference in it")
        return
    if scored is not None and scored.adds_up():
        found = "it adds up over examples: a step grows with its batch, and a smaller last one counts less"
        yield noted(found, "take the mean over examples, or choose the rate for this batch")
        return
    yield passed("it depends on each example's label, and not on their order")


def _classes(split: Split) -> NDArray[Any] | None:
    """The class of each example, (n,); ``None`` if it has another target, or more than one."""
    labels = split.labels
    if split.targets != 1 or not isinstance(labels, np.ndarray) or labels.ndim != 1 or labels.dtype.kind not in "iu":
        return None
    return labels


def _ignored_class(bench: Bench, seed: int) -> int | None:
    """A class whose examples' outputs the loss leaves out, with others in the batch; ``None`` if there is none.

    The loss is called alone, as normalisation would let examples depend on each other. ``None`` also if examples have
    more than one label, or the loss takes anything but one array of outputs.
    """
    network, split, array = bench.recipe.network, bench.dataset.train, bench.backend.array
    labels = _classes(split)
    if labels is None or not isinstance(network, NativeNetwork) or network.loss is None:
        return None
    random, classes = np.random.default_rng(seed), np.unique(labels[labels >= 0])[:_MOST_CLASSES]
    executor = bench.executor(bench.plain, seed)
    for each in classes.tolist():
        own, others = np.flatnonzero(labels == each)[:2], np.flatnonzero(labels != each)[:_EXAMPLES]
        columns = next(iter(bench.held(reordered(split, np.append(own, others))).batches(_EXAMPLES + 2)))
        found = executor.infer(*columns[:-1])
        if len(found) > 1 or len(found[0]) != len(own) + len(others):
            return None
        scores, values = np.array(bench.host(found[0])), set()
        for _ in range(_NOISES):
            disturbed = scores.copy()
            noise = random.standard_normal(scores[: len(own)].shape)
            disturbed[: len(own)] += (3 * (1 + np.abs(scores).max()) * noise).astype(scores.dtype)
            try:
                values.add(float(bench.host(network.loss(array(disturbed), columns[-1]))))
            except Exception:  # noqa: BLE001  # it may take what a module returns in training only
                return None
        if len(values) == 1:
            return int(each)
    return None


@dataclass(frozen=True)
class _Scored:
    """Some examples of each class with the network's scores, of which a loss of one's own is asked alone."""

    bench: Bench
    classes: list[int]
    labels: NDArray[Any]
    scores: NDArray[Any]
    truth: Array

    def loss(self, scores: NDArray[Any], times: int = 1) -> float | None:
        """Of these scores, or of all examples ``times`` times; ``None`` if it takes what only a training step has."""
        array, host = self.bench.backend.array, self.bench.host
        loss = cast(Any, self.bench.recipe.network).loss
        try:
            truth = self.truth if times == 1 else array(np.tile(host(self.truth), times))
            return float(host(loss(array(np.tile(scores, (times, 1)).astype(self.scores.dtype)), truth)))
        except Exception:  # noqa: BLE001  # user code may raise anything
            return None

    def adds_up(self) -> bool:
        """Whether the loss of all examples twice is twice that of each once."""
        noise = np.random.default_rng(0).standard_normal(self.scores.shape)
        once, twice = self.loss(noise), self.loss(noise, 2)
        return once is not None and twice is not None and abs(twice - 2 * once) <= _ROUNDING * abs(once) > 0

    def sure(self, turn: int, by: float) -> NDArray[Any]:
        """Scores of 0, and ``by`` for the class that comes ``turn`` places after an example's own."""
        place = {each: self.classes[(at + turn) % len(self.classes)] for at, each in enumerate(self.classes)}
        made = np.zeros_like(self.scores)
        made[np.arange(len(made)), [place[each] for each in self.labels.tolist()]] = by
        return made


def _scored(bench: Bench, seed: int) -> _Scored | None:
    """Two examples of each class; ``None`` as :func:`_ignored_class`, or if there are fewer scores than classes."""
    network, split = bench.recipe.network, bench.dataset.train
    labels = _classes(split)
    if labels is None or not isinstance(network, NativeNetwork) or network.loss is None:
        return None
    classes = np.unique(labels[labels >= 0])[:_MOST_CLASSES].tolist()
    chosen = np.concatenate([np.flatnonzero(labels == each)[:2] for each in classes])
    columns = next(iter(bench.held(reordered(split, chosen)).batches(len(chosen))))
    found = bench.executor(bench.plain, seed).infer(*columns[:-1])
    scores = np.array(bench.host(found[0]))
    if len(found) > 1 or len(classes) < 2 or scores.ndim != 2 or scores.shape[1] <= classes[-1]:
        return None
    return _Scored(bench, classes, labels[chosen], scores, columns[-1])


def _ignored_score(scored: _Scored, random: np.random.Generator) -> int | None:
    """A class of the data whose score has no effect on the loss, for any example."""
    scores = scored.scores
    for each in scored.classes:
        values = set[float | None]()
        for _ in range(_NOISES):
            disturbed = scores.copy()
            noise = random.standard_normal(len(scores)).astype(scores.dtype)
            disturbed[:, each] += 3 * (1 + np.abs(scores).max()) * noise
            values.add(scored.loss(disturbed))
        if None in values:
            return None
        if len(values) == 1:
            return each
    return None


def _misled(scored: _Scored, random: np.random.Generator) -> tuple[str, str] | None:
    """What a loss of scores asks for that is not the right class, and what to do."""
    found = [[scored.loss(scored.sure(turn, by)) for by in _SURE] for turn in (0, 1, -1)]
    # Squares are least where a score is 1, and entropies where it is high.
    best = [min(each for each in values if each is not None) for values in found if None not in values]
    if len(best) < len(found):
        return None
    right, wrong = best[0], min(best[1:])
    if wrong <= right + 1e-6 * abs(right):
        said = f"it is {right:.3g} at best where the right class has the highest score, {wrong:.3g} where another has"
        return said, "let it fall as the score of an example's own class rises: the quality takes the highest"
    noise = random.standard_normal((_NOISES, *scored.scores.shape))
    if scored.scores.min() < 0:
        below = {scored.loss(each - np.abs(noise).max() - 1) for each in noise}
        if len(below) == 1 and None not in below:
            said = "it is the same for all scores below 0, so that what falls there learns no more"
            return said, "take the scores as they are, without a ReLU or a limit"
    once, again, twice = (scored.loss(noise[0], times) for times in (1, 1, 2))
    if once is None or again is None or twice is None or once != again or not math.isfinite(once + twice):
        return None
    slack = _ROUNDING * max(abs(once), 1e-6)
    if abs(twice - once) > slack and abs(twice - 2 * once) > 2 * slack:
        said = f"it is {once:.4g} for some examples and {twice:.4g} for each of them twice"
        return said, "take the softmax over classes, the last axis, and the mean over examples, the first"
    return None


def _other_side(bench: Bench, seed: int) -> str:
    """Whether a loss of numbers is least above the truth where the quality is best below it, or the other way round."""
    network, array, host, quality = bench.recipe.network, bench.backend.array, bench.host, bench.quality
    part = part_of(bench.dataset.train, _LEARNT_FROM)
    if part.targets != 1 or not isinstance(network, NativeNetwork) or network.loss is None:
        return ""
    held, executor = bench.held(part), bench.executor(bench.plain, seed)
    columns = next(iter(held.batches(len(part))))
    truth, outputs = host(columns[-1]).astype(np.float64), executor.infer(*columns[:-1])
    shape = host(outputs[0]).shape
    if truth.dtype.kind != host(columns[-1]).dtype.kind or len(outputs) > 1 or math.prod(shape) != truth.size:
        return ""
    spread = float(truth.std()) * np.random.default_rng(seed).standard_normal(truth.shape)
    ends = []
    for offset in np.linspace(-2, 2, 17) * float(truth.std()):
        made = (truth + spread + offset).reshape(shape).astype(np.float32)
        rows = iter(range(len(made)))
        # On the executor itself, as a quality may use what this framework's has.
        cast(Any, executor).infer = lambda *inputs, made=made, rows=rows: (
            array(made[[next(rows) for _ in range(len(inputs[0]))]]),
        )
        try:
            ends.append((float(host(network.loss(array(made), columns[-1]))), quality.measure(executor, held)))
        except Exception:  # noqa: BLE001  # user code may raise anything, and a quality may infer more than once
            return ""
    losses, figures = np.array(ends).T
    figures *= sign_of(quality.direction)
    least, best, middle = int(losses.argmin()), int(figures.argmax()), len(ends) // 2
    if not np.isfinite(ends).all() or (least - middle) * (best - middle) >= 0 or figures[least] >= figures[middle]:
        return ""
    sides = "above" if least > middle else "below", "above" if best > middle else "below"
    return f"it is least for outputs {sides[0]} the truth, and {quality.metric} is best for outputs {sides[1]} it"


def _mean_loss(bench: Bench, executor: Executor, batch: tuple[NDArray[Any], ...], draws: int) -> tuple[float, float]:
    """The mean loss over random draws of the network, and its standard error."""
    columns = tuple(bench.backend.array(each) for each in batch)
    values = []
    for draw in range(draws):
        bench.backend.seed(draw)
        values.append(float(bench.host(executor.forward(*columns))))
    return float(np.mean(values)), float(np.std(values) / math.sqrt(len(values)))


def statistics(bench: Bench, seed: int) -> Iterator[Finding]:
    """Evaluation takes the statistics that training keeps: where these are a batch's, its loss is the same.

    A step whose batch lies elsewhere shows it, in an untrained network: normalised by its own statistics it is as any
    other, and by 0 and 1 it is not.
    """
    recipe = replace(bench.plain, label_smoothing=0.0)
    batch = bench.rows(_LEARNT_FROM)
    apart: list[tuple[float, float, bool]] = []
    for scale, shift in ((1.0, 0.0), (1.0, 10.0), (30.0, 30.0), (0.1, 0.0)):
        executor = bench.executor(recipe, seed)
        if not any(bench.host(each).dtype.kind == "f" for each in executor.buffers.values()):
            return
        inputs = [bench.host(each) for each in batch[: -bench.dataset.train.targets]]
        moved = [
            bench.backend.array(scale * each + np.float32(shift)) if each.dtype.kind == "f" else given
            for each, given in zip(inputs, batch, strict=False)
        ]
        columns = (*moved, *batch[-bench.dataset.train.targets :])
        _settle(bench, executor, columns)
        evaluated = _evaluated(bench, executor, columns)
        trained, error = _mean_loss(bench, executor, tuple(map(bench.host, columns)), _NOISES)
        if evaluated is None or not math.isfinite(evaluated + trained) or min(evaluated, trained) <= 0:
            return
        apart.append((evaluated, trained, error > 0))
    usual, *others = apart
    evaluated, trained, noisy = max(others, key=lambda each: _ratio(each, usual))
    # The variance of n values, as PyTorch keeps it, is n / (n - 1) times what it divides by.
    allowed = math.log(2.0) if noisy else max(_OTHER_LOSS, 2 / len(batch[-1]))
    found = f"after steps on one batch that change statistics alone, its loss is {trained:.4g} in training"
    if _ratio((evaluated, trained, noisy), usual) > allowed:
        do = "let each step move the running statistics (PyTorch: momentum > 0), and evaluation normalise by them"
        yield failed(f"{found} and {evaluated:.4g} in evaluation", do)
    else:
        yield passed(f"{found} and {evaluated:.4g} in evaluation")


_OTHER_LOSS = 0.1


def _ratio(one: tuple[float, float, bool], other: tuple[float, float, bool]) -> float:
    """How far apart the ratios of two losses are, as a logarithm: what training adds to its loss is no fault."""
    return abs(math.log(one[0] / one[1] * other[1] / other[0]))


def _settle(bench: Bench, executor: Executor, columns: tuple[Array, ...]) -> None:
    """Bring running statistics to where steps on this batch without an update lead."""

    def kept() -> dict[str, NDArray[np.float64]]:
        host = {name: bench.host(each) for name, each in executor.buffers.items()}
        return {name: each.astype(np.float64) for name, each in host.items() if each.dtype.kind == "f"}

    seen = [kept()]
    for _ in range(_NOISES):
        # With equal draws of dropout, statistics have one end.
        bench.backend.seed(0)
        executor.forward(*columns)
        seen.append(kept())
    for name, last in seen[-1].items():
        middle = seen[_NOISES // 2][name]
        way, before = last - middle, middle - seen[0][name]
        # What moves by one part of its distance has this end; a mean of all steps is there already.
        rest = float((way * before).sum() / max(float((before * before).sum()), 1e-300))
        if 0 < rest < 1:
            dtype = bench.host(executor.buffers[name]).dtype
            executor.buffers[name] = bench.backend.array((last + way * rest / (1 - rest)).astype(dtype))


_LEARNT_FROM = 64
_MOST_STEPS = 200
_SETTLING = 60
_FACTORS = (0.3, 0.03, 0.003)
_PROGRESS = 0.25


def _cross_entropy(bench: Bench, executor: Executor, columns: tuple[Array, ...]) -> float | None:
    """That of a network without a loss of its own in evaluation; ``None`` if outputs are no scores of classes."""
    if bench.recipe.network.has_loss or bench.dataset.train.targets != 1:
        return None
    scores, labels = bench.host(executor.infer(*columns[:-1])[0]).astype(np.float64), bench.host(columns[-1])
    if scores.ndim != 2 or labels.ndim != 1 or labels.dtype.kind not in "iu":
        return None
    own = np.take_along_axis(scores, labels[:, None].astype(np.int64), axis=1)
    top = scores.max(axis=1, keepdims=True)
    return float((top + np.log(np.exp(scores - top).sum(axis=1, keepdims=True)) - own).mean())


def _evaluated(bench: Bench, executor: Executor, columns: tuple[Array, ...]) -> float | None:
    """The loss of what evaluation infers; ``None`` if it cannot be computed from that."""
    network = bench.recipe.network
    if not network.has_loss or not isinstance(network, NativeNetwork) or network.loss is None:
        return _cross_entropy(bench, executor, columns)
    targets = bench.dataset.train.targets
    found = executor.infer(*columns[:-targets])
    try:
        return float(bench.host(network.loss(found[0], *columns[-targets:]))) if len(found) == 1 else None
    except Exception:  # noqa: BLE001  # it may take what a module returns in training only
        return None


def means_quality(bench: Bench, seed: int, budget_s: float) -> Iterator[Finding]:
    """As the loss of some examples falls, the quality on them does not get worse, nor what evaluation computes."""
    # A module may compute in training what it does not compute in evaluation; a graph is one for both.
    if not bench.recipe.network.has_loss and not isinstance(bench.recipe.network, NativeNetwork):
        return
    if bench.recipe.experience is not None:
        yield not_tried("what the network did before says little about what it would do now")
        return
    part = part_of(bench.dataset.train, min(_LEARNT_FROM, 4 * len(bench.rows(_EXAMPLES)[-1])))
    held = bench.held(part)
    quality, sign = bench.quality, sign_of(bench.quality.direction)
    columns: tuple[Array, ...] = next(iter(held.batches(len(part))))
    before = float(quality.measure(bench.start_training(seed, plain=True).executor, held))
    until = HOST.now_ns() + round(budget_s * 1e9)
    for factor in _FACTORS:
        losses, training = list[float](), bench.start_training(seed, plain=True)
        while len(losses) < _MOST_STEPS and HOST.now_ns() < until:
            losses.append(training.step(columns, factor * bench.peak))
            if not math.isfinite(losses[-1]):
                break
        else:
            break
    # Running statistics follow the weights slowly.
    for _ in range(_SETTLING if training.executor.buffers else 0):
        training.executor.forward(*columns)
    after = float(quality.measure(training.executor, held))
    found = (
        f"in {len(losses)} steps the loss of {len(part)} examples goes from {losses[0]:.3g} to {losses[-1]:.3g}, and"
    )
    found += f" {quality.metric} on them from {before:.3g} to {after:.3g}"
    evaluated = _cross_entropy(bench, training.executor, columns)
    if evaluated is not None and losses[-1] < 0.5 * losses[0] < 0.5 * evaluated:
        found = f"in {len(losses)} steps the loss of {len(part)} examples goes from {losses[0]:.3g} to {losses[-1]:.3g}"
        found += f", but the outputs of evaluation on them have a loss of {evaluated:.3g}"
        yield failed(found, "compute the same in evaluation as in training, but for dropout and statistics")
        return
    fell = losses[0] - losses[-1] > 0.2 * abs(losses[0])
    learnt = losses[-1] < 0.3 * losses[0]
    way = sign * (quality.target - before)
    better = sign * (after - before) > (_PROGRESS * way if learnt else 0.0) or sign * after >= sign * quality.target
    if len(losses) < _SETTLING // 2 or not fell or not math.isfinite(before + after + losses[-1]):
        yield noted(found) if fell else passed(found)
    elif better:
        yield passed(found)
    else:
        yield failed(found, "check the loss's sign and its labels: it falls, and what is asked for gets no better")
