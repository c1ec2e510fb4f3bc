"""Scores kept models on data that nobody tuned them on, for ``analysis/generalization.py`` to compare.

Data is the task's test split, corruptions of it, another set of the same classes, or another task to transfer to. All
models see the same arrays. A set with rows that the models were trained or tuned on is refused. Quality is the task's
own, computed by the same code that trains and infers, in float32 and in this process.

Transfer freezes all but the last layer (Kornblith, Shlens & Le 2019, "Do Better ImageNet Models Transfer Better?"): the
inputs of the network's last linear layer are features, standardised, on which multinomial logistic regression is fitted
to the other task's training split. The L2 penalty is the one of five that scores best on that task's validation split;
its test split is scored once.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from levelbench import plugins
from levelbench.errors import (
    DataError,
    DefinitionError,
    MissingError,
    UnknownNameError,
    UnsupportedError,
    UsageError,
)
from levelbench.experiments.inference.models import KeptModel, find_model, kept_facts, stale
from levelbench.experiments.request import load_task
from levelbench.networks.executor import Backend, Executor
from levelbench.networks.files import load
from levelbench.networks.network import Network, read_inputs
from levelbench.operators.frameworks import open_framework
from levelbench.records import RunGroup, parse_item
from levelbench.records.selection import format_item
from levelbench.training import datasets
from levelbench.training.augmentation import resized
from levelbench.training.corruptions import CORRUPTIONS, SEVERITIES, corrupted
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.input import Held, is_resident, share_disturbed
from levelbench.training.linear import LinearClassifier, fit_linear
from levelbench.training.task import Setting, Task

__all__ = [
    "EvaluationSet",
    "TaskModels",
    "TransferTask",
    "evaluation_sets",
    "feature_value",
    "models_of",
    "transfer_task",
]

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""L2 penalties that are tried for transfer, per example (1 / (n C) in scikit-learn's terms)."""
_MOST_FITTED = 20_000
"""Examples that a last layer is fitted to at most, evenly spaced."""
_MOST_DISTURBED = 0.1
_MOST_SPREAD = 1.5
"""Standard deviations of a second set and the test split that differ by more are doubted."""
_LEAST_CONTRAST = 1 / 8
"""So much smaller may a standard deviation be around the same mean: blur and lost contrast do that to honest images."""
_SAME_MEAN = 0.1
_OFTEN = 0.005
"""At least this share of the values of images is the darkest, or the brightest, that there is."""
_NAMED = 4
"""Seeds without a model that are named."""
_ALL = "corruptions"
_ROWS = 1000


@dataclass(frozen=True)
class TaskModels:
    """The kept models of groups of runs of one task, with the task, its data and what speaks against them.

    ``models`` has a tuple for each of ``groups``; those of a group are sorted by seed.
    """

    task: Task
    dataset: Dataset
    groups: tuple[RunGroup, ...]
    models: tuple[tuple[KeptModel, ...], ...]
    caveats: tuple[str, ...]


@dataclass(frozen=True)
class EvaluationSet:
    """Examples to score: ``split`` in the form of ``dataset``, whose normalisation it needs, and what they are."""

    name: str
    kind: Literal["test", "made", "set"]
    what: str
    dataset: Dataset
    split: Split
    corruption: str = ""
    doubts: tuple[str, ...] = ()

    def score(self, task: Task, backend: Backend, executor: Executor) -> float:
        """The task's quality on these examples."""
        return task.quality.measure(executor, Held(backend, self.dataset, self.split))


