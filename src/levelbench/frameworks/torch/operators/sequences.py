"""Sequences: RNN, GRU, LSTM, Attention, RotaryEmbedding and LinearAttention, by PyTorch's kernels where they agree."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.torch.arrays import torch_dtype
from levelbench.frameworks.torch.operators.registry import Function, maker, refuse
from levelbench.operators.node import OperatorNode

__all__ = ["CELLS", "activations"]


Cell = Callable[..., tuple[Tensor, ...]]

_PLAIN: dict[str, Function] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "softplus": functional.softplus,
    "softsign": functional.softsign,
    "tanh": torch.tanh,
}
# Default alpha and beta; ``None`` for one that the function does not take.
_DEFAULTS: dict[str, tuple[float | None, float | None]] = {
    "affine": (1.0, 0.0),
    "elu": (1.0, None),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01, None),
    "scaledtanh": (1.0, 1.0),
    "thresholdedrelu": (1.0, None),
}
_SCALED: dict[str, Callable[[Tensor, Any, Any], Tensor]] = {
    "affine": lambda x, alpha, beta: alpha * x + beta,
    "elu": lambda x, alpha, _: functional.elu(x, alpha),
    "hardsigmoid": lambda x, alpha, beta: torch.clamp(alpha * x + beta, 0, 1),
    "leakyrelu": lambda x, alpha, _: functional.leaky_relu(x, alpha),
    "scaledtanh": lambda x, alpha, beta: alpha * torch.tanh(beta * x),
    "thresholdedrelu": lambda x, alpha, _: functional.threshold(x, alpha, 0.0),
}


def activations(node: OperatorNode, names: list[str]) -> list[Function]:
    """The functions by name; alphas and betas go to those that take one, in order. With the node's clipping."""
    alphas, betas = iter(node.get("activation_alpha") or []), iter(node.get("activation_beta") or [])
    clip = node.get("clip")
    found: list[Function] = []
    for at, name in enumerate(names):
        if name not in _PLAIN and name not in _SCALED:
            raise refuse(node, f"there is no activation function {name!r}", "use one that ONNX lists")
        function = _PLAIN.get(name)
        if function is None:
            alpha, beta = _DEFAULTS[name]
            alpha = None if alpha is None else next(alphas, alpha)
            beta = None if beta is None else next(betas, beta)
            function = _scaled(_SCALED[name], alpha, beta)
        # As ONNX Runtime does (ONNX's text leaves it open): an LSTM's third, of the cell itself, is not clipped.
        whole = clip is None or (node.op_type == "LSTM" and at % 3 == 2)
        found.append(function if whole else _clipped(function, clip))
    return found


def _scaled(function: Callable[[Tensor, Any, Any], Tensor], alpha: Any, beta: Any) -> Function:
    return lambda x: function(x, alpha, beta)


def _clipped(function: Function, clip: float) -> Function:
    return lambda x: function(torch.clamp(x, -clip, clip))


def _rnn(_: OperatorNode, functions: list[Function], r: Tensor, b: Tensor | None, __: Tensor | None) -> Cell:
    (f,) = functions
    return lambda products, hidden: (f(products + functional.linear(hidden, r, b)),)


def _gru(node: OperatorNode, functions: list[Function], r: Tensor, b: Tensor | None, _: Tensor | None) -> Cell:
    f, g = functions
    size = r.shape[1]
    after = bool(node["linear_before_reset"])
    gates, last = r[: 2 * size], r[2 * size :]
    gates_bias, last_bias = (None, None) if b is None else (b[: 2 * size], b[2 * size :])

    def step(products: Tensor, hidden: Tensor) -> tuple[Tensor, ...]:
        both = f(products[:, : 2 * size] + functional.linear(hidden, gates, gates_bias))
        update, reset = both.chunk(2, 1)
        if after:
            candidate = reset * functional.linear(hidden, last, last_bias)
        else:
            candidate = functional.linear(reset * hidden, last, last_bias)
        new = g(products[:, 2 * size :] + candidate)
        return ((1 - update) * new + update * hidden,)

    return step


def _lstm(node: OperatorNode, functions: list[Function], r: Tensor, b: Tensor | None, holes: Tensor | None) -> Cell:
    f, g, h = functions
    coupled = bool(node["input_forget"])

    def step(products: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, ...]:
        i, o, forget, c = (products + functional.linear(hidden, r, b)).chunk(4, 1)
        if holes is not None:
            p_i, p_o, p_f = holes.chunk(3)
            i, forget = i + p_i * cell, forget + p_f * cell
        opened = f(i)
        kept = 1 - opened if coupled else f(forget)
        new = kept * cell + opened * g(c)
        if holes is not None:
            o = o + p_o * new
        return f(o) * h(new), new

    return step


