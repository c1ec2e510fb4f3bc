"""Checks whether a task is right and well-formed: its data, its splits, its quality and target, and its description.

A result is only as good as its split. A test example in the training set, a label outside the classes, or a target that
the most frequent class alone reaches makes every result of the task void. So does data drawn without a seed during
loading, because each run loads it in its own process.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from levelbench.checks.findings import Finding, Probe, Report, failed, not_tried, noted, passed, run_probes
from levelbench.measure.crossing import DIRECTIONS, sign_of
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.probes import examples
from levelbench.training.probes.examples import MOST_BYTES
from levelbench.training.quality import Quality, Top1, TopK
from levelbench.training.stopping import Evaluate
from levelbench.training.task import Recipe, Setting, Task


def loading(dataset: Dataset, again: Callable[[], Dataset]) -> Iterator[Finding]:
    """Loaded twice, every split has the same examples in the same order."""
    size = _array_bytes(dataset)
    if size > MOST_BYTES:
        yield not_tried(f"{size / 2**30:.1f} GiB are too much to load twice in a check")
        return
    before = dataset.input_digests(), dataset.label_digests()
    other = again()
    if (dataset.input_digests(), dataset.label_digests()) != before:
        found = "loading again changes the examples that were loaded before"
        yield failed(found, "change a copy: x = x - mean, not x -= mean, where the array is read once for all calls")
        return
    for name, first in dataset.splits().items():
        wrong = _difference(name, first, other.splits()[name])
        if wrong:
            do = "let load() depend on the files alone: split by a rule, or use a generator with a fixed seed"
            yield failed(f"loaded twice, {wrong}", do)
            return
    yield passed("loaded twice, it is the same")


def _array_bytes(dataset: Dataset) -> int:
    columns = [column for split in dataset.splits().values() for column in split.columns]
    return sum(column.nbytes for column in columns if isinstance(column, np.ndarray))


def _difference(name: str, first: Split, second: Split) -> str:
    """How a split differs from the same one loaded again; rows made on demand are only counted."""
    if len(first) != len(second):
        return f"the {name} split has {len(first)} and {len(second)} examples"
    if len(first.columns) != len(second.columns):
        return f"the {name} split has {len(first.columns)} and {len(second.columns)} columns"
    for at, (mine, its) in enumerate(zip(first.columns, second.columns, strict=True)):
        if not (isinstance(mine, np.ndarray) and isinstance(its, np.ndarray)):
            continue
        if mine.dtype != its.dtype or mine.shape != its.shape or not np.array_equal(_bits(mine), _bits(its)):
            return f"column {at} of the {name} split differs"
    return ""


def _bits(column: np.ndarray) -> np.ndarray:
    """The column's bytes, so that a NaN equals itself."""
    return np.ascontiguousarray(column).view(np.uint8)


def check_task(
    task: Task,
    dataset: Dataset,
    tell: Callable[[str], None] = lambda _: None,
    *,
    again: Callable[[], Dataset] | None = None,
) -> Report:
    """Probe what a task fixes, on its loaded data; ``again`` loads it once more, to check that it is the same."""
    from levelbench.training.probes import alike  # which no run needs

    probes: list[Probe] = [
        ("description", lambda: _description(task)),
        ("provenance", lambda: _provenance(dataset)),
        ("quality", lambda: _quality(task.quality, task.also)),
        ("cadence", lambda: _cadence(task)),
        ("splits", lambda: examples.splits(dataset)),
        ("labels", lambda: _labels(dataset)),
        ("values", lambda: _values(dataset)),
        ("near copies", lambda: examples.near_copies(dataset, alike.alike(dataset))),
        ("overlaps", lambda: examples.overlaps(dataset)),
        ("two labels", lambda: examples.labels_fit(dataset)),
        ("label among inputs", lambda: examples.given_away(dataset)),
        ("splits alike", lambda: alike.alike(dataset)),
        ("target", lambda: _target(task.quality, dataset, task.quality.target)),
    ]
    if again is not None:
        probes.insert(4, ("loading", lambda: loading(dataset, again)))
    return run_probes(task.name, probes, tell)


