"""One step of an RNN, a GRU and an LSTM, forward and backward.

The one idea: what does not depend on the step before (x W' + b) is computed for all steps at once and comes in as
``x``; likewise a step only hands back the gradients by what entered its gates, from which those of the weights follow.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from levelbench.frameworks.numpy.operators.gates import Gate
from levelbench.frameworks.numpy.operators.numeric import Array

__all__ = ["Cell", "GruCell", "LstmCell", "Pulled", "RnnCell"]

States = tuple[Array, ...]


class Pulled(NamedTuple):
    """What a step's backward hands back, (batch, gates * hidden) for the first two."""

    by_x: Array
    """The gradient by ``x``."""
    by_recurrent: Array
    """The gradient by what the recurrent weights contribute."""
    states: States
    """The gradients by the states before the step."""


class Cell(ABC):
    """A step of one direction: ``recurrent`` is R (gates * hidden, hidden), ``clip`` a bound on what enters a gate."""

    default: tuple[str, ...]

    def __init__(self, recurrent: Array, gates: Sequence[Gate], clip: float | None) -> None:
        self.recurrent = recurrent
        self.hidden = recurrent.shape[1]
        self.gates = gates
        self.clip = clip

    @abstractmethod
    def forward(self, x: Array, states: States) -> tuple[States, Any]:
        """The states after the step, the hidden one first, and what :meth:`backward` needs."""

    @abstractmethod
    def backward(self, gradients: States, saved: Any) -> Pulled:
        """Given the gradients by the states after the step."""

    def bounded(self, x: Array) -> Array:
        """What enters a gate, clipped."""
        return x if self.clip is None else np.clip(x, -self.clip, self.clip)

    def through(self, gradient: Array, gate: Gate, x: Array, y: Array) -> Array:
        """The gradient by what enters a gate, given that by what leaves it."""
        found = gradient * gate.slope(x, y)
        # Where it was clipped, x lies on the bound.
        return found if self.clip is None else np.where(np.abs(x) < self.clip, found, 0).astype(x.dtype)


class RnnCell(Cell):
    """H' = f(x + H R')."""

    default = ("Tanh",)

    def forward(self, x: Array, states: States) -> tuple[States, Any]:
        """As above."""
        a = self.bounded(x + states[0] @ self.recurrent.T)
        h = self.gates[0].apply(a)
        return (h,), (a, h)

    def backward(self, gradients: States, saved: Any) -> Pulled:
        """As above."""
        by_a = self.through(gradients[0], self.gates[0], *saved)
        return Pulled(by_a, by_a, (by_a @ self.recurrent,))


class GruCell(Cell):
    """z, r = f(x + H R'); n = g(x + (r H) R') or, linear before reset, g(x + r (H R' + b)); H' = (1 - z) n + z H."""

    default = ("Sigmoid", "Tanh")
    linear_before_reset = False
    recurrent_bias: Any = 0
    """That of n, added before the reset."""

    def forward(self, x: Array, states: States) -> tuple[States, Any]:
        """As above."""
        (h,), n = states, self.hidden
        f, g = self.gates
        a = self.bounded(x[:, : 2 * n] + h @ self.recurrent[: 2 * n].T)
        both = f.apply(a)
        z, r = both[:, :n], both[:, n:]
        inner = h @ self.recurrent[2 * n :].T + self.recurrent_bias if self.linear_before_reset else r * h
        c = x[:, 2 * n :] + (r * inner if self.linear_before_reset else inner @ self.recurrent[2 * n :].T)
        c = self.bounded(c)
        new = g.apply(c)
        return (new + z * (h - new),), (h, a, both, inner, c, new)

    def backward(self, gradients: States, saved: Any) -> Pulled:
        """As above; by_recurrent of n is that by ``inner R'``, or by ``inner`` if linear before reset."""
        (by_h,), (h, a, both, inner, c, new) = gradients, saved
        n = self.hidden
        z, r = both[:, :n], both[:, n:]
        weight = self.recurrent[2 * n :]
        by_c = self.through(by_h * (1 - z), self.gates[1], c, new)
        before = by_h * z
        if self.linear_before_reset:
            by_r, by_inner = by_c * inner, by_c * r
            before += by_inner @ weight
        else:
            by_product, by_inner = by_c @ weight, by_c
            by_r = by_product * h
            before += by_product * r
        by_both = np.concatenate([by_h * (h - new), by_r], axis=1)
        by_a = self.through(by_both, self.gates[0], a, both)
        before += by_a @ self.recurrent[: 2 * n]
        return Pulled(np.concatenate([by_a, by_c], axis=1), np.concatenate([by_a, by_inner], axis=1), (before,))


