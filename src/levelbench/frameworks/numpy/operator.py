"""An ONNX node on NumPy: our vectorised operator where there is one, otherwise ONNX's reference implementation.

Our operators raise ``UnsupportedError`` for a mode or dtype that they do not cover; then ONNX's reference is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import RuntimeContextError

from levelbench.errors import UnsupportedError
from levelbench.frameworks.numpy.operators import OPERATORS, Kernel
from levelbench.frameworks.numpy.operators.kernel import Wanted, as_outputs
from levelbench.operators.contract import Array, Operator, Pullback
from levelbench.operators.node import OPSETS, OperatorNode, in_range

_ELEMENTWISE = {
    **dict.fromkeys(("Abs", "Ceil", "Exp", "Floor", "Log", "Neg", "Reciprocal", "Relu", "Sigmoid", "Sqrt", "Tanh"), 6),
    **dict.fromkeys(("Add", "Div", "Equal", "Greater", "Less", "Mul", "Pow", "Sub"), 7),
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), 8),
    **dict.fromkeys(("Erf", "Sign"), 9),
}
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
_SAME_SINCE = {
    **_ELEMENTWISE,
    **{f"Reduce{each}": 1 for each in _REDUCTIONS},
    **dict.fromkeys(("Gather", "Identity", "MatMul", "Transpose"), 1),
    "Cast": 9,
    "Clip": 11,
    "Concat": 4,
    "Expand": 8,
    "Flatten": 9,
    "Gemm": 7,
    "Reshape": 5,
    "Slice": 10,
    "Tile": 6,
}
"""The first version of an operator that computes the same as its version in opset 13."""
_SAME_UNTIL = {"DequantizeLinear": 19, "GridSample": 20, "QuantizeLinear": 19}
"""A version that also computes what all earlier ones do, for operators whose earlier ones ONNX's reference lacks."""
_RENAMED = {"bicubic": "cubic", "bilinear": "linear"}
"""Modes of GridSample before opset 20, by their later names."""


def modern(node: OperatorNode) -> OperatorNode:
    """The node, or the same node in opset 13; ``UnsupportedError`` if its opset defines the operator differently."""
    if node.opset < _SAME_UNTIL.get(node.op_type, 0) and not node.domain:
        renamed = {key: _RENAMED.get(str(value), value) for key, value in node.attributes.items() if key == "mode"}
        return replace(node, opset=_SAME_UNTIL[node.op_type], attributes={**node.attributes, **renamed})
    if in_range(node):
        return node
    oldest = _SAME_SINCE.get(node.op_type)
    if oldest is not None and node.schema is not None and oldest <= node.schema.since_version < OPSETS[0]:
        return replace(node, opset=OPSETS[0])
    raise UnsupportedError(
        f"{node.title} of opset {node.opset} on numpy",
        f"opsets {OPSETS[0]} to {OPSETS[-1]} are implemented, and older versions that are equivalent",
        "convert the model with onnx.version_converter",
    )


# Operators that we do not implement: ONNX's own reference, forward only, for every opset that it covers.


class Fallback(Operator):
    """One node through ``onnx.reference``."""

    def __init__(self, node: OperatorNode) -> None:
        """Raises ``UnsupportedError`` if ONNX's reference does not implement the operator."""
        self.node = node
        inputs = [f"x{at}" if name else "" for at, name in enumerate(node.inputs)]
        outputs = [f"y{at}" if name else "" for at, name in enumerate(node.outputs)]
        proto = node.to_proto()
        proto.input[:], proto.output[:] = inputs, outputs
        self._inputs, self._outputs = inputs, outputs
        named = [each for each in outputs if each]
        imports = [helper.make_opsetid(node.domain, node.opset)]
        function = helper.make_function("levelbench", "one", [each for each in inputs if each], named, [proto], imports)
        try:
            self._evaluator = ReferenceEvaluator(function)
        except (RuntimeContextError, NotImplementedError, RuntimeError) as error:
            raise _refusal(node, error) from error

    @property
    def is_exact(self) -> bool:
        """Whether ONNX's reference implements exactly the operator version that the opset selects."""
        since = self.node.schema.since_version if self.node.schema is not None else 0
        return type(self._evaluator.rt_nodes_[0]).__name__ == f"{self.node.op_type}_{since}"

    def forward(self, *inputs: Any) -> tuple[Any, ...]:
        pairs = zip(self._inputs, inputs, strict=False)
        given = {name: value for name, value in pairs if name and value is not None}
        # ONNX's reference expects None for a named input without a value.
        given.update({name: None for name in self._inputs if name and name not in given})
        if self.node.op_type == "QuantizeLinear" and not self.node.domain:
            given["x0"] = _within_whole_numbers(self.node, *inputs)
        with np.errstate(all="ignore"):
            try:
                found = iter(self._evaluator.run(None, given, attributes={}))
            except (NotImplementedError, RuntimeContextError) as error:
                raise _refusal(self.node, error) from error
            except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
                # It does not cover all that ONNX allows (per-channel scales of one-dimensional convolutions, say).
                raise _refusal(self.node, f"ONNX's reference fails ({type(error).__name__}: {error})") from error
        return tuple(_array(next(found)) if name else None for name in self._outputs)