def models_of(
    groups: Sequence[RunGroup], store: Path, reference: str | None = None, folder: Path | None = None
) -> TaskModels:
    """The models that ``run --keep-model`` left of these runs, beside their records or in ``store``.

    A model of another run, even of the same seed, does not count. ``reference`` finds a task that is not installed.
    Raises ``UsageError`` for runs of several tasks or data, ``MissingError`` where no model of a group was kept,
    ``UnsupportedError`` for a quality that is no share, or a task whose answers take several passes.
    """
    from levelbench.experiments.inference.subject import refuse_quality

    asked = "models on other data"
    if len(names := sorted({each.specification.task for each in groups})) > 1:
        raise UsageError(asked, f"the runs are of {len(names)} tasks: {', '.join(names)}", "select the runs of one")
    task = load_task(reference or names[0])
    if task.name != names[0]:
        raise UsageError(
            f"{asked}: --task {reference}", f"it is {task.name}, the runs are of {names[0]}", "name theirs"
        )
    refuse_quality(task.name, task.quality)
    if (task.quality.low, task.quality.high) != (0.0, 1.0):
        found = f"{task.quality.metric} has no scale from 0 to 1, and differences are stated in points"
        raise UnsupportedError(asked, found, "choose a task with a quality that is a share, such as top1")
    models, caveats = [], []
    for group in groups:
        by_seed = {seed: _model_of(group, seed, store) for seed in sorted({run.seed for run in group.runs})}
        kept = [each for each in by_seed.values() if isinstance(each, KeptModel)]
        missing = [f"seed {seed} ({why})" for seed, why in by_seed.items() if isinstance(why, str)]
        if not kept:
            do = f"make them again and keep them: levelbench run {_again(group)} -n {group.n} --keep-model --fresh"
            found = f"there is none of {_some(missing)}"
            raise MissingError(f"the models of {group.label}", found, do)
        if missing:
            caveats.append(f"{group.label}: without the models of {_some(missing)}")
        caveats += sorted({f"{group.label}: of several ranks, {of}" for each in kept if (of := each.facts.weights_of)})
        models.append(tuple(kept))
    dataset = task.data.load(folder)
    for group in groups:
        if any(run.checksums and run.checksums != dataset.checksums for run in group.runs):
            other = f"the data of {task.name} is not the data that {group.label} was trained on"
            raise DataError(asked, other, "name the folder of that data: --data")
    return TaskModels(task, dataset, tuple(groups), tuple(models), tuple(caveats))


def _model_of(group: RunGroup, seed: int, store: Path) -> KeptModel | str:
    """The model of one of the selected runs of this seed, or why there is none."""
    runs = [run for run in (*group.runs, *group.repeats) if run.seed == seed]
    # A record lies in the folder of its day, in that of its task, in its store.
    beside = [each for run in runs for each in Path(run.path).absolute().parents[:3]]
    why = "none was kept"
    for place in dict.fromkeys([*beside, store.absolute()]):
        facts = kept_facts(place, group.key, seed)
        if facts is None:
            continue
        if facts.run not in {run.id for run in runs}:
            why = f"the one that was kept is of another run, {facts.run[:8]}"
        elif found := find_model(place, group.key, seed, group.source_digest):
            return found
        else:
            return f"of the one that was kept, {stale(facts, group.source_digest) or 'the file is damaged'}"
    return why


