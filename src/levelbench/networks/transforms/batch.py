"""Changes the batch size: opens a fixed batch, fixes an open one, or gives it another size.

The batch is followed through the network, and sizes that depend on it (the target of a Reshape or Expand) are changed
accordingly. If a node depends on the old size in a way that cannot be changed, the error names it.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from levelbench.errors import DefinitionError, UsageError
from levelbench.networks.inspect import outer_reads
from levelbench.networks.network import Network
from levelbench.networks.transforms.batch_rules import FIXED, Carried, Carry, Independence, track
from levelbench.networks.transforms.folding import lifted
from levelbench.networks.transforms.graph import EditableGraph, batch_axes, known_values, reshaped
from levelbench.networks.transforms.transform import Arrays, Transform, Transformed
from levelbench.networks.values import Value, value_info

Size = int | str


class ChangeBatch(Transform):
    """Gives the network's inputs another batch: a number, or a name (``batch``) to leave it open.

    If the batch is fixed, it is the first axis of all inputs whose first size equals that of the first input.
    """

    name = "batch"
    summary = "fixes the batch size, changes a fixed one, or opens it"
    main = "size"

    def __init__(self, *, size: Size = "batch") -> None:
        number = int(size) if str(size).lstrip("-").isdigit() else None
        if number is not None and number < 1:
            raise UsageError(f"a batch of {size}", "it has no samples", "give 1 or more, or a name")
        self._size: Size = str(size) if number is None else number

    def apply(self, network: Network, parameters: Arrays | None = None) -> Transformed:
        """The network with that batch."""
        axes = batch_axes(network)
        open_sizes = [(each.shape or ())[axes[each.name]] for each in network.inputs if each.name in axes]
        old: Size = str(open_sizes[0] or "batch") if axes else _fixed_batch(network)
        if not axes:
            axes = {each.name: 0 for each in network.inputs if each.shape and each.shape[0] == old}
        if old == self._size:
            return Transformed(network, None if parameters is None else dict(parameters), self.name, ())
        graph = EditableGraph(lifted(network), parameters)
        baked = _rebake(graph, axes, old, self._size) if isinstance(old, int) else 0
        for each in graph.model.graph.input:
            if each.name in axes:
                value = next(value for value in network.inputs if value.name == each.name)
                shape = list(value.shape or ())
                shape[axes[each.name]] = self._size
                each.CopyFrom(value_info(Value(each.name, value.dtype, tuple(shape))))
        new, values = graph.finish()
        try:
            new = reshaped(new, {old: self._size} if isinstance(old, str) and isinstance(self._size, int) else {})
        except DefinitionError as error:
            raise DefinitionError(
                f"batch {self._size} for {network.name}", f"its shapes no longer fit ({error.found})", "keep its batch"
            ) from None
        _verify(network, new, old, self._size)
        words = f"changed the batch of {', '.join(axes)} from {old} to {self._size}"
        more = (f"changed {baked} shapes that contained it",) if baked else ()
        return Transformed(new, values, self.name, (words, *more))


def _fixed_batch(network: Network) -> int:
    for value in network.inputs:
        if value.shape and isinstance(value.shape[0], int):
            return value.shape[0]
    raise UsageError(f"the batch of {network.name}", "no input has a first axis of known size", "give it shapes")


def _rebake(graph: EditableGraph, axes: dict[str, int], old: int, new: Size) -> int:
    """Change the sizes in constant inputs that depend on the batch; returns how many."""
    network = graph.network
    values = known_values(network)
    shapes = {name: each.sizes for name, each in values.items()}
    reads = [tuple(dict.fromkeys(outer_reads(each))) for each in network.model.graph.node]
    inputs: dict[str, Carry] = {name: Carried(axis) for name, axis in axes.items()}
    tracked = track(network.nodes, reads, inputs, shapes, graph.constant, old)
    changed = 0
    for proto, kind in zip(graph.nodes, tracked.nodes, strict=True):
        if not isinstance(kind, Independence):
            continue
        for name, need in zip(proto.input, kind.needs, strict=True):
            # With a batch of 1, one row per sample looks like one row for all, which can be broadcast.
            if name and need is not None and tracked.values.get(name, FIXED) == FIXED and old > 1:
                raise _refusal(proto, f"{name!r} has one row for each of {old} samples")
        for at, entry, multiple in kind.baked:
            _rewrite(graph, proto, at, entry, multiple, new)
            changed += 1
    return changed


def _rewrite(graph: EditableGraph, proto: onnx.NodeProto, at: int, entry: int, multiple: int, new: Size) -> None:
    name = proto.input[at]
    value = graph.constant(name)
    assert value is not None
    value = value.copy()
    if isinstance(new, int):
        value[entry] = new * multiple
    elif proto.op_type == "Expand":
        value[entry] = 1
    elif -1 not in value:
        value[entry] = -1
    else:
        operator = graph.operator(proto)
        if multiple != 1 or entry != 0 or operator.get("allowzero", 0):
            raise _refusal(proto, f"its shape {value.tolist()} already has another open size")
        value[entry] = 0
    proto.input[at] = graph.store(value, f"{name}.batch")


def _verify(before: Network, after: Network, old: Size, new: Size) -> None:
    """Verify that each output with the batch on its first axis has the new one there."""
    for was, now in zip(before.outputs, after.outputs, strict=True):
        if not was.shape or was.shape[0] != old or now.shape is None:
            continue
        first = now.shape[0] if now.shape else None
        if (isinstance(new, int) and first not in (new, None)) or (isinstance(new, str) and first == old):
            producer = next((each for each in after.model.graph.node if was.name in each.output), None)
            found = f"output {was.name!r} has shape {now.shape}"
            if producer is None:
                raise DefinitionError(f"batch {new} for {before.name}", found, "keep its batch")
            raise _refusal(_culprit(after, old) or producer, found)


def _culprit(network: Network, old: Size) -> onnx.NodeProto | None:
    """The first Reshape whose constant target still begins with the old batch."""
    stored = {each.name: each for each in network.model.graph.initializer}
    for node in network.model.graph.node:
        if node.op_type in ("Reshape", "Expand") and node.input[1] in stored:
            target = np.ravel(numpy_helper.to_array(stored[node.input[1]]))
            if target.size and int(target[0]) == old:
                return node
    return None


def _refusal(node: onnx.NodeProto, why: str) -> DefinitionError:
    name = node.name or node.output[0]
    return DefinitionError(f"another batch for {node.op_type} {name!r}", why, "keep its batch, or change the model")
