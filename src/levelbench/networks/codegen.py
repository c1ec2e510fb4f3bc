"""Compiles a network to straight-line Python, so that executing it costs as much as hand-written calls.

There are no dictionaries and no dispatch: values are local variables with numbered names, so no text from a model is
ever executed, and each value is deleted after its last use. Nodes that determine shapes, and depend only on shapes and
constants, are computed in NumPy for every framework, so that reading a size never waits for a device and never breaks
a trace. The function is pure, so that ``jax.jit`` and ``torch.compile`` can trace it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from levelbench.checks.arrays import Host
from levelbench.errors import DefinitionError
from levelbench.measure.clocks import Clock
from levelbench.networks.inspect import captured, needed_nodes
from levelbench.networks.network import Network
from levelbench.operators.contract import Array, OperatorBackend
from levelbench.operators.frameworks import open_framework
from levelbench.operators.node import OperatorNode, structural
from levelbench.operators.program import Scope, constants_of, functions_of, has_body, imports_of, resolve, takes_values

_SHAPES = {"Shape", "Size"}
_ARITHMETIC_NAMES = (
    "Abs Add And Cast Ceil Clip Concat ConstantOfShape Div Equal Expand Flatten Floor Gather GatherElements Greater "
    "GreaterOrEqual Identity Less LessOrEqual Max Min Mod Mul Neg Not Or Pad Pow Range ReduceMax ReduceMin ReduceProd "
    "ReduceSum Reshape Round Sign Slice Split Sqrt Squeeze Sub Tile Transpose Unsqueeze Where"
)
_ARITHMETIC = frozenset(_ARITHMETIC_NAMES.split())
_CONTROL = {"If": (0,), "Loop": (0, 1)}


def structural_reads(node: OperatorNode) -> tuple[int, ...]:
    """The positions of inputs needed on the host: structural ones, conditions and trip counts."""
    if not node.domain and node.op_type in _CONTROL:
        return _CONTROL[node.op_type]
    return structural(node)


def host_nodes(nodes: Sequence[OperatorNode], constants: Mapping[str, object]) -> set[int]:
    """The indices of the nodes to compute on the host."""
    known = set(constants)
    able: dict[str, int] = {}
    for at, node in enumerate(nodes):
        if _is_able(node, known):
            known.update(name for name in node.outputs if name)
            able.update((name, at) for name in node.outputs if name)
    wanted = [name for node in nodes for name in _read(node, structural_reads(node))]
    found: set[int] = set()
    while wanted:
        at = able.get(wanted.pop(), -1)
        if at < 0 or at in found:
            continue
        found.add(at)
        if nodes[at].op_type not in _SHAPES:
            wanted.extend(nodes[at].inputs)
    return found


def _is_able(node: OperatorNode, known: set[str]) -> bool:
    if node.domain:
        return False
    if node.op_type in _SHAPES:
        return True
    return node.op_type in _ARITHMETIC and all(name in known for name in node.inputs if name)


def _read(node: OperatorNode, positions: Iterable[int]) -> list[str]:
    return [node.inputs[at] for at in positions if at < len(node.inputs) and node.inputs[at]]


def compose(
    arguments: Sequence[str],
    steps: Sequence[LoweredStep],
    outputs: Sequence[str],
    constants: Mapping[str, Any],
    host: set[str],
    array: Callable[..., Any],
) -> Callable[..., tuple[Any, ...]]:
    """The function of ``arguments`` that makes the calls in order and returns ``outputs``.

    ``host`` names the values that are NumPy arrays; ``array`` makes native arrays of them, with a constant's name as
    its second argument.
    """
    writer = _Writer(constants, host, array)
    text = [f"def function({', '.join(writer.native(name) for name in arguments)}):"]
    body: list[tuple[str, set[str]]] = []
    for step in steps:
        body += writer.written(step)
    for name in outputs:
        body += writer.converted(name)
    results = [writer.native(name) for name in outputs]
    text += _with_deletions(body, [writer.native(name) for name in arguments], set(results))
    text.append(f"    return ({', '.join(results)}{',' if len(results) == 1 else ''})")
    space: dict[str, Any] = dict(writer.space)
    # Variables of a closure are looked up faster than those of a module.
    names = ", ".join(space)
    source = "\n".join([f"def make({names}):", *(f"    {each}" for each in text), "    return function"])
    scope: dict[str, Any] = {}
    exec(compile(source, "<network>", "exec"), scope)  # the text is ours, with numbered names
    made: Callable[..., tuple[Any, ...]] = scope["make"](**space)
    return made


class _Writer:
    """Assigns variables to values and calls, and writes the lines."""

    def __init__(self, constants: Mapping[str, Any], host: set[str], array: Callable[..., Any]) -> None:
        self._constants, self._host, self._array = constants, host, array
        self._numbers: dict[str, int] = {}
        self._converted: set[str] = set()
        self.space: dict[str, Any] = {}

    def _number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def native(self, name: str) -> str:
        """The variable that holds a value as the framework's array."""
        variable = f"v{self._number(name)}"
        if name in self._constants and variable not in self.space:
            self.space[variable] = self._array(self._constants[name], name)
        return variable

    def on_host(self, name: str) -> str:
        """The variable that holds a value as a NumPy array."""
        variable = f"h{self._number(name)}"
        if name in self._constants and variable not in self.space:
            self.space[variable] = self._constants[name]
        return variable

    def converted(self, name: str) -> list[tuple[str, set[str]]]:
        """The line that makes a native array of a value computed on the host, unless it exists already."""
        if name not in self._host or name in self._constants or name in self._converted:
            return []
        self._converted.add(name)
        self.space.setdefault("array", self._array)
        # Not freed, because it is small and may be read again anywhere below.
        return [(f"{self.native(name)} = array({self.on_host(name)})", set())]

    def written(self, step: LoweredStep) -> list[tuple[str, set[str]]]:
        """The lines of a call, each with the native variables that it reads or makes."""
        before: list[tuple[str, set[str]]] = []
        used: set[str] = set()

        def native(name: str) -> str:
            before.extend(self.converted(name))
            variable = self.native(name)
            if name not in self._host:
                used.add(variable)
            return variable

        words = []
        if step.captures is not None:
            key = f"k{len(self.space)}"
            self.space[key] = step.captures
            values = "".join(f"{native(name)}, " for name in step.captures)
            self.space.setdefault("zip", zip)
            words.append(f"dict(zip({key}, ({values})))")
        for at, name in enumerate(step.inputs):
            if not name:
                words.append("None")
            elif name in self._host and at in step.host_inputs:
                words.append(self.on_host(name))
            else:
                words.append(native(name))
        while words and words[-1] == "None":
            words.pop()
        call = f"f{len(self.space)}"
        self.space[call] = step.call
        return [*before, *self._assigned(f"{call}({', '.join(words)})", step, used)]

    def _assigned(self, call: str, step: LoweredStep, used: set[str]) -> list[tuple[str, set[str]]]:
        place = self.on_host if step.on_host else self.native
        made = [(at, place(name)) for at, name in enumerate(step.outputs) if name]
        fresh = set() if step.on_host else {variable for _, variable in made}
        if step.bare:
            return [(f"{made[0][1]} = {call}", used | fresh)]
        if len(made) == 1:
            at, variable = made[0]
            return [(f"{variable} = {call}[{at}]", used | fresh)]
        unpacked = "; ".join(f"{variable} = found[{at}]" for at, variable in made)
        return [(f"found = {call}; {unpacked}; del found", used | fresh)]


