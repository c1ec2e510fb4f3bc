"""RNN, GRU and LSTM, forward and backward through time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from levelbench.errors import UnsupportedError
from levelbench.frameworks.numpy.operators.kernel import (
    Array,
    Arrays,
    Differentiated,
    Inputs,
    Kernel,
    cast_like,
    lift,
    logistic,
    lower,
    quiet,
    register,
)
from levelbench.frameworks.shared.sequences import DEFAULT_ACTIVATIONS, activations_of
from levelbench.operators.node import OperatorNode


class Gate(NamedTuple):
    """``apply(x)`` is the activation; ``slope(x, y)`` its derivative at x, where its value is y."""

    apply: Callable[[Array], Array]
    slope: Callable[[Array, Array], Array]


def _sigmoid(x: Array) -> Array:
    result = np.empty_like(x)
    logistic(result, x)
    return result


def _softplus(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


# Each entry makes a gate from (alpha, beta).
_MAKERS: dict[str, Callable[[Any, Any], Gate]] = {
    "affine": lambda a, b: Gate(lambda x: a * x + b, lambda x, y: np.full_like(x, a)),
    "elu": lambda a, b: Gate(
        lambda x: np.where(x >= 0, x, a * np.expm1(np.minimum(x, 0))), lambda x, y: np.where(x >= 0, 1, y + a)
    ),
    "hardsigmoid": lambda a, b: Gate(
        lambda x: np.clip(a * x + b, 0, 1), lambda x, y: np.where((y > 0) & (y < 1), a, 0).astype(x.dtype)
    ),
    "leakyrelu": lambda a, b: Gate(
        lambda x: np.where(x >= 0, x, a * x), lambda x, y: np.where(x >= 0, 1, a).astype(x.dtype)
    ),
    "relu": lambda a, b: Gate(lambda x: np.maximum(x, 0), lambda x, y: (x > 0).astype(x.dtype)),
    "scaledtanh": lambda a, b: Gate(lambda x: a * np.tanh(b * x), lambda x, y: b * (a - y * y / a)),
    "sigmoid": lambda a, b: Gate(_sigmoid, lambda x, y: y * (1 - y)),
    "softplus": lambda a, b: Gate(_softplus, lambda x, y: _sigmoid(x)),
    "softsign": lambda a, b: Gate(lambda x: x / (1 + np.abs(x)), lambda x, y: (1 - np.abs(y)) ** 2),
    "tanh": lambda a, b: Gate(np.tanh, lambda x, y: 1 - y * y),
    "thresholdedrelu": lambda a, b: Gate(
        lambda x: np.where(x >= a, x, 0).astype(x.dtype), lambda x, y: (x >= a).astype(x.dtype)
    ),
}


def gates_of(node: OperatorNode) -> list[list[Gate]]:
    """The gates of each direction; ``UnsupportedError`` for an activation that ONNX does not list."""
    gates, each = [_gate(*chosen) for chosen in activations_of(node)], len(DEFAULT_ACTIVATIONS[node.op_type])
    return [gates[at : at + each] for at in range(0, len(gates), each)]


def _gate(name: str, alpha: float | None, beta: float | None) -> Gate:
    if name not in _MAKERS:
        known = ", ".join(_MAKERS)
        raise UnsupportedError(f"the activation {name!r} on numpy", f"ONNX lists {known}", "use one of these")
    return _MAKERS[name](alpha, beta)


# One step of an RNN, GRU or LSTM, forward and backward.
# What does not depend on the previous step (x W' + b) is computed for all steps at once and passed in as ``x``. The
# backward of a step likewise returns only the gradients of its gate inputs; the weights' are computed at the end.


States = tuple[Array, ...]


class Pulled(NamedTuple):
    """The gradients that the backward of a step returns; the first two are (batch, gates * hidden)."""

    by_x: Array
    """The gradient of ``x``."""
    by_recurrent: Array
    """The gradient of the recurrent weights' contribution."""
    states: States
    """The gradients of the states before the step."""


class Cell(ABC):
    """A step of one direction: ``recurrent`` is R (gates * hidden, hidden), ``clip`` the bound on gate inputs."""

    def __init__(self, recurrent: Array, gates: Sequence[Gate], clip: float | None) -> None:
        self.recurrent = recurrent
        self.hidden = recurrent.shape[1]
        self.gates = gates
        self.clip = clip

    @abstractmethod
    def forward(self, x: Array, states: States) -> tuple[States, Any]:
        """The states after the step, the hidden state first, and the values that :meth:`backward` needs."""

    @abstractmethod
    def backward(self, gradients: States, saved: Any) -> Pulled:
        """The gradients, given those of the states after the step."""

    def bounded(self, x: Array) -> Array:
        """A gate's input, clipped."""
        return x if self.clip is None else np.clip(x, -self.clip, self.clip)

    def through(self, gradient: Array, gate: Gate, x: Array, y: Array) -> Array:
        """The gradient of a gate's input, given its output's."""
        found = gradient * gate.slope(x, y)
        # A clipped x lies on the bound.
        return found if self.clip is None else np.where(np.abs(x) < self.clip, found, 0).astype(x.dtype)


class RnnCell(Cell):
    """H' = f(x + H R')."""

    def forward(self, x: Array, states: States) -> tuple[States, Any]:
        a = self.bounded(x + states[0] @ self.recurrent.T)
        h = self.gates[0].apply(a)
        return (h,), (a, h)

    def backward(self, gradients: States, saved: Any) -> Pulled:
        by_a = self.through(gradients[0], self.gates[0], *saved)
        return Pulled(by_a, by_a, (by_a @ self.recurrent,))


