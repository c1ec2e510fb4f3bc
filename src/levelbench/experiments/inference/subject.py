"""The subject of an inference benchmark: a network and its examples.

Examples are a task's test split, the user's file or folder, or synthetic inputs: columns in the order of the network's
inputs, with labels if there are any. Files are checked against the network's inputs. The quality is the task's own,
measured on answers from the timed code path: instead of an executor it gets an adapter that queries the system under
test.
"""

from __future__ import annotations

import hashlib
import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DataError, DefinitionError, MissingError, UnsupportedError, UsageError
from levelbench.experiments.request import load_task
from levelbench.measure.environment.machine import memory_left_bytes
from levelbench.networks.benchmark.cases import digest_of
from levelbench.networks.executor import Backend
from levelbench.networks.files import load
from levelbench.networks.inference import Answerer, Feed, PreparedFeed, RawFeed, Source
from levelbench.networks.network import Network, read_inputs
from levelbench.networks.values import Value
from levelbench.operators.frameworks import load_framework, open_framework
from levelbench.records.inference import Accuracy, Data, Generation, InferenceSpecification
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.input import normaliser
from levelbench.training.quality import Bleu, MeanReturn

if TYPE_CHECKING:
    from levelbench.networks.executor import Executor
    from levelbench.training.input import Held
    from levelbench.training.quality import Quality

__all__ = ["LABELS", "Examples", "Subject", "check_examples", "digest_of_data", "file_examples", "make_subject"]
__all__ += ["refuse_quality", "synthetic_examples"]


LABELS = "labels"
"""The array of an ``.npz`` file that holds the class of each example."""
SYNTHETIC = 256
_ZIP = b"PK\x03\x04"
_BYTES = "bytes to float32, divided by 255"


@dataclass(frozen=True)
class Examples:
    """Columns of equal length in the order of the inputs; ``labels`` (n,) int64 or ``None``.

    ``prepared`` describes the preprocessing of a row before the network gets it; empty if there is none.
    """

    sources: tuple[Source, ...]
    count: int
    labels: NDArray[np.int64] | None = None
    prepared: str = ""
    synthetic: bool = False
    checksums: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Scaled:
    """Rows of bytes as float32 from 0 to 1, in the network's shape."""

    rows: Source
    shape: tuple[int, ...]

    def take(self, indices: NDArray[np.int64], seeds: NDArray[np.uint64] | None) -> NDArray[np.float32]:
        raw = self.rows[indices] if isinstance(self.rows, np.ndarray) else self.rows.take(indices, seeds)
        scaled = np.multiply(raw, np.float32(1 / 255), dtype=np.float32)
        return np.ascontiguousarray(scaled.reshape(len(indices), *self.shape))


def digest_of_data(path: Path) -> str:
    """SHA-256 of a file, or of the listing of a folder of images (names and sizes)."""
    if path.is_dir():
        from levelbench.training.datasets.images import index_folder

        return index_folder(path).digest()
    if not path.is_file():
        raise MissingError(f"the data {path}", "there is no such file or folder", "name one that exists")
    return digest_of(path)


