"""What one process asks and judges: the network with its parameters, the examples, and the quality of the answers.

The quality is the task's own, measured over answers that come by the path that is timed: in place of an
executor it is given one that asks the system under test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DataError, DefinitionError, UnsupportedError
from levelbench.experiments.inference.data import Examples, file_examples, synthetic_examples
from levelbench.experiments.request import load_task
from levelbench.networks.benchmark.cases import digest_of, read_inputs
from levelbench.networks.executor import Backend
from levelbench.networks.files import load
from levelbench.networks.inference import Answerer, Feed, PreparedFeed, RawFeed
from levelbench.networks.network import Network
from levelbench.operators.frameworks import load_framework, open_framework
from levelbench.records.inference import Accuracy, InferenceSpecification
from levelbench.training.datasets.base import Dataset, Split
from levelbench.training.input import normaliser
from levelbench.training.quality import Bleu

if TYPE_CHECKING:
    from levelbench.networks.executor import Executor
    from levelbench.training.input import Held
    from levelbench.training.quality import Quality

__all__ = ["Subject", "make_subject", "refuse_quality"]

_PIXELS = "raw pixels to float32, normalised by channel"


@dataclass(frozen=True)
class Subject:
    """A network to answer with, what it is asked about, and who judges the answers (``None``: nobody can)."""

    network: Network
    examples: Examples
    split: Split | None = None
    quality: Quality | None = None
    dataset: Dataset | None = None

    def feed(self, backend: Backend, framework: str, preprocessing: str) -> Feed:
        """From the numbers of samples to inputs on that backend, with the preprocessing ``in`` the clock or out.

        Pixels are normalised on the device; of a framework that does not train, and so has no arithmetic on arrays, on
        the host: the bits are the same.
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
        """The quality over all examples; answers that were ``kept`` are taken, the others asked for now."""
        if self.split is None or self.quality is None:
            return Accuracy(reason="made-up inputs have no right answers" if self.examples.synthetic else "no labels")
        executor = cast("Executor", _Asked(answerer, kept or {}))
        held = cast("Held", _Numbers(self.split))
        value = self.quality.measure(executor, held)
        return Accuracy(self.quality.metric, value, self.quality.direction, len(self.split), "test")


def make_subject(specification: InferenceSpecification, store: Path, folder: Path | None = None) -> Subject:
    """The network and the examples that a specification names; ``folder`` is that of the task's data.

    The trained network of a task lies in ``store``.

    Raises ``DefinitionError`` for a model that is not the one that was named, and what its readers raise.
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
        # The quality looks at the labels alone: the numbers of the samples stand in for the inputs.
        split = Split.of(np.arange(found_examples.count), found_examples.labels)
        return Subject(network, found_examples, split, Top1(target=0.0))
    return _of_task(specification, network, folder)


def _of_task(specification: InferenceSpecification, network: Network, folder: Path | None) -> Subject:
    task = load_task(specification.model.reference)
    refuse_quality(task.name, task.quality)
    dataset = task.data.load(folder)
    if dataset.checksums != specification.data.checksums:
        found = "they are not those that the measurement was planned with"
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
    """``UnsupportedError`` where an answer is more than one pass through the network."""
    if isinstance(quality, Bleu):
        raise UnsupportedError(
            f"inference of task {name!r}",
            "its answers are decoded token by token, so a query is no single pass through the network",
            "measure one pass: levelbench network, or levelbench infer model.onnx --data FILE.npz",
        )


class _Asked:
    """In place of an executor: what it is given are the numbers of samples, and it asks the system under test."""

    def __init__(self, answerer: Answerer, kept: Mapping[int, tuple[NDArray[Any], ...]]) -> None:
        self._answerer, self._kept = answerer, kept

    def infer(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
        """The outputs for these samples."""
        found = [self._kept.get(int(each)) for each in indices]
        if any(each is None for each in found):
            return self._answerer.outputs(indices)
        return tuple(np.stack(parts) for parts in zip(*(each for each in found if each is not None), strict=True))


class _Numbers:
    """In place of a split on a backend: numbers of samples first, then the targets, as NumPy's arrays."""

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
