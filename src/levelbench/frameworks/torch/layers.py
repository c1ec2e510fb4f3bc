"""The layers of a ``torch.nn.Module``, traced in training mode: what ran, however it is written.

The trace holds ATen's operators before their decomposition, with momenta, ratios and the very parameters, also where
the module calls functions instead of modules. In a module that decides by values of tensors, nothing can be traced.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.modules.batchnorm import _NormBase

from levelbench.errors import UnsupportedError
from levelbench.networks.layers import (
    INPUT,
    Layer,
    LayerGraph,
    clip_name,
    constant_text,
    gate,
    padded,
    sliced,
    symmetric,
)


def module_layers(module: torch.nn.Module, inputs: Sequence[NDArray[Any]]) -> LayerGraph:
    """The layers of the module's first output for ``inputs``, whose first axis is the batch.

    Puts the module into training mode and updates its running statistics. ``UnsupportedError`` if it cannot be traced.
    """
    module.train()
    tensors = [torch.from_numpy(np.ascontiguousarray(each)) for each in inputs]
    # A cumulative average reads how many batches there were, a value of a tensor.
    cumulative = [each for each in module.modules() if isinstance(each, _NormBase) and each.momentum is None]
    for each in cumulative:
        each.momentum = _CUMULATIVE
    try:
        with torch.enable_grad():
            traced = make_fx(module, pre_dispatch=True, tracing_mode="real")(*tensors)
    except Exception as error:  # the boundary to a user's module, which may raise anything
        shapes = ", ".join(str(tuple(each.shape)) for each in tensors)
        found = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        do = (
            "make its forward run on this input without decisions by values of tensors; or export it and check the file"
        )
        raise UnsupportedError(f"tracing {type(module).__name__} on an input of shape {shapes}", found, do) from error
    finally:
        for each in cumulative:
            each.momentum = None
    reader = _Reader(module, traced)
    for node in traced.graph.nodes:
        reader.read(node)
    sizes = {name: each.numel() for name, each in module.named_parameters() if each.requires_grad}
    frozen = tuple(name for name, each in module.named_parameters() if not each.requires_grad)
    return LayerGraph(tuple(reader.layers), reader.output, tuple(tensors[0].shape[1:]), sizes, frozen)


@dataclass(frozen=True)
class _Weight:
    """A parameter or buffer, possibly transposed, or computed from one in each call."""

    name: str
    shape: tuple[int, ...]
    transposed: bool = False


_ZEROS, _RANDOM = "zeros", "random"
_CUMULATIVE = 1e-300
_ACTIVATIONS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "relu": lambda _: "ReLU",
    "relu6": lambda _: "ReLU6",
    "hardtanh": lambda a: clip_name(a["min_val"], a["max_val"]),
    "clamp": lambda a: clip_name(_bound(a["min"], -math.inf), _bound(a["max"], math.inf)),
    "clamp_min": lambda a: clip_name(a["min"], math.inf),
    "clamp_max": lambda a: clip_name(-math.inf, a["max"]),
    "leaky_relu": lambda a: f"leaky ReLU (slope {slope:.4g})" if (slope := a["negative_slope"]) else "ReLU",
    "prelu": lambda _: "PReLU",
    "_prelu_kernel": lambda _: "PReLU",
    "rrelu": lambda _: "RReLU",
    "elu": lambda a: "ELU" if a["alpha"] == 1 else f"ELU (alpha {a['alpha']:.4g})",
    "celu": lambda a: "CELU" if a["alpha"] == 1 else f"CELU (alpha {a['alpha']:.4g})",
    "selu": lambda _: "SELU",
    "silu": lambda _: "SiLU",
    "gelu": lambda a: "GELU" if a["approximate"] == "none" else "GELU (tanh)",
    "mish": lambda _: "Mish",
    "hardswish": lambda _: "hard swish",
    "hardsigmoid": lambda _: "hard sigmoid",
    "sigmoid": lambda _: "sigmoid",
    "tanh": lambda _: "tanh",
    "softplus": lambda _: "softplus",
    "softmax": lambda _: "softmax",
    "_softmax": lambda _: "softmax",
    "log_softmax": lambda _: "log-softmax",
    "_log_softmax": lambda _: "log-softmax",
    "threshold": lambda a: "ReLU" if a["threshold"] == 0 == a["value"] else "threshold",
}
_VIEWS = frozenset(
    [
        "view",
        "reshape",
        "_unsafe_view",
        "flatten",
        "unflatten",
        "squeeze",
        "unsqueeze",
        "contiguous",
        "clone",
        "alias",
        "view_as",
        "reshape_as",
        "lift_fresh",
        "expand",
        "positive",
        "type_as",
    ]
)
_COPIES = frozenset(["lift_fresh_copy", "detach"])
_EMPTY_MAKERS = frozenset(["new_empty", "empty_like", "empty", "new_ones", "ones_like", "new_full"])
_DRAWS = frozenset(["bernoulli", "rand", "rand_like", "randn", "randn_like", "uniform", "normal"])
_ZERO_MAKERS = frozenset(["zeros", "zeros_like", "new_zeros"])
_TURNS = frozenset(["t", "transpose", "numpy_T", "permute", "swapaxes", "mT", "adjoint", "T"])
_SIMPLE = {"addition": ("add", "__iadd__"), "subtraction": ("sub",), "multiplication": ("mul",), "division": ("div",)}
_OPERATIONS = {name: kind for kind, names in _SIMPLE.items() for name in names}
_DROPOUTS = frozenset(["dropout", "native_dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"])


def _bound(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else float(value)


class _Reader:
    """Reads the nodes of a trace one after another."""

    def __init__(self, module: torch.nn.Module, traced: Any) -> None:
        self.layers: list[Layer] = []
        self.output = INPUT
        self._traced = traced
        self._values: dict[Any, Any] = {}
        self._grad = True
        named = [*module.named_parameters(), *module.named_buffers()]
        self._names = {id(each): name for name, each in named}

    def read(self, node: Any) -> None:
        """Add the layer of a node, if it makes one."""
        if node.op == "placeholder":
            self._values[node] = INPUT
        elif node.op == "get_attr":
            held = getattr(self._traced, node.target)
            name = self._names.get(id(held))
            self._values[node] = _Weight(name, tuple(held.shape)) if name else held
        elif node.op == "output":
            found = node.args[0]
            while isinstance(found, tuple | list | dict):
                found = next(iter(found.values() if isinstance(found, dict) else found))
            self.output = self._layer(self._values.get(found))
        elif node.target is torch._C._set_grad_enabled:
            self._grad = bool(node.args[0])
        elif node.target is operator.getitem:
            self._values[node] = self._values.get(node.args[0])
        elif isinstance(node.target, torch._ops.OpOverload):
            self._values[node] = self._call(node)

    def _layer(self, value: Any) -> int:
        return value if isinstance(value, int) and not isinstance(value, bool) else INPUT

    def _call(self, node: Any) -> Any:
        name = node.target.overloadpacket.__name__
        name = name if name.startswith("__") else name.rstrip("_")
        arguments = self._arguments(node)
        flat = [each for value in arguments.values() for each in (value if isinstance(value, list) else [value])]
        places = [each for each in flat if isinstance(each, _Place)]
        if name in _ZERO_MAKERS or (name in ("full", "full_like") and arguments.get("fill_value") == 0):
            return _ZEROS
        if name in _DRAWS or (not places and _RANDOM in [each for each in flat if isinstance(each, str)]):
            return _RANDOM
        if name in _EMPTY_MAKERS:
            return None
        if not places and (name in _VIEWS or name in _COPIES) and flat and not isinstance(flat[0], _Weight):
            return flat[0]
        if not places:
            return self._of_weights(name, flat)
        meta = node.meta.get("val")
        tensor = next((each for each in meta if isinstance(each, Tensor)), None) if isinstance(meta, tuple) else meta
        if not isinstance(tensor, Tensor):
            return None
        shape = tuple(tensor.shape[1:])
        layer = Layer(name, tuple(each.at for each in places), shape)
        made = self._made(name, arguments, layer, node)
        if isinstance(made, int):
            return made
        self.layers.append(made or replace(layer, settings=_plain(arguments)))
        if not self._grad and tensor.is_floating_point():
            self.layers.append(Layer("stopped gradient", (len(self.layers) - 1,), shape))
        return len(self.layers) - 1

    def _arguments(self, node: Any) -> dict[str, Any]:
        """Arguments by the names of the schema: numbers, weights, and places of layers."""

        def known(value: Any) -> Any:
            if isinstance(value, torch.fx.Node):
                found = self._values.get(value)
                return _Place(found, value) if isinstance(found, int) and not isinstance(found, bool) else found
            return [known(each) for each in value] if isinstance(value, list | tuple) else value

        schema = node.target._schema.arguments
        given = dict(zip((each.name for each in schema), node.args, strict=False)) | dict(node.kwargs)
        return {each.name: known(given.get(each.name, each.default_value)) for each in schema}

    def _of_weights(self, name: str, flat: Sequence[Any]) -> Any:
        held = [each for each in flat if isinstance(each, _Weight)]
        if not held:
            return None
        weight = held[0]
        if name in _TURNS and len(weight.shape) == 2:
            return _Weight(weight.name, weight.shape[::-1], not weight.transposed)
        if (name in _VIEWS and len(held) == 1) or name in ("detach", "to", "_to_copy"):
            return weight
        return _Weight(f"{weight.name} (computed)", weight.shape)

    def _made(self, name: str, a: dict[str, Any], layer: Layer, node: Any) -> Layer | int | None:
        """The layer, or the place of the one whose output it is; ``None`` for one of no common kind."""
        if name in _VIEWS:
            return layer.inputs[0]
        if name in ("to", "_to_copy", "_autocast_to_full_precision", "_autocast_to_reduced_precision"):
            before = next(each for each in a.values() if isinstance(each, _Place)).node.meta["val"].dtype
            after = node.meta["val"].dtype
            if before in (after, torch.bool):
                return layer.inputs[0]
            return replace(layer, kind="cast", settings={"to": str(after).removeprefix("torch.")})
        if name in _ACTIVATIONS:
            weights = {"weight": a["weight"].name} if isinstance(a.get("weight"), _Weight) else {}
            return replace(layer, kind="activation", settings={"name": _ACTIVATIONS[name](a)}, weights=weights)
        if name in _DROPOUTS:
            return replace(layer, kind="dropout", settings={"ratio": float(a["p"]) if a["train"] else 0.0})
        if name == "detach":
            return replace(layer, kind="stopped gradient")
        if name in _OPERATIONS:
            return _combined(_OPERATIONS[name], a, layer)
        if name == "where":
            return self._selected(a, layer)
        if name == "sum":
            return self._sum(a, layer)
        for kinds, reads in _READERS:
            if name in kinds:
                return reads(name, a, layer)
        return None

    def _selected(self, a: dict[str, Any], layer: Layer) -> Layer | None:
        """``where`` of a value and zeros is the value times its condition."""
        asked = self.layers[layer.inputs[0]]
        if len(layer.inputs) == 2 and isinstance(a["condition"], _Place) and asked.kind == "is positive":
            return replace(layer, kind="multiplication") if _is_zero(a["other"]) else None
        if len(layer.inputs) != 2 or asked.kind != "is negative" or not _is_zero(a["self"]):
            return None
        self.layers.append(replace(asked, kind="is positive"))
        return replace(layer, kind="multiplication", inputs=(len(self.layers) - 1, layer.inputs[1]))

    def _sum(self, a: dict[str, Any], layer: Layer) -> Layer | None:
        """The sum of a stack is an addition, that of all pixels their mean times their number."""
        dims, before = a.get("dim"), self.layers[layer.inputs[0]] if layer.inputs[0] >= 0 else None
        if dims == [0] and before is not None and before.kind == "stack" and before.settings.get("dim") == 0:
            return replace(layer, kind="addition", inputs=before.inputs)
        pooled = _mean("mean", a, layer)
        if pooled is None:
            return None
        self.layers.append(pooled)
        count = math.prod(_shape_of(a["self"])[2:])
        return replace(layer, kind="scale", inputs=(len(self.layers) - 1,), settings={"by": constant_text(count, 1)})


@dataclass(frozen=True)
class _Place:
    """A layer among the arguments of a call."""

    at: int
    node: Any


def _is_zero(value: Any) -> bool:
    if isinstance(value, Tensor):
        return not bool(value.any())
    return value == _ZEROS if isinstance(value, str) else isinstance(value, int | float) and value == 0


def _compared(name: str, a: dict[str, Any], layer: Layer) -> Layer | None:
    zero = isinstance(a["self"], _Place) and _is_zero(a["other"])
    return gate(layer, name.startswith("l")) if zero else None


def _maximum(name: str, a: dict[str, Any], layer: Layer) -> Layer | None:
    zero = any(_is_zero(a.get(each)) for each in ("self", "other"))
    return replace(layer, kind="activation", settings={"name": "ReLU"}) if zero else None


def _shape_of(place: _Place) -> tuple[int, ...]:
    return tuple(place.node.meta["val"].shape)


def _weights(a: Mapping[str, Any], **roles: str) -> dict[str, str]:
    return {role: a[name].name for role, name in roles.items() if isinstance(a.get(name), _Weight)}


def _spread(value: Any, rank: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    return values * rank if len(values) == 1 else values


def _convolution(name: str, a: dict[str, Any], layer: Layer) -> Layer | None:
    weight = a["weight"]
    if not isinstance(weight, _Weight) or a.get("transposed"):
        return None
    rank = len(weight.shape) - 2
    kernel = tuple(weight.shape[2:])
    dilation, padding = _spread(a["dilation"], rank), a["padding"]
    if padding == "same":
        totals = [step * (size - 1) for step, size in zip(dilation, kernel, strict=True)]
        pads = symmetric([*(each // 2 for each in totals), *(each - each // 2 for each in totals)])
    else:
        pads = (0,) * rank if padding == "valid" else _spread(padding, rank)
    settings = {
        "kernel": kernel,
        "stride": _spread(a["stride"], rank),
        "padding": pads,
        "dilation": dilation,
        "groups": a["groups"],
        "channels": weight.shape[0],
        "inputs": weight.shape[1] * a["groups"],
        "bias": a["bias"] is not None,
    }
    return replace(layer, kind="convolution", settings=settings, weights=_weights(a, weight="weight", bias="bias"))


def _linear(name: str, a: dict[str, Any], layer: Layer) -> Layer | None:
    given = {"linear": "weight", "addmm": "mat2", "mm": "mat2", "matmul": "other"}[name]
    weight = a[given]
    if not isinstance(weight, _Weight) or len(weight.shape) != 2 or a.get("alpha", 1) != 1 or a.get("beta", 1) != 1:
        return None
    by_rows = name == "linear"
    outputs, inputs = weight.shape if by_rows else weight.shape[::-1]
    added = "self" if name == "addmm" else "bias"
    settings = {"channels": outputs, "inputs": inputs, "bias": a.get(added) is not None}
    weights = _weights(a, weight=given, **({"bias": added} if name in ("linear", "addmm") else {}))
    return replace(layer, kind="linear", settings=settings, weights=weights, transposed=by_rows == weight.transposed)


def _batch_norm(name: str, a: dict[str, Any], layer: Layer) -> Layer:
    settings: dict[str, Any] = {
        "name": "batch normalisation",
        "epsilon": a["eps"],
        "momentum": "of a cumulative average" if a["momentum"] == _CUMULATIVE else a["momentum"],
        "affine": a["weight"] is not None,
        "statistics": a["running_mean"] is not None,
    }
    if not a["training"]:
        settings["in training"] = "running statistics"
    if a["running_mean"] is None:
        # A momentum without running statistics has no effect.
        del settings["momentum"]
    roles = {"weight": "weight", "bias": "bias", "mean": "running_mean", "variance": "running_var"}
    return replace(layer, kind="normalisation", settings=settings, weights=_weights(a, **roles))


def _other_norm(name: str, a: dict[str, Any], layer: Layer) -> Layer:
    title = f"{name.split('_', maxsplit=1)[0]} normalisation"
    title += f" ({a['num_groups']} groups)" if name == "group_norm" else ""
    settings = {"name": title, "epsilon": a["eps"], "affine": a["weight"] is not None}
    return replace(layer, kind="normalisation", settings=settings, weights=_weights(a, weight="weight", bias="bias"))


def _pool(name: str, a: dict[str, Any], layer: Layer) -> Layer | None:
    title = "max pooling" if "max" in name else "average pooling"
    rank = len(layer.shape) - 1
    place = next(each for each in a.values() if isinstance(each, _Place))
    if name.startswith("adaptive"):
        whole = set(layer.shape[1:]) == {1}
        before = _shape_of(place)[2:]
        even = all(size % part == 0 for size, part in zip(before, layer.shape[1:], strict=True))
        if whole:
            return replace(layer, kind="pooling", settings={"name": f"global {title}"})
        if not even:
            return None
        windows = tuple(size // part for size, part in zip(before, layer.shape[1:], strict=True))
        plain = {"kernel": windows, "stride": windows, "padding": (0,) * rank, "ceil": False}
        return replace(layer, kind="pooling", settings={"name": title, **plain})
    kernel = _spread(a["kernel_size"], rank)
    settings: dict[str, Any] = {
        "name": title,
        "kernel": kernel,
        "stride": _spread(a["stride"], rank) if a["stride"] else kernel,
        "padding": _spread(a["padding"], rank),
        "ceil": bool(a["ceil_mode"]),
    }
    if title == "average pooling" and any(settings["padding"]):
        settings["counts padding"] = bool(a["count_include_pad"])
    return replace(layer, kind="pooling", settings=settings)


def _mean(name: str, a: dict[str, Any], layer: Layer) -> Layer | None:
    place = next(each for each in a.values() if isinstance(each, _Place))
    rank, dims = len(_shape_of(place)), a.get("dim")
    dims = dims if isinstance(dims, list) else [dims]
    if rank < 3 or any(each is None for each in dims) or sorted(each % rank for each in dims) != list(range(2, rank)):
        return None
    title = "global average pooling" if name == "mean" else "global max pooling"
    return replace(layer, kind="pooling", settings={"name": title})


def _combined(kind: str, a: dict[str, Any], layer: Layer) -> Layer | None:
    first, second, alpha = a["self"], a["other"], a.get("alpha", 1)
    if len(layer.inputs) == 2:
        if kind == "division" and isinstance(first, _Place) and (found := _response(a, layer)) is not None:
            return found
        joins = {("addition", 1): "addition", ("addition", -1): "subtraction", ("subtraction", 1): "subtraction"}
        if kind in ("addition", "subtraction"):
            return replace(layer, kind=joins.get((kind, alpha), f"{kind} times {alpha}"))
        return replace(layer, kind=kind)
    other = second if isinstance(first, _Place) else first
    if alpha != 1 or (kind in ("subtraction", "division") and not isinstance(first, _Place)):
        return None
    if isinstance(other, str) and other == _RANDOM:
        return replace(layer, kind="random factor (stochastic depth)" if kind == "multiplication" else "noise")
    made = "shift" if kind in ("addition", "subtraction") else "scale"
    if isinstance(other, _Weight):
        settings = {"by": "a parameter", "size": math.prod(other.shape)}
        return replace(layer, kind=made, settings=settings, weights={_ROLE[made]: other.name})
    sense = {"addition": 1, "subtraction": -1, "multiplication": 1, "division": 0}[kind]
    value = other.detach().numpy() if isinstance(other, Tensor) else other if isinstance(other, int | float) else None
    return replace(layer, kind=made, settings={"by": constant_text(value, sense)})


_ROLE = {"shift": "bias", "scale": "weight"}


def _response(a: dict[str, Any], layer: Layer) -> Layer | None:
    """PyTorch's ``local_response_norm``: x / (k + alpha * mean of squares)^beta, as its steps in the trace."""
    node, found = a["other"].node, {}
    names: list[str] = []
    while isinstance(node, torch.fx.Node) and isinstance(node.target, torch._ops.OpOverload) and len(names) < 12:
        name = node.target.overloadpacket.__name__
        names.append(name)
        if name in ("pow", "add") or (name == "mul" and not isinstance(node.args[1], torch.fx.Node)):
            found[name] = node.args[1]
        elif name == "mul":
            break
        elif name.startswith("avg_pool"):
            found["size"] = node.args[1][0]
        node = node.args[0]
    if set(found) != {"pow", "add", "mul", "size"} or names[-1] != "mul" or node.args[0] is not node.args[1]:
        return None
    settings = {"alpha": found["mul"], "beta": found["pow"], "bias": float(found["add"]), "size": found["size"]}
    settings = {"name": "local response normalisation", **settings}
    return replace(layer, kind="normalisation", inputs=(a["self"].at,), settings=settings)


