"""Tries one node test on a backend."""

from __future__ import annotations

from typing import Any

import numpy as np

from levelbench.errors import UnsupportedError
from levelbench.operators.conformance.cases import Case
from levelbench.operators.conformance.judge import judge
from levelbench.operators.conformance.tally import Result
from levelbench.operators.contract import OperatorBackend

__all__ = ["try_case"]


def try_case(case: Case, backend: OperatorBackend) -> Result:
    """The case's model on the backend, judged; whatever it raises but a refusal is wrong."""
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


def _fault(case: Case, backend: OperatorBackend) -> str | None:
    function = backend.model(case.model)
    for inputs, expected in case.data:
        backend.seed(0)
        found = function([_native(value, backend) for value in inputs])
        outputs = [_on_host(value, backend) for value in found]
        if fault := judge(case, inputs, outputs, expected):
            return fault
    return None


def _native(value: Any, backend: OperatorBackend) -> Any:
    if isinstance(value, list):
        return [_native(each, backend) for each in value]
    return None if value is None else backend.array(np.asarray(value))


def _on_host(value: Any, backend: OperatorBackend) -> Any:
    if isinstance(value, list):
        return [_on_host(each, backend) for each in value]
    return None if value is None else backend.host(value)
