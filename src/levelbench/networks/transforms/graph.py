"""A network in editable form: its nodes as a list, its arrays by name, the readers of each value, and its shapes.

A transform edits this and gets a network at the end; names, order and parameters are updated in one place. What a
subgraph reads from around it counts as read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper, version_converter

from levelbench.errors import DefinitionError, UnsupportedError, UsageError
from levelbench.networks.inspect import names_in, outer_reads, sort_nodes
from levelbench.networks.network import Network
from levelbench.networks.shapes import bind_inputs, infer_shapes
from levelbench.networks.transforms.transform import Arrays
from levelbench.networks.values import Parameter, Value, batch_axis, bound_shape, free_name, value_info
from levelbench.operators.node import OPSETS, OperatorNode

Array = NDArray[Any]


class EditableGraph:
    """An editable copy of a network."""

    def __init__(self, network: Network, parameters: Arrays | None = None) -> None:
        self.network = network
        self.model = network.copied()
        self.nodes: list[onnx.NodeProto] = list(self.model.graph.node)
        self.outputs = [each.name for each in self.model.graph.output]
        self.inputs = [each.name for each in network.inputs]
        self.roles = {each.name: each for each in network.parameters}
        self.initialisers = {each.name: each for each in self.model.graph.initializer}
        self.opset = network.opsets.get("", 1)
        self._values = None if parameters is None else dict(parameters)
        self._taken = names_in(self.model.graph)

    def free(self, name: str) -> str:
        """``name``, or a similar unused one; marks it as used."""
        return free_name(name, self._taken)

    def makers(self) -> dict[str, onnx.NodeProto]:
        """The node that makes each value."""
        return {name: node for node in self.nodes for name in node.output if name}

    def readers(self) -> dict[str, list[onnx.NodeProto]]:
        """The nodes that read each value, one entry per read, including reads of their subgraphs."""
        found: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in outer_reads(node):
                found.setdefault(name, []).append(node)
        return found

    def kept(self) -> set[str]:
        """The values that must keep their names: outputs, and those that replace a buffer."""
        return {*self.outputs, *self.network.updates.values()}

    def constant(self, name: str) -> Array | None:
        """The value of an initialiser that is not a parameter."""
        found = self.initialisers.get(name)
        return None if found is None or name in self.roles else numpy_helper.to_array(found)

    def array(self, name: str) -> Array | None:
        """The value of a parameter or any other initialiser."""
        if name not in self.roles:
            return self.constant(name)
        if self._values is not None:
            return np.asarray(self._values[name])
        role = self.roles[name]
        return role.initialise(0) if role.draw is not None else numpy_helper.to_array(self.initialisers[name])

    def shape_of(self, name: str) -> tuple[int, ...] | None:
        """The shape of a parameter or initialiser."""
        if name in self.roles:
            return self.roles[name].shape
        return tuple(self.initialisers[name].dims) if name in self.initialisers else None

    def store(self, array: Array, name: str) -> str:
        """Add an initialiser that is not a parameter; returns its name."""
        name = self.free(name)
        self.initialisers[name] = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        return name

    def store_parameter(self, array: Array, name: str, *, trainable: bool = True) -> str:
        """Add a parameter with these values; returns its name."""
        name = self.store(array, name)
        self.roles[name] = Parameter(name, array.shape, array.dtype.name, None, trainable)
        if self._values is not None:
            self._values[name] = array
        return name

    def retype(self, name: str, dtype: np.dtype[Any], cast: Callable[[Array], Array]) -> None:
        """Give a parameter or initialiser another dtype; ``cast`` converts the array."""
        if name in self.initialisers:
            array = cast(numpy_helper.to_array(self.initialisers[name]))
            self.initialisers[name] = numpy_helper.from_array(array, name)
        if name in self.roles:
            old = self.roles[name]
            self.roles[name] = Parameter(name, old.shape, dtype.name, old.draw, old.trainable)
            for each in self.model.graph.input:
                if each.name == name:
                    each.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(dtype)
            if self._values is not None:
                self._values[name] = cast(np.asarray(self._values[name]))

    def make(
        self, op_type: str, inputs: Iterable[str], output: str, *, domain: str = "", **attributes: Any
    ) -> onnx.NodeProto:
        """A node with one output, which is not added to the list yet."""
        return helper.make_node(op_type, list(inputs), [output], name=output, domain=domain, **attributes)

    def operator(self, node: onnx.NodeProto) -> OperatorNode:
        """The node with its attributes as Python values."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        return OperatorNode.from_proto(node, self.network.opsets.get(domain, 1) if domain else self.opset)

    def swap(self, old: Sequence[onnx.NodeProto], new: Iterable[onnx.NodeProto]) -> None:
        """Remove ``old`` and insert ``new`` in place of the last of them."""
        gone = {id(each) for each in old}
        at = max(place for place, each in enumerate(self.nodes) if id(each) in gone)
        self.nodes[at + 1 : at + 1] = new
        self.remove(old)

    def remove(self, nodes: Iterable[onnx.NodeProto]) -> None:
        """Remove these nodes."""
        gone = {id(each) for each in nodes}
        self.nodes = [each for each in self.nodes if id(each) not in gone]

    def drop_unread(self) -> list[str]:
        """Remove parameters and initialisers that nothing reads; returns their names."""
        read = set(self.readers()) | self.kept()
        gone = [name for name in dict.fromkeys((*self.roles, *self.initialisers)) if name not in read]
        for name in gone:
            self.roles.pop(name, None)
            self.initialisers.pop(name, None)
            if self._values is not None:
                self._values.pop(name, None)
        return gone

    def finish(self) -> tuple[Network, dict[str, Array] | None]:
        """The edited network, and values for all its parameters if some were given."""
        graph = self.model.graph
        nodes = [_copy(each) for each in self.nodes]
        initialisers = [_copy(each) for each in self.initialisers.values()]
        drawn = {each.name for each in self.network.parameters if each.draw is not None} - set(self.roles)
        for each in [each for each in graph.input if each.name in drawn]:
            graph.input.remove(each)
        # An initialiser may also be listed among the inputs, from which it must be removed too.
        foreign = {each.name for each in self.network.model.graph.initializer} - set(self.initialisers)
        for each in [each for each in graph.input if each.name in foreign]:
            graph.input.remove(each)
        del graph.node[:], graph.initializer[:]
        graph.node.extend(nodes)
        graph.initializer.extend(initialisers)
        given = [*(each.name for each in graph.input), *self.initialisers]
        given += [each.values.name for each in graph.sparse_initializer]
        asked = f"transforming {self.network.name}"
        sort_nodes(graph.node, list(dict.fromkeys(given)), self.outputs, asked)
        made = {name for node in graph.node for name in node.output}
        stale = [each for each in graph.value_info if each.name not in made]
        for each in stale:
            graph.value_info.remove(each)
        network = self.network.replace(model=self.model, parameters=tuple(self.roles.values()))
        return network, self._parameter_values()

    def _parameter_values(self) -> dict[str, Array] | None:
        if self._values is None:
            return None
        missing = [name for name in self.roles if name not in self._values]
        if missing:
            asked = f"the parameters of {self.network.name}"
            raise DefinitionError(asked, f"{missing[0]!r} is missing", "give all of them")
        return {name: self._values[name] for name in self.roles}


