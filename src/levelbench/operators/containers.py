"""ONNX's sequences and optionals, for every framework: a sequence is a Python list, an empty optional is ``None``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from levelbench.errors import UnsupportedError
from levelbench.operators.contract import OperatorBackend
from levelbench.operators.node import OperatorNode

__all__ = ["make"]

Call = Callable[..., Sequence[Any]]


def make(node: OperatorNode, backend: OperatorBackend) -> Call | None:
    """The node as a call, ``None`` for an operator on plain tensors."""
    maker = None if node.domain else _MAKERS.get(node.op_type)
    return maker(node, backend) if maker is not None else None


def _identity(node: OperatorNode, backend: OperatorBackend) -> Call:
    operator = backend.operator(node)
    return lambda value: (value,) if value is None or isinstance(value, list) else operator.forward(value)


def _at(backend: OperatorBackend, position: Any, sequence: list[Any]) -> int:
    return len(sequence) if position is None else int(backend.host(position).item())


def _sequence_at(_: OperatorNode, backend: OperatorBackend) -> Call:
    return lambda sequence, position: (sequence[_at(backend, position, sequence)],)


def _sequence_insert(_: OperatorNode, backend: OperatorBackend) -> Call:
    def call(sequence: list[Any], value: Any, position: Any = None) -> Sequence[Any]:
        longer = list(sequence)
        longer.insert(_at(backend, position, sequence), value)
        return (longer,)

    return call


def _sequence_erase(_: OperatorNode, backend: OperatorBackend) -> Call:
    def call(sequence: list[Any], position: Any = None) -> Sequence[Any]:
        shorter = list(sequence)
        del shorter[-1 if position is None else _at(backend, position, sequence)]
        return (shorter,)

    return call


def _sequence_length(_: OperatorNode, backend: OperatorBackend) -> Call:
    return lambda sequence: (backend.array(np.array(len(sequence), np.int64)),)


def _has_element(_: OperatorNode, backend: OperatorBackend) -> Call:
    return lambda value=None: (backend.array(np.array(value is not None)),)


def _get_element(node: OperatorNode, _: OperatorBackend) -> Call:
    def call(value: Any) -> Sequence[Any]:
        if value is None:
            raise UnsupportedError(f"{node.title} of an empty optional", "it has no element", "ask OptionalHasElement")
        return (value,)

    return call


def _optional(_: OperatorNode, __: OperatorBackend) -> Call:
    return lambda value=None: (value,)


def _sequence_empty(_: OperatorNode, __: OperatorBackend) -> Call:
    return lambda: ([],)


def _sequence_construct(_: OperatorNode, __: OperatorBackend) -> Call:
    return lambda *values: (list(values),)


def _known(backend: OperatorBackend, value: Any) -> Any:
    """A structural value on the host, where it may be already."""
    return value if isinstance(value, np.ndarray) else backend.host(value)


def _split_to_sequence(node: OperatorNode, backend: OperatorBackend) -> Call:
    axis, keep = int(node["axis"]), bool(node["keepdims"])
    squeeze = backend.operator(OperatorNode("Squeeze", ("x", "axes"), ("y",)))

    def call(value: Any, split: Any = None) -> Sequence[Any]:
        sizes = _sizes(value.shape[axis], None if split is None else _known(backend, split))
        names = tuple(f"y{i}" for i in range(len(sizes)))
        operator = backend.operator(OperatorNode("Split", ("x", "split"), names, {"axis": axis}))
        parts = list(operator.forward(value, np.asarray(sizes, np.int64)))
        if split is None and not keep:
            parts = [squeeze.forward(each, np.array([axis], np.int64))[0] for each in parts]
        return (parts,)

    return call


def _sizes(length: int, split: Any) -> list[int]:
    """Sizes of the parts: ones, equal ones of a scalar with a rest, or those given."""
    if split is None:
        return [1] * length
    if split.ndim:
        return [int(each) for each in split]
    size = int(split)
    return [min(size, length - start) for start in range(0, length, size)]


def _concat_from_sequence(node: OperatorNode, backend: OperatorBackend) -> Call:
    axis, new = int(node["axis"]), bool(node["new_axis"])
    unsqueeze = backend.operator(OperatorNode("Unsqueeze", ("x", "axes"), ("y",)))

    def call(sequence: list[Any]) -> Sequence[Any]:
        names = tuple(f"x{i}" for i in range(len(sequence)))
        parts = [unsqueeze.forward(each, np.array([axis], np.int64))[0] for each in sequence] if new else sequence
        operator = backend.operator(OperatorNode("Concat", names, ("y",), {"axis": axis}))
        found: Sequence[Any] = operator.forward(*parts)
        return found

    return call


_MAKERS: dict[str, Callable[[OperatorNode, OperatorBackend], Call]] = {
    "ConcatFromSequence": _concat_from_sequence,
    "Identity": _identity,
    "Optional": _optional,
    "OptionalGetElement": _get_element,
    "OptionalHasElement": _has_element,
    "SequenceAt": _sequence_at,
    "SequenceConstruct": _sequence_construct,
    "SequenceEmpty": _sequence_empty,
    "SequenceErase": _sequence_erase,
    "SequenceInsert": _sequence_insert,
    "SequenceLength": _sequence_length,
    "SplitToSequence": _split_to_sequence,
}
