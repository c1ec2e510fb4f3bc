"""Lowers a network onto a framework's operators: one Python function that makes exactly the calls that it needs.

The function is written out, a line a node, so that running it costs what hand-written code would: no dictionary, no
dispatch, and each value is let go after its last use. It is pure, so that ``jax.jit`` and
``torch.compile`` can trace it. The text holds numbers for names, never anything that a model says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from levelbench.checks.arrays import Host
from levelbench.errors import DefinitionError
from levelbench.measure.clocks import Clock
from levelbench.networks.codegen import compose, host_nodes, structural_reads
from levelbench.networks.inspect import captured, needed_nodes
from levelbench.networks.network import Network
from levelbench.operators.contract import Array, OperatorBackend
from levelbench.operators.frameworks import open_framework
from levelbench.operators.node import OperatorNode
from levelbench.operators.program import Scope, constants_of, functions_of, has_body, imports_of, resolve, takes_values

Function = Callable[..., Any]
Chooser = Callable[[OperatorNode], Function | None]


@dataclass(frozen=True)
class LoweredStep:
    """A node as a call. ``inputs`` are names of values, the empty one for an input that is left out.

    ``bare``: the call answers with its one output itself and not with a tuple. ``on_host``: NumPy arrays in and out.
    ``host_inputs`` are positions that are given as NumPy arrays; ``captures`` the values around a subgraph, which are
    passed by name in a dictionary before the inputs.
    """

    index: int
    node: OperatorNode
    call: Function
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bare: bool = False
    on_host: bool = False
    host_inputs: frozenset[int] = frozenset()
    captures: tuple[str, ...] | None = None


class Lowered:
    """A network's outputs as a function of its inputs and arrays, on the operators of one backend."""

    inputs: tuple[str, ...]
    """The network's inputs that the outputs depend on, in the network's order."""
    arrays: tuple[str, ...]
    """The parameters and buffers that the outputs depend on, in the network's order."""
    steps: tuple[LoweredStep, ...]
    function: Callable[..., tuple[Array, ...]]
    """``function(*inputs, *arrays)``: a tuple of the outputs, native arrays all."""

    def __init__(
        self,
        network: Network,
        backend: OperatorBackend,
        *,
        outputs: Sequence[str] | None = None,
        call: Chooser | None = None,
        constant: Callable[[str, Host], Array] | None = None,
    ) -> None:
        """``outputs`` are names of any values (default: the network's outputs).

        ``call`` may answer for a node with a function that takes native arrays (NumPy's at structural positions) and
        returns the bare value of a node of one output, a tuple of several; ``None`` leaves it to the backend.
        ``constant`` makes the native array of a constant's name and value (default: the backend's). Raises
        ``UnsupportedError`` for a node that the backend cannot run, ``DefinitionError`` for an output that nothing
        makes.
        """
        self.network, self.backend = network, backend
        self._constant = constant or (lambda _, value: backend.array(value))
        self.outputs = tuple(each.name for each in network.outputs) if outputs is None else tuple(outputs)
        graph = network.model.graph
        owned = {each.name for each in network.parameters}
        self.constants = {name: value for name, value in constants_of(graph).items() if name not in owned}
        needed, read = _needed(network, self.outputs, self.constants)
        self.inputs = tuple(each.name for each in network.inputs if each.name in read)
        self.arrays = tuple(each.name for each in network.parameters if each.name in read)
        protos = graph.node
        nodes = [network.nodes[at] for at in needed]
        on_host = {needed[at] for at in host_nodes(nodes, self.constants)}
        scope = Scope(backend, imports_of(network.model.opset_import), functions_of(network.model))
        maker = _Maker(scope, self.constants, call, on_host)
        maker.host = set(self.constants) | {name for at in on_host for name in network.nodes[at].outputs}
        self.steps = tuple(maker.step(at, network.nodes[at], protos[at]) for at in needed)
        self._host = maker.host
        self.function = self.composed(self.steps)

    def composed(self, steps: Sequence[LoweredStep]) -> Callable[..., tuple[Array, ...]]:
        """The function that makes the calls of ``steps``: those of the network, or others in their places."""
        arguments = [*self.inputs, *self.arrays]
        return compose(arguments, steps, self.outputs, self.constants, self._host, self._native)

    def run_timed(
        self, inputs: Sequence[Array], arrays: Sequence[Array], clock: Clock, finish: Callable[[Sequence[Array]], None]
    ) -> list[tuple[int, int]]:
        """Run it once, each step finished before the next; (index of the node, nanoseconds) of each.

        ``finish`` waits for arrays (``Backend.finish``). Costs a look-up by name a value, outside of the times.
        """
        host: dict[str, Any] = dict(self.constants)
        native: dict[str, Any] = dict(zip((*self.inputs, *self.arrays), (*inputs, *arrays), strict=True))
        last = _last_reads(self.steps, self.outputs)
        times = []
        for at, step in enumerate(self.steps):
            arguments = [
                self._value(name, place in step.host_inputs, host, native) for place, name in enumerate(step.inputs)
            ]
            if step.captures is not None:
                arguments.insert(0, {name: self._value(name, False, host, native) for name in step.captures})
            before = clock.now_ns()
            found = step.call(*arguments)
            made = (found,) if step.bare else found
            if not step.on_host:
                finish([each for each in made if each is not None and not isinstance(each, list)])
            times.append((step.index, clock.now_ns() - before))
            del arguments
            (host if step.on_host else native).update(zip(step.outputs, made, strict=False))
            for name in last[at]:
                native.pop(name, None)
        return times

    def _native(self, value: Host, name: str = "") -> Array:
        return self._constant(name, value) if name in self.constants else self.backend.array(value)

    def _value(self, name: str, as_host: bool, host: dict[str, Host], native: dict[str, Array]) -> Array:
        if not name:
            return None
        if as_host and name in host:
            return host[name]
        if name not in native and name in host:
            native[name] = self._native(host[name], name)
        return native[name]


