"""Conformance: runs ONNX's own node tests with a framework's operators, each passed, wrong or unsupported.

Random outputs cannot be compared with one draw. Bernoulli and Dropout in training are judged by what they guarantee:
which values may appear, which must, and how often, within five standard deviations.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from levelbench.checks.isolation import JsonLine, Say, run_isolated
from levelbench.errors import UnknownNameError, UnsupportedError
from levelbench.measure.forking import SILENT_S
from levelbench.operators.contract import DType, OperatorBackend, Value
from levelbench.operators.frameworks import open_framework


@dataclass(frozen=True, eq=False)
class NodeTest:
    """One test. ``operator`` is the one under test, even if the model is that operator's expanded definition."""

    name: str
    operator: str
    model: onnx.ModelProto
    data: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float
    atol: float


def collect_cases(operators: Collection[str] = (), match: str = "") -> list[NodeTest]:
    """The tests of ``operators`` (empty: of all) whose name contains ``match``, in ONNX's order.

    Raises ``UnknownNameError`` for an operator without a test.
    """
    cases = _all_cases()
    known = {case.operator for case in cases}
    for name in operators:
        if name not in known:
            raise UnknownNameError("operator with a node test", name, known)
    return [case for case in cases if (not operators or case.operator in operators) and match in case.name]


@cache
def _all_cases() -> tuple[NodeTest, ...]:
    with warnings.catch_warnings():
        # ONNX computes some expected outputs by dividing by zero on purpose.
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    operators = {each.name: _title(each.model.graph.node[0]) for each in found if len(each.model.graph.node) == 1}
    cases = []
    for each in found:
        operator = operators.get(each.name) or operators.get(_base(each.name)) or _title(each.model.graph.node[-1])
        data = [([_array(one) for one in given], [_array(one) for one in wanted]) for given, wanted in each.data_sets]
        cases.append(NodeTest(each.name, operator, each.model, data, each.rtol, each.atol))
    return tuple(cases)


