"""Writes calls out as straight-line Python and compiles it, with the shape arithmetic of a network kept on the host.

Values become local variables with numbers for names, so nothing of a model's text is ever executed, and the interpreter
frees each value where a ``del`` says. Nodes whose values decide shapes, and follow from shapes and constants, are
computed in NumPy by every framework: no device is waited for to read a size, and no trace breaks on a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from levelbench.operators.node import OperatorNode, structural

if TYPE_CHECKING:
    from levelbench.networks.lowering import LoweredStep

_SHAPES = {"Shape", "Size"}
_ARITHMETIC_NAMES = (
    "Abs Add And Cast Ceil Clip Concat ConstantOfShape Div Equal Expand Flatten Floor Gather GatherElements Greater "
    "GreaterOrEqual Identity Less LessOrEqual Max Min Mod Mul Neg Not Or Pad Pow Range ReduceMax ReduceMin ReduceProd "
    "ReduceSum Reshape Round Sign Slice Split Sqrt Squeeze Sub Tile Transpose Unsqueeze Where"
)
_ARITHMETIC = frozenset(_ARITHMETIC_NAMES.split())
_CONTROL = {"If": (0,), "Loop": (0, 1)}


def structural_reads(node: OperatorNode) -> tuple[int, ...]:
    """The positions of inputs that are needed on the host: structural ones, conditions and trip counts."""
    if not node.domain and node.op_type in _CONTROL:
        return _CONTROL[node.op_type]
    return structural(node)


def host_nodes(nodes: Sequence[OperatorNode], constants: Mapping[str, object]) -> set[int]:
    """The places of the nodes to compute on the host."""
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

    ``host`` names the values that are NumPy arrays; ``array`` makes a native array of one; a
    constant's name is its second argument.
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
    # A closure's variables are found faster than a module's.
    names = ", ".join(space)
    source = "\n".join([f"def make({names}):", *(f"    {each}" for each in text), "    return function"])
    scope: dict[str, Any] = {}
    exec(compile(source, "<network>", "exec"), scope)  # the text is ours: numbers for names
    made: Callable[..., tuple[Any, ...]] = scope["make"](**space)
    return made


class _Writer:
    """Gives values and calls their variables, and writes the lines."""

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
        """The variable that holds a value as NumPy's array."""
        variable = f"h{self._number(name)}"
        if name in self._constants and variable not in self.space:
            self.space[variable] = self._constants[name]
        return variable

    def converted(self, name: str) -> list[tuple[str, set[str]]]:
        """The line that makes a native array of a value that was computed on the host, if it is not there yet."""
        if name not in self._host or name in self._constants or name in self._converted:
            return []
        self._converted.add(name)
        self.space.setdefault("array", self._array)
        # Not freed: it may be read again anywhere below, and is small.
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
    """The lines, each followed by the deletion of the variables that it is the last to use."""
    last: dict[str, int] = {}
    for at, (_, used) in enumerate(body):
        last.update(dict.fromkeys(used, at))
    ends: dict[int, list[str]] = {}
    for variable, at in last.items():
        # An argument belongs to the caller, who holds it anyway.
        if variable not in results and variable not in arguments:
            ends.setdefault(at, []).append(variable)
    text = []
    for at, (line, _) in enumerate(body):
        text.append(f"    {line}")
        if at in ends:
            text.append(f"    del {', '.join(sorted(ends[at]))}")
    return text