def _with_deletions(body: Sequence[tuple[str, set[str]]], arguments: Sequence[str], results: set[str]) -> list[str]:
    """The lines, each followed by the deletion of variables used there for the last time."""
    last: dict[str, int] = {}
    for at, (_, used) in enumerate(body):
        last.update(dict.fromkeys(used, at))
    ends: dict[int, list[str]] = {}
    for variable, at in last.items():
        # An argument belongs to the caller, who keeps it alive anyway.
        if variable not in results and variable not in arguments:
            ends.setdefault(at, []).append(variable)
    text = []
    for at, (line, _) in enumerate(body):
        text.append(f"    {line}")
        if at in ends:
            text.append(f"    del {', '.join(sorted(ends[at]))}")
    return text


Function = Callable[..., Any]
Chooser = Callable[[OperatorNode], Function | None]


@dataclass(frozen=True)
class LoweredStep:
    """A node as a call. ``inputs`` are names of values, empty for an omitted input.

    ``bare``: the call returns its only output itself, not a tuple. ``on_host``: it takes and returns NumPy arrays.
    ``host_inputs`` are positions passed as NumPy arrays; ``captures`` are the values around a subgraph, passed by name
    in a dictionary before the inputs.
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
    """A network's outputs as a function of its inputs and arrays, with the operators of one backend."""

    inputs: tuple[str, ...]
    """The network's inputs that the outputs depend on, in the network's order."""
    arrays: tuple[str, ...]
    """The parameters and buffers that the outputs depend on, in the network's order."""
    steps: tuple[LoweredStep, ...]
    function: Callable[..., tuple[Array, ...]]
    """``function(*inputs, *arrays)`` returns a tuple of the outputs, all native arrays."""

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

        ``call`` may return a function for a node, which takes native arrays (NumPy's at structural positions) and
        returns the bare value of a single output, or a tuple of several; ``None`` leaves it to the backend.
        ``constant`` makes the native array from a constant's name and value (default: the backend's). Raises
        ``UnsupportedError`` for a node that the backend cannot run, and ``DefinitionError`` for an output that no node
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
        self._host = set(self.constants) | {name for at in on_host for name in network.nodes[at].outputs}
        self._scope = Scope(backend, imports_of(network.model.opset_import), functions_of(network.model))
        self._chooser = call
        self.steps = tuple(
            _host_step(at, network.nodes[at]) if at in on_host else self._step(at, network.nodes[at], protos[at])
            for at in needed
        )
        self.function = self.composed(self.steps)

    def _step(self, index: int, node: OperatorNode, proto: onnx.NodeProto) -> LoweredStep:
        """The step of a node computed on the device."""
        inputs, outputs = node.inputs, node.outputs
        reads = structural_reads(node)
        known = frozenset(at for at in reads if at < len(inputs) and inputs[at] in self._host)
        node = self._scope.node(proto)
        if takes_values(node):
            captures = tuple(dict.fromkeys(captured(proto)))
            call = resolve(node, proto, self._scope, self.constants)
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
        # Nodes that read from the device at each call, or may turn out to be unsupported, need more care.
        call = resolve(node, proto, self._scope, {})
        return LoweredStep(index, node, call, inputs, outputs, host_inputs=known)

    def composed(self, steps: Sequence[LoweredStep]) -> Callable[..., tuple[Array, ...]]:
        """The function that makes the calls of ``steps``: those of the network, or replacements for them."""
        arguments = [*self.inputs, *self.arrays]
        return compose(arguments, steps, self.outputs, self.constants, self._host, self._native)

    def run_timed(
        self,
        inputs: Sequence[Array],
        arrays: Sequence[Array],
        clock: Clock,
        finish: Callable[[Sequence[Array]], None],
        steps: Sequence[LoweredStep] | None = None,
    ) -> list[tuple[int, int]]:
        """Run once, finishing each step before the next; returns (index of the node, nanoseconds) for each.

        ``finish`` waits for arrays (``Backend.finish``); ``steps`` are replacements for those of the network.
        """
        times: list[tuple[int, int]] = []

        def timed(step: LoweredStep) -> LoweredStep:
            def call(*arguments: Any) -> Any:
                before = clock.now_ns()
                found = step.call(*arguments)
                if not step.on_host:
                    made = (found,) if step.bare else found
                    finish([each for each in made if each is not None and not isinstance(each, list)])
                times.append((step.index, clock.now_ns() - before))
                return found

            return replace(step, call=call)

        chosen = self.steps if steps is None else steps
        self.composed([timed(each) for each in chosen])(*inputs, *arrays)
        return times

    def _native(self, value: Host, name: str = "") -> Array:
        return self._constant(name, value) if name in self.constants else self.backend.array(value)