def _array(value: Value) -> Value:
    """Convert a value to an array. Most are arrays already; types that NumPy lacks come as ONNX messages."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _base(name: str) -> str:
    """The name of the test that ``test_..._expanded`` is the expansion of."""
    return re.sub(r"_expanded(_ver\d+)?$", "", name)


def _title(node: onnx.NodeProto) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain else str(node.op_type)


_SIGMAS = 5.0
_RANDOM = {"Bernoulli", "Dropout", "RandomNormalLike", "RandomUniformLike", "RandomNormal", "RandomUniform"}
# A test's own tolerance of 1e-3 is about one rounding of float16 and far below one of bfloat16. We allow eight and two
# roundings; near zero, half as much relative to the largest expected value.
_LOW = {np.dtype(np.float16): 8 * 2.0**-10, np.dtype(ml_dtypes.bfloat16): 2 * 2.0**-7}


def tolerances(case: NodeTest, dtype: DType) -> tuple[float, float]:
    """The relative tolerance, and the absolute one as a share of the largest expected value (for half precisions)."""
    low = _LOW.get(dtype, 0.0)
    return max(case.rtol, low), low / 2


def judge(case: NodeTest, inputs: Sequence[Value], outputs: Sequence[Value], expected: Sequence[Value]) -> str | None:
    """``None`` if the outputs are right, else what is wrong; for values also where and by how much."""
    if len(outputs) != len(expected):
        return f"{len(outputs)} outputs, expected {len(expected)}"
    chance = _by_chance(case, inputs)
    for at, (found, wanted) in enumerate(zip(outputs, expected, strict=True)):
        if fault := _compare(case, found, wanted, values=not chance):
            return f"output {at}: {fault}"
    return _distribution(case, inputs, outputs) if chance else None


def _compare(case: NodeTest, found: Value, wanted: Value, values: bool = True) -> str | None:
    if wanted is None:
        return None if found is None else "a value where an empty optional is expected"
    if isinstance(wanted, list):
        return _compare_lists(case, found, wanted)
    if not isinstance(found, np.ndarray):
        return f"a {type(found).__name__} where a tensor is expected"
    wanted = np.asarray(wanted)
    text = wanted.dtype.kind in "OSUT"
    if found.dtype != wanted.dtype and not (text and found.dtype.kind in "OSUT"):
        return f"type {found.dtype}, expected {wanted.dtype}"
    if found.shape != wanted.shape:
        return f"shape {found.shape}, expected {wanted.shape}"
    return _compare_values(case, found, wanted) if values else None


def _compare_lists(case: NodeTest, found: Value, wanted: list[Value]) -> str | None:
    if not isinstance(found, list):
        return f"a {type(found).__name__} where a sequence is expected"
    if len(found) != len(wanted):
        return f"a sequence of {len(found)}, expected {len(wanted)}"
    for at, (each, other) in enumerate(zip(found, wanted, strict=True)):
        if fault := _compare(case, each, other):
            return f"element {at}: {fault}"
    return None


def _compare_values(case: NodeTest, found: Value, wanted: Value) -> str | None:
    if wanted.dtype.kind in "OSUT":
        bad = np.asarray([_text(a) != _text(b) for a, b in zip(found.ravel(), wanted.ravel(), strict=True)], bool)
        bad = bad.reshape(wanted.shape)
    elif wanted.dtype.kind in "biu":
        # An integer that is off by one is wrong, unless it is so large that a relative error of 1e-3 explains it.
        rtol, _ = tolerances(case, wanted.dtype)
        difference = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
        bad = difference > case.atol + rtol * np.abs(wanted.astype(np.float64))
    else:
        bad = ~_close(case, found, wanted)
    if not bad.any():
        return None
    where = tuple(int(each) for each in np.unravel_index(int(np.argmax(bad)), bad.shape))
    share = f"{int(bad.sum())} of {bad.size} values differ"
    return f"{share}, first at {where}: {found[where]}, expected {wanted[where]}"


def _close(case: NodeTest, found: Value, wanted: Value) -> Value:
    rtol, share = tolerances(case, wanted.dtype)
    kind = np.complex128 if wanted.dtype.kind == "c" else np.float64
    a, b = found.astype(kind), wanted.astype(kind)
    finite = np.abs(b[np.isfinite(b)])
    atol = case.atol + share * float(finite.max(initial=0.0))
    with np.errstate(invalid="ignore"):
        return np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)


def _text(value: Value) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _by_chance(case: NodeTest, inputs: Sequence[Value]) -> bool:
    if case.operator == "Dropout":
        return len(inputs) > 2 and bool(np.asarray(inputs[2]))
    return case.operator in _RANDOM or any(node.op_type in _RANDOM - {"Dropout"} for node in case.model.graph.node)


def _distribution(case: NodeTest, inputs: Sequence[Value], outputs: Sequence[Value]) -> str | None:
    if case.operator == "Bernoulli":
        return _bernoulli(np.asarray(inputs[0], np.float64), np.asarray(outputs[0], np.float64))
    if case.operator == "Dropout":
        mask = outputs[1] if len(outputs) > 1 else None
        return _dropout(
            np.asarray(inputs[0], np.float64),
            float(np.asarray(inputs[1])) if inputs[1] is not None else 0.5,
            np.asarray(outputs[0], np.float64),
            mask,
        )
    return f"there is no rule to judge the random operator {case.operator}"


def _bernoulli(probability: NDArray[Any], drawn: NDArray[Any]) -> str | None:
    if not np.isin(drawn, (0.0, 1.0)).all():
        return "values other than 0 and 1"
    if (drawn[probability == 0] != 0).any() or (drawn[probability == 1] != 1).any():
        return "a draw that has probability 0"
    return _count(drawn.sum(), probability.sum(), float((probability * (1 - probability)).sum()))


def _dropout(x: NDArray[Any], ratio: float, y: NDArray[Any], mask: NDArray[Any] | None) -> str | None:
    kept = y != 0 if mask is None else np.asarray(mask, bool)
    scaled = np.where(kept, x / (1 - ratio) if ratio < 1 else 0.0, 0.0)
    if not np.allclose(y, scaled, rtol=1e-3, atol=1e-6):
        return "values that are neither 0 nor the input over (1 - ratio)"
    return _count(float(kept.sum()), x.size * (1 - ratio), x.size * ratio * (1 - ratio))


def _count(found: float, mean: float, variance: float) -> str | None:
    if abs(found - mean) <= _SIGMAS * np.sqrt(variance) + 1e-9:
        return None
    return f"{found:g} ones where {mean:g} +- {np.sqrt(variance):.2g} are expected"


def try_case(case: NodeTest, backend: OperatorBackend) -> Result:
    """Run and judge the case's model on the backend; any exception other than a refusal is wrong."""
    try:
        fault = _fault(case, backend)
    except UnsupportedError as error:
        return Result(case.name, case.operator, "unsupported", f"{error.asked}: {error.found}")
    except Exception as error:  # noqa: BLE001  # the boundary to frameworks
        fault = f"{type(error).__name__}: {error}".splitlines()[0]
    if fault is None:
        return Result(case.name, case.operator, "passed")
    known = backend.known_faults.get(case.name)
    return Result(case.name, case.operator, "upstream" if known else "wrong", f"{fault} ({known})" if known else fault)


