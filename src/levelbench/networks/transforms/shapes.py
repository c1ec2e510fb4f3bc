"""Shapes of a network's values with its sizes bound, as the transforms need them.

The one idea: ONNX's inference needs the shapes of large arrays and not their values, so these stay behind.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from levelbench.errors import UsageError
from levelbench.networks.network import Network
from levelbench.networks.samples import bound_shape
from levelbench.networks.shapes import infer_shapes
from levelbench.networks.values import Value, value_info, value_of

__all__ = ["batch_axes", "bind", "known_values", "reshaped"]


def known_values(network: Network) -> dict[str, Value]:
    """Every value whose dtype is known, by name; a value of unknown shape has the shape ``None``."""
    return {name: each for name, each in infer_shapes(network).items() if each.dtype}


def batch_axes(network: Network) -> dict[str, int]:
    """Inputs whose batch is left open, and on which axis: the one called ``batch``, else an open first axis.

    ``UsageError`` for an input with two axes of that name.
    """
    found = {}
    for value in network.inputs:
        shape = value.shape or ()
        named = [at for at, size in enumerate(shape) if size == "batch"]
        if len(named) > 1:
            raise UsageError(f"the batch of input {value.name!r}", "it is on two axes", "give the model fixed sizes")
        if named:
            found[value.name] = named[0]
        elif shape and not isinstance(shape[0], int) and shape[0] not in network.sizes:
            found[value.name] = 0
    return found


def bind(network: Network, batch: int, sizes: Mapping[str, int] | None = None) -> Network:
    """The network for one batch size: all open sizes of inputs filled in, and all other shapes inferred anew."""
    if batch < 1:
        raise UsageError(f"a batch of {batch}", "that is no sample at all", "give 1 or more")
    known = {**network.sizes, **(sizes or {})}
    shapes = {each.name: bound_shape(each, batch, known) for each in network.inputs}
    dtypes = {each.name: each.dtype for each in network.inputs}
    model = network.copied()
    for each in model.graph.input:
        if each.name in shapes:
            each.CopyFrom(value_info(Value(each.name, dtypes[each.name], shapes[each.name])))
    return reshaped(network.replace(model=model), _named(network, batch, known))


def _named(network: Network, batch: int, known: Mapping[str, int]) -> dict[str, int]:
    names = {}
    for value in network.inputs:
        for axis, size in enumerate(value.shape or ()):
            if isinstance(size, str):
                names[size] = known[size] if size in known and (axis or size != "batch") else batch
    return names


def reshaped(network: Network, names: Mapping[str, int]) -> Network:
    """The network with the shapes of its outputs inferred anew; ``names`` are sizes that declared values spell out."""
    model = network.model
    custom = {name for node in model.graph.node if node.domain not in ("", "ai.onnx") for name in node.output}
    kept = []
    for each in model.graph.value_info:
        if each.name in custom:
            for dimension in each.type.tensor_type.shape.dim:
                if dimension.dim_param in names:
                    dimension.dim_value = names[dimension.dim_param]
            kept.append(onnx.ValueInfoProto.FromString(each.SerializeToString()))
    del model.graph.value_info[:]
    model.graph.value_info.extend(kept)
    declared = {each.name: value_of(each) for each in model.graph.output}
    for each in model.graph.output:
        if each.type.HasField("tensor_type"):
            each.type.tensor_type.ClearField("shape")
    found = known_values(network)
    for each in model.graph.output:
        value = found.get(each.name)
        if value is not None and value.shape is not None:
            each.CopyFrom(value_info(value))
        elif declared[each.name].dtype:
            each.CopyFrom(value_info(Value(each.name, declared[each.name].dtype, _filled(declared[each.name], names))))
    return network.replace(model=model)


def _filled(value: Value, names: Mapping[str, int]) -> tuple[int | str | None, ...] | None:
    if value.shape is None:
        return None
    return tuple(names.get(size, size) if isinstance(size, str) else size for size in value.shape)