class LstmCell(Cell):
    """i, o, f, c from x + H R' (o after the new C); C' = f C + i c; H' = o h(C')."""

    default = ("Sigmoid", "Tanh", "Tanh")
    peepholes: Array | None = None
    """(3, hidden) by which C enters i, o and f."""
    input_forget = False

    def forward(self, x: Array, states: States) -> tuple[States, Any]:
        """As above."""
        (h, cell), n = states, self.hidden
        f, g, last = self.gates
        a = x + h @ self.recurrent.T
        if self.peepholes is not None:
            a[:, :n] += self.peepholes[0] * cell
            a[:, 2 * n : 3 * n] += self.peepholes[2] * cell
        if self.peepholes is None:
            a = self.bounded(a)
            y = f.apply(a[:, : 3 * n])
        else:
            # The output gate sees the new C, and must wait for it.
            a[:, :n], a[:, 2 * n :] = self.bounded(a[:, :n]), self.bounded(a[:, 2 * n :])
            y = np.empty_like(a[:, : 3 * n])
            y[:, :n], y[:, 2 * n :] = f.apply(a[:, :n]), f.apply(a[:, 2 * n : 3 * n])
        i = y[:, :n]
        if self.input_forget:
            y[:, 2 * n :] = 1 - i
        new = g.apply(a[:, 3 * n :])
        after = y[:, 2 * n :] * cell + i * new
        if self.peepholes is not None:
            a[:, n : 2 * n] = self.bounded(a[:, n : 2 * n] + self.peepholes[1] * after)
            y[:, n : 2 * n] = f.apply(a[:, n : 2 * n])
        shown = last.apply(after)
        return (y[:, n : 2 * n] * shown, after), (cell, a, y, new, after, shown)

    def backward(self, gradients: States, saved: Any) -> Pulled:
        """As above."""
        (by_h, by_after), (cell, a, y, new, after, shown) = gradients, saved
        n = self.hidden
        f, g, last = self.gates
        i, o, forget = y[:, :n], y[:, n : 2 * n], y[:, 2 * n :]
        by_a = np.empty_like(a)
        by_a[:, n : 2 * n] = self.through(by_h * shown, f, a[:, n : 2 * n], o)
        by_after = by_after + by_h * o * last.slope(after, shown)
        if self.peepholes is not None:
            by_after = by_after + by_a[:, n : 2 * n] * self.peepholes[1]
        by_i, by_forget = by_after * new, by_after * cell
        if self.input_forget:
            by_i, by_forget = by_i - by_forget, np.zeros_like(by_forget)
        by_a[:, :n] = self.through(by_i, f, a[:, :n], i)
        by_a[:, 2 * n : 3 * n] = self.through(by_forget, f, a[:, 2 * n : 3 * n], forget)
        by_a[:, 3 * n :] = self.through(by_after * i, g, a[:, 3 * n :], new)
        by_cell = by_after * forget
        if self.peepholes is not None:
            by_cell += by_a[:, :n] * self.peepholes[0] + by_a[:, 2 * n : 3 * n] * self.peepholes[2]
        return Pulled(by_a, by_a, (by_a @ self.recurrent, by_cell))
