"""One replicate: all problems of a specification on one framework, in this process, into one record."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from levelbench import __version__
from levelbench.measure.caches import StreamFlusher
from levelbench.measure.clocks import utc_now
from levelbench.measure.environment import capture, capture_after, doubts
from levelbench.operators.benchmark.ceilings import pace
from levelbench.operators.benchmark.measuring import Limits, measure_problem
from levelbench.operators.contract import OperatorBackend
from levelbench.operators.frameworks import open_framework
from levelbench.records.benchmarks import (
    BENCHMARK_SCHEMA,
    BenchmarkEnd,
    BenchmarkHeader,
    BenchmarkSpecification,
    BenchmarkWriter,
    Case,
    Problem,
    benchmark_key,
)
from levelbench.records.schema import Samples

__all__ = ["make_record"]

OnCase = Callable[[Path, Case | None], None]


def make_record(
    specification: BenchmarkSpecification,
    seed: int,
    identity: str,
    store: Path,
    ceilings: dict[str, Any],
    own: dict[str, Any],
    on_case: OnCase,
    backend: OperatorBackend | None = None,
    crashed: Mapping[int, str] | None = None,
) -> Path:
    """Measure every problem, write the record and answer with its path.

    ``seed`` is the number of the replicate; inputs are the same in all. ``ceilings`` go into the record; ``own`` are
    those that this framework reached, by which it is told what would take too long. ``on_case`` gets each case, and
    ``None`` before the first. ``backend`` by default is the specification's framework, opened. ``crashed`` problems
    brought a process before this one down: they fail with that reason, untried.
    """
    opened = open_framework(specification.framework, specification.device) if backend is None else backend
    reference = opened if specification.framework == "numpy" else open_framework("numpy")
    environment = capture()
    environment["framework"] = opened.describe()
    header = BenchmarkHeader(
        schema=BENCHMARK_SCHEMA,
        id=identity,
        key=benchmark_key(specification),
        seed=seed,
        started=utc_now().isoformat(timespec="milliseconds"),
        specification=specification,
        environment=environment,
        ceilings=ceilings,
        version=__version__,
    )
    flusher = StreamFlusher() if specification.cache == "cold" and specification.device == "cpu" else None
    gc.collect()
    gc.freeze()
    with BenchmarkWriter.begin(store, header) as writer:
        on_case(writer.path, None)
        for index, problem in enumerate(specification.problems):
            limits = Limits(
                budget_s=specification.budget_s,
                precision=specification.precision,
                cache=specification.cache,
                direction=specification.direction,
                pace_flop_s=_pace(problem, own, ceilings),
                flusher=flusher,
                on_host=specification.device == "cpu",
            )
            times_s: list[float] = []
            if crashed and index in crashed:
                case = Case(index, "failed", crashed[index])
            else:
                case, times_s = measure_problem(opened, problem, index, 0, limits, reference.operator)
            if times_s:
                writer.add(Samples(str(index), "s", times_s))
            writer.add(case)
            on_case(writer.path, case)
        after = capture_after()
        writer.add(BenchmarkEnd(list(doubts(environment, after)), after))
        return writer.path


def _pace(problem: Problem, own: dict[str, Any], ceilings: dict[str, Any]) -> float | None:
    """At best. In half precisions the framework's own: one may be a thousand times as slow as another there."""
    dtype = problem.tensors[0].dtype if problem.tensors else ""
    known = [pace(own, dtype), *([pace(ceilings, dtype)] if dtype in ("float32", "float64") else [])]
    return max((each for each in known if each is not None), default=None)
