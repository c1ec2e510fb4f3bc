"""RNN, GRU and LSTM: directions, lengths, initial states and layouts around a cell, forward and backward.

The one idea: a step whose sequence has ended keeps the states and puts out zeros, so a reversed direction over padded
sequences needs no reordering: it starts at the end and waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from levelbench.frameworks.numpy.operators.cells import Cell, GruCell, LstmCell, RnnCell
from levelbench.frameworks.numpy.operators.gates import Gate, gates_of
from levelbench.frameworks.numpy.operators.kernel import Kernel, Registry
from levelbench.frameworks.numpy.operators.numeric import Array, lift, lower, quiet, within
from levelbench.frameworks.numpy.operators.unrolled import Unrolled
from levelbench.operators.node import OperatorNode

__all__ = ["OPERATORS"]

OPERATORS = Registry()

X, W, R, B, LENGTHS, H, C, P = range(8)
"""The positions of the inputs."""

MakeCell = Callable[[Sequence[Gate], Sequence[Any], int], Cell]
"""(gates, inputs, direction) -> the cell."""


@OPERATORS.add("RNN")
def _rnn(node: OperatorNode) -> Kernel:
    def make(gates: Sequence[Gate], inputs: Sequence[Any], at: int) -> Cell:
        return RnnCell(inputs[R][at], gates, node.get("clip"))

    return _kernel(node, RnnCell.default, make, states=1)


@OPERATORS.add("GRU")
def _gru(node: OperatorNode) -> Kernel:
    linear = bool(node.get("linear_before_reset", 0))

    def make(gates: Sequence[Gate], inputs: Sequence[Any], at: int) -> Cell:
        cell = GruCell(inputs[R][at], gates, node.get("clip"))
        cell.linear_before_reset = linear
        if linear and inputs[B] is not None:
            cell.recurrent_bias = inputs[B][at, 5 * cell.hidden :]
        return cell

    return _kernel(node, GruCell.default, make, states=1)


@OPERATORS.add("LSTM")
def _lstm(node: OperatorNode) -> Kernel:
    def make(gates: Sequence[Gate], inputs: Sequence[Any], at: int) -> Cell:
        cell = LstmCell(inputs[R][at], gates, node.get("clip"))
        cell.input_forget = bool(node.get("input_forget", 0))
        if inputs[P] is not None:
            cell.peepholes = inputs[P][at].reshape(3, -1)
        return cell

    return _kernel(node, LstmCell.default, make, states=2)


def _kernel(node: OperatorNode, default: Sequence[str], make: MakeCell, states: int) -> Kernel:
    reversed_ones = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[node["direction"]]
    gates = gates_of(node, default, len(reversed_ones))
    by_batch = bool(node.get("layout", 0))

    def unroll(given: Sequence[Any], keep: bool) -> tuple[list[Any], list[Unrolled]]:
        inputs = [*given, *(None,) * (8 - len(given))]
        wide = [each if each is None or at == LENGTHS else lift(each) for at, each in enumerate(inputs)]
        if by_batch:
            for at in (X, H, C):
                wide[at] = None if wide[at] is None else wide[at].swapaxes(0, 1)
        directions = [
            Unrolled(make(gates[at], wide, at), wide, at, backwards, states, keep)
            for at, backwards in enumerate(reversed_ones)
        ]
        return wide, directions

    def outputs(x: Array, directions: Sequence[Unrolled]) -> tuple[Array, ...]:
        y = np.stack([each.y for each in directions], axis=1)
        last = [np.stack([each.last[at] for each in directions]) for at in range(states)]
        if by_batch:
            y, last = y.transpose(2, 0, 1, 3), [each.swapaxes(0, 1) for each in last]
        return tuple(lower(each, x.dtype) for each in (y, *last))

    def forward(*inputs: Any) -> tuple[Array, ...]:
        with quiet():
            return outputs(inputs[X], unroll(inputs, keep=False)[1])

    def vjp(*inputs: Any) -> Any:
        with quiet():
            wide, directions = unroll(inputs, keep=True)

        def pullback(*gradients: Any) -> tuple[Any, ...]:
            g = [None if each is None else lift(each) for each in (*gradients, *(None,) * (3 - len(gradients)))]
            if by_batch:
                g = [
                    None if each is None else each.transpose(1, 2, 0, 3) if each.ndim == 4 else each.swapaxes(0, 1)
                    for each in g
                ]
            with quiet():
                found = _gathered([each.pull(g, at) for at, each in enumerate(directions)], wide)
            if by_batch:
                found = {at: each.swapaxes(0, 1) if at in (X, H, C) else each for at, each in found.items()}
            return tuple(
                None if each is None or at == LENGTHS else within(found[at], each) for at, each in enumerate(inputs)
            )

        return outputs(inputs[X], directions), pullback

    return Kernel(forward, vjp=vjp)


def _gathered(parts: Sequence[dict[int, Array]], wide: Sequence[Any]) -> dict[int, Array]:
    """The directions' gradients by input: their sum for X, one beside another for the rest."""
    found = {at: np.stack([part[at] for part in parts]) for at in parts[0] if at != X}
    found[X] = sum(part[X] for part in parts[1:]) + parts[0][X] if len(parts) > 1 else parts[0][X]
    return found