def _within_whole_numbers(node: OperatorNode, x: Array, scale: Array, zero: Array | None = None) -> Array:
    """``x`` without what is too large for int32, to which ONNX's reference converts before it saturates."""
    if scale.ndim > 1 or (zero is not None and zero.dtype.kind not in "iu") or node.get("output_dtype", 0):
        return x
    shape = [1] * x.ndim
    if scale.ndim and scale.size > 1:
        shape[node["axis"]] = scale.size
    limit = np.abs(np.reshape(scale, shape)).astype(np.float64) * _FAR
    with np.errstate(all="ignore"):
        return np.where(np.abs(x) > limit, np.sign(x) * limit, x).astype(x.dtype)


_FAR = 2.0**20
"""In steps of a quantised number, of at most 16 bits."""


def _array(value: Any) -> Any:
    return value if value is None or isinstance(value, list) else np.asarray(value)


def _refusal(node: OperatorNode, error: Exception | str) -> UnsupportedError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return UnsupportedError(f"{node.title} of opset {node.opset} on numpy", reason, "use another framework")


class NumpyOperator(Operator):
    """Arrays in, arrays out. Inputs are never modified; an output may share memory with an input."""

    def __init__(self, node: OperatorNode) -> None:
        """Raises ``UnsupportedError`` for an operator that neither we nor ONNX's reference implements."""
        self._count = len(node.outputs)
        self._gaps = "" in node.outputs
        self._fallback: Fallback | None = None
        self._kernel: Kernel | None = None
        try:
            self.node = modern(node)
            self._kernel = _kernel(self.node)
        except UnsupportedError:
            self.node, self._fallback = node, Fallback(node)
            if not self._fallback.is_exact:
                raise
        if self._kernel is None and self._fallback is None:
            self._fallback = Fallback(self.node)

    def forward(self, *inputs: Array) -> tuple[Array, ...]:
        if self._kernel is None:
            return self._reference(None, inputs)
        try:
            found = as_outputs(self._kernel.forward(*inputs))[: self._count]
            return self._named(found) if self._gaps else found
        except UnsupportedError as refusal:
            return self._reference(refusal, inputs)

    def backward(
        self, gradients: Sequence[Array | None], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> tuple[Array | None, ...]:
        """The gradients of inputs; ``UnsupportedError`` where only ONNX's reference implements the forward."""
        kernel = self._differentiable()
        if kernel.backward is not None:
            return kernel.backward(gradients, inputs, outputs)
        return kernel.differentiate(inputs)[1](*gradients)

    def vjp(self, *inputs: Array, wanted: Wanted = None) -> tuple[tuple[Array, ...], Pullback]:
        """The outputs, and their pullback to all inputs or to those that are ``wanted``."""
        outputs, pullback = self._differentiable().differentiate(inputs, wanted)
        found = outputs[: self._count]
        return self._named(found) if self._gaps else found, pullback

    def _named(self, outputs: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(each if name else None for each, name in zip(outputs, self.node.outputs, strict=False))

    def _differentiable(self) -> Kernel:
        if self._kernel is None or (self._kernel.backward is None and self._kernel.vjp is None):
            reason = "only its forward is implemented"
            raise UnsupportedError(f"the gradient of {self.node.title} on numpy", reason, "use another framework")
        return self._kernel

    def _reference(self, refusal: UnsupportedError | None, inputs: Sequence[Any]) -> tuple[Array, ...]:
        if self._fallback is None:
            try:
                self._fallback = Fallback(self.node)
            except UnsupportedError as error:
                raise refusal or error from error
        return self._fallback.forward(*inputs)


def _kernel(node: OperatorNode) -> Kernel | None:
    """Our kernel, if there is one for the node."""
    if node.domain or node.op_type not in OPERATORS:
        return None
    try:
        return OPERATORS[node.op_type](node)
    except UnsupportedError:
        return None