def _fault(case: NodeTest, backend: OperatorBackend) -> str | None:
    function = backend.model(case.model)
    for inputs, expected in case.data:
        backend.seed(0)
        found = function([_native(value, backend) for value in inputs])
        outputs = [_on_host(value, backend) for value in found]
        if fault := judge(case, inputs, outputs, expected):
            return fault
    return None


def _native(value: Value, backend: OperatorBackend) -> Value:
    if isinstance(value, list):
        return [_native(each, backend) for each in value]
    return None if value is None else backend.array(np.asarray(value))


def _on_host(value: Value, backend: OperatorBackend) -> Value:
    if isinstance(value, list):
        return [_on_host(each, backend) for each in value]
    return None if value is None else backend.host(value)


STATUSES = ("passed", "wrong", "unsupported", "upstream")


@dataclass(frozen=True)
class Result:
    """How a test ended: ``passed``, ``wrong``, ``unsupported``, or ``upstream`` (wrong by a known framework fault).

    ``detail`` says what was found, or what is not supported.
    """

    name: str
    operator: str
    status: str
    detail: str = ""


@dataclass(frozen=True)
class NodeTestCounts:
    """Counts by status, in total and by operator, and the results behind them."""

    framework: str
    results: tuple[Result, ...]
    total: dict[str, int] = field(default_factory=dict)
    by_operator: dict[str, dict[str, int]] = field(default_factory=dict)

    def of(self, status: str) -> list[Result]:
        """The results with that status."""
        return [each for each in self.results if each.status == status]

    def to_dict(self) -> dict[str, Any]:
        """The counts and results as JSON types."""
        return asdict(self)


def tally(framework: str, results: Iterable[Result]) -> NodeTestCounts:
    """Count ``results``."""
    kept = tuple(results)
    by_operator = {name: dict.fromkeys(STATUSES, 0) for name in sorted({each.operator for each in kept}, key=str.lower)}
    total = dict.fromkeys(STATUSES, 0)
    for each in kept:
        by_operator[each.operator][each.status] += 1
        total[each.status] += 1
    return NodeTestCounts(framework, kept, total, by_operator)


_CHILD = f"{__name__}:run_in_process"


def run_conformance(
    framework: str, cases: Sequence[NodeTest], device: str = "cpu", tell: Callable[[Result], None] = lambda _: None
) -> NodeTestCounts:
    """Run all ``cases`` on ``framework`` in a separate process; ``tell`` is called with each result.

    A case that kills the process, or hangs, is wrong, with that as its detail, and another process goes on after it.
    Raises what opening the framework raises, and ``DefinitionError`` if a process ends before the first case.
    """
    operators = {case.name: case.operator for case in cases}
    results: dict[str, Result] = {}
    started = ""

    def hear(line: JsonLine) -> None:
        nonlocal started
        if "started" in line:
            started = line["started"]
            return
        found = Result(**line)
        results[found.name], started = found, ""
        tell(found)

    while left := [name for name in operators if name not in results]:
        started = ""
        job = {"framework": framework, "device": device, "names": left}
        ended = run_isolated(_CHILD, job, hear, silent_s=SILENT_S)
        if ended.error is not None:
            raise ended.error
        if not ended.how:
            break
        if not started:
            raise ended.death(f"the node tests on {framework!r}")
        name = started
        hear(asdict(Result(name, operators[name], "wrong", f"the process died: {ended.how}")))
    return tally(framework, [results[name] for name in operators if name in results])


def run_in_process(job: JsonLine, say: Say) -> None:
    """The part of :func:`run_conformance` in the other process: sends a line before each case and one after it."""
    wanted = set(job["names"])
    backend = open_framework(job["framework"], job["device"])
    for case in collect_cases():
        if case.name in wanted:
            say({"started": case.name})
            say(asdict(try_case(case, backend)))
