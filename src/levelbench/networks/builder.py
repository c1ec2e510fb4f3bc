"""Builds networks: node by node, or as a chain of common layers.

The builders only write ONNX, so a built network is the same as a loaded one. The weights of a chain are initialised
following He et al. 2015 (equation 10, fan-in) for layers followed by a ReLU, and with variance 1/fan-in for the last;
biases are zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from levelbench.errors import DefinitionError, UnknownNameError
from levelbench.networks.network import Network
from levelbench.networks.values import Draw, Parameter, Value, dtype_of, free_name, value_info
from levelbench.operators.node import DEFAULT_OPSET, IR_VERSION, OperatorNode, operator_node


class GraphBuilder:
    """Collects inputs, parameters, constants and nodes; :meth:`build` checks them and makes the network."""

    def __init__(self, name: str, *, opset: int = DEFAULT_OPSET) -> None:
        self._name, self._opset = name, opset
        self._graph = onnx.GraphProto(name=name)
        self._parameters: list[Parameter] = []
        self._fills: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        self._updates: dict[str, str] = {}
        self._constants: dict[tuple[Any, ...], str] = {}
        self._declared: dict[str, Value] = {}
        self._outputs: list[tuple[str, str]] = []
        self._scopes: list[str] = []
        self._taken: set[str] = set()

    def input(self, name: str, shape: Sequence[int | str], dtype: str = "float32", *, high: int | None = None) -> str:
        """An input of the network; ``high`` is the exclusive upper bound of an integer one (a vocabulary)."""
        self._take(name)
        self._graph.input.append(value_info(Value(name, dtype, tuple(shape))))
        if high is not None:
            self._fills[name] = high
        return name

    def size(self, name: str, value: int) -> None:
        """The default value of a symbolic size."""
        self._sizes[name] = value

    def parameter(
        self, name: str, shape: Sequence[int], draw: Draw, *, dtype: str = "float32", trainable: bool = True
    ) -> str:
        """A parameter under ``scopes.name``; its full name."""
        full = self._scoped(name)
        self._take(full)
        parameter = Parameter(full, tuple(int(each) for each in shape), dtype, draw, trainable)
        if any(each < 0 for each in parameter.shape):
            raise DefinitionError(f"parameter {full!r} of {self._name}", f"its shape is {parameter.shape}", "0 or more")
        self._parameters.append(parameter)
        return full

    def constant(self, value: Any, dtype: str | None = None) -> str:
        """An array that is not a parameter; equal ones are stored once. Python numbers become int64 and float32."""
        array = np.asarray(value, None if dtype is None else dtype_of(dtype))
        if dtype is None and not isinstance(value, np.ndarray | np.generic):
            array = array.astype({"f": np.float32, "i": np.int64}.get(array.dtype.kind, array.dtype))
        key = array.dtype.name, array.shape, array.tobytes()
        if key not in self._constants:
            name = free_name("constant", self._taken, 2)
            self._graph.initializer.append(
                numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
            )
            self._constants[key] = name
        return self._constants[key]

    def node(
        self,
        op_type: str,
        *inputs: str | None,
        outputs: int = 1,
        domain: str = "",
        name: str | None = None,
        shape: Sequence[int | str] | None = None,
        **attributes: Any,
    ) -> Any:
        """Add a node; returns the name of its output, or a tuple of ``outputs`` names if there are several.

        ``None`` is an omitted optional input. ``shape`` declares the float32 output of an operator that ONNX does not
        know. Raises ``UnknownNameError`` for an unknown input, operator or attribute, and ``UsageError`` for too few or
        too many inputs.
        """
        for each in inputs:
            if each and each not in self._taken:
                raise UnknownNameError(f"input of {op_type} in {self._name}", each, self._taken)
        base = free_name(self._scoped(name or op_type.lower()), self._taken, 2)
        made = [base] if outputs == 1 else [free_name(f"{base}.{at}", self._taken, 2) for at in range(outputs)]
        given = tuple(each or "" for each in inputs)
        if domain:
            node = OperatorNode(op_type, given, tuple(made), attributes, domain, self._opset)
        else:
            node = operator_node(op_type, given, made, opset=self._opset, **attributes)
        proto = node.to_proto()
        proto.name = base
        while proto.input and not proto.input[-1]:
            del proto.input[-1]
        self._graph.node.append(proto)
        if shape is not None:
            self._declared[made[0]] = Value(made[0], "float32", tuple(shape))
        return made[0] if outputs == 1 else tuple(made)

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Names made inside begin with ``name`` and a dot."""
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    def update(self, buffer: str, value: str) -> None:
        """``value`` replaces ``buffer`` after a training forward."""
        self._updates[buffer] = value

    def output(self, value: str, name: str | None = None) -> None:
        """``value`` is an output of the network, called ``name``."""
        self._outputs.append((value, name or value))

    def build(self) -> Network:
        """The network. Raises ``DefinitionError`` for what ONNX's checker or shape inference refuses."""
        if not self._outputs:
            raise DefinitionError(f"network {self._name!r}", "it has no output", "call output(value) at least once")
        graph = onnx.GraphProto()
        graph.CopyFrom(self._graph)
        _rename(graph, {old: new for old, new in self._outputs if old != new})
        graph.input.extend(value_info(Value(each.name, each.dtype, each.shape)) for each in self._parameters)
        renamed = dict(self._outputs)
        declared = {
            new: Value(new, each.dtype, each.shape)
            for new, each in ((renamed.get(name, name), each) for name, each in self._declared.items())
        }
        graph.output.extend(
            value_info(declared.pop(name)) if name in declared else onnx.ValueInfoProto(name=name)
            for _, name in self._outputs
        )
        domains = {"": self._opset, **dict.fromkeys(sorted({node.domain for node in graph.node} - {""}), 1)}
        imports = [helper.make_opsetid(domain, version) for domain, version in domains.items()]
        model = helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)
        _infer(model, declared, self._name)
        updates = {name: renamed.get(value, value) for name, value in self._updates.items()}
        return Network(model, self._parameters, fills=self._fills, sizes=self._sizes, updates=updates)

    def _scoped(self, name: str) -> str:
        return ".".join([*self._scopes, name])

    def _take(self, name: str) -> None:
        if not name or name in self._taken:
            raise DefinitionError(f"the name {name!r} in {self._name}", "it is taken or empty", "choose another")
        self._taken.add(name)


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for node in graph.node:
        for field in (node.input, node.output):
            for at, name in enumerate(field):
                if name in names:
                    field[at] = names[name]


