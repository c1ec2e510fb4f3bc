"""Runs a network, the part of it needed for some values, or one of its nodes, on NumPy arrays.

In all cases the framework gets a network and executes it as usual, so that what is judged is what a user would run. A
node run alone on the reference's values shows whether it is wrong itself or only got wrong inputs. A network without a
loss gets one: for fixed random d, the gradient of mean(d y) is the vector-Jacobian product with d.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from levelbench.checks.arrays import Host, is_float, unit_roundoff
from levelbench.errors import UnsupportedError
from levelbench.networks.codegen import Lowered, LoweredStep
from levelbench.networks.executor import Array, Backend
from levelbench.networks.inspect import needed_nodes, outer_reads
from levelbench.networks.losses import LossSplice
from levelbench.networks.network import Network, read_inputs
from levelbench.networks.values import Parameter, element_type
from levelbench.operators.contract import OperatorBackend
from levelbench.operators.frameworks import open_framework
from levelbench.operators.node import OperatorNode, structural

Arrays = Mapping[str, Host]


@dataclass(frozen=True)
class Runner:
    """A framework with its name and one of its modes (empty: its default)."""

    name: str
    backend: OperatorBackend
    mode: str = ""

    def outputs(self, network: Network, parameters: Arrays, inputs: Arrays) -> dict[str, Host]:
        """The network's outputs by name, except those that are not tensors."""
        return self._inference(network, parameters, inputs)()

    def twice(self, network: Network, parameters: Arrays, inputs: Arrays) -> tuple[dict[str, Host], bool]:
        """The outputs, and whether a second inference by the same executor gives the same bits."""
        infer = self._inference(network, parameters, inputs)
        first, second = infer(), infer()
        return first, all(each.tobytes() == second[name].tobytes() for name, each in first.items())

    def gradients(self, network: Network, parameters: Arrays, inputs: Arrays) -> dict[str, Host]:
        """The gradients of the trainable parameters by name."""
        backend = self.backend
        if not isinstance(backend, Backend):
            raise UnsupportedError(f"gradients on {self.name}", "it only infers", "use numpy, torch or jax")
        executor = backend.executor(network, parameters, mode=self.mode or None)
        given = [backend.array(inputs[each.name]) for each in network.inputs]
        _, found = executor.infer_and_backprop(*given)
        return {name: np.asarray(backend.host(each)) for name, each in found.items()}

    def eager(self) -> Runner:
        """The same in the mode that runs the network operator by operator, if it has one."""
        modes = self.backend.modes if isinstance(self.backend, Backend) else ()
        plain = next((each for each in ("eager", "unoptimised") if each in modes), self.mode)
        return Runner(self.name, self.backend, plain)

    def _inference(self, network: Network, parameters: Arrays, inputs: Arrays) -> Callable[[], dict[str, Host]]:
        backend, names = self.backend, [each.name for each in network.outputs]
        if isinstance(backend, Backend):
            executor = backend.executor(network, parameters, mode=self.mode or None, trains=False)
            read = [backend.array(inputs[name]) for name in read_inputs(network)]
            return lambda: self._hosted(names, executor.infer(*read))
        stored = network.stored(parameters).model
        program, given = backend.model(stored), [backend.array(inputs[each.name]) for each in network.inputs]
        return lambda: self._hosted([each.name for each in stored.graph.output], program(given))

    def _hosted(self, names: Sequence[str], values: Iterable[Array]) -> dict[str, Host]:
        found = {}
        for name, value in zip(names, values, strict=True):
            # Maps and sequences have no dtype in which they could be compared.
            with suppress(UnsupportedError):
                if value is not None and not isinstance(value, list):
                    found[name] = np.asarray(self.backend.host(value))
        return found


