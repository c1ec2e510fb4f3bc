"""Reads the layers of a network from its ONNX graph, of any opset; a framework reads those of its own models.

:mod:`levelbench.networks.probes.simplify` brings different ways of writing the same into one form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from levelbench.networks.network import Network
from levelbench.networks.shapes import infer_shapes
from levelbench.networks.transforms.folding import FoldConstants
from levelbench.operators.node import OperatorNode
from levelbench.operators.program import constants_of


def network_layers(network: Network) -> LayerGraph:
    """The layers of a network's first output. Raises the errors of ``infer_shapes``."""
    folded = FoldConstants().apply(network.for_inference).network
    reader = _Reader(folded)
    for node in folded.nodes:
        reader.read(node)
    inputs = [each for each in folded.inputs if each.shape]
    first = reader.shape(inputs[0].name) if inputs else ()
    sizes = {each.name: each.size for each in network.parameters if each.trainable}
    output = reader.places.get(folded.outputs[0].name, INPUT)
    return LayerGraph(tuple(reader.layers), output, first, sizes)


_ACTIVATIONS: dict[str, Callable[[OperatorNode], str]] = {
    "Relu": lambda _: "ReLU",
    "LeakyRelu": lambda node: f"leaky ReLU (slope {slope:.4g})" if (slope := node.get("alpha", 0.01)) else "ReLU",
    "PRelu": lambda _: "PReLU",
    "Elu": lambda node: "ELU" if node.get("alpha", 1.0) == 1 else f"ELU (alpha {node.get('alpha'):.4g})",
    "Celu": lambda node: "CELU" if node.get("alpha", 1.0) == 1 else f"CELU (alpha {node.get('alpha'):.4g})",
    "Selu": lambda _: "SELU",
    "Sigmoid": lambda _: "sigmoid",
    "Tanh": lambda _: "tanh",
    "HardSwish": lambda _: "hard swish",
    "HardSigmoid": lambda _: "hard sigmoid",
    "Softplus": lambda _: "softplus",
    "Mish": lambda _: "Mish",
    "Swish": lambda node: "SiLU" if node.get("alpha", 1.0) == 1 else f"Swish (alpha {node.get('alpha'):.4g})",
    "Gelu": lambda node: "GELU (tanh)" if node.get("approximate", b"none") in (b"tanh", "tanh") else "GELU",
    "Softmax": lambda _: "softmax",
    "LogSoftmax": lambda _: "log-softmax",
}
_VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Cast", "CastLike"})
_POOLS = {
    "MaxPool": "max pooling",
    "AveragePool": "average pooling",
    "GlobalMaxPool": "global max pooling",
    "GlobalAveragePool": "global average pooling",
    "ReduceMean": "global average pooling",
    "ReduceMax": "global max pooling",
}

_NORMALISATIONS: dict[str, Callable[[OperatorNode], str]] = {
    "InstanceNormalization": lambda _: "instance normalisation",
    "LayerNormalization": lambda _: "layer normalisation",
    "GroupNormalization": lambda node: f"group normalisation ({node.get('num_groups')} groups)",
}
_ARITHMETIC = {
    "Add": ("addition", "shift", 1),
    "Sum": ("addition", "shift", 1),
    "Sub": ("subtraction", "shift", -1),
    "Mul": ("multiplication", "scale", 1),
    "Div": ("division", "scale", 0),
}
"""The kind of layer for two values, and for a value and a constant with the constant's ``sense``."""


