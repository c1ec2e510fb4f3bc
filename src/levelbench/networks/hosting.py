"""Finds the shape arithmetic of a network: nodes whose values decide shapes and follow from shapes and constants.

The one idea: these are computed in NumPy on the host by every framework. No device is waited for to read a size, and a
tracing compiler sees a constant where a value would break its trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from levelbench.operators.node import OperatorNode, structural

__all__ = ["host_nodes", "structural_reads"]

_SHAPES = {"Shape", "Size"}
_ARITHMETIC_NAMES = (
    "Abs Add And Cast Ceil Clip Concat ConstantOfShape Div Equal Expand Flatten Floor Gather GatherElements Greater "
    "GreaterOrEqual Identity Less LessOrEqual Max Min Mod Mul Neg Not Or Pad Pow Range ReduceMax ReduceMin ReduceProd "
    "ReduceSum Reshape Round Sign Slice Split Sqrt Squeeze Sub Tile Transpose Unsqueeze Where"
)
_ARITHMETIC = frozenset(_ARITHMETIC_NAMES.split())
_CONTROL = {"If": (0,), "Loop": (0, 1)}


def structural_reads(node: OperatorNode) -> tuple[int, ...]:
    """The positions of inputs that are needed on the host: structural ones, conditions and trip counts."""
    if not node.domain and node.op_type in _CONTROL:
        return _CONTROL[node.op_type]
    return structural(node)


def host_nodes(nodes: Sequence[OperatorNode], constants: Mapping[str, object]) -> set[int]:
    """The places of the nodes to compute on the host."""
    known = set(constants)
    able: dict[str, int] = {}
    for at, node in enumerate(nodes):
        if _is_able(node, known):
            known.update(name for name in node.outputs if name)
            able.update((name, at) for name in node.outputs if name)
    wanted = [name for node in nodes for name in _read(node, structural_reads(node))]
    found: set[int] = set()
    while wanted:
        at = able.get(wanted.pop(), -1)
        if at < 0 or at in found:
            continue
        found.add(at)
        if nodes[at].op_type not in _SHAPES:
            wanted.extend(nodes[at].inputs)
    return found


def _is_able(node: OperatorNode, known: set[str]) -> bool:
    if node.domain:
        return False
    if node.op_type in _SHAPES:
        return True
    return node.op_type in _ARITHMETIC and all(name in known for name in node.inputs if name)


def _read(node: OperatorNode, positions: Iterable[int]) -> list[str]:
    return [node.inputs[at] for at in positions if at < len(node.inputs) and node.inputs[at]]
