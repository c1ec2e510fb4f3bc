"""Which values of a network carry the batch, on which axis, and which nodes treat each sample on its own.

The one idea: a statement about index blocks, proved operator by operator. A value *carries* the batch on an axis if
that axis is made of one block of ``multiple`` neighbouring rows a sample. A node is *independent* if block k of its
outputs follows from block k of the inputs that carry the batch and from the whole of the others. Operators without a
rule here are taken to mix their batch, so nothing is ever split because it was not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from numpy.typing import NDArray

from levelbench.operators.node import OperatorNode

__all__ = ["FIXED", "MIXED", "Carried", "Carry", "Context", "Independence", "Mixing", "Rule", "Tracked", "track"]


@dataclass(frozen=True)
class Carried:
    """The batch is on ``axis``, with ``multiple`` rows a sample."""

    axis: int
    multiple: int = 1


FIXED: Final = "fixed"
"""A value that does not depend on any sample."""
MIXED: Final = "mixed"
"""A value that depends on the batch as a whole, or in a way that is not known."""
Carry = Carried | Literal["fixed", "mixed"]


@dataclass(frozen=True)
class Independence:
    """How a node is computed for one block of samples.

    ``needs``: the block to take of each input, ``None`` for the whole of it (an input that is fixed may have to be
    cut too: a mask with a row a sample). ``outputs``: where the outputs carry the batch. ``baked``: (input, entry,
    multiple) of numbers in constant inputs that are a number of rows and have to be that of the block.
    """

    needs: tuple[Carried | None, ...]
    outputs: tuple[Carried, ...]
    baked: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True)
class Mixing:
    """A node that needs its whole batch, but whose outputs are known to carry it, or not."""

    outputs: tuple[Carry, ...]


@dataclass(frozen=True)
class Context:
    """A node with all that a rule may look at. Shapes are those at ``batch``; ``None`` where one is not known."""

    node: OperatorNode
    carries: tuple[Carry | None, ...]
    shapes: tuple[tuple[int, ...] | None, ...]
    outputs: tuple[tuple[int, ...] | None, ...]
    constant: Callable[[str], NDArray[Any] | None]
    batch: int

    def carried(self, at: int = 0) -> Carried | None:
        """Where input ``at`` carries the batch, if it does."""
        found = self.carries[at] if at < len(self.carries) else None
        return found if isinstance(found, Carried) else None

    def shape(self, at: int = 0) -> tuple[int, ...] | None:
        """The shape of input ``at``."""
        return self.shapes[at] if at < len(self.shapes) else None

    def value(self, at: int) -> NDArray[Any] | None:
        """The value of input ``at`` where it is a constant."""
        return self.constant(self.node.inputs[at]) if self.given(at) else None

    def given(self, at: int) -> bool:
        """Whether input ``at`` is there."""
        return at < len(self.node.inputs) and bool(self.node.inputs[at])

    def only_first(self, output: Carried, *more: Carried) -> Independence | None:
        """Independent with the first input cut, where no other input carries the batch."""
        first = self.carried()
        if first is None or any(isinstance(each, Carried) for each in self.carries[1:]):
            return None
        outputs = (output, *more)
        wanted = len(self.node.outputs)
        if len(outputs) < wanted:
            return None
        return Independence((first, *(None for _ in self.carries[1:])), outputs[:wanted])


Rule = Callable[[Context], Independence | Mixing | None]


@dataclass(frozen=True)
class Tracked:
    """What was found: ``values`` by name, and what each node is: ``"fixed"``, ``"mixed"`` or how it is split."""

    values: Mapping[str, Carry]
    nodes: tuple[Independence | Literal["fixed", "mixed"], ...]


def track(
    nodes: Sequence[OperatorNode],
    reads: Sequence[Sequence[str]],
    inputs: Mapping[str, Carry],
    shapes: Mapping[str, tuple[int, ...] | None],
    constant: Callable[[str], NDArray[Any] | None],
    batch: int,
) -> Tracked:
    """Follow the batch from ``inputs`` through the nodes; a name that is not known there is fixed.

    ``reads`` are all values that each node reads, those of its subgraphs among them.
    """
    from levelbench.networks.transforms.rules import RULES

    values: dict[str, Carry] = dict(inputs)
    found: list[Independence | Literal["fixed", "mixed"]] = []
    for node, read in zip(nodes, reads, strict=True):
        carries = [values.get(name, FIXED) for name in read if name]
        if all(each == FIXED for each in carries):
            found.append(FIXED)
            continue
        rule = None if node.domain else RULES.get(node.op_type)
        split: Independence | Mixing | None = None
        if rule is not None and MIXED not in carries and all(shapes.get(name) is not None for name in read if name):
            each_input = tuple(values.get(name, FIXED) if name else None for name in node.inputs)
            input_shapes = tuple(shapes.get(name) if name else None for name in node.inputs)
            output_shapes = tuple(shapes.get(name) if name else None for name in node.outputs)
            split = rule(Context(node, each_input, input_shapes, output_shapes, constant, batch))
        if isinstance(split, Independence) and not _fits(node, split, shapes, batch):
            split = None
        carried: Sequence[Carry] = split.outputs if split is not None else [MIXED] * len(node.outputs)
        values.update((name, carry) for name, carry in zip(node.outputs, carried, strict=False) if name)
        found.append(split if isinstance(split, Independence) else MIXED)
    return Tracked(values, tuple(found))


def _fits(node: OperatorNode, split: Independence, shapes: Mapping[str, tuple[int, ...] | None], batch: int) -> bool:
    """Whether every axis that is to be cut has as many rows as the rule says: no rule can be wrong about that."""
    wanted = [*zip(node.inputs, split.needs, strict=True), *zip(node.outputs, split.outputs, strict=False)]
    for name, carry in wanted:
        shape = shapes.get(name)
        if not name or carry is None:
            continue
        if shape is None or not 0 <= carry.axis < len(shape) or shape[carry.axis] != batch * carry.multiple:
            return False
    return True
