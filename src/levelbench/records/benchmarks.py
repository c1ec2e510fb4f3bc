"""Records of operator benchmarks: one file per process, with the raw times and errors of every problem.

The process is the replicate, so each process has its own record: specification, environment, then for each problem the
raw times and the outcome of its check, then the end. The files are in the store's folder ``operators``, with another
extension than runs have, so that neither kind is mistaken for the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import Struct

from levelbench.records.processes import (
    FileLines,
    ProcessEnd,
    ProcessFormat,
    ProcessHeader,
    ProcessRecord,
    ProcessWriter,
)
from levelbench.records.schema import Count, Samples

__all__ = [
    "FOLDER",
    "OPTIMIZERS",
    "BenchmarkHeader",
    "BenchmarkRecord",
    "BenchmarkSpecification",
    "BenchmarkWriter",
    "Case",
]
__all__ += ["Problem", "Tensor"]

FOLDER = "operators"
"""The folder in a store that holds benchmarks of operators."""

OPTIMIZERS = "levelbench.optimizer"
"""The domain of problems that an optimizer solves: an update of its tensors, or a step of training a network."""

Fill = Literal["normal", "positive", "unit", "index", "boolean", "sparse", "given", "example"]


class Tensor(Struct, frozen=True, forbid_unknown_fields=True):
    """An input of a problem and how it is made: from a seed, or from ``values`` (then ``fill`` is ``given``).

    ``example`` is one of a custom operator's own examples, which the process that measures reads from a file.

    ``scale`` is the standard deviation of ``normal`` and ``sparse`` values, or the number of values that an ``index``
    chooses from; ``density`` is the share of non-zero ``sparse`` values.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    fill: Fill = "normal"
    scale: float = 1.0
    density: float = 1.0
    values: tuple[int | float | bool, ...] | None = None


class Problem(Struct, frozen=True, forbid_unknown_fields=True):
    """An ONNX node with its inputs. ``inputs`` names them in order; an omitted input has the empty name."""

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    opset: int
    attributes: dict[str, Any] = {}
    domain: str = ""
    note: str = ""


class BenchmarkSpecification(Struct, frozen=True, forbid_unknown_fields=True):
    """What a benchmark measures on one framework; its key is the digest of this alone.

    ``budget_s`` is for one problem in one process. Sampling in a process ends when the interval of its median has the
    half width ``precision``. ``own`` is the name of the user's file, if what it defines is measured;
    ``source`` is the digest of that file and of what it imports, also of what is measured beside it on its examples.
    ``label`` is what is measured, if a framework alone does not say it. ``layout`` is that of all inputs with four or
    five axes, and of gradients of such outputs; ``None`` is ONNX's, with the channels first.
    """

    title: str
    framework: str
    device: str
    cache: Literal["hot", "cold"]
    direction: Literal["forward", "backward"]
    budget_s: float
    precision: float
    problems: tuple[Problem, ...]
    own: str | None = None
    source: str | None = None
    label: str | None = None
    layout: Literal["channels_last"] | None = None

    @property
    def arm(self) -> str:
        """What the table calls it: ``torch``, ``torch channels_last`` or ``MyOperator on torch``."""
        return " ".join(filter(None, (self.label or self.framework, self.layout)))


class BenchmarkHeader(ProcessHeader[BenchmarkSpecification], frozen=True, tag="benchmark"):
    """The first line."""


class Case(Struct, frozen=True, tag="case", tag_field="kind"):
    """The outcome of the problem at ``index``; its raw times are the samples of that name.

    ``status`` is ``measured`` (with a correct result), ``unchecked`` (measured, but there is no reference), ``wrong``
    (the result differs from the reference's), ``refused`` (the time is not that of computing the result), ``skipped``
    (does not fit), ``unsupported`` (refused by the framework) or ``failed`` (it raised), all but the first with a
    ``reason``. ``errors`` are those of ``levelbench.checks.arrays`` against the reference;
    ``checked`` says which part of the results was compared, and within which tolerance. ``algorithm`` is what the
    framework says that it computes with; if it does not say, ``None`` and an ``algorithm_reason``.
    """

    index: Count
    status: Literal["measured", "unchecked", "wrong", "refused", "skipped", "unsupported", "failed"]
    reason: str = ""
    flops: float | None = None
    bytes: float | None = None
    errors: dict[str, float | None] = {}
    checked: str = ""
    inner: int = 0
    stopped_by: str = ""
    warmup_reason: str = ""
    first_s: float | None = None
    algorithm: str | None = None
    algorithm_reason: str = ""

    @property
    def outcome(self) -> str:
        """Its status; ``unchecked`` too where an older record says that it measured what it did not check."""
        return "unchecked" if self.status == "measured" and self.checked.startswith("not checked") else self.status


BenchmarkEvent = Case | Samples | ProcessEnd
_FORMAT = ProcessFormat[BenchmarkHeader, BenchmarkEvent]("benchmark's record", FOLDER, BenchmarkHeader, BenchmarkEvent)


@dataclass(frozen=True)
class BenchmarkRecord(ProcessRecord[BenchmarkHeader]):
    """The record of one process: cases by index, and raw times in seconds per call."""

    form = _FORMAT

    cases: dict[int, Case]
    samples: dict[int, Sequence[float]]

    @classmethod
    def _parts(cls, found: FileLines[BenchmarkHeader, BenchmarkEvent], asked: str) -> dict[str, Any]:
        return {
            "cases": {case.index: case for case in found.all(Case)},
            "samples": {int(each.name): each.values for each in found.all(Samples)},
        }


class BenchmarkWriter(ProcessWriter[BenchmarkHeader, BenchmarkEvent]):
    """Writes the record of an operator benchmark."""

    form = _FORMAT