def _some(named: Sequence[str]) -> str:
    more = len(named) - _NAMED
    return ", ".join(named[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _again(group: RunGroup) -> str:
    """What was trained, as an argument of ``levelbench run``: with the settings that were set, or all if unknown."""
    named, chosen, team = group.specification, group.chosen, group.specification.distribution
    settings = {name: value for name, value in named.settings.items() if chosen is None or name in chosen}
    own: dict[str, Setting] = {"recipe": named.recipe, "framework": named.framework}
    if named.device != "cpu":
        own["device"] = named.device
    if team is not None:
        own |= {"ranks": team.ranks, "scheme": team.scheme}
    return shlex.quote(format_item(named.task, own | settings))


def evaluation_sets(
    found: TaskModels, words: Sequence[str], seed: int = 0, folder: Path | None = None
) -> Iterator[EvaluationSet]:
    """The test split, then the set of each word; made one at a time, because several may not fit into memory.

    A word is ``corruptions``, the name of one (with ``[severity=3]``; default: 1 to 5), the name of a dataset or task,
    or ``X.npy,y.npy``. All words are checked before the first set is given.
    """
    plans = [_plan(found, word) for word in words]
    test = found.dataset.test
    yield EvaluationSet("test", "test", f"test split of {found.dataset.name}", found.dataset, test)
    done = set()
    for plan in plans:
        for each in plan:
            name = each if isinstance(each, str) else f"{each[0]}[severity={each[1]}]"
            if name in done:
                continue
            done.add(name)
            yield _second_set(found, each, folder) if isinstance(each, str) else _made(found.dataset, *each, seed)


def _plan(found: TaskModels, word: str) -> list[str | tuple[str, int]]:
    """What a word stands for: kinds of corruption with their severities, or itself."""
    if word.endswith(".npy"):
        _arrays(word)
        return [word]
    name, settings = parse_item(word)
    asked = f"--on {word}"
    if name in (_ALL, *CORRUPTIONS):
        severity = settings.pop("severity", None)
        if settings or (severity is not None and severity not in SEVERITIES):
            raise UsageError(asked, "a corruption has one setting, severity, from 1 to 5", f"--on '{name}[severity=3]'")
        shape = images_of(found.dataset, found.dataset.test).shape
        kinds = list(CORRUPTIONS) if name == _ALL else [name]
        if severity is None:
            # Those that make the same as a lower one would be one set with several names.
            return [(k, each) for k in kinds for each in SEVERITIES if CORRUPTIONS[k].same_as(each, shape) == each]
        for kind in kinds:
            if (same := CORRUPTIONS[kind].same_as(int(severity), shape)) != severity and name != _ALL:
                what = (
                    f"{CORRUPTIONS[kind].words(int(severity), shape)}, as severity {same} does on {shape[2]}x{shape[3]}"
                )
                raise UsageError(asked, f"it makes images {what}", f"--on '{kind}[severity={same}]'")
        return [(kind, CORRUPTIONS[kind].same_as(int(severity), shape)) for kind in kinds]
    if name in ("train", "training", "validation") or name in (found.task.name, found.dataset.name):
        what = "the models were trained and tuned on it" if name != "test" else ""
        raise UsageError(
            asked, f"that is the task's own data: {what}", "its test split is always scored; name other data"
        )
    known = [_ALL, *CORRUPTIONS, *datasets.names(), *plugins.names("task")]
    if name != "test" and name.isidentifier() and name not in known:
        raise UnknownNameError("data", name, known, "name a corruption, a dataset, a task or X.npy,y.npy")
    return [] if name == "test" else [word]


def images_of(dataset: Dataset, split: Split) -> NDArray[np.float32]:
    """A split's inputs as images (n, channels, height, width) from 0 to 1.

    Bytes are divided by 255; floats are put between the lowest and the highest value of the training split. Rows of a
    square number of values are taken as square grey images. ``UsageError`` for anything else.
    """
    inputs, asked = split.inputs, f"images of {dataset.name}"
    if len(split.columns) - split.targets != 1 or not is_resident(inputs) or not is_resident(dataset.train.inputs):
        raise UsageError(asked, "its rows are not one array in memory", "name another set (--on DATASET)")
    low, high = _range(dataset)
    shape = inputs.shape[1:]
    side = round(float(np.prod(shape)) ** 0.5)
    if len(shape) == 1 and side * side == shape[0]:
        shape = (1, side, side)
    elif len(shape) == 2:
        shape = (1, *shape)
    if len(shape) != 3 or shape[0] not in (1, 3) or inputs.dtype.kind not in "fu":
        raise UsageError(asked, f"its rows have shape {inputs.shape[1:]}: no grey or colour images", "name another set")
    scaled = (inputs.reshape(-1, *shape).astype(np.float32) - np.float32(low)) / np.float32(high - low)
    return np.asarray(np.clip(scaled, 0.0, 1.0))


def _range(dataset: Dataset) -> tuple[float, float]:
    inputs = dataset.train.inputs
    return (0.0, 255.0) if inputs.dtype == np.uint8 else (float(inputs.min()), float(inputs.max()))


def _back(dataset: Dataset, images: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[Any]:
    """Images from 0 to 1 as rows of the dataset; bytes are rounded, as a file of images would be."""
    low, high = _range(dataset)
    values = images.reshape(len(images), *shape) * np.float32(high - low) + np.float32(low)
    return np.rint(values).astype(np.uint8) if dataset.train.inputs.dtype == np.uint8 else values


def _made(dataset: Dataset, kind: str, severity: int, seed: int) -> EvaluationSet:
    test = dataset.test
    images = images_of(dataset, test)
    rows = _back(dataset, corrupted(images, kind, severity, seed), test.inputs.shape[1:])
    what = f"made: {CORRUPTIONS[kind].words(severity, images.shape)}"
    split = replace(test, columns=(rows, *test.columns[1:]))
    return EvaluationSet(f"{kind}[severity={severity}]", "made", what, dataset, split, kind)


def _second_set(found: TaskModels, word: str, folder: Path | None) -> EvaluationSet:
    """Another set of the same classes: its test split, or a pair of arrays. All its rows must be new to the models."""
    own, asked = found.dataset, f"--on {word}"
    if word.endswith(".npy"):
        inputs, labels = _arrays(word)
        if inputs.shape[1:] != own.test.inputs.shape[1:] and inputs.ndim == 4 and inputs.shape[3] in (1, 3):
            inputs = np.ascontiguousarray(inputs.transpose(0, 3, 1, 2))
        if (
            inputs.dtype == np.uint8
            and own.train.inputs.dtype != np.uint8
            and inputs.shape[1:] == own.test.inputs.shape[1:]
        ):
            inputs = _back(own, inputs.astype(np.float32) / np.float32(255), inputs.shape[1:])
        classes, dataset = int(labels.max(initial=0)) + 1, own
        what = f"{len(labels):,} example{'s' * (len(labels) != 1)} of {word}"
        split, enough = Split.of(inputs, labels), classes <= own.classes
    else:
        dataset = _dataset(word, folder)
        if set(dataset.checksums.values()) & set(own.checksums.values()):
            raise UsageError(asked, f"it is made of the files that {own.name} was trained on", "name other data")
        split, classes = dataset.test, dataset.classes
        enough, what = classes == own.classes, f"test split of {dataset.name}"
    shapes = [tuple(each.shape[1:]) for each in (split.inputs, own.test.inputs)]
    if shapes[0] != shapes[1] or not enough:
        mine = f"rows of shape {shapes[1]} in {own.classes} classes"
        raise UsageError(
            asked,
            f"it has rows of shape {shapes[0]} in {classes} classes, and {own.name} has {mine}",
            "name a set of the same classes and shape, or fit a last layer to it: --transfer",
        )
    if split.inputs.dtype != own.test.inputs.dtype and own.test.inputs.dtype == np.uint8:
        raise UsageError(asked, f"its rows are {split.inputs.dtype}, and those of {own.name} bytes", "give bytes")
    _refuse_known(asked, own, split)
    doubts = (_not_new(word, own, split), _other_scale(word, own, split) if dataset is own else "")
    return EvaluationSet(word, "set", what, dataset, split, doubts=tuple(filter(None, doubts)))


def _not_new(word: str, own: Dataset, split: Split) -> str:
    """A doubt if rows are those of the test split, or of the training or validation split, a little changed."""
    parts = [each.inputs for each in (own.train, own.validation, own.test, split)]
    if not all(map(is_resident, parts)) or not all(each.dtype.kind in "buif" for each in parts):
        return ""
    if seen := _seen(split, own.test):
        return f"doubt: {seen:,} of the {len(split):,} rows of {word} are in the test split, which is scored already"
    share = share_disturbed(parts[3], parts[:2], parts[2])
    said = f"doubt: about {100 * share:.0f} % of the rows of {word} are rows that {own.name} trains or is tuned on, a "
    return f"{said}little changed: a score on them says nothing about new data" if share > _MOST_DISTURBED else ""


def _other_scale(word: str, own: Dataset, split: Split) -> str:
    """A doubt if the values of these arrays have plainly another mean or spread than those of the test split."""
    parts = [each.inputs for each in (split, own.test)]
    if not all(map(is_resident, parts)) or not all(each.dtype.kind in "uf" for each in parts):
        return ""
    (mean, spread), (wanted, usual) = ((float(x.mean(dtype=float)), float(x.std(dtype=float))) for x in parts)
    low, high = float(parts[1].min()), float(parts[1].max())
    slack = 0.1 * (high - low)
    outside = parts[0].min() < low - slack or parts[0].max() > high + slack
    least = _LEAST_CONTRAST if abs(mean - wanted) <= _SAME_MEAN * usual else 1 / _MOST_SPREAD
    # Brighter images have another mean, too, and stay between the same ends.
    elsewhere = (outside and abs(mean - wanted) > usual) or (
        abs(mean - wanted) > _SAME_MEAN * usual and _ends_apart(*parts)
    )
    if least * usual <= spread <= _MOST_SPREAD * usual and not elsewhere:
        return ""
    name = word.split(",")[0].strip()
    return (
        f"doubt: values of {Path(name).name} have mean {mean:.3g} and standard deviation {spread:.3g}, those of the "
        f"test split {wanted:.3g} and {usual:.3g}: are they on the task's scale?"
    )


def _ends_apart(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether the lowest and the highest values, which many of both have, both differ: [-1, 1] is not [-0.8, 1.8]."""
    width = float(other.max()) - float(other.min())
    pairs = [(end(one), end(other)) for end in (np.min, np.max)]
    often = all(np.mean(x == end) > _OFTEN for pair in pairs for x, end in zip((one, other), pair, strict=True))
    return often and all(abs(float(a) - float(b)) > 0.02 * width for a, b in pairs)


def _arrays(word: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The two arrays of ``X.npy,y.npy``."""
    paths, asked = [Path(each.strip()) for each in word.split(",")], f"--on {word}"
    if len(paths) != 2:
        raise UsageError(asked, f"it names {len(paths)} files", "name two: inputs and labels, as in X.npy,y.npy")
    for path in paths:
        if not path.is_file():
            raise MissingError(asked, f"there is no file {path}", "name files that exist")
    try:
        inputs, labels = (np.load(path, allow_pickle=False) for path in paths)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(asked, f"it cannot be read ({error})", "write them with numpy.save, without objects") from error
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) != len(inputs) or not len(labels):
        found = f"inputs of shape {inputs.shape}, labels of shape {labels.shape} in {labels.dtype}"
        raise UsageError(asked, found, "give inputs (n, ...) and whole numbers (n,), the classes from 0")
    if labels.min() < 0 or inputs.dtype.kind not in "fu" or not np.isfinite(inputs).all():
        raise UsageError(asked, "labels are below 0, or inputs are no finite floats or bytes", "correct the arrays")
    return inputs if inputs.dtype == np.uint8 else inputs.astype(np.float32), labels.astype(np.int64)


def _dataset(word: str, folder: Path | None) -> Dataset:
    """The dataset of that name, or that of the task of that name; of its own folder, not the first task's."""
    if word in datasets.names():
        return datasets.source(word).load(None)
    return load_task(word).data.load(folder if word.endswith(".py") else None)


def _refuse_known(asked: str, own: Dataset, split: Split) -> None:
    """Refuse a set with rows that the task trains or is tuned on."""
    if not is_resident(split.inputs) or split.inputs.dtype != own.train.inputs.dtype:
        return
    if seen := _seen(split, own.train, own.validation):
        found = f"{seen:,} of its {len(split):,} rows are in the training or validation split of {own.name}"
        raise UsageError(asked, found, "remove these rows: a score on them says nothing about new data")


def _seen(split: Split, *parts: Split) -> int:
    known = {hash(row.tobytes()) for part in parts if is_resident(part.inputs) for row in part.inputs}
    return sum(hash(row.tobytes()) in known for row in split.inputs)


@dataclass(frozen=True)
class TransferTask:
    """Another task to which last layers are fitted: images from 0 to 1 and labels of its three splits."""

    name: str
    what: str
    classes: int
    splits: tuple[tuple[NDArray[Any], NDArray[np.int64]], ...]
    dataset: Dataset

    def score(self, backend: Backend, network: Network) -> float:
        """The top-1 accuracy on its test split of a last layer fitted to the features of ``network``."""
        train, validation, test = (self._features(backend, network, rows) for rows, _ in self.splits)
        labels = [each for _, each in self.splits]
        best: LinearClassifier | None = None
        highest = -1.0
        for penalty in PENALTIES:
            fitted = fit_linear(train, labels[0], self.classes, penalty)
            right = float(np.mean(fitted.predict(validation) == labels[1]))
            if right > highest:
                best, highest = fitted, right
        assert best is not None
        return float(np.mean(best.predict(test) == labels[2]))

    def _features(self, backend: Backend, network: Network, rows: NDArray[Any]) -> NDArray[np.float32]:
        """(n, features) on the host."""
        cut = network.with_outputs([feature_value(network)])
        executor = backend.executor(cut, network.initialise(0), trains=False)
        held = Held(backend, self.dataset, Split.of(rows, np.zeros(len(rows), np.int64)))
        found = [np.asarray(backend.host(executor.infer(inputs)[0])) for inputs, _ in held.batches(_ROWS)]
        return np.concatenate(found).reshape(len(rows), -1)


def transfer_task(found: TaskModels, word: str, folder: Path | None = None) -> TransferTask:
    """The task or dataset ``word``, its images resized and its channels made as the models take them.

    Raises ``UsageError`` for the models' own data, and for data that is not images in classes.
    """
    own, asked = found.dataset, f"--transfer {word}"
    dataset = _dataset(word, folder)
    if word == found.task.name or set(dataset.checksums.values()) & set(own.checksums.values()):
        raise UsageError(asked, f"the models were trained on {own.name}, which is the same data", "name another task")
    if dataset.classes < 2:
        raise UsageError(asked, f"it has {dataset.classes} classes", "name a task of classification")
    wanted = images_of(own, replace(own.test, columns=(own.test.inputs[:1], own.test.labels[:1]))).shape[1:]
    splits = []
    for name, split in dataset.splits().items():
        chosen = np.arange(len(split))
        if name == "train" and len(split) > _MOST_FITTED:
            chosen = np.linspace(0, len(split) - 1, _MOST_FITTED).astype(np.int64)
        images = images_of(dataset, split)[chosen]
        given = images.shape[1:]
        if given[0] != wanted[0]:
            images = images.mean(axis=1, keepdims=True) if wanted[0] == 1 else np.repeat(images, wanted[0], axis=1)
        rows = _back(own, resized(images, *wanted[1:]), own.test.inputs.shape[1:])
        splits.append((rows, np.asarray(split.labels)[chosen]))
    fitted = f"last layer fitted to {len(splits[0][1]):,} examples of {dataset.name}"
    what = fitted if given == wanted else f"{fitted}, made {wanted} of {given}"
    return TransferTask(f"transfer to {word}", what, dataset.classes, tuple(splits), own)


def feature_value(network: Network) -> str:
    """The value that enters the network's last linear layer; ``UnsupportedError`` if it has none."""
    trained = {each.name for each in network.parameters}
    for node in reversed(network.nodes):
        if node.op_type in ("Gemm", "MatMul") and not node.domain:
            weights = [name for name in node.inputs if name in trained]
            values = [name for name in node.inputs[:2] if name not in trained]
            if weights and len(values) == 1:
                return values[0]
    found = f"{network.name} has no linear layer with trained weights"
    raise UnsupportedError("features of a network", found, "score it without --transfer")


def open_models(found: TaskModels, framework: str, device: str) -> tuple[Backend, list[list[tuple[Network, Executor]]]]:
    """A backend and all models on it, by group; raises what opening a framework or a network raises."""
    backend = open_framework(framework, device)
    if not isinstance(backend, Backend):
        raise DefinitionError(f"models on {framework}", "it only runs single operators", "choose another framework")
    opened = []
    for models in found.models:
        mine = []
        for each in models:
            network = load(each.path).for_inference
            taken, columns = len(read_inputs(network)), len(found.dataset.test.columns) - found.dataset.test.targets
            if taken != columns:
                what = f"its network takes {taken} inputs, and an example has {columns}"
                raise UnsupportedError(f"models of {found.task.name}", what, "choose another task")
            mine.append((network, backend.executor(network, network.initialise(0), trains=False)))
        opened.append(mine)
    return backend, opened
