"""Operators that are not ours, forward only: ONNX's own reference implementation, for every opset it has."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import RuntimeContextError

from levelbench.errors import UnsupportedError
from levelbench.operators.contract import Operator
from levelbench.operators.node import OperatorNode

__all__ = ["Fallback"]


class Fallback(Operator):
    """One node through ``onnx.reference``."""

    def __init__(self, node: OperatorNode) -> None:
        """``UnsupportedError`` for an operator that ONNX's reference does not implement, or only by expanding it."""
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
        """Whether ONNX's reference has a version of the operator for the very one that is in force at the opset."""
        since = self.node.schema.since_version if self.node.schema is not None else 0
        return type(self._evaluator.rt_nodes_[0]).__name__ == f"{self.node.op_type}_{since}"

    def forward(self, *inputs: Any) -> tuple[Any, ...]:
        """The outputs as ONNX's reference computes them."""
        pairs = zip(self._inputs, inputs, strict=False)
        given = {name: value for name, value in pairs if name and value is not None}
        # An input that is named but left out is, for ONNX's reference, None.
        given.update({name: None for name in self._inputs if name and name not in given})
        with np.errstate(all="ignore"):
            try:
                found = iter(self._evaluator.run(None, given, attributes={}))
            except NotImplementedError as error:
                raise _refusal(self.node, error) from error
        return tuple(_array(next(found)) if name else None for name in self._outputs)


def _array(value: Any) -> Any:
    return value if value is None or isinstance(value, list) else np.asarray(value)


def _refusal(node: OperatorNode, error: Exception) -> UnsupportedError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return UnsupportedError(f"{node.title} of opset {node.opset} on numpy", reason, "use another framework")