def noisy_outputs(network: Network, parameters: Arrays, inputs: Arrays, seed: int | None) -> dict[str, Host]:
    """The network's outputs on NumPy, with a rounding error of random sign in every floating-point value it makes.

    This is what a framework that sums in another order may differ by (Parker's Monte Carlo arithmetic, 1997). Whole
    numbers stay as they are, because what makes them is usually exact. ``None`` as the seed leaves out the noise.
    """
    lowered = Lowered(network, backend := open_framework("numpy", "cpu"))
    random = None if seed is None else np.random.default_rng(seed)

    def noisy(value: Any) -> Any:
        if random is None or not isinstance(value, np.ndarray) or not is_float(value.dtype):
            return value
        wide = value.astype(np.float64)
        with np.errstate(all="ignore"):
            moved = wide * (1 + unit_roundoff(value.dtype) * random.choice([-1.0, 1.0], value.shape))
            return np.where(wide == np.round(wide), wide, moved).astype(value.dtype)

    def wrapped(step: LoweredStep) -> LoweredStep:
        def call(*arguments: Any) -> Any:
            found = step.call(*arguments)
            return noisy(found) if step.bare else tuple(noisy(each) for each in found)

        return step if step.on_host else replace(step, call=call)

    function = lowered.composed([wrapped(each) for each in lowered.steps])
    values = function(
        *(backend.array(inputs[name]) for name in lowered.inputs),
        *(backend.array(parameters[name]) for name in lowered.arrays),
    )
    pairs = zip(lowered.outputs, values, strict=True)
    return {name: value for name, value in pairs if isinstance(value, np.ndarray)}


def part_of(network: Network, outputs: Sequence[str]) -> Network:
    """The part of the network that is needed for ``outputs`` (names of any values), with these as its outputs."""
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


@dataclass(frozen=True)
class Specimen:
    """A network with the parameters and inputs to run it on."""

    network: Network
    parameters: Arrays
    inputs: Arrays


def reads_of(network: Network, index: int) -> list[str]:
    """Names of the values of the top graph that a node and its subgraphs read."""
    return list(dict.fromkeys(outer_reads(network.model.graph.node[index])))


def node_alone(
    network: Network,
    index: int,
    values: Mapping[str, Host],
    *,
    outputs: Sequence[str] = (),
    differentiated: Sequence[str] = (),
) -> Specimen:
    """A network of only the node at ``index``, which reads ``values``.

    Structural inputs are stored, so that every framework knows them beforehand; those in ``differentiated`` are
    trainable parameters; the rest are inputs. ``outputs`` defaults to all outputs of the node.
    """
    proto = network.model.graph.node[index]
    domain = "" if proto.domain == "ai.onnx" else proto.domain
    fixed = structural(OperatorNode(proto.op_type, (), (), {}, domain))
    stored = {name for at, name in enumerate(proto.input) if at in fixed}
    graph = onnx.GraphProto(name=f"{network.name}, node {index}")
    graph.node.append(proto)
    inputs: dict[str, Host] = {}
    parameters: dict[str, Host] = {}
    for name in reads_of(network, index):
        value = np.asarray(values[name])
        if name in stored:
            graph.initializer.append(_tensor(value, name))
        elif name in differentiated:
            parameters[name] = value
            graph.initializer.append(_tensor(value, name))
        else:
            inputs[name] = value
            graph.input.append(helper.make_tensor_value_info(name, element_type(value.dtype.name), value.shape))
    wanted = outputs or [name for name in proto.output if name]
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
    model = onnx.ModelProto(ir_version=network.model.ir_version, graph=graph)
    model.opset_import.extend(network.model.opset_import)
    model.functions.extend(network.model.functions)
    roles = [Parameter(name, value.shape, value.dtype.name) for name, value in parameters.items()]
    return Specimen(Network(model, roles), parameters, inputs)


def _tensor(value: Host, name: str) -> onnx.TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name)


def with_probe(network: Network, outputs: Mapping[str, Host]) -> tuple[Network, dict[str, Host]]:
    """The network with the loss sum over outputs of mean(direction * output), and the directions as inputs.

    ``outputs`` are values of outputs by name, which give the directions their shapes and dtypes; outputs that are empty
    or not floating-point are left out. If none remains, the network is returned without a loss. Requires opset 13.
    """
    graph = LossSplice(network)
    directions: dict[str, Host] = {}
    terms = []
    for name, value in outputs.items():
        if not is_float(value.dtype) or not value.size:
            continue
        direction = graph.input(f"direction.{name}", value.dtype.name, value.shape)
        random = np.random.default_rng([0, zlib.crc32(name.encode())])
        directions[direction] = random.standard_normal(value.shape).astype(value.dtype)
        product = graph.node("Mul", [name, direction], "loss.product")
        term = graph.node("ReduceMean", [product], "loss.term", keepdims=0)
        if value.dtype != np.float32:
            term = graph.node("Cast", [term], "loss.float32", to=onnx.TensorProto.FLOAT)
        terms.append(term)
    if not terms:
        return network, {}
    graph.node("Sum", terms, graph.loss)
    return graph.network().replace(updates={}, in_training=False), directions