class GruCell(Cell):
    """z, r = f(x + H R'); n = g(x + (r H) R') or, linear before reset, g(x + r (H R' + b)); H' = (1 - z) n + z H."""

    linear_before_reset = False
    recurrent_bias: Any = 0
    """The recurrent bias of n, added before the reset."""

    def forward(self, x: Array, states: States) -> tuple[States, Any]:
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
        """In by_recurrent, n has the gradient of ``inner R'``, or of ``inner`` if linear before reset."""
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

    peepholes: Array | None = None
    """(3, hidden), the weights of C in i, o and f."""
    input_forget = False

    def forward(self, x: Array, states: States) -> tuple[States, Any]:
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
            # The output gate depends on the new C.
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


# A cell run over a sequence in one direction, and its gradients (backpropagation through time).
# Only the recurrent products depend on the previous step. The products with W and the gradients of W, R and b are one
# matrix product each over all steps.


X, W, R, B, LENGTHS, H, C, P = range(8)


class Unrolled:
    """``y`` (steps, batch, hidden), and in ``last`` the states after the last step of each sequence.

    ``inputs`` are the node's, time first, in their working dtype; ``keep`` says whether :meth:`pull` will be called.
    """

    def __init__(self, cell: Cell, inputs: Inputs, direction: int, backwards: bool, states: int, keep: bool) -> None:
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
        """The biases added before the steps: all but n's recurrent bias in a GRU with linear_before_reset."""
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

    def pull(self, gradients: Inputs, direction: int) -> dict[int, Array]:
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
        """After the end of a sequence, y is zero and passes no gradient on."""
        return (states[0] + np.where(self._valid[t], by_y, 0), *states[1:])

    def _weights(self, pulled: Sequence[Pulled], states: tuple[Array, ...]) -> dict[int, Array]:
        """The gradients of all inputs, from those of all steps in the order in which they were run."""
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
            # In this variant R multiplies the state after the reset.
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


def _valid(lengths: Array | None, shape: tuple[int, ...]) -> Any:
    """Whether each sequence has not ended at each step, (steps, batch, 1); ``None`` if all have full length."""
    if lengths is None or bool((np.asarray(lengths) >= shape[0]).all()):
        return None
    return (np.arange(shape[0])[:, None] < np.asarray(lengths)[None, :])[:, :, None]


# RNN, GRU and LSTM: directions, lengths, initial states and layouts around a cell.
# After its end a sequence keeps its states and outputs zeros, so the reverse direction over padded sequences needs no
# reordering.


MakeCell = Callable[[Sequence[Gate], Sequence[Any], int], Cell]
"""(gates, inputs, direction) -> the cell."""


@register("RNN")
def _rnn(node: OperatorNode) -> Kernel:
    def make(gates: Sequence[Gate], inputs: Inputs, at: int) -> Cell:
        return RnnCell(inputs[R][at], gates, node.get("clip"))

    return _kernel(node, make, states=1)


@register("GRU")
def _gru(node: OperatorNode) -> Kernel:
    linear = bool(node.get("linear_before_reset", 0))

    def make(gates: Sequence[Gate], inputs: Inputs, at: int) -> Cell:
        cell = GruCell(inputs[R][at], gates, node.get("clip"))
        cell.linear_before_reset = linear
        if linear and inputs[B] is not None:
            cell.recurrent_bias = inputs[B][at, 5 * cell.hidden :]
        return cell

    return _kernel(node, make, states=1)


@register("LSTM")
def _lstm(node: OperatorNode) -> Kernel:
    def make(gates: Sequence[Gate], inputs: Inputs, at: int) -> Cell:
        cell = LstmCell(inputs[R][at], gates, node.get("clip"))
        cell.input_forget = bool(node.get("input_forget", 0))
        if inputs[P] is not None:
            cell.peepholes = inputs[P][at].reshape(3, -1)
        return cell

    return _kernel(node, make, states=2)


def _kernel(node: OperatorNode, make: MakeCell, states: int) -> Kernel:
    reversed_ones = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[node["direction"]]
    gates = gates_of(node)
    by_batch = bool(node.get("layout", 0))

    def unroll(given: Inputs, keep: bool) -> tuple[list[Any], list[Unrolled]]:
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

    def forward(*inputs: Array) -> tuple[Array, ...]:
        with quiet():
            return outputs(inputs[X], unroll(inputs, keep=False)[1])

    def vjp(*inputs: Array) -> Differentiated:
        with quiet():
            wide, directions = unroll(inputs, keep=True)

        def pullback(*gradients: Array | None) -> Arrays:
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
                None if each is None or at == LENGTHS else cast_like(found[at], each) for at, each in enumerate(inputs)
            )

        return outputs(inputs[X], directions), pullback

    return Kernel(forward, vjp=vjp)


def _gathered(parts: Sequence[dict[int, Array]], wide: Inputs) -> dict[int, Array]:
    """The gradients of all directions by input: summed for X, stacked for the rest."""
    found = {at: np.stack([part[at] for part in parts]) for at in parts[0] if at != X}
    found[X] = sum(part[X] for part in parts[1:]) + parts[0][X] if len(parts) > 1 else parts[0][X]
    return found