def quick_report(
    task: Task,
    recipe: str,
    settings: Mapping[str, Setting],
    parts: Recipe,
    dataset: Dataset,
    again: Callable[[], Dataset] | None,
    most_bytes: int,
    target: float,
) -> Report:
    """The probes that take tenths of a second and no framework, for a task that is about to be run.

    The report holds only what a record may. The content of more than ``most_bytes`` of data is not examined.
    """
    from levelbench.training.probes import recipe_parts

    probes: list[Probe] = [
        ("quality", lambda: _quality(task.quality, task.also)),
        ("labels", lambda: _labels(dataset)),
        ("target", lambda: _target(task.quality, dataset, target)),
        ("settings", lambda: recipe_parts.settings(task, recipe, settings)),
        ("schedule", lambda: recipe_parts.schedule(parts)),
        ("sampler", lambda: recipe_parts.sampler(parts, dataset.train, 0)),
    ]
    if _array_bytes(dataset) <= most_bytes:
        probes += [("splits", lambda: examples.splits(dataset)), ("values", lambda: _values(dataset))]
        if again is not None:
            probes.append(("loading", lambda: loading(dataset, again)))
    report = run_probes(task.name, probes, recorded=True)
    # A missing docstring is no reason to distrust the time.
    return replace(report, findings=tuple(each for each in report.findings if "docstring" not in each.found))


def target_report(task: Task, dataset: Dataset, target: float) -> Report:
    """The probe of a target that is not the task's own."""
    return run_probes(task.name, [("target", lambda: _target(task.quality, dataset, target))], recorded=True)


def constant_answer(quality: Quality, labels: Any) -> float | None:
    """The score of the best answer that is the same for every example, or ``None`` if it is unknown.

    It is the share of the most frequent label, or for ``rmse`` how far the numbers are from their mean.
    """
    if not isinstance(labels, np.ndarray) or not len(labels):
        return None
    if quality.metric == "rmse":
        return float(np.sqrt(labels.var(axis=0, dtype=np.float64).mean()))
    if quality.metric != "top1" or labels.ndim != 1 or labels.dtype.kind not in "iu":
        return None
    return float(np.bincount(labels[labels >= 0]).max(initial=0)) / len(labels)


def _description(task: Task) -> Iterator[Finding]:
    if not task.description:
        yield failed("the task has none", 'describe the data in one line: Task(..., description="...")')
    # Its recipes may be a function's in a module next to the file that has the task.
    modules = [inspect.getmodule(task.recipe_function(task.recipes[0])), *list(sys.modules.values())]
    own = (each for at, each in enumerate(modules) if not at or getattr(each, "__dict__", {}).get("task") is task)
    text = next(filter(None, map(inspect.getdoc, own)), "")
    if not text:
        yield failed("its file has no docstring", "start with the claim, the hardware, and n")
    elif "claim" not in text.lower() and not any(word.isdecimal() or "%" in word for word in text.split()):
        yield noted("its file's docstring makes no claim in figures", "say what is reached, where, and n")
    if task.description and text:
        yield passed(text.partition("\n")[0])


def _provenance(dataset: Dataset) -> Iterator[Finding]:
    missing = []
    if not dataset.checksums and not dataset.synthetic:
        missing.append(("checksums", "give the SHA-256 of each file, so that a record shows which bytes were used"))
    for what in ("licence", "split_rule", "source"):
        if not getattr(dataset, what):
            missing.append((what.replace("_", " "), "state it: records include it"))
    for name, value in dataset.checksums.items():
        if len(value) != 64 or not all(each in "0123456789abcdef" for each in value.lower()):
            missing.append((f"SHA-256 of {name} ({value[:16]!r} is not one)", "give 64 hexadecimal digits"))
        elif len(set(value)) < 4 or value.lower() == hashlib.sha256(b"").hexdigest():
            said = "that of no bytes" if len(set(value)) > 3 else "no file has it"
            missing.append((f"SHA-256 of {name} ({value[:16]}...: {said})", "compute it from the bytes that are read"))
    if not missing and len(dataset.checksums) > 1 and len(set(dataset.checksums.values())) == 1:
        missing.append(("SHA-256 of each file: all have the same", "compute each from its own file"))
    for what, do in missing:
        yield failed(f"the dataset has no {what}", do)
    if not missing:
        made = "generated data" if dataset.synthetic else f"{len(dataset.checksums)} checksums"
        yield passed(f"{made}, {dataset.licence}")


def _quality(quality: Quality, also: tuple[Quality, ...]) -> Iterator[Finding]:
    wrong = False
    for each in (quality, *also):
        if each.direction not in DIRECTIONS:
            wrong = True
            yield failed(f"the direction of {each.metric} is {each.direction!r}", 'say "higher" or "lower"')
        elif math.isnan(each.low) or math.isnan(each.high) or not each.low < each.high:
            wrong = True
            yield failed(f"the scale of {each.metric} goes from {each.low} to {each.high}", "make it ascend")
    if not wrong and not quality.low <= quality.target <= quality.high:
        wrong = True
        found = (
            f"the target {quality.target:g} is off the scale of {quality.metric}, {quality.low:g} to {quality.high:g}"
        )
        yield failed(found, "give a target on the scale")
    for each in (quality, *also):
        if re.fullmatch(r"top\d+", each.metric) and type(each).measure not in (Top1.measure, TopK.measure):
            found = f"{each.metric} has its own measure, and has to be a share of whole examples"
            yield noted(found, "rename a metric that counts differently, or its runs are refused")
    names = [each.metric for each in (quality, *also)]
    if len(set(names)) < len(names):
        wrong = True
        yield failed(f"two metrics have the same name: {', '.join(names)}", "give each its own name")
    if not wrong:
        yield passed(f"{quality.metric}, {quality.direction} is better, target {quality.target:g}")