CELLS: dict[str, Callable[[OperatorNode, list[Function], Tensor, Tensor | None, Tensor | None], Cell]] = {
    "GRU": _gru,
    "LSTM": _lstm,
    "RNN": _rnn,
}


# RNN, GRU and LSTM: PyTorch's own kernels for what they compute, a loop over the time steps for the rest.
# Without sequence lengths, clipping, peepholes and uncommon activations a layer of ONNX is one of PyTorch's with its
# gates in another order, so the weights are put in that order and the kernel does the rest.


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


# Attention, by PyTorch's fused kernels wherever only the result is asked for, and rotary position embedding.
# Which keys a query may see (causal order, window, lengths, a boolean mask) is one boolean tensor; a floating-point
# mask is added, with minus infinity where that tensor says no. A query that sees no key gets zeros.


@maker("Attention")
def _attention(node: OperatorNode) -> Function:
    attention = _Attention(node)
    scale, causal = node.get("scale"), bool(node["is_causal"])
    bare = len(node.outputs) == 1 and node["softcap"] == 0 and node.get("softmax_precision") is None
    bare = bare and node.get("left_window_size", -1) < 0 and node.get("right_window_size", -1) < 0
    if not bare:
        return attention

    def attend(query: Tensor, key: Tensor, value: Tensor, *others: Tensor | None) -> Any:
        if others or query.dim() != 4 or query.shape[1] != key.shape[1] or query.dtype != value.dtype:
            return attention(query, key, value, *others)
        return functional.scaled_dot_product_attention(query, key, value, None, 0.0, causal, scale=scale)

    return attend


