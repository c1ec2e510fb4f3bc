"""A sampler inside a network, which then takes its own minibatches from arrays that it holds.

The columns of a split become buffers, and ONNX operators gather the rows of each step. So every framework runs it like
any other network, and a compiled step includes the gather (Ben-Nun et al. 2019, 4.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, DTypeLike, NDArray
from onnx import helper, numpy_helper

from levelbench.errors import DefinitionError
from levelbench.networks.edit import sort_and_check
from levelbench.networks.network import Network
from levelbench.networks.shapes import infer_shapes
from levelbench.networks.values import Parameter, Value, element_type, value_info
from levelbench.training.datasets.base import Normalisation, Split, rows_of
from levelbench.training.samplers import Epoch, Sampler

ORDER, BOUNDS, STEP = "sampler.order", "sampler.bounds", "sampler.step"
# A serialised protobuf message is limited to 2 GiB.
_MOST_BYTES = 2**31 - 2**24


def sampled(network: Network, split: Split, sampler: Sampler, *, normalisation: Normalisation | None = None) -> Network:
    """The network with the data inside: its inputs are the epoch's order (visits,) and the step's number ().

    ``network`` takes the columns of ``split`` in their order, labels last, as a network with a loss does. If all
    batches of an epoch have one size, every shape is static and the network can be compiled. Otherwise there is a third
    input between the two, the bounds of the batches (steps + 1,), and modes that need static shapes refuse it: use
    ``drop_last``.
    :func:`epoch_inputs` gives all inputs but the step. The columns are buffers ``data.NAME``, as stored; a first column
        of uint8 is normalised after its rows are gathered, as in a loader.

    :raises DefinitionError: when the network's inputs are not the split's columns, or they need 2 GiB or more.
    """
    columns = _columns(network, split)
    model = network.copied()
    nodes = _Nodes(model.graph)
    sizes = sampler.epoch(split, 0, 0).sizes
    even = bool((sizes == sizes[0]).all())
    indices = nodes.even_rows(int(sizes[0])) if even else nodes.uneven_rows()
    given = {each.name: each for each in model.graph.input}
    parameters = list(network.parameters)
    for value, column in zip(network.inputs, columns, strict=True):
        model.graph.input.remove(given[value.name])
        stored = f"data.{value.name}"
        model.graph.initializer.append(numpy_helper.from_array(column, stored))
        parameters.append(Parameter(stored, column.shape, column.dtype.name, None, trainable=False))
        rows = normalisation if value is network.inputs[0] and column.dtype == np.uint8 else None
        nodes.take(stored, indices, value, column.dtype.name, rows)
    shapes = [(ORDER, ("visits",)), *([] if even else [(BOUNDS, ("bounds",))]), (STEP, ())]
    model.graph.input.extend(value_info(Value(name, "int64", shape)) for name, shape in shapes)
    return _finish(network, model, nodes.made, parameters, len(split), len(sizes))


def epoch_inputs(network: Network, epoch: Epoch) -> tuple[NDArray[np.int64], ...]:
    """A sampled network's inputs throughout an epoch, in order; the step's number, int64 (), follows."""
    return (epoch.order, epoch.bounds) if len(network.inputs) == 3 else (epoch.order,)


def _columns(network: Network, split: Split) -> list[NDArray[Any]]:
    """The columns as arrays, checked to fit the network's inputs."""
    asked = f"sampling inside {network.name}"
    names = [each.name for each in network.inputs]
    if len(names) != len(split.columns):
        raise DefinitionError(
            asked,
            f"it takes {len(names)} inputs ({', '.join(names)}), and the split has {len(split.columns)} columns",
            "give a network with a loss, whose inputs are the columns",
        )
    columns = [rows_of(each, np.arange(len(split), dtype=np.int64)) for each in split.columns]
    if (size := sum(each.nbytes for each in columns)) >= _MOST_BYTES:
        raise DefinitionError(
            asked, f"the data has {size:,} bytes, and a model can hold {_MOST_BYTES:,}", "use a loader"
        )
    for value, column in zip(network.inputs, columns, strict=True):
        wanted = None if value.shape is None else value.shape[1:]
        if wanted is not None and (
            len(wanted) != column.ndim - 1
            or any(isinstance(a, int) and a != b for a, b in zip(wanted, column.shape[1:], strict=True))
        ):
            found = f"{value.name!r} is {value.shape}, and the data's rows are {column.shape[1:]}"
            raise DefinitionError(asked, found, "give data of the input's shape")
    return columns


