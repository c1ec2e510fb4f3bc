"""ONNX's node tests, as its package makes them: a model, inputs, the expected outputs and the test's own tolerances."""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx
from onnx import numpy_helper

from levelbench.errors import UnknownNameError

__all__ = ["Case", "collect_cases"]


@dataclass(frozen=True, eq=False)
class Case:
    """One test: its ``operator`` is the one under test, also where the model is that operator's expanded definition."""

    name: str
    operator: str
    model: onnx.ModelProto
    data: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float
    atol: float


def collect_cases(operators: Collection[str] = (), match: str = "") -> list[Case]:
    """The tests of ``operators`` (none: of all) whose name contains ``match``, in ONNX's order.

    Raises ``UnknownNameError`` for an operator that has no test.
    """
    cases = _all_cases()
    known = {case.operator for case in cases}
    for name in operators:
        if name not in known:
            raise UnknownNameError("operator with a node test", name, known)
    return [case for case in cases if (not operators or case.operator in operators) and match in case.name]


@cache
def _all_cases() -> tuple[Case, ...]:
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
        cases.append(Case(each.name, operator, each.model, data, each.rtol, each.atol))
    return tuple(cases)


def _array(value: Any) -> Any:
    """Most values are arrays already; those whose type NumPy has not come as ONNX's messages."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _base(name: str) -> str:
    """The name of the test whose operator ``test_..._expanded`` spells out."""
    return re.sub(r"_expanded(_ver\d+)?$", "", name)


def _title(node: onnx.NodeProto) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain else str(node.op_type)
