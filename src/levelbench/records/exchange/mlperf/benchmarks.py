"""What MLPerf Training's benchmarks are: their metrics, targets and numbers of runs, read from ``benchmarks.toml``.

The one idea: a log says a number and never which way is better, so the direction of a metric is data of its benchmark.
"""

from __future__ import annotations

import math
import tomllib
from functools import cache
from importlib import resources
from typing import Literal

import msgspec
from msgspec import Struct

from levelbench.records.schema import Target

__all__ = ["Benchmark", "Metric", "benchmark", "benchmarks"]


class Metric(Struct, frozen=True, forbid_unknown_fields=True):
    """One quality: our ``name``, the name in the log where there are several, and what ends the run."""

    name: str
    threshold: float
    logged: str = ""
    direction: Literal["higher", "lower"] = "higher"
    high: float = 1.0

    def target(self) -> Target:
        """As a target of ours, on the validation split."""
        high = self.high if math.isfinite(self.high) else None
        return Target(self.name, self.threshold, self.direction, 0.0, high)


class Benchmark(Struct, frozen=True, forbid_unknown_fields=True):
    """One benchmark: the first metric is the one that a curve shows; ``drop`` runs are dropped on each side."""

    metrics: list[Metric]
    runs: int
    drop: int = 1
    counts: Literal["epochs", "samples"] = "epochs"
    """What its convergence is counted in: samples are told by ``samples_count``, epochs by ``epoch_num``."""


@cache
def benchmarks() -> dict[str, Benchmark]:
    """All benchmarks by the name that logs give them."""
    text = resources.files(__package__).joinpath("benchmarks.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, Benchmark])


def benchmark(name: str | None) -> Benchmark | None:
    """The benchmark of that name; ``None`` for one that MLPerf does not have, such as our own tasks."""
    return benchmarks().get(name) if name else None