def _cadence(task: Task) -> Iterator[Finding]:
    every = Evaluate.parse(task.evaluate_every)
    yield passed(f"an evaluation every {every}, on the clock {task.clock}")


_EXPECTED = 12.0
"""A class of which a random split has so many examples on average lacks in one of 160,000."""


def _labels(dataset: Dataset) -> Iterator[Finding]:
    wrong, seen = False, False
    for name, split in dataset.splits().items():
        labels = split.labels
        if not isinstance(labels, np.ndarray) or labels.ndim != 1 or dataset.classes < 1:
            continue
        seen = True
        if labels.dtype.kind not in "iu":
            wrong = True
            yield failed(f"those of the {name} split are {labels.dtype}", "give int64, starting at 0")
            continue
        if labels.min() < 0 or labels.max() >= dataset.classes:
            wrong = True
            found = f"those of the {name} split go from {labels.min()} to {labels.max()}, for {dataset.classes} classes"
            yield failed(found, "correct the labels, the number of classes, or the order of columns")
            continue
        counts = np.bincount(labels, minlength=dataset.classes)
        absent = np.flatnonzero(counts == 0).tolist()
        if absent and name == "train":
            wrong = True
            yield failed(f"no training example is of class {absent[0]}", "give examples of every class")
        elif absent:
            trained = dict(zip(*np.unique(dataset.train.labels, return_counts=True), strict=True))
            most = max(absent, key=lambda each: int(trained.get(each, 0)))
            share = int(trained.get(most, 0)) / len(dataset.train)
            found = f"the {name} split has no example of {len(absent)} classes"
            if share * len(labels) < _EXPECTED:
                yield noted(found)
            else:
                wrong = True
                found += f", such as class {most}, to which {share:.0%} of training examples belong"
                yield failed(found, "split each class alike, or leave out what is never asked for")
    if not seen:
        yield not_tried("they are not classes, one per example")
    elif not wrong:
        counts = np.bincount(dataset.train.labels)
        yield passed(f"{dataset.classes} classes, {counts.min()} to {counts.max()} training examples each")


def _values(dataset: Dataset) -> Iterator[Finding]:
    wrong = False
    for name, split in dataset.splits().items():
        for at, column in enumerate(split.columns):
            if isinstance(column, np.ndarray) and column.dtype.kind == "f" and not np.isfinite(column).all():
                wrong = True
                count = int((~np.isfinite(column)).sum())
                found = f"column {at} of the {name} split has {count} values that are not finite"
                yield failed(found, "correct the data, or leave out those examples")
    if not wrong:
        kinds = ", ".join(f"{column.dtype}{list(column.shape[1:])}" for column in dataset.train.columns)
        yield passed(f"an example is {kinds}")


def _target(quality: Quality, dataset: Dataset, target: float) -> Iterator[Finding]:
    """Always giving the same answer does not reach the target."""
    labels, sign = dataset.validation.labels, sign_of(quality.direction)
    value = constant_answer(quality, labels)
    if value is None:
        return
    of_classes = quality.metric == "top1"
    what = "predicting the most frequent class" if of_classes else "answering the mean"
    if sign * value >= sign * target:
        found = f"always {what} gives {value:.4g}, and the target is {target:g}"
        do = "choose a higher target, or a quality that weights classes equally"
        yield failed(f"{found}, which any network may reach", do if of_classes else "choose a lower target")
    else:
        yield passed(f"{target:g}, while always {what} gives {value:.3g}")
    if not of_classes:
        return
    grain = 1 / len(labels)
    if value < target and 1 - grain < target < 1:
        found = f"the target {target:g} allows none of the {len(labels)} validation examples to be wrong"
        yield failed(found, "hold out more examples, or give a target that some of them may miss")
    elif target < 1 and grain > (1 - target) / 5:
        found = f"one of the {len(labels)} validation examples is worth {grain:.2%}"
        yield noted(found, "hold out more examples: a few of them decide when the target is crossed")
