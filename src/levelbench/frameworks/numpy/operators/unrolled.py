"""A recurrent cell run over a sequence in one direction, and its gradients (backpropagation through time).

The one idea: only the recurrent products wait for the step before. Those with W, and the gradients by W, R and b, are
one product of matrices each over all steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from levelbench.frameworks.numpy.operators.cells import Cell, GruCell, LstmCell, Pulled
from levelbench.frameworks.numpy.operators.numeric import Array

__all__ = ["Unrolled"]

X, W, R, B, LENGTHS, H, C, P = range(8)


class Unrolled:
    """``y`` (steps, batch, hidden) and the states after the ``last`` step of each sequence.

    ``inputs`` are those of the node, time first, in their working dtype; ``keep`` says whether :meth:`pull` follows.
    """

    def __init__(
        self, cell: Cell, inputs: Sequence[Any], direction: int, backwards: bool, states: int, keep: bool
    ) -> None:
        x, self._cell, self._at = inputs[X], cell, direction
        self._x, self._weight = x, inputs[W][direction]
        self._bias, self._valid = inputs[B], _valid(inputs[LENGTHS], x.shape)
        steps, batch, _ = x.shape
        self._order = list(reversed(range(steps))) if backwards else list(range(steps))
        entered = (x.reshape(steps * batch, x.shape[2]) @ self._weight.T).reshape(steps, batch, len(self._weight))
        if self._bias is not None:
            entered += self._own_bias(len(self._weight))
        zero = np.zeros((batch, cell.hidden), x.dtype)
        self.first = tuple(
            zero if inputs[at] is None else np.ascontiguousarray(inputs[at][direction]) for at in (H, C)[:states]
        )
        self.y = np.zeros((steps, batch, cell.hidden), x.dtype)
        self._before: list[Array] = []
        self._saved: list[Any] = []
        self.last = self._run(entered, keep)

    def _own_bias(self, gates: int) -> Array:
        """What of the biases enters before the steps: all, but that of n in a GRU that is linear before its reset."""
        bias: Array = self._bias[self._at]
        both = bias[:gates] + bias[gates:]
        if isinstance(self._cell, GruCell) and self._cell.linear_before_reset:
            both[2 * self._cell.hidden :] = bias[2 * self._cell.hidden : gates]
        return both

    def _run(self, entered: Array, keep: bool) -> tuple[Array, ...]:
        states = self.first
        for t in self._order:
            after, saved = self._cell.forward(entered[t], states)
            if keep:
                self._before.append(states[0])
                self._saved.append(saved)
            if self._valid is None:
                states, self.y[t] = after, after[0]
            else:
                now = self._valid[t]
                states = tuple(np.where(now, new, old) for new, old in zip(after, states, strict=True))
                self.y[t] = np.where(now, after[0], 0)
        return states

    def pull(self, gradients: Sequence[Any], direction: int) -> dict[int, Array]:
        """The gradients by input position, given those of Y (steps, directions, batch, hidden), Y_h and Y_c."""
        by_y = None if gradients[0] is None else gradients[0][:, direction]
        states = tuple(
            np.zeros_like(first) if g is None else g[direction]
            for first, g in zip(self.first, gradients[1:], strict=False)
        )
        pulled: list[Pulled] = []
        for t, saved in zip(reversed(self._order), reversed(self._saved), strict=True):
            if by_y is not None:
                states = (states[0] + by_y[t], *states[1:]) if self._valid is None else self._ended(states, by_y[t], t)
            now = None if self._valid is None else self._valid[t]
            entering = states if now is None else tuple(np.where(now, each, 0) for each in states)
            step = self._cell.backward(entering, saved)
            if now is None:
                states = step.states
            else:
                pairs = zip(step.states, states, strict=True)
                states = tuple(np.where(now, new, kept) for new, kept in pairs)
            pulled.append(step)
        return self._weights(pulled[::-1], states)

    def _ended(self, states: tuple[Array, ...], by_y: Array, t: int) -> tuple[Array, ...]:
        """Where a sequence has ended, y is zero whatever the states."""
        return (states[0] + np.where(self._valid[t], by_y, 0), *states[1:])

    def _weights(self, pulled: Sequence[Pulled], states: tuple[Array, ...]) -> dict[int, Array]:
        """The gradients by all inputs, from those of all steps in the order they were run in."""
        cell, n = self._cell, self._cell.hidden
        steps, batch, _ = self._x.shape
        width = len(self._weight)
        by_x = np.stack([each.by_x for each in pulled]).reshape(-1, width)
        by_recurrent = np.stack([each.by_recurrent for each in pulled]).reshape(-1, width)
        before = np.stack(self._before).reshape(-1, n)
        x = self._x[self._order].reshape(steps * batch, self._x.shape[2])
        by_input = np.empty_like(self._x)
        by_input[self._order] = (by_x @ self._weight).reshape(self._x.shape)
        by_r = by_recurrent.T @ before
        if isinstance(cell, GruCell) and not cell.linear_before_reset:
            # There R multiplies the state after the reset.
            by_r[2 * n :] = by_recurrent[:, 2 * n :].T @ np.stack([each[3] for each in self._saved]).reshape(-1, n)
        found = {X: by_input, W: by_x.T @ x, R: by_r, H: states[0]}
        found[B] = np.concatenate([by_x.sum(axis=0), by_recurrent.sum(axis=0)])
        if len(states) > 1:
            found[C] = states[1]
        if isinstance(cell, LstmCell):
            cells, after = (np.stack([each[at] for each in self._saved]).reshape(-1, n) for at in (0, 4))
            sums = [
                np.einsum("ij,ij->j", by_x[:, at * n : (at + 1) * n], state)
                for at, state in ((0, cells), (1, after), (2, cells))
            ]
            found[P] = np.concatenate(sums)
        return found


def _valid(lengths: Any, shape: tuple[int, ...]) -> Any:
    """For each step and sequence, (steps, batch, 1), whether it has not ended; ``None`` where all are whole."""
    if lengths is None or bool((np.asarray(lengths) >= shape[0]).all()):
        return None
    return (np.arange(shape[0])[:, None] < np.asarray(lengths)[None, :])[:, :, None]