def _pad(name: str, a: dict[str, Any], layer: Layer) -> Layer | None:
    flat = a["padding"] if name.endswith("pad2d") else a["pad"]
    rank = len(layer.shape) + 1
    begins, ends = [0] * rank, [0] * rank
    for at in range(len(flat) // 2):
        begins[rank - 1 - at], ends[rank - 1 - at] = flat[2 * at], flat[2 * at + 1]
    mode = {"reflection_pad2d": "reflect", "replication_pad2d": "replicate"}.get(name) or a.get("mode", "constant")
    return padded(layer, [*begins, *ends], mode, float(a.get("value") or 0.0))


def _slice(name: str, a: dict[str, Any], layer: Layer) -> Layer | int | None:
    place, start, end = a["self"], a["start"] or 0, a["end"]
    before = _shape_of(place)
    axis = a["dim"] % len(before)
    end = before[axis] if end is None else end
    found = sliced(layer, before, [(axis, start, end, a["step"])])
    if start == 0 and end >= before[axis] and a["step"] == 1:
        return layer.inputs[0]
    return found


def _cat(name: str, a: dict[str, Any], layer: Layer) -> Layer:
    rank = len(layer.shape) + 1
    others = [each for each in a["tensors"] if not isinstance(each, _Place)]
    axis = a["dim"] % rank
    zeros = all(not bool(each.any()) if isinstance(each, Tensor) else each == _ZEROS for each in others)
    if len(layer.inputs) == 1 and others and axis == 1 and zeros:
        return replace(layer, kind="zero channels", settings={"channels": layer.shape[0]})
    return replace(layer, kind="concatenation", settings={"axis": axis})


_Read = Callable[[str, dict[str, Any], Layer], Layer | int | None]
_READERS: tuple[tuple[frozenset[str], _Read], ...] = tuple(
    (frozenset(names.split()), reads)
    for names, reads in (
        ("conv1d conv2d conv3d convolution _convolution", _convolution),
        ("linear addmm mm matmul", _linear),
        ("batch_norm", _batch_norm),
        ("group_norm layer_norm instance_norm", _other_norm),
        ("max_pool1d max_pool2d max_pool2d_with_indices avg_pool1d avg_pool2d", _pool),
        ("adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d", _pool),
        ("mean amax", _mean),
        ("gt ge lt le greater greater_equal less less_equal", _compared),
        ("maximum max", _maximum),
        ("pad constant_pad_nd reflection_pad2d replication_pad2d", _pad),
        ("slice", _slice),
        ("cat concat concatenate", _cat),
    )
)


def _plain(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that can be compared."""
    return {name: value for name, value in arguments.items() if isinstance(value, int | float | str)}
