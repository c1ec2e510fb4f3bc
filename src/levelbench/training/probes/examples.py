"""Checks the examples of a task: what occurs twice, and what gives the label away.

Rows that two splits have by chance (a few yes-or-no answers, short sentences) are told from a leak by a comparison: a
held-out example that was drawn as the training examples were is as likely to occur among them as one of theirs is to
occur again. The same holds for nearly equal rows. A leak is what goes beyond that.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.checks.findings import Finding, failed, not_tried, noted, passed
from levelbench.training.datasets.base import Dataset, Split

MOST_BYTES = 4 * 2**30
"""The largest split or dataset whose content a check compares."""

Features = NDArray[np.float32]

_LEAKS = 0.01
"""A share of held-out examples in training above this is no accident: published data has a few duplicates."""
BY_CHANCE = 4.0
"""Standard errors by which two shares may differ."""
_TWICE = 0.1
_NEARLY_TWICE = 0.3


def reason_not_compared(split: Split) -> str:
    """Why the content of a split is not compared."""
    columns = split.columns[: -split.targets]
    if not all(isinstance(column, np.ndarray) for column in columns):
        return "rows are made on demand, so they are not compared"
    size = sum(column.nbytes for column in columns if isinstance(column, np.ndarray))
    return f"{size / 2**30:.1f} GiB are too much to compare in a check" if size > MOST_BYTES else ""


def digests_of(split: Split) -> list[bytes]:
    """A digest of the inputs of each example; labels do not count."""
    columns: list[Any] = [np.ascontiguousarray(column) for column in split.columns[: -split.targets]]
    found = []
    for row in zip(*columns, strict=True):
        digest = hashlib.blake2b(digest_size=16)
        for part in row:
            digest.update(np.asarray(part).tobytes())
        found.append(digest.digest())
    return found


def splits(dataset: Dataset) -> Iterator[Finding]:
    """Equal examples across splits, beyond those that occur by chance, and within them."""
    parts = dataset.splits()
    for name, split in parts.items():
        if not len(split):
            yield failed(f"the {name} split is empty", "give it examples")
            return
    reason = next((why for split in parts.values() if (why := reason_not_compared(split))), "")
    if reason:
        yield not_tried(reason, "levelbench data check reads the files")
        return
    found = {name: digests_of(split) for name, split in parts.items()}
    wrong = False
    for name, where in (("validation", "train"), ("test", "train"), ("test", "validation")):
        other = Counter(found[where])
        twins = sum(digest in other for digest in found[name])
        place = "training" if where == "train" else where
        said = f"{twins} of {len(found[name])} examples of the {name} split are also in the {place} split"
        again = sum(count for count in other.values() if count > 1) / len(found[where])
        if twins > _LEAKS * len(found[name]) and _more(twins / len(found[name]), again, len(found[name])):
            wrong = True
            yield failed(said, "split so that equal examples stay together")
        elif twins:
            why = f", as {again:.0%} of that split occur in it again" if again > _LEAKS else ""
            yield noted(f"{said}{why}", "equal examples on both sides flatter a recipe that memorises")
    for name, counts in ((name, Counter(each)) for name, each in found.items()):
        again = sum(count for count in counts.values() if count > 1) / len(parts[name])
        times = reduce(math.gcd, counts.values())
        if times > 1 and len(counts) > 1:
            wrong = True
            found_ = f"each example of the {name} split occurs {times} times"
            yield failed(
                found_, "keep one of each: copies add no information, and a count of examples that is not true"
            )
        elif again > _TWICE and _continuous(parts[name]):
            wrong = True
            found_ = f"{again:.0%} of the {name} split occur in it again, although its values are not from a few"
            yield failed(found_, "keep one of each")
    if not wrong:
        yield passed(", ".join(f"{name} {len(split)}" for name, split in parts.items()))


def _more(share: float, natural: float, count: int) -> bool:
    """Whether a share is larger than the one that is expected, by more than chance."""
    return share > natural + BY_CHANCE * math.sqrt(natural * (1 - natural) / count) + 2 * _LEAKS


def _continuous(split: Split) -> bool:
    """Whether a measurement among the inputs hardly repeats, so that equal rows are copies."""
    for column in split.columns[: -split.targets]:
        if isinstance(column, np.ndarray) and column.dtype.kind == "f":
            rows = column[:2048].reshape(min(len(column), 2048), -1)
            some = rows[:, :: max(1, rows.shape[1] // 16)]
            distinct = max(len(np.unique(some[:, at])) for at in range(some.shape[1])) if some.size else 0
            if distinct > 0.4 * len(rows):
                return True
    return False


_WIDE = 64
_LOOKED_UP = 400
_NEAR = 0.1
_OVERLAPPING = 0.3
_MOST_VALUES = 2**28


def features_of(split: Split, kinds: str = "f", most: int | None = None) -> Features | None:
    """The inputs as one row of numbers an example, (n, d); ``None`` where there are none of these kinds.

    Raw pixels (uint8) count as numbers, too.
    """
    found = []
    for column in split.columns[: -split.targets]:
        if not isinstance(column, np.ndarray):
            return None
        if column.dtype.kind in kinds or column.dtype == np.uint8:
            rows = (
                column
                if most is None or len(column) <= most
                else column[np.linspace(0, len(column) - 1, most, dtype=np.int64)]
            )
            if rows.size > _MOST_VALUES:
                return None
            found.append(rows.reshape(len(rows), -1).astype(np.float32))
    joined = np.concatenate(found, axis=1) if found else None
    return joined if joined is not None and joined.shape[1] and np.isfinite(joined).all() else None


def near_copies(dataset: Dataset, alike: Iterable[Finding]) -> Iterator[Finding]:
    """Held-out examples that are nearly training examples (noise, another scale, mirrored), and copies in training.

    ``alike`` are the findings on the splits' units: distances between rows of other units say nothing.
    """
    parts = dataset.splits()
    if any(reason_not_compared(split) or not len(split) for split in parts.values()):
        return
    if any(each.status == "failed" for each in alike):
        yield not_tried("the splits are in different units")
        return
    train, known = features_of(dataset.train), set(digests_of(dataset.train))
    if train is None or len(train) < 16:
        yield not_tried("inputs are not measurements, or too few or too many to compare by distance")
        return
    shape = _image(dataset.train.inputs.shape[1:]) if len(dataset.train.columns) == 1 + dataset.train.targets else ()
    wrong = False
    known_views: dict[str, tuple[_Nearest, NDArray[np.float64]]] = {}
    for what, change in _views(train.shape[1], shape):
        if change not in known_views:
            nearest = _Nearest(train, change)
            known_views[change] = nearest, nearest.within()
        near, own = known_views[change]
        for name in ("validation", "test"):
            split = dataset.splits()[name]
            # Exact copies are another finding.
            fresh = np.array([digest not in known for digest in digests_of(split)])
            rows = features_of(split)
            if rows is None or rows.shape[1] != train.shape[1] or not fresh.any():
                continue
            rows = rows[fresh][:: max(1, int(fresh.sum()) // _LOOKED_UP)]
            held = near.to(_turned(rows, what, shape))
            scale = max(float(np.median(own)), float(np.median(held)))
            first = 1e-6 * scale if what == "" else -1.0
            twins = (held < _NEAR * scale) & (held > first)
            natural = float(((own < _NEAR * scale) & (own > first)).mean())
            if twins.sum() > max(1, _LEAKS * len(rows)) and _more(float(twins.mean()), natural, len(rows)):
                wrong = True
                found = f"{int(twins.sum())} of {len(rows)} examples of the {name} split are training examples"
                found += f", {what or 'almost'}"
                yield failed(
                    found, "split before examples are copied or changed, so that all forms of one stay together"
                )
                break
            if what == "" and (share := near.copied(rows, train)) > _GROUPED:
                wrong = True
                found = f"{share:.0%} of the {name} split are nearly training examples: each of these is far closer"
                found += " to a few of them than to any others"
                yield failed(
                    found, "split before examples are copied or repeated, so that all of a group stay together"
                )
                break
            copies = float(((own < _NEAR * scale) & (own > first)).mean())
            if what == "" and name == "validation" and copies > _NEARLY_TWICE and float(twins.mean()) < copies / 3:
                wrong = True
                found = f"{copies:.0%} of the training examples are almost equal to another one"
                yield failed(found, "keep one of each: augment in the recipe, not in the data")
                break
        if wrong:
            return
    yield passed("no held-out example is nearly a training example")


_GROUPED = 0.3
_CLOSER = 0.15
_MEMBERS = 20
"""In data drawn from a density of d dimensions the nearest example is that much closer than the next in 0.15^d of
cases, and more of them are more rarely."""


_SMALLEST = 8


def _image(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape as an image (channels, height, width), also of one that may lie in a flat row."""
    for channels in (1, 3) if len(shape) == 1 else ():
        side = math.isqrt(shape[0] // channels)
        if side >= _SMALLEST and channels * side**2 == shape[0]:
            return (channels, side, side)
    return shape


def _views(width: int, shape: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    """What may have been done to a copy, and the view in which it equals the original."""
    yield "", "plain"
    if width >= 16:
        yield "at another scale", "scaled"
    if len(shape) == 3 and shape[2] > 3:
        for what in _TURNS:
            if shape[1] == shape[2] or "quarter" not in what:
                yield what, "plain"


_TURNS: dict[str, Callable[[Features], Features]] = {
    "mirrored": lambda images: images[..., ::-1],
    "upside down": lambda images: images[..., ::-1, :],
    "turned by a half": lambda images: images[..., ::-1, ::-1],
    "turned left by a quarter": lambda images: np.rot90(images, 1, (2, 3)),
    "turned right by a quarter": lambda images: np.rot90(images, -1, (2, 3)),
}


def _turned(rows: Features, what: str, shape: tuple[int, ...]) -> Features:
    if what not in _TURNS:
        return rows
    return _TURNS[what](rows.reshape(len(rows), *shape)).reshape(len(rows), -1)


class _Nearest:
    """Distances to the nearest training example, in few random directions where an example is wide."""

    def __init__(self, train: Features, view: str) -> None:
        self._view = view
        self._middle, spread = train.mean(axis=0), train.std(axis=0)
        self._spread = np.where(spread > 0, spread, np.float32(1))
        width = train.shape[1]
        generator = np.random.default_rng(0)
        self._directions = generator.standard_normal((width, _WIDE)).astype(np.float32) if width > _WIDE else None
        self._train = self._seen(train)

    def _seen(self, rows: Features) -> Features:
        if self._view == "scaled":
            rows = rows - rows.mean(axis=1, keepdims=True)
            rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        else:
            rows = (rows - self._middle) / self._spread
        return rows if self._directions is None else rows @ self._directions

    def within(self) -> NDArray[np.float64]:
        """From some training examples to the nearest other one."""
        places = np.linspace(0, len(self._train) - 1, min(len(self._train), _LOOKED_UP), dtype=np.int64)
        return self._distances(self._train[places], places)

    def to(self, rows: Features) -> NDArray[np.float64]:
        """From each of these rows to the nearest training example."""
        return self._distances(self._seen(rows), None)

    def copied(self, rows: Features, train: Features) -> float:
        """The share of these rows that are far closer to a few training examples than to others, yet not equal to them.

        Rows that agree in most inputs (a category in many columns, and one measurement) are no copies of each other.
        ``train`` are the training examples as they are.
        """
        if len(self._train) <= 2 * _MEMBERS or rows.shape[1] < 3:
            return 0.0
        seen, squares, found = self._seen(rows), (self._train**2).sum(axis=1), 0
        for row, given in zip(seen, rows, strict=True):
            nearest = np.argpartition(squares - 2 * (self._train @ row), _MEMBERS)[: _MEMBERS + 1]
            apart = self._train[nearest] - row
            distances = np.linalg.norm(apart, axis=1)
            away = np.sort(distances)
            close = (away[:-1] > 0) & (away[:-1] < _CLOSER * away[1:])
            found += bool(close.any() and (train[nearest[distances.argmin()]] != given).mean() > 0.5)
        return found / len(seen)

    def _distances(self, rows: Features, own: NDArray[np.int64] | None) -> NDArray[np.float64]:
        squares, best = (self._train**2).sum(axis=1), np.empty(len(rows))
        for start in range(0, len(rows), 100):
            some = rows[start : start + 100]
            found = squares[None, :] - 2 * (some @ self._train.T)
            if own is not None:
                found[np.arange(len(some)), own[start : start + 100]] = np.inf
            # The nearest is found by products, and its distance without their cancellation.
            best[start : start + 100] = np.linalg.norm(some - self._train[found.argmin(axis=1)], axis=1)
        return best


_LONG = 8


def overlaps(dataset: Dataset) -> Iterator[Finding]:
    """Held-out windows of a sequence do not overlap with training windows, as those drawn at random from one text do.

    By chance long pieces agree far more rarely than short ones; pieces of overlapping windows agree as often.
    """
    train = dataset.train
    for at, column in enumerate(train.columns[: -train.targets]):
        if not isinstance(column, np.ndarray) or column.ndim not in (2, 3):
            continue
        for name in ("validation", "test"):
            held = dataset.splits()[name].columns[at]
            if not isinstance(held, np.ndarray) or held.shape[1:] != column.shape[1:] or not len(held):
                continue
            held = held[np.linspace(0, len(held) - 1, min(len(held), _LOOKED_UP), dtype=np.int64)]
            if len({row.tobytes() for row in held}) < 0.9 * len(held):
                # Masks and the like agree by chance.
                break
            for ours, its in _sequences(column, held):
                if (shift := _overlap(ours, its, train)) is not None:
                    places = "one place" if shift == 1 else f"{shift} places"
                    found = f"examples of the {name} split are training examples moved by {places} in column {at}"
                    do = "cut the sequence into parts first, and take the windows of each split from its own"
                    yield failed(found, do)
                    return
    yield passed("no windows overlap across splits")


def _sequences(train: NDArray[Any], held: NDArray[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Both as (n, length, ...), whichever axis is time; of measurements single channels, too: others may be derived."""
    for axis in range(1, train.ndim):
        if train.shape[axis] < _LONG:
            continue
        ours, its = (np.moveaxis(each, axis, 1) for each in (train, held))
        yield ours, its
        for channel in range(min(_CHANNELS, ours.shape[2])) if ours.ndim == 3 else ():
            one = its[:, :, channel]
            if one.dtype.kind == "f" and len(np.unique(one)) > _OVERLAPPING * one.size:
                yield ours[:, :, channel], one


_CHANNELS = 4
_MOST_SHIFTED = 2**27
"""Bytes of pieces of training examples that are looked at."""


def _overlap(train: NDArray[Any], held: NDArray[Any], split: Split) -> int | None:
    """By how many places held-out rows are moved training rows; ``None`` if they are not.

    All places up to half a row are tried, or of long or many rows the first ones, a half and a quarter.
    """
    half = int(train.shape[1]) // 2
    count = max(3, _MOST_SHIFTED // max(1, 2 * train.nbytes))
    shift: int
    for shift in sorted({*range(1, half + 1)[: count - 2], half // 2, half}):
        long = _shifted(train, held, shift)
        if long <= _OVERLAPPING:
            continue
        further = half // shift * shift
        if further == shift:
            # No shorter piece to compare with: only measurements never agree by chance.
            if _continuous(split):
                return shift
        elif long > 0.8 * (short := _shifted(train, held, further)) and short < 0.99:
            return shift
    return None


def _shifted(train: NDArray[Any], held: NDArray[Any], shift: int) -> float:
    """The share of held-out rows that continue a training row, or are continued by one, ``shift`` places on."""
    first = {hash(row.tobytes()) for row in train[:, :-shift]}, {hash(row.tobytes()) for row in train[:, shift:]}
    # A row of one value, such as padding, says nothing.
    found = [
        (hash(row[shift:].tobytes()) in first[0] or hash(row[:-shift].tobytes()) in first[1])
        and bool((row != row[:1]).any())
        for row in held
    ]
    return float(np.mean(found))


_FEW = 50
_CODED, _MOST_CODED, _VALUES = 20, 32, 20


def labels_fit(dataset: Dataset) -> Iterator[Finding]:
    """Equal inputs do not have contradictory labels more often than by chance."""
    if any(reason_not_compared(split) for split in dataset.splits().values()):
        return
    for name, split in dataset.splits().items():
        labels = split.labels
        if not len(split) or not isinstance(labels, np.ndarray) or labels.ndim != 1 or labels.dtype.kind not in "iu":
            continue
        groups: dict[bytes, list[int]] = {}
        for digest, label in zip(digests_of(split), labels.tolist(), strict=True):
            groups.setdefault(digest, []).append(label)
        # The first two of each group, so that groups are independent pairs.
        pairs = [each[:2] for each in groups.values() if len(each) > 1]
        torn = sum(len(each) for each in groups.values() if len(set(each)) > 1)
        if not torn:
            continue
        agreeing = sum(a == b for a, b in pairs)
        chance = float((np.unique(labels, return_counts=True)[1] ** 2).sum()) / len(labels) ** 2
        below = agreeing / len(pairs) < chance - BY_CHANCE * math.sqrt(chance * (1 - chance) / len(pairs))
        said = f"{torn} of {len(split)} examples of the {name} split have the inputs of another one and another label"
        if below or (torn > 2 * _LEAKS * len(split) and _continuous(split)):
            yield failed(said, "decide each label once: no network can give two answers to one question")
            return
        yield noted(said, "no network can give two answers to one question")
    yield passed("no equal inputs have two labels, beyond what few values explain")


def given_away(dataset: Dataset) -> Iterator[Finding]:
    """No input is the label in another form: its number, a code for it, or the target times a factor."""
    split = dataset.train
    labels = split.labels
    if not isinstance(labels, np.ndarray) or len(split) < 16:
        return
    if labels.ndim == 2 and labels.dtype.kind in "iu":
        yield from _given_tokens(split, labels)
        return
    features = features_of(split, "fiub", 4096)
    if features is None or features.shape[1] < 3:
        return
    if labels.dtype.kind == "f":
        some = labels[np.linspace(0, len(labels) - 1, len(features), dtype=np.int64)].reshape(len(features), -1)
        yield from _given_numbers(features, some)
    elif labels.ndim == 1 and labels.dtype.kind in "iu" and len(np.unique(labels)) > 1:
        some = labels[np.linspace(0, len(labels) - 1, len(features), dtype=np.int64)]
        yield from _given_classes(features, some)


_DO_LEAVE = "leave it out of the inputs: what is asked for must not be given"


def _given_tokens(split: Split, labels: NDArray[Any]) -> Iterator[Finding]:
    for at, column in enumerate(split.columns[: -split.targets]):
        if not isinstance(column, np.ndarray) or column.shape != labels.shape or column.dtype.kind not in "iu":
            continue
        for shift in (0, 1):
            ours, its = (labels, column) if not shift else (labels[:, 1:], column[:, :-1])
            if ours.shape[1] > 1 and (ours == its).mean() > 0.99 and len(np.unique(labels)) > 1:
                where = "at the same place" if not shift else "one place before"
                found = f"the labels are the tokens of column {at} {where}, so that copying answers everything"
                yield failed(found, "shift them: the label at a place is the token after it")
                return
    yield passed("no input is the label in another form")


def _given_numbers(features: Features, targets: NDArray[Any]) -> Iterator[Finding]:
    deviations = features.std(axis=0)
    scaled = (features - features.mean(axis=0)) / np.where(deviations > 0, deviations, 1)
    for at in range(targets.shape[1]):
        wanted = targets[:, at] - targets[:, at].mean()
        spread = float(wanted.std())
        if not spread > 0:
            continue
        alike = np.abs(wanted / spread @ scaled) / len(wanted)
        if targets.shape[1] < features.shape[1] and alike.max() > 0.9999:
            yield failed(f"input {int(alike.argmax())} is target {at}, up to a factor and a constant", _DO_LEAVE)
            return
        ordered = np.diff(features[np.argsort(wanted, kind="stable")], axis=0)
        steps = (ordered != 0).sum(axis=0) >= _LEVELS
        told = np.flatnonzero(steps & ((ordered >= 0).all(axis=0) | (ordered <= 0).all(axis=0)))
        if len(features) >= _FEW and targets.shape[1] < features.shape[1] and len(told):
            yield failed(
                f"input {int(told[0])} rises and falls with target {at}, as rounded or on another scale", _DO_LEAVE
            )
            return
    yield passed("no input is the target in another form")


_LEVELS = 4


def _given_classes(features: Features, labels: NDArray[Any]) -> Iterator[Finding]:
    classes, codes = np.unique(labels, return_inverse=True)
    counts = np.bincount(codes)
    order = np.argsort(codes, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(counts)])
    parts = [features[order[a:b]] for a, b in pairwise(bounds)]
    low, high = np.stack([each.min(axis=0) for each in parts]), np.stack([each.max(axis=0) for each in parts])
    widest = (high - low).max(axis=0)
    ranks = np.argsort(low, axis=0)
    starts, ends = np.take_along_axis(low, ranks, 0), np.take_along_axis(high, ranks, 0)
    gap = (starts[1:] - ends[:-1]).min(axis=0)
    # One value for each class and another one for each, or nearly so: ten times closer than the next class.
    # With three classes and more, also a code with noise.
    clear = 10 if len(classes) == 2 else 1
    told = np.flatnonzero((gap > 0) & (gap > clear * widest) & (features.std(axis=0) > 0))
    enough = len(labels) >= _FEW and counts.min() >= 2
    if enough and 0 < len(told) <= max(1, features.shape[1] // 4):
        found = (
            f"input {int(told[0])} alone tells the class of all {len(labels)} examples looked at, by a value for each,"
            " or nearly"
        )
        yield failed(found, _DO_LEAVE)
        return
    # One input for each class that is on for its examples alone.
    flat_in = high == low
    flat = flat_in.all(axis=0)
    top, ones = low.max(axis=0), low == low.max(axis=0)
    single = flat & (ones.sum(axis=0) == 1) & ((low == low.min(axis=0)).sum(axis=0) == len(classes) - 1) & (top > 0)
    alone = set(ones[:, single].argmax(axis=0).tolist())
    if enough and len(classes) > 2 and len(alone) >= len(classes) - 1:
        yield failed(f"{len(alone)} inputs are on for one class each and off for all others", _DO_LEAVE)
        return
    for each in np.flatnonzero(counts >= _CODED).tolist()[:_MOST_CODED] if enough else []:
        places = np.flatnonzero(flat_in[each])
        coded = places[(features[:, places] == low[each, places]).sum(axis=0) == counts[each]]
        at = next((at for at in coded.tolist() if len(np.unique(features[:, at])) > _VALUES), None)
        if at is not None:
            found = f"input {at} is {low[each, at]:g} in all examples of class {classes[each]}, and in no others"
            yield failed(f"{found}, where it has many values", _DO_LEAVE)
            return
    if enough and (at := _filled_by_class(features, codes, counts)) is not None:
        found = f"input {at} has one value many times in examples of one class alone, and another one in another class"
        yield failed(found, "fill what is missing by a value that does not depend on the label")
        return
    if enough and len(classes) > 2 and alone:
        yield noted(
            f"input {int(np.flatnonzero(single)[0])} is on in all examples of one class, and in no others", _DO_LEAVE
        )
        return
    apart = np.flatnonzero((gap > 0) & (features.std(axis=0) > 0))
    if counts.min() >= _CODED and any(_counted(features[:, at]) for at in apart.tolist()):
        at = next(at for at in apart.tolist() if _counted(features[:, at]))
        yield failed(f"input {at} is a number for each example, in the order of classes", _DO_LEAVE)
        return
    if len(classes) > 2 and counts.min() >= _FEW and 0 < len(apart) <= max(1, features.shape[1] // 4):
        yield noted(f"input {int(apart[0])} alone tells the class of all {len(labels)} examples looked at", _DO_LEAVE)
        return
    yield passed("no input is the label in another form")


def _counted(values: NDArray[np.float32]) -> bool:
    """Whether these are different whole numbers with few gaps, such as those of rows."""
    whole = len(np.unique(values)) == len(values) and bool((values == np.round(values)).all())
    return whole and float(values.max() - values.min()) < _GAPS * len(values)


_GAPS = 4
_FILLED = 0.05


def _filled_by_class(features: Features, codes: NDArray[Any], counts: NDArray[Any]) -> int | None:
    """An input in which values of each of two classes repeat, as means of the class for missing ones do.

    Its lowest and highest value do not count: they may be a sensor's limits, which a class may reach alone.
    """
    for at in range(min(features.shape[1], _MOST_FILLED)):
        column = features[:, at]
        values, places, times = np.unique(column, return_inverse=True, return_counts=True)
        often = np.flatnonzero(times >= max(_CODED, _FILLED * counts.min()))
        often = often[(often > 0) & (often < len(values) - 1)]
        if len(often) < 2 or len(often) > len(counts) or len(values) < len(column) // 2:
            continue
        owners = [np.unique(codes[places == each]).tolist() for each in often.tolist()]
        if all(len(each) == 1 for each in owners) and len({each[0] for each in owners}) == len(often):
            return at
    return None


_MOST_FILLED = 1024