class _Maker:
    """Makes steps of nodes."""

    def __init__(self, scope: Scope, constants: Mapping[str, Host], chooser: Chooser | None, on_host: set[int]) -> None:
        self._scope, self._constants, self._chooser, self._on_host = scope, constants, chooser, on_host
        self.host: set[str] = set()
        self._numpy: OperatorBackend | None = None

    def step(self, index: int, node: OperatorNode, proto: onnx.NodeProto) -> LoweredStep:
        """The step of the node at ``index``."""
        if index in self._on_host:
            return self._host_step(index, node)
        inputs, outputs = node.inputs, node.outputs
        reads = structural_reads(node)
        known = frozenset(at for at in reads if at < len(inputs) and inputs[at] in self.host)
        node = self._scope.node(proto)
        if takes_values(node):
            captures = tuple(dict.fromkeys(captured(proto)))
            call = resolve(node, proto, self._scope, self._constants)
            return LoweredStep(index, node, call, inputs, outputs, host_inputs=known, captures=captures)
        open_reads = any(at < len(inputs) and inputs[at] and at not in known for at in reads)
        local = (node.domain, node.op_type, proto.overload) in self._scope.functions
        plain = not local and not _is_container(node)
        if plain and not open_reads:
            chosen = self._chooser(node) if self._chooser is not None else None
            if chosen is not None:
                return LoweredStep(index, node, chosen, inputs, outputs, len(outputs) == 1, host_inputs=known)
            if not has_body(node):
                forward = self._scope.backend.operator(node).forward
                return LoweredStep(index, node, forward, inputs, outputs, host_inputs=known)
        # What is read from the device at each call, and what may turn out to be unsupported, needs more care.
        call = resolve(node, proto, self._scope, {})
        return LoweredStep(index, node, call, inputs, outputs, host_inputs=known)

    def _host_step(self, index: int, node: OperatorNode) -> LoweredStep:
        if node.op_type in ("Shape", "Size"):
            return LoweredStep(index, node, _shape(node), node.inputs, node.outputs, True, True)
        if self._numpy is None:
            self._numpy = open_framework("numpy", "cpu")
        everything = frozenset(range(len(node.inputs)))
        forward = self._numpy.operator(node).forward
        return LoweredStep(index, node, forward, node.inputs, node.outputs, False, True, everything)


def _shape(node: OperatorNode) -> Function:
    """Shape or Size of a native array, as NumPy's int64."""
    if node.op_type == "Size":
        return lambda x: np.array(np.prod([int(each) for each in x.shape], dtype=np.int64))
    chosen = slice(node.get("start", 0), node.get("end"))
    return lambda x: np.array(tuple(x.shape)[chosen], np.int64)


def _is_container(node: OperatorNode) -> bool:
    return not node.domain and ("Sequence" in node.op_type or "Optional" in node.op_type or node.op_type == "Identity")


def _needed(network: Network, outputs: Sequence[str], constants: Mapping[str, Host]) -> tuple[list[int], set[str]]:
    """The places of the nodes that ``outputs`` depend on, in order, and the names that these read."""
    graph = network.model.graph
    given = {each.name for each in network.inputs} | {each.name for each in network.parameters} | set(constants)
    found, read = needed_nodes(graph, outputs, given)
    missing = read - given - {name for node in graph.node for name in node.output}
    if missing:
        raise DefinitionError(f"value {min(missing)!r} of network {network.name!r}", "nothing makes it", "name another")
    return found, read


def _last_reads(steps: Sequence[LoweredStep], outputs: Sequence[str]) -> list[list[str]]:
    last = {name: at for at, step in enumerate(steps) for name in (*step.inputs, *step.outputs, *(step.captures or ()))}
    freed: list[list[str]] = [[] for _ in steps]
    for name, at in last.items():
        if name and name not in outputs:
            freed[at].append(name)
    return freed