class _Attention:
    """Attributes as they are called with."""

    def __init__(self, node: OperatorNode) -> None:
        self._causal, self._scale, self._cap = bool(node["is_causal"]), node.get("scale"), node["softcap"]
        self._heads, self._kv_heads = node.get("q_num_heads"), node.get("kv_num_heads")
        self._left, self._right = node.get("left_window_size", -1), node.get("right_window_size", -1)
        self._mode = node["qk_matmul_output_mode"] if len(node.outputs) > 3 and node.outputs[3] else None
        precision = node.get("softmax_precision")
        self._precision = None if precision is None else torch_dtype(precision)

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        past_key: Tensor | None = None,
        past_value: Tensor | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor | None, ...]:
        flat = query.dim() == 3
        if flat:
            query = _heads(query, self._heads)
            key, value = _heads(key, self._kv_heads), _heads(value, self._kv_heads)
        offset: Any = 0
        if past_key is not None and past_value is not None:
            offset = past_key.shape[2]
            key, value = torch.cat([past_key, key], 2), torch.cat([past_value, value], 2)
        elif lengths is not None:
            offset = (lengths - query.shape[2]).reshape(-1, 1, 1, 1)
        if mask is not None and mask.shape[-1] < key.shape[2]:
            short = key.shape[2] - mask.shape[-1]
            mask = functional.pad(mask, (0, short), value=False if mask.dtype == torch.bool else -math.inf)
        output, products = self._attend(query, key, value, mask, offset, lengths)
        if flat:
            output = output.transpose(1, 2).flatten(2)
        return output, key, value, products

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, offset: Any, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        windowed = self._left >= 0 or self._right >= 0
        fused = self._mode is None and self._cap == 0 and self._fusible(query, value, mask)
        if fused and mask is None and not windowed and lengths is None and (not self._causal or offset == 0):
            return self._fused(query, key, value, None, self._causal), None
        allowed = self._allowed(query, key, offset, lengths)
        if mask is not None and mask.dtype == torch.bool:
            allowed, mask = mask if allowed is None else allowed & mask, None
        if fused:
            bias = allowed if mask is None else _masked(mask, allowed)
            return self._fused(query, key, value, bias, False), None
        return self._composed(query, key, value, mask, allowed)

    def _fusible(self, query: Tensor, value: Tensor, mask: Tensor | None) -> bool:
        """Whether the types are alike, and the softmax no more precise than the fused one, which is float's or T's."""
        if query.dtype != value.dtype or (mask is not None and mask.dtype not in (torch.bool, query.dtype)):
            return False
        return self._precision in (None, torch.float32, torch.float16, torch.bfloat16, query.dtype)

    def _fused(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        shared = query.shape[1] != key.shape[1]
        return functional.scaled_dot_product_attention(
            query, key, value, mask, 0.0, causal, scale=self._scale, enable_gqa=shared
        )

    def _allowed(self, query: Tensor, key: Tensor, offset: Any, lengths: Tensor | None) -> Tensor | None:
        """Which keys each query may see, (queries, keys) or with a batch in front; ``None`` for all."""
        keys = torch.arange(key.shape[2], device=query.device)
        at = torch.arange(query.shape[2], device=query.device).unsqueeze(1) + offset
        conditions = []
        if self._causal:
            conditions.append(keys <= at)
        if self._left >= 0:
            conditions.append(keys >= at - self._left)
        if self._right >= 0:
            conditions.append(keys <= at + self._right)
        if lengths is not None:
            conditions.append(keys < lengths.reshape(-1, 1, 1, 1))
        allowed = None
        for each in conditions:
            allowed = each if allowed is None else allowed & each
        return allowed

    def _composed(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, allowed: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Step by step: softmax(cap(q k^T scale) + bias) v, with what is asked of the steps in between."""
        repeats = query.shape[1] // key.shape[1]
        if repeats > 1:
            key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
        root = math.sqrt(1 / math.sqrt(query.shape[3]) if self._scale is None else self._scale)
        steps = [torch.matmul(query * root, (key * root).transpose(2, 3))]
        steps.append(self._cap * torch.tanh(steps[0] / self._cap) if self._cap > 0 else steps[0])
        bias = _bias(mask, allowed, query.dtype)
        steps.append(steps[1] if bias is None else steps[1] + bias)
        scores = steps[2] if self._precision is None else steps[2].to(self._precision)
        # Seen from the bias: scores of a query that sees no key may be anything.
        blind = None if bias is None else torch.isneginf(bias).all(-1, keepdim=True)
        # Before the softmax too, whose gradient would be no number there.
        weights = torch.softmax(scores if blind is None else scores.masked_fill(blind, 0), -1)
        if blind is not None:
            weights = weights.masked_fill(blind, 0)
        steps.append(weights.to(query.dtype))
        output = torch.matmul(steps[3].to(value.dtype), value)
        return output, None if self._mode is None else steps[self._mode]


def _heads(x: Tensor, count: int) -> Tensor:
    """(batch, sequence, heads times size) as (batch, heads, sequence, size)."""
    return x.unflatten(2, (count, -1)).transpose(1, 2)


def _masked(mask: Tensor, allowed: Tensor | None) -> Tensor:
    return mask if allowed is None else torch.where(allowed, mask, -math.inf)


def _bias(mask: Tensor | None, allowed: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if mask is not None:
        return _masked(mask, allowed)
    if allowed is None:
        return None
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill(~allowed, -math.inf)


@maker("LinearAttention")
def _linear_attention(node: OperatorNode) -> Function:
    heads, kv_heads, given = node["q_num_heads"], node["kv_num_heads"], node["scale"]
    rule = node["update_rule"]
    gated, corrected = rule in ("gated", "gated_delta"), rule in ("delta", "gated_delta")

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        past: Tensor | None = None,
        decay: Tensor | None = None,
        beta: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The recurrence over tokens in float32, whatever the type, as ONNX computes it."""
        dtype, wide = query.dtype, torch.float32
        query, key, value = (
            _heads(each, count).to(wide) for each, count in ((query, heads), (key, kv_heads), (value, kv_heads))
        )
        scale = given or 1 / math.sqrt(query.shape[3])
        empty = (*key.shape[:2], key.shape[3], value.shape[3])
        state = query.new_zeros(empty) if past is None else past.to(wide)
        fading = _heads(decay, kv_heads).to(wide).exp() if decay is not None and gated else None
        rate = beta.to(wide).transpose(1, 2).unsqueeze(3) if beta is not None else None
        outputs = []
        for step in range(query.shape[2]):
            k, v = key[:, :, step], value[:, :, step]
            if fading is not None:
                state = state * fading[:, :, step].unsqueeze(3)
            if corrected and rate is not None:
                v = rate[:, :, step] * (v - torch.einsum("bhkv,bhk->bhv", state, k))
            state = state + k.unsqueeze(3) * v.unsqueeze(2)
            read = state.repeat_interleave(heads // kv_heads, 1) if heads != kv_heads else state
            outputs.append(torch.einsum("bhk,bhkv->bhv", query[:, :, step], read))
        output = torch.stack(outputs, 1).flatten(2) * scale
        return output.to(dtype), state.to(dtype if past is None else past.dtype)

    return attend
