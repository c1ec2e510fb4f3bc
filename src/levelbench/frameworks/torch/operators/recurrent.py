"""RNN, GRU and LSTM: PyTorch's own kernels for what they compute, a loop over the time steps for the rest.

The one idea: without sequence lengths, clipping, peepholes and uncommon activations a layer of ONNX is one of PyTorch's
with its gates in another order, so the weights are put in that order and the kernel does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from levelbench.frameworks.torch.operators.cells import CELLS, activations
from levelbench.frameworks.torch.operators.registry import Function, maker
from levelbench.operators.node import OperatorNode

__all__: list[str] = []


class _Layer(NamedTuple):
    """What the inputs have in common, with the time first."""

    x: Tensor
    weights: Tensor
    recurrent: Tensor
    bias: Tensor | None
    hidden: Tensor
    cell: Tensor | None


def _swap(order: tuple[tuple[int, int], ...]) -> Callable[[Tensor, int], Tensor]:
    """Puts gates, each of ``size`` rows, in another order, given as ranges of gates."""
    return lambda w, size: torch.cat([w[start * size : stop * size] for start, stop in order])


_ORDER = {
    "RNN": lambda w, _: w,
    # ONNX has update, reset, hidden; PyTorch reset, update, new.
    "GRU": _swap(((1, 2), (0, 1), (2, 3))),
    # ONNX has input, output, forget, cell; PyTorch input, forget, cell, output.
    "LSTM": _swap(((0, 1), (2, 4), (1, 2))),
}
_USUAL = {"RNN": (["tanh"], ["relu"]), "GRU": (["sigmoid", "tanh"],), "LSTM": (["sigmoid", "tanh", "tanh"],)}


@maker("RNN", "GRU", "LSTM")
def _recurrent(node: OperatorNode) -> Function:
    kind, two = node.op_type, node["direction"] == "bidirectional"
    names = [each.lower() for each in node.get("activations") or _USUAL[kind][0] * (1 + two)]
    per_direction = len(_USUAL[kind][0])
    # ONNX's own default lists those of two directions.
    names = names[: per_direction * (1 + two)]
    usual = all(names[at : at + per_direction] == names[:per_direction] for at in range(0, len(names), per_direction))
    usual = usual and names[:per_direction] in _USUAL[kind] and node.get("clip") is None
    usual = usual and not node.get("input_forget", 0) and (kind != "GRU" or bool(node["linear_before_reset"]))
    native: Any = {"GRU": torch.gru, "LSTM": torch.lstm}.get(kind)
    if native is None:
        native = torch.rnn_relu if names[0] == "relu" else torch.rnn_tanh
    backwards, batch_first = node["direction"] == "reverse", bool(node.get("layout", 0))
    kernel, loop = _Kernel(native, _ORDER[kind], backwards), _Loop(node, names)

    def recurrent(
        x: Tensor,
        w: Tensor,
        r: Tensor,
        b: Tensor | None = None,
        lengths: Tensor | None = None,
        hidden: Tensor | None = None,
        cell: Tensor | None = None,
        peepholes: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        if batch_first:
            x = x.transpose(0, 1)
            hidden, cell = (None if each is None else each.transpose(0, 1) for each in (hidden, cell))
        if hidden is None:
            hidden = x.new_zeros((w.shape[0], x.shape[1], r.shape[2]))
        if cell is None and kind == "LSTM":
            cell = torch.zeros_like(hidden)
        layer = _Layer(x, w, r, b, hidden, cell)
        native_one = usual and lengths is None and peepholes is None
        found = kernel(layer) if native_one else loop(layer, lengths, peepholes)
        if not batch_first:
            return found
        return found[0].permute(2, 0, 1, 3), *(each.transpose(0, 1) for each in found[1:])

    return recurrent


class _Kernel:
    """PyTorch's kernel; weights that need no gradient are put in its order once, until they change."""

    def __init__(self, native: Any, order: Callable[[Tensor, int], Tensor], backwards: bool) -> None:
        self._native, self._order, self._backwards = native, order, backwards
        self._known: tuple[Any, list[Tensor]] | None = None

    def __call__(self, layer: _Layer) -> Any:
        """Y of shape (time, directions, batch, size), and the last states."""
        directions, size = layer.weights.shape[0], layer.recurrent.shape[2]
        x = layer.x.flip(0) if self._backwards else layer.x
        hidden = layer.hidden.contiguous()
        states: Any = hidden if layer.cell is None else (hidden, layer.cell.contiguous())
        parameters, biased = self._parameters(layer), layer.bias is not None
        y, *last = self._native(x, states, parameters, biased, 1, 0.0, False, directions == 2, False)
        y = y.unflatten(2, (directions, size)).transpose(1, 2)
        return (y.flip(0) if self._backwards else y, *last)

    def _parameters(self, layer: _Layer) -> list[Tensor]:
        sources = (layer.weights, layer.recurrent, layer.bias)
        if any(each is not None and (each.requires_grad or each.is_inference()) for each in sources):
            return self._ordered(layer)
        # Tensors are kept, so that none can take the place of another one in memory.
        state = [(each, None if each is None else each._version) for each in sources]
        if self._known is not None and all(
            old is new and before == now for (old, before), (new, now) in zip(self._known[0], state, strict=True)
        ):
            return self._known[1]
        parameters = self._ordered(layer)
        self._known = (state, parameters)
        return parameters

    def _ordered(self, layer: _Layer) -> list[Tensor]:
        directions, rows, _ = layer.weights.shape
        size, order = layer.recurrent.shape[2], self._order
        parameters = []
        for at in range(directions):
            parameters += [order(layer.weights[at], size), order(layer.recurrent[at], size)]
            if layer.bias is not None:
                parameters += [order(layer.bias[at, :rows], size), order(layer.bias[at, rows:], size)]
        return parameters


