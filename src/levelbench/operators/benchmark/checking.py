"""Compares a measured result with the reference in float64, on the same inputs.

The reference is NumPy's operator on inputs widened to float64, so the difference is the framework's own rounding. The
tolerance is what the dtype and the length of the sums explain. Of a large problem, only a part is compared that can be
computed separately: rows, images, sequences.
"""

from __future__ import annotations

import math
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from levelbench.checks.arrays import (
    Correctness,
    Tolerance,
    compare_values,
    errors,
    is_float,
    largest,
    sensitivity,
    tolerance_for,
)
from levelbench.errors import UnsupportedError
from levelbench.operators.contract import Operator
from levelbench.operators.node import CUSTOM_DOMAIN, OperatorNode, structural

_RANDOM_NUMBERS = random.SystemRandom()
LIMIT_FLOPS = 1e9
"""About how many operations the reference of one problem may take."""

Host = NDArray[Any]
Selection = dict[int, NDArray[np.intp]]
"""Indices by axis."""
Shapes = Sequence[tuple[int, ...] | None]


@dataclass(frozen=True)
class Part:
    """Selections of the inputs and the output, and what is compared: the output, or the gradients of some inputs.

    ``gradients`` are positions of inputs, whose gradients are selected in the same way as the inputs. ``label`` says
    which part it is.
    """

    inputs: tuple[Selection, ...]
    output: Selection
    gradients: tuple[int, ...] = ()
    label: str = "whole"

    @property
    def whole(self) -> bool:
        """Whether nothing is left out."""
        return not self.output and not any(self.inputs)

    def of_inputs(self, arrays: Sequence[Host | None]) -> list[Host | None]:
        """The selected inputs."""
        return [None if a is None else select(a, s) for a, s in zip(arrays, self.inputs, strict=True)]


def select(array: Host, selection: Selection) -> Host:
    """The selected part of an array."""
    for axis, indices in selection.items():
        array = np.take(array, indices, axis)
    return array


def parts_of(
    node: OperatorNode, shapes: Shapes, output: tuple[int, ...], flops: float | None, direction: str = "forward"
) -> list[Part]:
    """The parts to compare: everything if that is cheap enough, or if no rule says how to divide it.

    ``flops`` are those of the forward only.
    """
    cost = 0.0 if flops is None else flops * (3 if direction == "backward" else 1)
    everything = tuple(at for at, shape in enumerate(shapes) if shape is not None) if direction == "backward" else ()
    whole = [Part(tuple({} for _ in shapes), {}, everything)]
    rule = {"Conv": _conv, "GRU": _recurrent, "Gemm": _product, "LSTM": _recurrent, "MatMul": _product}.get(
        "LSTM" if node.op_type == "RNN" else node.op_type
    )
    if cost <= LIMIT_FLOPS or rule is None:
        return whole
    return rule(node, shapes, output, cost, direction) or whole


def _spread(total: int, count: float) -> NDArray[np.intp]:
    """About ``count`` indices of ``total``: the first, the last, and others that nobody can predict, widely spread."""
    wanted = min(total, max(1, int(count)))
    edges = np.linspace(0, total, wanted + 1)
    drawn = np.array([_RANDOM_NUMBERS.random() for _ in range(wanted)])
    found = (edges[:-1] + drawn * np.diff(edges)).astype(np.intp)
    found[0], found[-1] = 0, total - 1
    return np.unique(found)