class _Reader:
    """Reads nodes one after another; ``places`` are the layers that make values."""

    def __init__(self, network: Network) -> None:
        self.layers: list[Layer] = []
        self.places = {each.name: INPUT for each in network.inputs}
        self._values = infer_shapes(network, {"batch": 1})
        self._constants = constants_of(network.model.graph)
        self._zeros: set[str] = set()
        self._arrays = {each.name: (each.name, False) for each in network.parameters}
        self._shapes = {each.name: each.shape for each in network.parameters}

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of one sample of a value."""
        value = self._values.get(name)
        return tuple(each if isinstance(each, int) else 0 for each in (value.shape if value else None) or (0,))[1:]

    def read(self, node: OperatorNode) -> None:
        """Add the layer of a node, or take its output for its input."""
        if not node.outputs or node.outputs[0] in self._constants:
            return
        places = [self.places[name] for name in node.inputs if name in self.places]
        if node.op_type == "ConstantOfShape" and not np.any(node.get("value", 0)):
            self._zeros.add(node.outputs[0])
            return
        if not places:
            self._read_weight(node)
            return
        if node.op_type in _VIEWS or (node.op_type == "Dropout" and not node.domain and self._ratio(node) == 0):
            self.places[node.outputs[0]] = places[0]
            return
        layer = Layer(node.title, tuple(places), self.shape(node.outputs[0]))
        made = self._made(node, layer) if not node.domain else None
        self.layers.append(made or replace(layer, settings=_plain(node)))
        for name in node.outputs:
            self.places[name] = len(self.layers) - 1

    def _made(self, node: OperatorNode, layer: Layer) -> Layer | None:
        kind = node.op_type
        if kind in _ACTIVATIONS:
            weights = self._named(node, ("", "weight"))
            return replace(layer, kind="activation", settings={"name": _ACTIVATIONS[kind](node)}, weights=weights)
        if kind in _POOLS:
            return self._pool(node, layer)
        if kind in _NORMALISATIONS:
            settings = {"name": _NORMALISATIONS[kind](node), "epsilon": _short(node.get("epsilon", 1e-5))}
            weights = self._named(node, ("", "weight", "bias"))
            return replace(layer, kind="normalisation", settings={**settings, "affine": True}, weights=weights)
        if kind in _ARITHMETIC:
            return self._arithmetic(node, layer)
        reads = getattr(self, f"_{kind.lower()}", None)
        found: Layer | None = reads(node, layer) if reads else None
        return found

    def _read_weight(self, node: OperatorNode) -> None:
        """An operation on parameters alone: a transposition, or something that is computed in each call."""
        held = [self._arrays[name] for name in node.inputs if name in self._arrays]
        if not held:
            return
        name, transposed = held[0]
        turned = node.op_type == "Transpose" and list(node.get("perm") or (1, 0)) == [1, 0]
        alike = len(held) == 1 and (turned or node.op_type in ("Identity", "Cast"))
        self._arrays[node.outputs[0]] = (name, transposed != turned) if alike else (f"{name} (computed)", False)
        self._shapes[node.outputs[0]] = tuple(reversed(self._shapes[node.inputs[0]])) if turned else ()

    def _named(self, node: OperatorNode, roles: Sequence[str]) -> dict[str, str]:
        pairs = zip(node.inputs, roles, strict=False)
        return {role: self._arrays.get(name, (name, False))[0] for name, role in pairs if name and role}

    def _value(self, node: OperatorNode, at: int, attribute: str = "") -> NDArray[Any] | None:
        """What is known of an input, or in older opsets of an attribute."""
        if attribute and attribute in node.attributes:
            return np.asarray(node.attributes[attribute])
        name = node.inputs[at] if at < len(node.inputs) else ""
        return self._constants.get(name)

    def _ratio(self, node: OperatorNode) -> float:
        value = self._value(node, 1, "ratio")
        return 0.5 if value is None else float(value)

    def _conv(self, node: OperatorNode, layer: Layer) -> Layer:
        weight = self._shape_of(node.inputs[1])
        kernel = tuple(weight[2:])
        rank = len(kernel)
        settings = {
            "kernel": kernel,
            "stride": tuple(node.get("strides") or (1,) * rank),
            "padding": self._pads(node, kernel),
            "dilation": tuple(node.get("dilations") or (1,) * rank),
            "groups": node.get("group", 1),
            "channels": weight[0],
            "inputs": weight[1] * node.get("group", 1),
            "bias": len(node.inputs) > 2 and bool(node.inputs[2]),
        }
        return replace(layer, kind="convolution", settings=settings, weights=self._named(node, ("", "weight", "bias")))

    def _shape_of(self, name: str) -> tuple[int, ...]:
        if name in self._constants:
            return tuple(self._constants[name].shape)
        if self._shapes.get(name):
            return tuple(self._shapes[name])
        return tuple((self._values[name].sizes if name in self._values else None) or (0, 0))

    def _pads(self, node: OperatorNode, kernel: tuple[int, ...]) -> tuple[int, ...]:
        auto = node.get("auto_pad") or "NOTSET"
        auto = auto.decode() if isinstance(auto, bytes) else auto
        if not auto.startswith("SAME"):
            return symmetric(list(node.get("pads") or (0,) * (2 * len(kernel))))
        strides = node.get("strides") or (1,) * len(kernel)
        sizes = self.shape(node.inputs[0])[1:]
        total = [
            max((math.ceil(size / step) - 1) * step + width - size, 0)
            for size, step, width in zip(sizes, strides, kernel, strict=True)
        ]
        less, more = [each // 2 for each in total], [each - each // 2 for each in total]
        return symmetric([*less, *more] if auto == "SAME_UPPER" else [*more, *less])

    def _gemm(self, node: OperatorNode, layer: Layer) -> Layer | None:
        if node.inputs[0] not in self.places or node.inputs[1] in self.places or node.get("transA", 0):
            return None
        return self._product(node, layer, bool(node.get("transB", 0)))

    def _matmul(self, node: OperatorNode, layer: Layer) -> Layer | None:
        if node.inputs[1] in self.places or len(self._shape_of(node.inputs[1])) != 2:
            return None
        return self._product(node, layer, False)

    def _product(self, node: OperatorNode, layer: Layer, by_rows: bool) -> Layer:
        shape = self._shape_of(node.inputs[1])
        turned = self._arrays.get(node.inputs[1], ("", False))[1]
        outputs, inputs = shape if by_rows else (shape[1], shape[0])
        settings = {"channels": outputs, "inputs": inputs, "bias": len(node.inputs) > 2 and bool(node.inputs[2])}
        weights = self._named(node, ("", "weight", "bias"))
        return replace(layer, kind="linear", settings=settings, weights=weights, transposed=by_rows == turned)

    def _batchnormalization(self, node: OperatorNode, layer: Layer) -> Layer:
        settings = {
            "name": "batch normalisation",
            "epsilon": _short(node.get("epsilon", 1e-5)),
            "momentum": _short(1 - node.get("momentum", 0.9)),
            "affine": True,
            "statistics": True,
        }
        roles = ("", "weight", "bias", "mean", "variance")
        return replace(layer, kind="normalisation", settings=settings, weights=self._named(node, roles))

    def _lrn(self, node: OperatorNode, layer: Layer) -> Layer:
        of = {each: _short(node[each]) for each in ("alpha", "beta", "bias", "size")}
        return replace(layer, kind="normalisation", settings={"name": "local response normalisation", **of})

    def _clip(self, node: OperatorNode, layer: Layer) -> Layer:
        low, high = self._value(node, 1, "min"), self._value(node, 2, "max")
        name = clip_name(-math.inf if low is None else float(low), math.inf if high is None else float(high))
        return replace(layer, kind="activation", settings={"name": name})

    def _greater(self, node: OperatorNode, layer: Layer) -> Layer | None:
        compared = layer.inputs and node.inputs[0] in self.places and self._is_zero(node.inputs[1])
        return gate(layer, node.op_type.startswith("Less")) if compared else None

    _less = _greaterorequal = _lessorequal = _greater

    def _max(self, node: OperatorNode, layer: Layer) -> Layer | None:
        zero = len(node.inputs) == 2 and any(self._is_zero(each) for each in node.inputs)
        return replace(layer, kind="activation", settings={"name": "ReLU"}) if zero else None

    def _where(self, node: OperatorNode, layer: Layer) -> Layer | None:
        """``Where`` of a value and zeros is the value times its condition."""
        asked = self.layers[layer.inputs[0]] if layer.inputs[0] >= 0 else layer
        zero = {"is positive": 2, "is negative": 1}.get(asked.kind, 0)
        if not zero or len(layer.inputs) != 2 or not self._is_zero(node.inputs[zero]):
            return None
        self.layers.append(replace(asked, kind="is positive"))
        return replace(layer, kind="multiplication", inputs=(len(self.layers) - 1, layer.inputs[1]))

    def _is_zero(self, name: str) -> bool:
        return name in self._zeros or (name in self._constants and not self._constants[name].any())

    def _dropout(self, node: OperatorNode, layer: Layer) -> Layer:
        return replace(layer, kind="dropout", settings={"ratio": _short(self._ratio(node))})

    def _pool(self, node: OperatorNode, layer: Layer) -> Layer | None:
        name, shape = _POOLS[node.op_type], self.shape(node.inputs[0])
        if node.op_type.startswith("Reduce"):
            axes = self._value(node, 1, "axes")
            rank = len(shape) + 1
            if axes is None or sorted(int(each) % rank for each in np.ravel(axes)) != list(range(2, rank)):
                return None
        if name.startswith("global"):
            return replace(layer, kind="pooling", settings={"name": name})
        kernel = tuple(node["kernel_shape"])
        pads = self._pads(node, kernel)
        settings = {
            "name": name,
            "kernel": kernel,
            "stride": tuple(node.get("strides") or (1,) * len(kernel)),
            "padding": pads,
            "ceil": bool(node.get("ceil_mode", 0)),
        }
        if name == "average pooling" and any(pads):
            settings["counts padding"] = bool(node.get("count_include_pad", 0))
        return replace(layer, kind="pooling", settings=settings)

    def _arithmetic(self, node: OperatorNode, layer: Layer) -> Layer | None:
        of_values, with_constant, sense = _ARITHMETIC[node.op_type]
        if len(layer.inputs) > 1:
            return replace(layer, kind=of_values)
        # A constant minus, or divided by, a value is neither a shift nor a scale.
        if sense != 1 and node.inputs[0] not in self.places:
            return None
        return self._with_constant(node, layer, with_constant, sense)

    def _with_constant(self, node: OperatorNode, layer: Layer, kind: str, sense: int) -> Layer:
        """A shift or a scale; ``sense`` is 1, -1 for the negative and 0 for the reciprocal."""
        other = next(name for name in node.inputs if name not in self.places)
        if other in self._arrays:
            name = self._arrays[other][0]
            settings = {"by": "a parameter", "size": math.prod(self._shape_of(other))}
            return replace(layer, kind=kind, settings=settings, weights={"bias" if kind == "shift" else "weight": name})
        return replace(layer, kind=kind, settings={"by": constant_text(self._constants.get(other), sense)})

    def _concat(self, node: OperatorNode, layer: Layer) -> Layer:
        others = [self._constants.get(name) for name in node.inputs if name not in self.places]
        channels = node.get("axis", 1) in (1, 1 - len(layer.shape) - 1)
        if len(layer.inputs) == 1 and channels and all(each is not None and not np.any(each) for each in others):
            return replace(layer, kind="zero channels", settings={"channels": layer.shape[0]})
        return replace(layer, kind="concatenation", settings={"axis": node.get("axis", 1) % (len(layer.shape) + 1)})

    def _pad(self, node: OperatorNode, layer: Layer) -> Layer | None:
        pads = self._value(node, 1, "pads")
        if pads is None:
            return None
        mode = node.get("mode", "constant")
        value = self._value(node, 2, "value")
        constant = 0.0 if value is None else float(value)
        return padded(layer, [int(each) for each in pads], mode if isinstance(mode, str) else mode.decode(), constant)

    def _slice(self, node: OperatorNode, layer: Layer) -> Layer | None:
        starts, ends = self._value(node, 1, "starts"), self._value(node, 2, "ends")
        if starts is None or ends is None:
            return None
        axes, steps = self._value(node, 3, "axes"), self._value(node, 4)
        before = (1, *self.shape(node.inputs[0]))
        parts = zip(
            range(len(starts)) if axes is None else axes,
            starts,
            ends,
            [1] * len(starts) if steps is None else steps,
            strict=True,
        )
        return sliced(layer, before, [tuple(int(each) for each in part) for part in parts])


def _short(value: float) -> float:
    """ONNX keeps attributes in float32: the number that was meant."""
    return float(f"{float(value):.6g}")


def _plain(node: OperatorNode) -> dict[str, Any]:
    """The attributes of a node that can be compared."""
    return {name: value for name, value in node.attributes.items() if isinstance(value, int | float | str | list)}