class _Loop:
    """One time step after the other; the products with the input are taken for all of them at once."""

    def __init__(self, node: OperatorNode, names: list[str]) -> None:
        self._node = node
        self._cell = CELLS[node.op_type]
        self._functions = activations(node, names)
        self._reverse = {"forward": [False], "reverse": [True]}.get(node["direction"], [False, True])

    def __call__(self, layer: _Layer, lengths: Tensor | None, peepholes: Tensor | None) -> tuple[Tensor, ...]:
        each = len(self._functions) // len(self._reverse)
        found = []
        for at, reverse in enumerate(self._reverse):
            functions = self._functions[at * each : (at + 1) * each]
            holes = None if peepholes is None else peepholes[at]
            found.append(self._direction(layer, at, reverse, functions, lengths, holes))
        ys, *states = zip(*found, strict=True)
        return torch.stack(ys, 1), *(torch.stack(each, 0) for each in states)

    def _direction(
        self,
        layer: _Layer,
        at: int,
        reverse: bool,
        functions: list[Function],
        lengths: Tensor | None,
        peepholes: Tensor | None,
    ) -> tuple[Tensor, ...]:
        rows = layer.weights.shape[1]
        input_bias = recurrent_bias = None
        if layer.bias is not None:
            input_bias, recurrent_bias = layer.bias[at, :rows], layer.bias[at, rows:]
        products = torch.nn.functional.linear(layer.x, layer.weights[at], input_bias)
        cell = self._cell(self._node, functions, layer.recurrent[at], recurrent_bias, peepholes)
        state: tuple[Tensor, ...] = (layer.hidden[at],)
        if layer.cell is not None:
            state = (*state, layer.cell[at])
        outputs: list[Tensor] = []
        steps = range(layer.x.shape[0])
        for step in reversed(steps) if reverse else steps:
            following = cell(products[step], *state)
            output = following[0]
            if lengths is not None:
                # Behind the end of a sequence its state stands still and its output is zero.
                running = (step < lengths).unsqueeze(1)
                output = torch.where(running, output, 0)
                following = tuple(torch.where(running, new, old) for new, old in zip(following, state, strict=True))
            state = following
            outputs.append(output)
        if reverse:
            outputs.reverse()
        return torch.stack(outputs), *state