def _copy(message: Any) -> Any:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def known_values(network: Network) -> dict[str, Value]:
    """Every value whose dtype is known, by name; its shape may be ``None``, if unknown."""
    return {name: each for name, each in infer_shapes(network).items() if each.dtype}


def batch_axes(network: Network) -> dict[str, int]:
    """The batch axes of inputs with an open batch: the axis called ``batch``, else an open first axis.

    ``UsageError`` for an input with two axes called ``batch``.
    """
    axes = {each.name: batch_axis(each, network.sizes) for each in network.inputs}
    for value in network.inputs:
        if (value.shape or ()).count("batch") > 1:
            raise UsageError(f"the batch of input {value.name!r}", "it is on two axes", "give the model fixed sizes")
    return {name: axis for name, axis in axes.items() if axis is not None}


def bind(network: Network, batch: int, sizes: Mapping[str, int] | None = None) -> Network:
    """The network for one batch size, with all open sizes of inputs filled in and all other shapes inferred again."""
    if batch < 1:
        raise UsageError(f"a batch of {batch}", "it has no samples", "give 1 or more")
    known = {**network.sizes, **(sizes or {})}
    for each in network.inputs:
        bound_shape(each, batch, known)
    model = network.copied()
    names = bind_inputs(model.graph, network, {**known, "batch": batch})
    return reshaped(network.replace(model=model), names)


def reshaped(network: Network, names: Mapping[str, int]) -> Network:
    """The network with the shapes of its outputs inferred again; ``names`` are values of sizes in declarations."""
    graph = network.model.graph
    custom = {name for node in graph.node if node.domain not in ("", "ai.onnx") for name in node.output}
    kept = [_copy(each) for each in graph.value_info if each.name in custom]
    declared = [_copy(each) for each in graph.output]
    for each in (*kept, *declared):
        for dimension in each.type.tensor_type.shape.dim:
            if dimension.dim_param in names:
                dimension.dim_value = names[dimension.dim_param]
    del graph.value_info[:]
    graph.value_info.extend(kept)
    for each in graph.output:
        if each.type.HasField("tensor_type"):
            each.type.tensor_type.ClearField("shape")
    found = known_values(network)
    for each, before in zip(graph.output, declared, strict=True):
        value = found.get(each.name)
        each.CopyFrom(before if value is None or value.shape is None else value_info(value))
    return network.replace(model=network.model)


def raised(network: Network, opset: int) -> Network:
    """The network at ``opset`` of ONNX's own domain, converted by ONNX; unchanged if it already has that opset.

    ``UsageError`` for a lower or unimplemented opset, ``UnsupportedError`` if ONNX cannot convert it.
    """
    old = network.opsets.get("", 1)
    asked = f"opset {opset} for {network.name}"
    if opset == old:
        return network
    if opset < old or opset not in OPSETS:
        raise UsageError(asked, f"it has {old}, and the highest implemented is {OPSETS[-1]}", "give one in between")
    try:
        model = version_converter.convert_version(network.model, opset)
    except (RuntimeError, onnx.checker.ValidationError) as error:
        found = str(error).strip().splitlines()[0]
        raise UnsupportedError(asked, f"ONNX cannot convert it ({found})", "keep the opset") from None
    return network.replace(model=model)