def _infer(model: onnx.ModelProto, declared: Mapping[str, Value], name: str) -> None:
    """Fill in the types of outputs, and check the model."""
    model.graph.value_info.extend(value_info(each) for each in declared.values())
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        raise DefinitionError(f"network {name!r}", str(error).strip().splitlines()[-1], "correct it") from None
    known = {each.name: each for each in (*inferred.graph.value_info, *inferred.graph.output, *inferred.graph.input)}
    for each in model.graph.output:
        found = known.get(each.name)
        if found is None or not found.type.HasField("tensor_type"):
            raise DefinitionError(f"output {each.name!r} of {name}", "its type is unknown", "declare it: shape=...")
        each.CopyFrom(found)
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise DefinitionError(f"network {name!r}", str(error).strip().splitlines()[0], "correct it") from None


class Builder:
    """A chain of layers from ``input`` of shape (batch, ...) to ``output``."""

    def __init__(self, name: str, input_shape: tuple[int, ...]) -> None:
        self._name = name
        self._shape = tuple(input_shape)
        self._graph = GraphBuilder(name)
        self._value = self._graph.input("input", ("batch", *self._shape))
        self._layers = self._added = 0

    def gemm(self, width: int, *, gain: float = 2.0) -> Builder:
        """A fully connected layer of ``width`` outputs; ``gain`` over fan-in is the variance of its weights."""
        self._need_width(width)
        if len(self._shape) != 1:
            raise self._error("a fully connected layer", f"samples of shape {self._shape}", "call flatten() before it")
        (fan_in,) = self._shape
        weight, bias = self._weights((width, fan_in), math.sqrt(gain / fan_in))
        self._add("Gemm", weight, bias, transB=1)
        self._shape = (width,)
        return self

    def conv(self, channels: int, kernel: int, *, padding: int = 0, stride: int = 1, gain: float = 2.0) -> Builder:
        """A square two-dimensional convolution with bias; samples are of shape (channels, height, width)."""
        self._need_width(channels)
        self._need_image("a convolution")
        fan_in = self._shape[0] * kernel * kernel
        sizes = tuple(self._window(size + 2 * padding, kernel, stride) for size in self._shape[1:])
        weight, bias = self._weights((channels, self._shape[0], kernel, kernel), math.sqrt(gain / fan_in))
        self._add("Conv", weight, bias, kernel_shape=[kernel] * 2, pads=[padding] * 4, strides=[stride] * 2)
        self._shape = (channels, *sizes)
        return self

    def max_pool(self, kernel: int) -> Builder:
        """The maximum of disjoint ``kernel`` by ``kernel`` windows; a remainder at the border is dropped."""
        self._need_image("a pooling")
        sizes = tuple(self._window(size, kernel, kernel) for size in self._shape[1:])
        self._add("MaxPool", kernel_shape=[kernel] * 2, strides=[kernel] * 2)
        self._shape = (self._shape[0], *sizes)
        return self

    def relu(self) -> Builder:
        """max(x, 0)."""
        self._add("Relu")
        return self

    def affine(self, scale: float, shift: float = 0.0) -> Builder:
        """``scale * x + shift`` with fixed numbers, for outputs in the unit of their targets."""
        self._add("Mul", self._graph.constant(scale, "float32"))
        if shift:
            self._add("Add", self._graph.constant(shift, "float32"))
        return self

    def flatten(self) -> Builder:
        """All axes but the batch into one."""
        self._add("Flatten", axis=1)
        self._shape = (math.prod(self._shape),)
        return self

    def reshape(self, shape: tuple[int, ...]) -> Builder:
        """Samples of another shape with as many values."""
        if math.prod(shape) != math.prod(self._shape):
            raise self._error(f"samples of shape {shape}", f"they are of shape {self._shape}", "keep their size")
        self._add("Reshape", self._graph.constant([-1, *shape], "int64"))
        self._shape = tuple(shape)
        return self

    def operator(
        self,
        operator: str,
        weights: Sequence[tuple[tuple[int, ...], float]] = (),
        *,
        shape: tuple[int, ...] | None = None,
        domain: str = "",
        **attributes: Any,
    ) -> Builder:
        """Any operator with one input, ``weights`` as (shape, standard deviation), and one output.

        ``shape`` is that of an output sample (default: as the input). Custom operators have the ``domain``
        ``levelbench.custom``.
        """
        layer = f"{operator.lower()}{self._added}"
        names = [
            self._graph.parameter(f"{layer}.{at}", size, Draw("normal", std)) for at, (size, std) in enumerate(weights)
        ]
        self._shape = self._shape if shape is None else tuple(shape)
        declared = ("batch", *self._shape) if domain else None
        self._add(operator, *names, domain=domain, shape=declared, **attributes)
        return self

    def build(self) -> Network:
        """The network so far."""
        if not self._added:
            raise self._error("a network", "no layer", "add at least one")
        self._graph.output(self._value)
        return self._graph.build()

    def _add(self, operator: str, *parameters: str, **attributes: Any) -> None:
        name = f"{operator.lower()}{self._added}"
        self._value = self._graph.node(operator, self._value, *parameters, name=name, **attributes)
        self._added += 1

    def _weights(self, shape: tuple[int, ...], std: float) -> tuple[str, str]:
        with self._graph.scope(f"layer{self._layers}"):
            weight = self._graph.parameter("weight", shape, Draw("normal", std))
            bias = self._graph.parameter("bias", shape[:1], Draw("constant", 0.0))
        self._layers += 1
        return weight, bias

    def _window(self, size: int, kernel: int, stride: int) -> int:
        if min(kernel, stride) < 1 or size < kernel:
            raise self._error(f"a window of {kernel} with stride {stride}", f"only {size} to slide over", "shrink it")
        return (size - kernel) // stride + 1

    def _need_width(self, width: int) -> None:
        if width < 1:
            raise self._error(f"a layer of width {width}", "impossible width", "give 1 or more")

    def _need_image(self, what: str) -> None:
        if len(self._shape) != 3:
            raise self._error(what, f"samples of shape {self._shape}", "give samples as (channels, height, width)")

    def _error(self, asked: str, found: str, do: str) -> DefinitionError:
        return DefinitionError(f"{asked} in network {self._name!r}", found, do)