class _Nodes:
    """The nodes that gather a step's rows, collected to go before the network's own."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph, self.made = graph, list[onnx.NodeProto]()

    def node(self, op_type: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self.made.append(helper.make_node(op_type, inputs, [output], name=output, **attributes))
        return output

    def constant(self, name: str, value: ArrayLike, dtype: DTypeLike = np.int64) -> str:
        self._graph.initializer.append(numpy_helper.from_array(np.asarray(value, dtype), f"sampler.{name}"))
        return f"sampler.{name}"

    def even_rows(self, batch: int) -> str:
        """The indices of a step if all batches have the same size: shape (batch,)."""
        first = self.node("Mul", [STEP, self.constant("batch", batch)], "sampler.first")
        places = self.node("Add", [first, self.constant("offsets", np.arange(batch))], "sampler.places")
        return self.node("Gather", [ORDER, places], "sampler.indices", axis=0)

    def uneven_rows(self) -> str:
        """The indices of a step between its two bounds."""
        one = self.constant("one", [1])
        at = self.node("Reshape", [STEP, one], "sampler.at")
        after = self.node("Add", [at, one], "sampler.after")
        ends = [self.node("Gather", [BOUNDS, each], f"{each}.bound", axis=0) for each in (at, after)]
        return self.node("Slice", [ORDER, *ends], "sampler.indices")

    def take(self, stored: str, indices: str, value: Value, dtype: str, normalisation: Normalisation | None) -> None:
        """Gather the rows of a column, under the name and in the dtype of the input that it replaces."""
        if dtype == value.dtype:
            self.node("Gather", [stored, indices], value.name, axis=0)
            return
        rows = self.node("Gather", [stored, indices], f"{value.name}.rows", axis=0)
        if normalisation is None:
            self.node("Cast", [rows], value.name, to=element_type(value.dtype))
            return
        cast = self.node("Cast", [rows], f"{value.name}.cast", to=element_type(value.dtype))
        shape = (1, -1, *([1] * (len(value.shape or ()) - 2))) if len(normalisation.mean) > 1 else (-1,)
        highest = np.float64(normalisation.highest)
        # The loader's constants, subtracted and multiplied in its order, for the same bits.
        shift = (np.array(normalisation.mean) * highest).reshape(shape)
        scale = (1 / (np.array(normalisation.std) * highest)).reshape(shape)
        centred = self.node("Sub", [cast, self.constant("shift", shift, value.dtype)], f"{value.name}.centred")
        self.node("Mul", [centred, self.constant("scale", scale, value.dtype)], value.name)


def _finish(
    network: Network,
    model: onnx.ModelProto,
    made: Sequence[onnx.NodeProto],
    parameters: Sequence[Parameter],
    examples: int,
    steps: int,
) -> Network:
    """The finished network, with its nodes sorted and checked by ONNX."""
    graph = model.graph
    nodes = [*made, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    sort_and_check(model, f"sampling inside {network.name}", "give other data, or use a loader")
    given = {each.name for each in (*graph.input, *graph.initializer)}
    fills = {name: high for name, high in network.fills.items() if name in given}
    edited = network.replace(
        model=model, parameters=parameters, fills={**fills, ORDER: examples, STEP: steps}, sizes=dict(network.sizes)
    )
    infer_shapes(edited)
    return edited