def synthetic_examples(network: Network, sizes: dict[str, int], batch: int) -> Examples:
    """:data:`SYNTHETIC` random inputs from a fixed seed, or a batch if that is more.

    If the network's batch is fixed, rows are drawn one batch at a time.
    """
    made = network.make_inputs(max(SYNTHETIC, batch), 0, sizes)
    columns = tuple(made[name] for name in read_inputs(network))
    if fixed := next((len(each) for each in columns if len(each) < SYNTHETIC), 0):
        parts = [network.make_inputs(fixed, seed, sizes) for seed in range(-(-SYNTHETIC // fixed))]
        columns = tuple(np.concatenate([part[name] for part in parts]) for name in read_inputs(network))
    return Examples(columns, len(columns[0]), synthetic=True)


def file_examples(network: Network, data: Data) -> Examples:
    """The user's examples: an ``.npz`` with an array an input, an IDX file of images, or a folder of image classes.

    Raises ``DataError`` for a file that is damaged or changed since it was named, ``UsageError`` for one that does not
    fit the network.
    """
    path = Path(data.path)
    for each, digest in ((data.path, data.digest), (data.labels, data.labels_digest)):
        if digest and digest_of_data(Path(each)) != digest:
            raise DataError(f"the data {each}", "they changed since the measurement was planned", "run it again")
    wanted = [each for each in network.inputs if each.name in read_inputs(network)]
    if path.is_dir():
        found = _folder(path, wanted)
    else:
        with path.open("rb") as file:
            zipped = file.read(4) == _ZIP
        found = _npz(path, wanted) if zipped else _idx(path, wanted, Path(data.labels) if data.labels else None)
    if not found.count:
        raise DataError(f"the data {path}", "it contains no examples", "give at least one")
    return found


def check_examples(network: Network, examples: Examples) -> None:
    """Raise ``UsageError`` for values that are not finite, or labels for which the network has no class.

    Rows that are read or decoded on demand are not checked.
    """
    for value, column in zip((each for each in network.inputs if each.name in read_inputs(network)), examples.sources):  # noqa: B905
        if isinstance(column, np.ndarray) and column.dtype.kind in "fc":
            wrong = int(np.count_nonzero(~np.isfinite(column)))
            if wrong:
                asked, do = f"the data for {value.name!r}", "remove these rows or replace the values"
                raise UsageError(asked, f"{wrong:,} of {column.size:,} values are not finite", do)
    if examples.labels is None:
        return
    shape = network.outputs[0].shape if network.outputs else None
    classes = shape[1] if shape is not None and len(shape) == 2 and isinstance(shape[1], int) else None
    low, high = int(examples.labels.min()), int(examples.labels.max())
    if low < 0 or (classes is not None and high >= classes):
        found = f"they range from {low} to {high}, and the network has {classes or 'no negative'} classes"
        raise UsageError("the labels of the data", found, "number the classes from 0, as the network does")


def _npz(path: Path, wanted: Sequence[Value]) -> Examples:
    asked = f"the data {path}"
    try:
        with zipfile.ZipFile(path) as archive:
            claimed = sum(each.file_size for each in archive.infolist())
        if claimed > (memory_left_bytes() or claimed):
            raise DataError(asked, f"its arrays need {claimed:,} bytes, more than is free", "give fewer examples")
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            names = [each.name for each in wanted]
            if missing := [name for name in names if name not in file.files]:
                if len(names) == 1 and len(rest := [each for each in file.files if each != LABELS]) == 1:
                    missing, names = [], rest
                else:
                    found = f"it has no array {missing[0]!r}; there are {', '.join(file.files) or 'none'}"
                    raise UsageError(asked, found, f"name the arrays after the inputs: {', '.join(names)}")
            if unread := sorted(set(file.files) - {*names, LABELS}):
                # Labels under another name would be ignored, and no quality measured.
                found = f"its array {unread[0]!r} is not an input of the network; those are {', '.join(names)}"
                raise UsageError(asked, found, f"remove it, or rename it {LABELS} if it holds the right answers")
            columns = [file[name] for name in names]
            labels = file[LABELS] if LABELS in file.files else None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(asked, f"it cannot be read ({error})", "write it with numpy.savez, without objects") from error
    fitted = tuple(_fitted(asked, each, column) for each, column in zip(wanted, columns, strict=True))
    return _whole(asked, fitted, labels, "")


def _idx(path: Path, wanted: Sequence[Value], labels: Path | None) -> Examples:
    from levelbench.training.datasets.idx import read_idx

    asked = f"the data {path}"
    if len(wanted) != 1:
        raise UsageError(asked, f"it is a single array, and the network takes {len(wanted)}", "give an .npz file")
    array = read_idx(path).array
    found = None if labels is None else read_idx(labels).array
    if array.dtype == np.uint8 and wanted[0].dtype == "float32":
        scaled = _Scaled(array, _row_shape(asked, wanted[0], array.shape[1:]))
        return _whole(asked, (scaled,), found, _BYTES, len(array))
    return _whole(asked, (_fitted(asked, wanted[0], array),), found, "")


def _folder(path: Path, wanted: Sequence[Value]) -> Examples:
    from levelbench.training.datasets.images import ImageColumn, View, index_folder

    asked = f"the data {path}"
    shape = wanted[0].shape or ()
    square = len(shape) == 4 and shape[1] == 3 and isinstance(shape[2], int) and shape[2] == shape[3]
    if len(wanted) != 1 or not square or wanted[0].dtype != "float32":
        found = f"its images would be (n, 3, size, size) float32, and the network takes {wanted[0].shape}"
        raise UsageError(asked, found, "give an .npz file with arrays that fit the network")
    index = index_folder(path)
    size = shape[2]
    assert isinstance(size, int)
    images = ImageColumn(index, View(size))
    prepared = f"decoded, scaled to {size}x{size} (shorter side, middle), {_BYTES}"
    return _whole(asked, (_Scaled(images, (3, size, size)),), index.labels, prepared, len(index))


def _fitted(asked: str, value: Value, column: NDArray[Any]) -> NDArray[Any]:
    """The column in the network's dtype and row shape; ``UsageError`` if it does not fit."""
    if column.ndim < 1:
        raise UsageError(asked, f"the array for {value.name!r} is a single number", "give one row per example")
    shape = _row_shape(asked, value, column.shape[1:])
    if value.dtype and column.dtype.name != value.dtype:
        if not np.can_cast(column.dtype, value.dtype, "same_kind"):
            found = f"the array for {value.name!r} is {column.dtype.name}, and the network takes {value.dtype}"
            raise UsageError(asked, found, "convert it yourself: the answers depend on how it is converted")
        column = column.astype(value.dtype)
    return column.reshape(len(column), *shape)


def _row_shape(asked: str, value: Value, given: tuple[int, ...]) -> tuple[int, ...]:
    """The row's shape: sizes of 1 may be missing in ``given``, and open sizes are taken from it."""
    declared = (value.shape or (None, *given))[1:]
    if len(declared) == len(given) and all(a == b or not isinstance(a, int) for a, b in zip(declared, given)):  # noqa: B905
        return given
    if all(isinstance(each, int) for each in declared):
        sizes = tuple(each for each in declared if isinstance(each, int))
        if math.prod(sizes) == math.prod(given) and [s for s in sizes if s > 1] == [g for g in given if g > 1]:
            return sizes
    found = f"its rows for {value.name!r} have shape {given}, and the network takes {tuple(declared)}"
    raise UsageError(asked, found, "give rows of that shape")


def _whole(
    asked: str, columns: tuple[Source, ...], labels: NDArray[Any] | None, prepared: str, count: int | None = None
) -> Examples:
    lengths = {len(each) for each in columns if isinstance(each, np.ndarray)} | (
        {count} if count is not None else set()
    )
    if labels is not None:
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            found = f"the labels are {labels.dtype.name} of shape {labels.shape}"
            raise UsageError(asked, found, "give one whole number per example")
        lengths.add(len(labels))
        labels = labels.astype(np.int64)
    if len(lengths) != 1:
        found = f"its arrays have {', '.join(map(str, sorted(each for each in lengths if each is not None)))} rows"
        raise UsageError(asked, found, "give the same number of rows in each, labels included")
    (total,) = lengths
    assert total is not None
    digest = hashlib.sha256(b"" if labels is None else labels.tobytes()).hexdigest()
    return Examples(columns, total, labels, prepared, checksums={} if labels is None else {LABELS: digest})


_PIXELS = "raw pixels to float32, normalised by channel"


@dataclass(frozen=True)
class Subject:
    """A network, its examples, and how its answers are judged (``None`` if they cannot be)."""

    network: Network
    examples: Examples
    split: Split | None = None
    quality: Quality | None = None
    dataset: Dataset | None = None

    def feed(self, backend: Backend, framework: str, preprocessing: str) -> Feed:
        """Makes inputs on that backend from sample numbers, with the preprocessing ``in`` or ``out`` of the clock.

        Pixels are normalised on the device. For a framework that does not train, and so has no arithmetic on arrays,
        they are normalised on the host, with the same bits.
        """
        kind = RawFeed if preprocessing == "in" else PreparedFeed
        if self.dataset is None or self.split is None:
            return kind(backend, self.examples.sources)
        if load_framework(framework).trains:
            return kind(backend, self.examples.sources, normaliser(backend, self.dataset, self.split))
        numpy = open_framework("numpy")
        assert isinstance(numpy, Backend)
        return kind(backend, self.examples.sources, before=normaliser(numpy, self.dataset, self.split))

    def judge(self, answerer: Answerer, kept: Mapping[int, tuple[NDArray[Any], ...]] | None = None) -> Accuracy:
        """The quality over all examples, using answers that were ``kept`` and querying the others."""
        if self.split is None or self.quality is None:
            return Accuracy(reason="synthetic inputs have no right answers" if self.examples.synthetic else "no labels")
        executor = cast("Executor", _QueryingExecutor(self.network, answerer, kept or {}))
        held = cast("Held", _SampleNumbers(self.split))
        value = self.quality.measure(executor, held)
        return Accuracy(self.quality.metric, value, self.quality.direction, len(self.split), "test")


def make_subject(specification: InferenceSpecification, store: Path, folder: Path | None = None) -> Subject:
    """The network and the examples that a specification names; ``folder`` is that of the task's data.

    The trained network of a task is in ``store``. Raises ``DefinitionError`` if the model has changed since it was
    named, and what its readers raise.
    """
    model, data = specification.model, specification.data
    if model.kind == "zoo":
        from levelbench.networks import zoo

        network = zoo.build(model.name, **model.settings)
    else:
        path = store / model.path if model.kind == "task" else Path(model.path)
        if model.digest and path.is_file() and digest_of(path) != model.digest:
            found = "it changed since the measurement was planned"
            raise DefinitionError(f"the file {path}", found, "run the command again")
        network = load(path)
    network = network.for_inference
    if data.kind == "synthetic":
        return Subject(network, synthetic_examples(network, data.sizes, specification.scenario.batch))
    if data.kind == "file":
        from levelbench.training.quality import Top1

        found_examples = file_examples(network, data)
        if found_examples.labels is None:
            return Subject(network, found_examples)
        # The quality uses only the labels, so sample numbers serve as inputs.
        split = Split.of(np.arange(found_examples.count), found_examples.labels)
        return Subject(network, found_examples, split, Top1(target=0.0))
    return _of_task(specification, network, folder)


def generation_of(subject: Subject, tokens: int, prompt: int | None) -> Generation:
    """``tokens`` new ones after the first ``prompt`` of a row: by default so many that both fill it.

    Raises ``UnsupportedError`` for a network that is no language model, and ``UsageError`` for more than a row has.
    """
    network, asked = subject.network, f"generating tokens with {subject.network.name}"
    taken = [each for each in network.inputs if each.name in read_inputs(network)]
    shapes = [each.shape or () for each in (*taken, network.outputs[0])]
    if [len(each) for each in shapes] != [2, 3] or taken[0].dtype != "int64":
        given = ", ".join(f"{each.dtype} {each.shape}" for each in taken)
        found = f"it takes {given} and gives {network.outputs[0].shape}"
        do = "give a language model: whole numbers (batch, length) to scores (batch, length, tokens)"
        raise UnsupportedError(asked, found, do)
    if isinstance(shapes[0][1], int):
        raise UnsupportedError(
            asked, f"its rows have a fixed length of {shapes[0][1]}", "export it with an open length"
        )
    row = subject.examples.sources[0]
    length = (row if isinstance(row, np.ndarray) else row.take(np.zeros(1, np.int64), None)).shape[1]
    begin = length - tokens if prompt is None else prompt
    if begin < 1 or begin + tokens > length:
        wanted = f"--generate {tokens}" + ("" if prompt is None else f" --prompt {prompt}")
        raise UsageError(wanted, f"a row has {length} tokens, prompt included", "give fewer")
    return Generation(begin, tokens)


def _of_task(specification: InferenceSpecification, network: Network, folder: Path | None) -> Subject:
    task = load_task(specification.model.reference)
    refuse_quality(task.name, task.quality)
    dataset = task.data.load(folder)
    if dataset.checksums != specification.data.checksums:
        found = "it has changed since the measurement was planned"
        raise DataError(f"the data of {task.name}", found, "run the command again")
    split = dataset.test
    sources = split.columns[: len(split.columns) - split.targets]
    taken = read_inputs(network)
    if len(taken) != len(sources):
        raise UnsupportedError(
            f"inference of task {task.name!r}",
            f"its network takes {len(taken)} inputs ({', '.join(taken)}) and an example has {len(sources)}",
            "measure the network itself: levelbench infer model.onnx --data FILE.npz",
        )
    raw = dataset.normalisation is not None and split.inputs.dtype == np.uint8
    examples = Examples(
        tuple(sources), len(split), prepared=_PIXELS if raw else "", synthetic=dataset.synthetic,
        checksums=dict(dataset.checksums),
    )  # fmt: skip
    return Subject(network, examples, split, task.quality, dataset)


def refuse_quality(name: str, quality: Quality) -> None:
    """Raise ``UnsupportedError`` if an answer takes more than one pass through the network."""
    if isinstance(quality, Bleu):
        raise UnsupportedError(
            f"inference of task {name!r}",
            "its answers are decoded token by token, so a query is not a single pass through the network",
            "measure one pass: levelbench network, or levelbench infer model.onnx --data FILE.npz",
        )
    if isinstance(quality, MeanReturn):
        raise UnsupportedError(
            f"inference of task {name!r}",
            "its answers are actions, which decide what the next query is, so there is no list of queries",
            "measure one pass: levelbench network, or levelbench infer model.onnx --data FILE.npz",
        )


class _QueryingExecutor:
    """Used as an executor of ``network``: it takes sample numbers and queries the system under test."""

    def __init__(self, network: Network, answerer: Answerer, kept: Mapping[int, tuple[NDArray[Any], ...]]) -> None:
        self.network, self._answerer, self._kept = network, answerer, kept

    def infer(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
        """The outputs for these samples."""
        found = [self._kept.get(int(each)) for each in indices]
        if any(each is None for each in found):
            return self._answerer.outputs(indices)
        return tuple(np.stack(parts) for parts in zip(*(each for each in found if each is not None), strict=True))


class _SampleNumbers:
    """Used as a split on a backend: sample numbers first, then the targets, as NumPy arrays."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.backend = open_framework("numpy")

    def batches(self, size: int = 1000) -> Iterator[tuple[NDArray[Any], ...]]:
        """All samples once, in their order."""
        for start in range(0, len(self.split), size):
            numbers = np.arange(start, min(start + size, len(self.split)), dtype=np.int64)
            targets = self.split.columns[len(self.split.columns) - self.split.targets :]
            rows = (each[numbers] if isinstance(each, np.ndarray) else each.take(numbers, None) for each in targets)
            yield (numbers, *rows)

    def __len__(self) -> int:
        return len(self.split)