def _host_step(index: int, node: OperatorNode) -> LoweredStep:
    if node.op_type in _SHAPES:
        return LoweredStep(index, node, _shape(node), node.inputs, node.outputs, True, True)
    everything = frozenset(range(len(node.inputs)))
    forward = open_framework("numpy", "cpu").operator(node).forward
    return LoweredStep(index, node, forward, node.inputs, node.outputs, False, True, everything)


def _shape(node: OperatorNode) -> Function:
    """Shape or Size of a native array, as NumPy int64."""
    if node.op_type == "Size":
        return lambda x: np.array(np.prod([int(each) for each in x.shape], dtype=np.int64))
    chosen = slice(node.get("start", 0), node.get("end"))
    return lambda x: np.array(tuple(x.shape)[chosen], np.int64)


def _is_container(node: OperatorNode) -> bool:
    return not node.domain and ("Sequence" in node.op_type or "Optional" in node.op_type or node.op_type == "Identity")


def _needed(network: Network, outputs: Sequence[str], constants: Mapping[str, Host]) -> tuple[list[int], set[str]]:
    """The indices of the nodes that ``outputs`` depend on, in order, and the names that they read."""
    graph = network.model.graph
    given = {each.name for each in network.inputs} | {each.name for each in network.parameters} | set(constants)
    needed, read = needed_nodes(graph, outputs, given)
    missing = read - given - {name for node in graph.node for name in node.output}
    if missing:
        found = "no node makes it"
        raise DefinitionError(f"value {min(missing)!r} of network {network.name!r}", found, "choose another value")
    return needed, read
