"""One replicate: all problems of a specification on one framework, in this process, into one record.

A ceiling is what the machine really reached through a framework, so each measures its own and the fastest counts. On an
accelerator everything is measured through the framework, whose operators are the only way to it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from levelbench.checks.isolation import JsonLine
from levelbench.errors import UnsupportedError
from levelbench.measure.caches import StreamFlusher
from levelbench.measure.ceilings import Ceilings, GemmMaker, measure_ceilings, measure_gemm, measure_largest_gemm
from levelbench.measure.clocks import HOST
from levelbench.measure.environment import capture, capture_after, doubts
from levelbench.measure.forking import how_started
from levelbench.operators.benchmark.measuring import TrialSettings, measure_problem
from levelbench.operators.contract import Framework, OperatorBackend
from levelbench.operators.frameworks import open_framework
from levelbench.operators.node import operator_node
from levelbench.operators.suites.single import dtype_of
from levelbench.records.benchmarks import BenchmarkSpecification, BenchmarkWriter, Case, Problem
from levelbench.records.processes import ProcessEnd
from levelbench.records.schema import Samples

__all__ = ["backend_ceilings", "backend_gemm", "make_record", "merged", "pace"]


_ADD_BYTES = 256 * 2**20


def backend_gemm(backend: OperatorBackend, dtype: str) -> GemmMaker:
    """Makes products of square matrices through the framework's MatMul."""
    operator = backend.operator(operator_node("MatMul", ["A", "B"]))

    def make(n: int) -> tuple[Callable[[], object], float]:
        random = np.random.default_rng(0)
        a, b = (backend.array(random.standard_normal((n, n), np.float32).astype(dtype_of(dtype))) for _ in range(2))
        return lambda: backend.finish(operator.forward(a, b)), 2.0 * n**3

    return make


def backend_ceilings(
    framework: Framework, backend: OperatorBackend, device: str, dtype: str, seconds: float = 2.0
) -> Ceilings:
    """On ``cpu`` NumPy's limits, memory's, and the framework's in ``dtype``; elsewhere the framework's alone."""
    own = dict(framework.gemms()) if device == "cpu" else {}
    makers = {dtype: own[dtype]} if dtype in own else {}
    if not makers:
        try:
            maker = backend_gemm(backend, dtype)
            maker(8)[0]()
            makers = {dtype: maker}
        except UnsupportedError:
            makers = {}
    if device == "cpu":
        return measure_ceilings(seconds, gemms=list(makers.items()))
    found = {name: measure_largest_gemm(maker, seconds / 2, HOST) for name, maker in makers.items()}
    details = {"gemm_sizes": {name: size for name, (_, size) in found.items()}, "array_bytes": _ADD_BYTES}
    bandwidth = {"triad": measure_gemm(*_addition(backend), seconds=seconds / 2)}
    return Ceilings({name: limit for name, (limit, _) in found.items()}, bandwidth, details)


def _addition(backend: OperatorBackend) -> tuple[Callable[[], object], float]:
    """An addition of large arrays: like triad it moves three words an element."""
    operator = backend.operator(operator_node("Add", ["A", "B"]))
    a, b = (backend.array(np.ones(_ADD_BYTES // 4, np.float32)) for _ in range(2))
    return lambda: backend.finish(operator.forward(a, b)), 3.0 * _ADD_BYTES


def pace(ceilings: JsonLine, dtype: str) -> float | None:
    """Operations a second in ``dtype`` at best, of ceilings as ``Ceilings.to_dict`` gives them; ``None`` if unknown."""
    found = ceilings.get("flop_s", {}).get(dtype)
    if found is None:
        return None
    # The upper end: what is skipped for taking too long must not be skipped for a neighbour's noise.
    return float(found["interval"]["high"] if found["interval"] else found["value"])


def merged(found: Sequence[JsonLine]) -> JsonLine:
    """Of several ceilings the largest of each kind, with the framework that reached it among the details."""
    best: dict[str, Any] = {"flop_s": {}, "bandwidth_b_s": {}, "details": {"measured_by": {}}}
    for each in found:
        for kind in ("flop_s", "bandwidth_b_s"):
            for name, limit in each.get(kind, {}).items():
                if name not in best[kind] or limit["value"] > best[kind][name]["value"]:
                    best[kind][name] = limit
                    best["details"]["measured_by"][name] = each.get("framework", "")
    return best


OnCase = Callable[[Path, Case | None], None]


def make_record(
    specification: BenchmarkSpecification,
    seed: int,
    identity: str,
    store: Path,
    ceilings: JsonLine,
    own: JsonLine,
    on_case: OnCase,
    backend: OperatorBackend | None = None,
    crashed: Mapping[int, str] | None = None,
    planned: tuple[float | None, int] = (None, 0),
) -> Path:
    """Measure every problem, write the record and answer with its path.

    ``seed`` is the number of the replicate; inputs are the same in all. ``ceilings`` go into the record; ``own`` are
    those that this framework reached, by which it is told what would take too long. ``on_case`` gets each case, and
    ``None`` before the first. ``backend`` by default is the specification's framework, opened. ``crashed`` problems
    brought a process before this one down: they fail with that reason, untried. ``planned`` are the effect and number
    of the header.
    """
    opened = open_framework(specification.framework, specification.device) if backend is None else backend
    reference = opened if specification.framework == "numpy" else open_framework("numpy")
    environment = capture()
    environment["framework"] = opened.describe()
    environment["started"] = how_started()
    flusher = StreamFlusher() if specification.cache == "cold" and specification.device == "cpu" else None
    gc.collect()
    gc.freeze()
    with BenchmarkWriter.start(
        store, specification, seed=seed, identity=identity, environment=environment, ceilings=ceilings, planned=planned
    ) as writer:
        on_case(writer.path, None)
        for index, problem in enumerate(specification.problems):
            limits = TrialSettings(
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
        writer.add(ProcessEnd(list(doubts(environment, after)), after))
        return writer.path


def _pace(problem: Problem, own: JsonLine, ceilings: JsonLine) -> float | None:
    """At best. In half precisions the framework's own: one may be a thousand times as slow as another there."""
    dtype = problem.tensors[0].dtype if problem.tensors else ""
    known = [pace(own, dtype), *([pace(ceilings, dtype)] if dtype in ("float32", "float64") else [])]
    return max((each for each in known if each is not None), default=None)
