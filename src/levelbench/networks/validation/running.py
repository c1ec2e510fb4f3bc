"""Runs a network, or the part of it that some values need, on a framework, with NumPy arrays in and out.

The one idea: whatever is asked, the framework gets a network and executes it as it always does, so what is judged is
what a user would run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from levelbench.networks.executor import Backend, Executor
from levelbench.networks.network import Network
from levelbench.operators.contract import OperatorBackend
from levelbench.operators.program import reads

__all__ = ["Arrays", "Runner", "needed_nodes", "part_of"]

Host = NDArray[Any]
Arrays = Mapping[str, Host]


@dataclass(frozen=True)
class Runner:
    """A framework under its name and in one of its modes (empty: its default)."""

    name: str
    backend: OperatorBackend
    mode: str = ""

    def outputs(self, network: Network, parameters: Arrays, inputs: Arrays) -> dict[str, Host]:
        """The network's outputs by name; those that are no tensors are left out."""
        backend = self.backend
        if isinstance(backend, Backend):
            executor = backend.executor(network, parameters, mode=self.mode or None, trains=False)
            return self._inferred(executor, network, inputs)
        model = network.stored(parameters).model
        found = backend.model(model)([backend.array(inputs[each.name]) for each in network.inputs])
        return self._hosted([each.name for each in model.graph.output], found)

    def twice(self, network: Network, parameters: Arrays, inputs: Arrays) -> tuple[dict[str, Host], bool]:
        """The outputs, and whether a second inference by the same executor gives the same bits."""
        backend = self.backend
        if not isinstance(backend, Backend):
            first, second = (self.outputs(network, parameters, inputs) for _ in range(2))
        else:
            executor = backend.executor(network, parameters, mode=self.mode or None, trains=False)
            first, second = (self._inferred(executor, network, inputs) for _ in range(2))
        return first, all(each.tobytes() == second[name].tobytes() for name, each in first.items())

    def gradients(self, network: Network, parameters: Arrays, inputs: Arrays) -> tuple[Host, dict[str, Host]]:
        """The loss, and the gradients of the trainable parameters by name."""
        backend = self.backend
        if not isinstance(backend, Backend):
            from levelbench.errors import UnsupportedError

            raise UnsupportedError(f"gradients on {self.name}", "it only infers", "use numpy, torch or jax")
        executor = backend.executor(network, parameters, mode=self.mode or None)
        given = [backend.array(inputs[each.name]) for each in network.inputs]
        loss, found = executor.infer_and_backprop(*given)
        return backend.host(loss), {name: np.asarray(backend.host(each)) for name, each in found.items()}

    def eager(self) -> Runner:
        """The same in the mode that changes least of what the network says: operator by operator, where it has one."""
        modes = self.backend.modes if isinstance(self.backend, Backend) else ()
        plain = next((each for each in ("eager", "unoptimised") if each in modes), self.mode)
        return Runner(self.name, self.backend, plain)

    def _inferred(self, executor: Executor, network: Network, inputs: Arrays) -> dict[str, Host]:
        names = [each.name for each in network.outputs]
        _, read = needed_nodes(network.model.graph, names)
        given = [self.backend.array(inputs[each.name]) for each in network.inputs if each.name in read]
        return self._hosted(names, executor.infer(*given))

    def _hosted(self, names: Sequence[str], values: Iterable[Any]) -> dict[str, Host]:
        return {
            name: np.asarray(self.backend.host(value))
            for name, value in zip(names, values, strict=True)
            if value is not None and not isinstance(value, list)
        }


def needed_nodes(graph: onnx.GraphProto, outputs: Iterable[str]) -> tuple[list[int], set[str]]:
    """The places of the nodes that ``outputs`` depend on, in order, and the names of all values on the way."""
    made = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
    found: set[int] = set()
    read: set[str] = set()
    wanted = list(outputs)
    while wanted:
        name = wanted.pop()
        if not name or name in read:
            continue
        read.add(name)
        at = made.get(name)
        if at is not None and at not in found:
            found.add(at)
            wanted.extend(reads(graph.node[at]))
    return sorted(found), read


def part_of(network: Network, outputs: Sequence[str]) -> Network:
    """The network without what ``outputs``, names of any of its values, do not need, and with these as its outputs."""
    old = network.model
    nodes, read = needed_nodes(old.graph, outputs)
    declared = {each.name: each for each in (*old.graph.output, *old.graph.value_info, *old.graph.input)}
    graph = onnx.GraphProto(name=old.graph.name)
    graph.node.extend(old.graph.node[at] for at in nodes)
    graph.input.extend(each for each in old.graph.input if each.name in read)
    graph.initializer.extend(each for each in old.graph.initializer if each.name in read)
    graph.sparse_initializer.extend(each for each in old.graph.sparse_initializer if each.values.name in read)
    graph.output.extend(declared.get(name) or onnx.ValueInfoProto(name=name) for name in outputs)
    model = onnx.ModelProto(ir_version=old.ir_version, graph=graph)
    model.opset_import.extend(old.opset_import)
    model.functions.extend(old.functions)
    kept = [each for each in network.parameters if each.name in read]
    return Network(model, kept, fills=network.fills, sizes=network.sizes)
