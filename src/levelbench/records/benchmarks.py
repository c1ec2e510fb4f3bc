"""What a benchmark of operators leaves behind: one file a process, with raw times and errors of every problem.

The process is the replicate, so one process is one record: what was asked, the environment, then for
each problem the raw times and what was found right or wrong, then the end. The files lie in the store's folder
``operators`` under another ending than runs have, so neither kind is taken for the other.
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

__all__ = ["FOLDER", "BenchmarkHeader", "BenchmarkRecord", "BenchmarkSpecification", "BenchmarkWriter", "Case"]
__all__ += ["Problem", "Tensor"]

FOLDER = "operators"
"""The folder in a store that holds benchmarks of operators."""

Fill = Literal["normal", "positive", "unit", "index", "boolean", "sparse", "given"]


class Tensor(Struct, frozen=True, forbid_unknown_fields=True):
    """An input of a problem and how it is made: from a seed, or from ``values`` (then ``fill`` is ``given``).

    ``scale`` is the standard deviation of ``normal`` and ``sparse`` values and the number of values that an ``index``
    chooses from; ``density`` the share of ``sparse`` values that are not zero.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    fill: Fill = "normal"
    scale: float = 1.0
    density: float = 1.0
    values: tuple[int | float | bool, ...] | None = None


class Problem(Struct, frozen=True, forbid_unknown_fields=True):
    """An ONNX node with its inputs. ``inputs`` names them in order, the empty name for one that is left out."""

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
    """What a benchmark is to be on one framework; its key is the digest of this alone.

    ``budget_s`` is for one problem in one process, ``precision`` the half width of the interval of a process's median
    at which its sampling ends.
    """

    title: str
    framework: str
    device: str
    cache: Literal["hot", "cold"]
    direction: Literal["forward", "backward"]
    budget_s: float
    precision: float
    problems: tuple[Problem, ...]


class BenchmarkHeader(ProcessHeader[BenchmarkSpecification], frozen=True, tag="benchmark"):
    """The first line."""


class Case(Struct, frozen=True, tag="case", tag_field="kind"):
    """What came of the problem at ``index``; its raw times are the samples of that name.

    ``status``: ``measured`` (and found right); ``wrong`` (measured, but its result is not the reference's), ``skipped``
    (does not fit), ``unsupported`` (refused by the framework) and ``failed`` (it raised), each with a ``reason``.
    ``errors`` are those of ``levelbench.checks.arrays`` against the reference; ``checked`` says which
    part of the results was compared, and against which tolerance.
    """

    index: Count
    status: Literal["measured", "wrong", "skipped", "unsupported", "failed"]
    reason: str = ""
    flops: float | None = None
    bytes: float | None = None
    errors: dict[str, float | None] = {}
    checked: str = ""
    inner: int = 0
    stopped_by: str = ""
    warmup_reason: str = ""
    first_s: float | None = None


BenchmarkEvent = Case | Samples | ProcessEnd
_FORMAT = ProcessFormat[BenchmarkHeader, BenchmarkEvent]("benchmark's record", FOLDER, BenchmarkHeader, BenchmarkEvent)


@dataclass(frozen=True)
class BenchmarkRecord(ProcessRecord[BenchmarkHeader]):
    """What one process left behind: cases by index, and its raw times in seconds a call."""

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
    """An open record of a benchmark."""

    form = _FORMAT