def _product(node: OperatorNode, shapes: Shapes, output: tuple[int, ...], cost: float, direction: str) -> list[Part]:
    if shapes[0] is None or shapes[1] is None or len(shapes[0]) < 2 or len(shapes[1]) < 2 or len(shapes) > 2:
        return []
    a, b = shapes[0], shapes[1]
    gemm = node.op_type == "Gemm"
    row_axis, column_axis = (-1 if gemm and node["transA"] else -2), (-2 if gemm and node["transB"] else -1)
    rows, columns = a[row_axis], b[column_axis]
    if direction == "forward":
        share = math.sqrt(LIMIT_FLOPS / cost)
        some, other = _spread(rows, rows * share), _spread(columns, columns * share)
        label = f"{len(some)} of {rows} rows, {len(other)} of {columns} columns"
        return [Part(({row_axis: some}, {column_axis: other}), {-2: some, -1: other}, label=label)]
    if len(a) > 2 or len(b) > 2:
        return []
    some, other = (_spread(n, n * LIMIT_FLOPS / cost) for n in (rows, columns))
    return [
        Part(({row_axis: some}, {}), {-2: some}, (0,), f"gradient of the left operand in {len(some)} of {rows} rows"),
        Part(({}, {column_axis: other}), {-1: other}, (1,), f"of the right one in {len(other)} of {columns} columns"),
    ]


def _conv(node: OperatorNode, shapes: Shapes, output: tuple[int, ...], cost: float, direction: str) -> list[Part]:
    if shapes[0] is None or shapes[1] is None:
        return []
    images, channels, divisible = shapes[0][0], output[1], int(node["group"]) == 1
    rest: list[Selection] = [{} for _ in shapes[2:]]
    some = _spread(images, images * LIMIT_FLOPS / cost)
    if direction == "forward":
        a_image = cost / images
        kept = _spread(channels, channels * LIMIT_FLOPS / a_image if a_image > LIMIT_FLOPS and divisible else channels)
        filters: Selection = {0: kept} if len(kept) < channels else {}
        maps: Selection = {1: kept} if filters else {}
        label = f"{len(some)} of {images} images" + f", {len(kept)} of {channels} channels" * bool(filters)
        return [Part(({0: some}, filters, *(dict(filters) for _ in rest)), {0: some, **maps}, label=label)]
    parts = [Part(({0: some}, {}, *rest), {0: some}, (0,), f"gradient of X in {len(some)} of {images} images")]
    if not divisible:
        return [*parts[:-1], Part(parts[0].inputs, parts[0].output, (0,), f"{parts[0].label}, none of W")]
    kept = _spread(channels, channels * LIMIT_FLOPS / cost)
    given = tuple({0: kept} for _ in shapes[1:])
    label = f"of W in {len(kept)} of {channels} channels"
    return [*parts, Part(({}, *given), {1: kept}, tuple(range(1, len(shapes))), label)]


def _recurrent(node: OperatorNode, shapes: Shapes, output: tuple[int, ...], cost: float, direction: str) -> list[Part]:
    """Sequences are independent of each other, and a step does not depend on later ones."""
    if shapes[0] is None or any(shape is not None for shape in shapes[4:]) or node["layout"] or not node.outputs[0]:
        return []
    steps, batch = shapes[0][0], shapes[0][1]
    rest: list[Selection] = [{} for _ in shapes[1:]]
    some = _spread(batch, batch * LIMIT_FLOPS / cost)
    if direction == "backward":
        label = f"gradient of X in {len(some)} of {batch} sequences, none of W and R"
        return [Part(({1: some}, *rest), {2: some}, (0,), label)]
    a_sequence = cost / batch
    first = steps
    if a_sequence > LIMIT_FLOPS and node["direction"] == "forward":
        first = max(1, int(steps * LIMIT_FLOPS / a_sequence))
    until: Selection = {0: np.arange(first)} if first < steps else {}
    label = f"{len(some)} of {batch} sequences" + f", the first {first} of {steps} steps" * bool(until)
    return [Part(({1: some, **until}, *rest), {2: some, **until}, label=label)]


Hosts = Sequence[Host | None]
_RANDOM = frozenset({"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform"})


@dataclass(frozen=True)
class Results:
    """A framework's results on the host: the outputs of a forward, or also ``gradients`` for ``given`` ones."""

    inputs: Hosts
    outputs: Hosts
    gradients: Hosts | None = None
    given: Hosts = ()


