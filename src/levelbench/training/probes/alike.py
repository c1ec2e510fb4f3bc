"""Checks whether the splits of a task are made alike: types and units, scaling, and the labels of their inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.checks.findings import Finding, failed, noted, passed
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.probes.examples import BY_CHANCE, Features, features_of

_TIMES = 4.0
_ALL_TIMES, _EVEN, _WANDERS = 1.6, 1.25, 1.4
"""A factor that all inputs share, and how far they may be from it."""
_VARIED = 0.2
_ALONE_TIMES = 10.0
_SHIFT = 0.4
_ALONE_SHIFT = 1.5
_EDGE, _MOST_TARGETS, _DRIFTS = 32, 4096, 0.25


def alike(dataset: Dataset) -> Iterator[Finding]:
    """The splits are in the same types and units: their inputs have about the same middle and range."""
    parts = dataset.splits()
    for name in ("validation", "test"):
        for at, (ours, its) in enumerate(zip(dataset.train.columns, parts[name].columns, strict=False)):
            if ours.dtype != its.dtype:
                found = f"column {at} is {ours.dtype} in the train split and {its.dtype} in the {name} split"
                yield failed(found, "give all splits the same types")
                return
    train = features_of(dataset.train, most=4096)
    if train is None or len(train) < 16:
        return
    if train.size and not (train != train[0]).any():
        yield failed("all training inputs are equal", "check how they are read: a network can learn nothing from them")
        return
    for name in ("validation", "test"):
        held = features_of(parts[name], most=4096)
        if held is None or held.shape[1] != train.shape[1] or len(held) < 8:
            continue
        previous = "train" if name == "validation" else "validation"
        before = features_of(parts[previous], most=4096)
        if found := _otherwise(train, before, held, name) or _other_targets(parts, name, previous):
            yield failed(found, "prepare all splits by the same code, with the constants of the training split")
            return
    # What an environment yields is normalised as the algorithm asks.
    if dataset.environment is None and (finding := _otherwise_made(parts)) is not None:
        yield finding
        return
    yield passed("the splits have about the same middle and range")


def _otherwise_made(parts: Mapping[str, Split]) -> Finding | None:
    """Whether a split was scaled by its own figures, or its labels are those of other inputs or under other numbers."""
    train = parts["train"]
    do = "scale all splits by the constants of the training split"
    shared = None
    for at in range(min(len(split.columns) for split in parts.values())):
        what = "input" if at < len(train.columns) - train.targets else "target"
        for name in ("validation", "test"):
            if how := _own_scale(parts[name].columns[at]):
                found = f"each {what} of the {name} split has {how} in that split alone: it was scaled by itself"
                return failed(found, do)
        every = [each.columns[at] for each in parts.values()]
        if not _own_scale(every[0]) and (how := _own_scale(*every)):
            found = f"each {what} has {how} in all splits together: held-out examples had a share in the scaling"
            shared = noted(found, do)
    for name, split in parts.items():
        if (finding := _moved_labels(split, name)) is not None:
            return finding
    if found := _other_labels(parts):
        return failed(found, "prepare the labels of all splits by the same code, in the order of their inputs")
    return shared


_HALVES, _CLEARLY, _MEANT, _LOOKED_AT = 40, 0.2, 0.6, 2048


def _other_labels(parts: Mapping[str, Split]) -> str:
    """Whether labels go with inputs in the held-out splits and not in training, or under other numbers.

    Each class stands for itself by the mean of its inputs in one half of a split, by which the other half is told: a
    group of examples, which may lie in one split alone, does not tell other groups.
    """
    rows, labels = {}, {}
    for name, split in parts.items():
        given, its = features_of(split, most=_LOOKED_AT), split.labels
        if given is None or len(given) < 2 * _HALVES or its.ndim != 1 or its.dtype.kind not in "iu":
            return ""
        rows[name], labels[name] = given, np.asarray(its)[np.linspace(0, len(its) - 1, len(given), dtype=np.int64)]
    if len({each.shape[1] for each in rows.values()}) > 1 or len(np.unique(labels["train"])) < 2:
        return ""
    spread: Features = rows["train"].std(axis=0)
    spread[spread == 0] = 1
    scaled: dict[str, Features] = {name: each / spread for name, each in rows.items()}
    # Neither examples in the order of classes nor those in groups are told by luck in both kinds of halves.
    halves = {name: [_told_by_half(scaled[name], labels[name], by) for by in (1, 2)] for name in parts}
    shares = {name: [float((each == labels[name]).mean()) for each in halves[name]] for name in parts}
    right = {name: max(each) if name == "train" else min(each) for name, each in shares.items()}
    told = halves["train"][int(np.argmax(shares["train"]))]
    most = {name: np.unique(each, return_counts=True)[1].max() / len(each) for name, each in labels.items()}
    chance = float(sum((told == each).mean() * (labels["train"] == each).mean() for each in np.unique(told)))
    at_chance = right["train"] < chance + BY_CHANCE * math.sqrt(chance * (1 - chance) / len(told))
    if at_chance and all(right[name] > most[name] + _CLEARLY for name in ("validation", "test")):
        return (
            f"the means of classes tell {right['validation']:.0%} of validation labels, and by chance"
            f" {right['train']:.0%} of those of training: these do not go with their inputs"
        )
    for name in ("validation", "test") if not at_chance else ():
        seen = _by_means(scaled["train"], labels["train"], scaled[name])
        meant = {each: int(np.bincount(labels[name][seen == each]).argmax()) for each in np.unique(seen).tolist()}
        if len(meant) < 3 or len(set(meant.values())) < len(meant):
            continue
        mapped = float((np.array([meant[each] for each in seen.tolist()]) == labels[name]).mean())
        if mapped > max(_MEANT, float((seen == labels[name]).mean()) + _CLEARLY):
            other = next(each for each in meant if meant[each] != each)
            return f"what is class {other} in training is class {meant[other]} in the {name} split, by its inputs"
    return ""


def _moved_labels(split: Split, name: str) -> Finding | None:
    """Whether labels go with the inputs of the next or previous row instead of their own, see :func:`_told_by_half`.

    Numbers are told as the third of all that they are in: low, middle or high.
    """
    rows, its = features_of(split, most=_LOOKED_AT), split.labels
    if rows is None or len(rows) < 2 * _HALVES or its.ndim != 1 or its.dtype.kind not in "iuf":
        return None
    labels = its if its.dtype.kind in "iu" else np.searchsorted(np.quantile(its, (1 / 3, 2 / 3)), its)
    counts = np.unique(labels, return_counts=True)[1]
    places = np.linspace(0, len(labels) - 1, len(rows), dtype=np.int64)[1:-1]
    spread: Features = rows.std(axis=0)
    spread[spread == 0] = 1
    scaled: Features = rows[1:-1] / spread

    def right(inputs: Features, by: int) -> list[float]:
        wanted = labels[places + by]
        return [float((_told_by_half(inputs, wanted, kind) == wanted).mean()) for kind in (1, 2)]

    most = counts.max() / len(labels)
    if len(counts) < 2 or (own := max(right(scaled, 0))) > most + _CLEARLY / 2:
        return None
    for by, where in ((1, "previous"), (-1, "next")):
        if (told := min(right(scaled, by))) > max(most, own) + _CLEARLY:
            found = (
                f"the labels of the {name} split are those of the {where} row: the means of classes tell {told:.0%} of"
                f" these, and {own:.0%} of those in the same row"
            )
            # What was the label a row ago is among the inputs of many a series: one column tells as much as all.
            columns = range(scaled.shape[1] if by == -1 else 0)
            series = any(min(right(scaled[:, [at]], by)) > told - 0.01 for at in columns)
            return (noted if series else failed)(found, "drop or add a row of inputs and labels together")
    return None


def _told_by_half(rows: Features, labels: NDArray[Any], by: int) -> NDArray[Any]:
    """The class whose mean in the other half of these examples is nearest, (n,); halves by place or by lot."""
    places = np.random.default_rng(0).permutation(len(rows)) if by == 2 else np.arange(len(rows))
    first = places < len(rows) // 2
    told = np.empty_like(labels)
    for half in (first, ~first):
        told[half] = _by_means(rows[~half], labels[~half], rows[half])
    return told


def _by_means(rows: Features, labels: NDArray[Any], asked: Features) -> NDArray[Any]:
    """The class whose mean is nearest to each row of ``asked``, (n,)."""
    classes = np.unique(labels)
    means = np.stack([rows[labels == each].mean(axis=0) for each in classes])
    nearest: NDArray[Any] = classes[((means**2).sum(axis=1) - 2 * asked @ means.T).argmin(axis=1)]
    return nearest


_EXACT, _MOST_SCALED = 1e-4, 16


def _own_scale(*columns: Any) -> str:
    """What most of these measurements have exactly, as only numbers have that were scaled by their own figures."""
    if not all(isinstance(each, np.ndarray) and each.dtype.kind == "f" and len(each) for each in columns):
        return ""
    if len({each.shape[1:] for each in columns}) > 1 or sum(map(len, columns)) < _EDGE:
        return ""
    step = max(1, math.prod(columns[0].shape[1:]) // _MOST_SCALED)
    rows = np.concatenate([each.reshape(len(each), -1)[:, ::step] for each in columns]).astype(np.float64)
    if not np.isfinite(rows).all():
        return ""
    deviations = [np.abs(rows.std(axis=0, ddof=ddof) - 1) < _EXACT for ddof in (0, 1)]
    standard = (np.abs(rows.mean(axis=0)) < _EXACT) & (deviations[0] | deviations[1])
    ends = (rows.min(axis=0) == 0) & (rows.max(axis=0) == 1)
    if not (standard | ends).any():
        return ""
    # Levels of an experiment are balanced, and pixels black and white, in any split.
    measured = np.array([len(np.unique(each)) > len(rows) // 2 for each in rows.T])
    ends &= ((rows == 0).sum(axis=0) == 1) & ((rows == 1).sum(axis=0) == 1)
    for what, has in (("mean 0 and deviation 1", standard), ("minimum 0 and maximum 1", ends)):
        if 2 * int((has & measured).sum()) > int(measured.sum()):
            return what
    return ""


def _other_targets(parts: Mapping[str, Split], name: str, previous: str) -> str:
    """In what the targets of two splits, which are numbers, differ as only other units do."""
    labels = [parts[each].labels for each in ("train", previous, name)]
    if not all(isinstance(each, np.ndarray) and each.dtype.kind == "f" and len(each) >= _EDGE for each in labels):
        return ""
    train, before, held = (each.reshape(len(each), -1)[:, :_MOST_TARGETS].astype(np.float32) for each in labels)
    if train.shape[1:] != held.shape[1:]:
        return ""
    low, high, middle = (np.quantile(train, each, axis=0) for each in (0.05, 0.95, 0.5))
    its_low, its_high, its_middle = (np.quantile(held, each, axis=0) for each in (0.05, 0.95, 0.5))
    if len(blank := np.flatnonzero((held == held[0]).all(axis=0) & (high > low))):
        return f"target {blank[0]} is {held[0, blank[0]]:g} in all examples of the {name} split"
    usable = np.flatnonzero((high > low) & (its_high > its_low))
    if not len(usable):
        return ""
    ours = (high - low)[usable]
    ratios, spread = (its_high - its_low)[usable] / ours, (held.std(axis=0) / train.std(axis=0))[usable]
    if len(far := np.flatnonzero((np.abs(np.log(ratios)) > math.log(_TIMES)) & (np.abs(np.log(spread)) > 1))):
        return f"target {usable[far[0]]} varies {ratios[far[0]]:.3g} times as much in the {name} split as in training"
    shifts = _undrifted((its_middle - middle)[usable] / ours, train[:, usable], before[:, usable], held[:, usable])
    if len(away := np.flatnonzero(np.abs(shifts) > _ALONE_SHIFT)):
        far_off = f"{abs(shifts[away[0]]):.2g} of its range away from where it is in training"
        return f"target {usable[away[0]]} of the {name} split lies {far_off}"
    return ""


def _undrifted(
    shifts: NDArray[np.floating[Any]], train: Features, before: Features, held: Features
) -> NDArray[np.floating[Any]]:
    """The shifts, or 0 where a split goes on where the one ``before`` ends, as a price or a season does.

    Or where parts of training that are as long lie half as far from each other, as in a series that wanders.
    """
    low, high = np.quantile(train, (0.05, 0.95), axis=0)
    jumps = np.abs(np.median(held[:_EDGE], axis=0) - np.median(before[-_EDGE:], axis=0)) / (high - low)
    ways = np.ptp([np.median(each, axis=0) for each in _parts(train, held)], axis=0) / (high - low)
    return np.where(np.minimum(jumps, np.abs(shifts) - ways) < 0.5 * np.abs(shifts), 0.0, shifts)


_PARTS = 16


def _parts(train: Features, held: Features) -> list[Features]:
    """Training examples in parts as long as a held-out split."""
    return np.array_split(train, min(_PARTS, max(1, len(train) // len(held))))


def _otherwise(train: Features, before: Features | None, held: Features, name: str) -> str:
    """In what two splits differ as only other units do; ``before`` is the split that comes before the held-out one."""
    (low, middle, high), (its_low, its_middle, its_high) = (
        np.quantile(each, (0.05, 0.5, 0.95), axis=0) for each in (train, held)
    )
    ours, its = high - low, its_high - its_low
    blank = (train == train[0]).all(axis=0) & ((held != train[0]).mean(axis=0) > _VARIED)
    if blank.any() and len(train) >= 100:
        return f"input {int(blank.argmax())} varies in the {name} split, and has one value in the train split"
    usable = (ours > 0) & (its > 0)
    if not usable.any():
        return ""
    ratios = its[usable] / ours[usable]
    shifts = (its_middle - middle)[usable] / ours[usable]
    drifts = False
    if before is not None and before.shape[1:] == held.shape[1:]:
        apart = shifts
        shifts = _undrifted(apart, train[:, usable], before[:, usable], held[:, usable])
        # The range of what drifts grows with the length of a split.
        drifts = float(np.median(np.abs(apart))) > _DRIFTS > float(np.median(np.abs(shifts)))
    whole, moved = (1.0 if drifts else float(np.median(ratios))), float(np.median(shifts))
    if not 1 / _TIMES < whole < _TIMES:
        return f"inputs of the {name} split vary {whole:.3g} times as much as those of the train split"
    even = np.quantile(ratios, (0.1, 0.9)) / whole
    ranges = [np.ptp(np.quantile(each, (0.05, 0.95), axis=0), axis=0) for each in _parts(train, held)]
    usual = [float(np.median(each[usable] / ours[usable])) for each in ranges]
    # A short part of a series that wanders has a range of its own.
    wanders = max(usual) > _WANDERS * min(usual)
    unit = not wanders and not 1 / _ALL_TIMES < whole < _ALL_TIMES and even[0] > 1 / _EVEN and even[1] < _EVEN
    if unit and len(ratios) >= 8 and min(len(train), len(held)) >= 100:
        return f"all inputs of the {name} split vary about {whole:.3g} times as much as those of the train split"
    if abs(moved) > _SHIFT:
        way = "above" if moved > 0 else "below"
        return f"inputs of the {name} split lie {abs(moved):.2g} of their range {way} those of the train split"
    if len(held) >= 30:
        places = np.flatnonzero(usable)
        # The quantiles of an input that is nearly always 0 are those of a few examples; its deviation is of all.
        spread = held.std(axis=0, dtype=np.float64)[usable] / train.std(axis=0, dtype=np.float64)[usable]
        far = np.flatnonzero(
            ((ratios > _ALONE_TIMES) & (spread > _TIMES)) | ((ratios < 1 / _ALONE_TIMES) & (spread < 1 / _TIMES))
        )
        away = np.flatnonzero(np.abs(shifts) > _ALONE_SHIFT)
        if len(away) > 0:
            found = (
                f"input {int(places[away[0]])} lies {abs(shifts[away[0]]):.2g} of its range away in the {name} split"
            )
            return f"{found} from where it is in the train split"
        if len(far) > 0:
            found = f"input {int(places[far[0]])} varies {ratios[far[0]]:.3g} times as much in the {name} split"
            return f"{found} as in the train split"
    return ""