def check(
    node: OperatorNode, results: Results, flops: float | None, make: Callable[[OperatorNode], Operator]
) -> Correctness:
    """Compare with the reference operator that ``make`` creates for the node (float64, NumPy arrays)."""
    if node.op_type in _RANDOM or (node.op_type == "Dropout" and len(node.inputs) > 2):
        return Correctness(checked="not checked: its result is random")
    first = results.outputs[0]
    if first is None:
        return Correctness(checked="not checked: its first output is omitted")
    if wrong := _other_types(node, results):
        return Correctness(wrong, "types")
    direction = "forward" if results.gradients is None else "backward"
    shapes = [None if each is None else each.shape for each in results.inputs]
    found: list[Correctness] = []
    for part in parts_of(node, shapes, first.shape, flops, direction):
        try:
            compared = _Compared(node, results, part, make(node))
            pairs = compared.pairs()
        except UnsupportedError as error:
            return Correctness(checked=f"not checked: there is no reference ({error.found})")
        if direction == "forward" and node.domain == CUSTOM_DOMAIN:
            given = sum(each is not None for each in results.outputs)
            if len(pairs) < given:
                return Correctness(checked=f"not checked: the reference gives {len(pairs)} of {given} outputs")
        if pairs and all(_subnormal(each.actual, each.expected) for each in pairs):
            return Correctness(checked="not checked: its results are subnormal numbers, which may be flushed to zero")
        found += [_judge(compared, each, shapes) for each in pairs]
        found.append(Correctness(checked=part.label))
    wrong = "; ".join(each.wrong for each in found if each.wrong)
    parts = ", ".join(dict.fromkeys(each.checked for each in found if each.checked and not each.errors))
    tolerances = list(dict.fromkeys(each.checked for each in found if each.errors))
    return Correctness(wrong, f"{parts}; {' / '.join(tolerances)}" if tolerances else parts, _largest(found))


def other_type(what: str, found: np.dtype[Any], wanted: np.dtype[Any]) -> str:
    """What is wrong with a result of another floating-point type than ONNX gives it.

    The rounding of a coarser one would explain its errors, and a finer one takes other memory and time.
    """
    return f"{what} is {found}, expected {wanted}" if is_float(found) and is_float(wanted) and found != wanted else ""


def _other_types(node: OperatorNode, results: Results) -> str:
    schema = node.schema
    if schema is None or not all(each.is_homogeneous for each in (*schema.inputs, *schema.outputs)):
        return ""
    declared = zip(schema.inputs, results.inputs, strict=False)
    types = {each.type_str: given.dtype for each, given in declared if given is not None}
    named = [
        (f"output {name!r}", found, types.get(schema.outputs[min(at, len(schema.outputs) - 1)].type_str))
        for at, (name, found) in enumerate(zip(node.outputs, results.outputs, strict=False))
    ]
    if results.gradients is not None:
        pairs = zip(node.inputs, results.gradients, results.inputs, strict=False)
        named = [(f"gradient of {name!r}", found, None if a is None else a.dtype) for name, found, a in pairs]
    for what, found, wanted in named:
        if found is not None and wanted is not None and (wrong := other_type(what, found.dtype, wanted)):
            return wrong
    return ""


def _subnormal(actual: Host, wanted: Host) -> bool:
    """Whether all numbers are below the normal ones of the framework's dtype, where no zero is told to be wrong."""
    if not (is_float(actual.dtype) and is_float(wanted.dtype)) or not np.any(wanted):
        return False
    return bool((np.abs(wanted.astype(np.float64)) < float(ml_dtypes.finfo(actual.dtype).tiny)).all())


@dataclass(frozen=True)
class _Pair:
    """What is compared: the framework's value, and what the reference gives at position ``at``."""

    name: str
    at: int
    actual: Host
    expected: Host


@dataclass(frozen=True)
class _Compared:
    """A part of the results, beside the reference operator."""

    node: OperatorNode
    results: Results
    part: Part
    reference: Operator

    @property
    def backward(self) -> bool:
        """Whether gradients are compared."""
        return self.results.gradients is not None

    def inputs(self) -> list[Host | None]:
        """The part's inputs, in float64."""
        fixed = structural(self.node)
        return [
            each.astype(np.float64) if each is not None and at not in fixed and is_float(each.dtype) else each
            for at, each in enumerate(self.part.of_inputs(self.results.inputs))
        ]

    def evaluate(self, inputs: Hosts) -> list[Host | None]:
        """What the reference gives for these inputs: outputs, or gradients by input. Raises ``UnsupportedError``."""
        with np.errstate(all="ignore"):
            if self.backward:
                given = [
                    select(each, self.part.output).astype(np.float64)
                    if each is not None and is_float(each.dtype)
                    else each
                    for each in self.results.given
                ]
                _, pullback = self.reference.vjp(*inputs)
                found = pullback(*given)
            else:
                before = _checksums(self.results.outputs)
                found = self.reference.forward(*inputs)
                if before != _checksums(self.results.outputs):
                    raise UnsupportedError("a comparison", "it writes to the results", "compute what is expected")
            return [None if each is None else np.asarray(each) for each in found]

    def pairs(self) -> list[_Pair]:
        """All that can be compared."""
        expected = self.evaluate(self.inputs())
        if self.results.gradients is not None:
            places = [(f"gradient of {self.node.inputs[at]!r}", at, self.part.inputs[at]) for at in self.part.gradients]
            found = self.results.gradients
        else:
            # Parts are defined only for the first output.
            names = list(enumerate(self.node.outputs))[: None if self.part.whole else 1]
            places = [(f"output {name!r}", at, self.part.output) for at, name in names]
            found = self.results.outputs
        pairs = []
        for name, at, selection in places:
            if at < min(len(found), len(expected)):
                actual, wanted = found[at], expected[at]
                if actual is not None and wanted is not None:
                    pairs.append(_Pair(name, at, select(actual, selection), wanted))
        return pairs

    def slack(self, pair: _Pair, length: int) -> Host | None:
        """By how much rounding the inputs moves a result: where terms cancel, it says nothing of their size."""

        def moved(inputs: Hosts) -> list[Host | None] | None:
            try:
                return self.evaluate(inputs)
            except UnsupportedError:
                return None

        fixed = frozenset(structural(self.node))
        return sensitivity(moved, self.inputs(), pair.expected, pair.at, pair.actual.dtype, length, fixed)


def _checksums(arrays: Hosts) -> list[int | None]:
    return [None if each is None else zlib.crc32(each.tobytes()) for each in arrays]


def _judge(compared: _Compared, pair: _Pair, shapes: Shapes) -> Correctness:
    what, actual, expected = pair.name, pair.actual, pair.expected
    if actual.shape != expected.shape:
        return Correctness(f"{what} has shape {actual.shape}, expected {expected.shape}")
    tolerance, slack = Tolerance(0.0, 0.0, f"{actual.dtype} is exact"), None
    if is_float(actual.dtype):
        # Not at the top: the probes watch calls as a benchmark does.
        from levelbench.operators.probes.forward import sum_length

        length = sum_length(None if compared.backward else compared.node, shapes)[0]
        tolerance = tolerance_for(actual.dtype, length=length, scale=largest(expected), results=actual.size)
        slack = partial(compared.slack, pair, length)
    wrong = compare_values(what, actual, expected, tolerance, slack)
    if actual.dtype.kind not in "biufc" and not is_float(actual.dtype):
        return Correctness(wrong or "", str(tolerance))
    measured = errors(actual, expected).to_dict()
    measured.pop("where")
    return Correctness(wrong or "", str(tolerance), measured)


def _largest(found: Sequence[Correctness]) -> dict[str, float | None]:
    """The largest of each error over all comparisons."""
    most: dict[str, float | None] = {}
    for each in found:
        for name, value in each.errors.items():
            before = most.get(name)
            most[name] = value if before is None else before if value is None else max(before, value)
    return most
