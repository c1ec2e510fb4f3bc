"""Writes calls out as straight-line Python and compiles it.

The one idea: values become local variables with numbers for names, so nothing of a model's text is ever executed, and
the interpreter frees each value where a ``del`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["Line", "compose"]


class Line(NamedTuple):
    """A call: as :class:`levelbench.networks.lowering.LoweredStep` describes it."""

    call: Callable[..., Any]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bare: bool
    on_host: bool
    host_inputs: frozenset[int]
    captures: tuple[str, ...] | None


def compose(
    arguments: Sequence[str],
    lines: Sequence[Line],
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
    for line in lines:
        body += writer.written(line)
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

    def written(self, line: Line) -> list[tuple[str, set[str]]]:
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
        if line.captures is not None:
            key = f"k{len(self.space)}"
            self.space[key] = line.captures
            values = "".join(f"{native(name)}, " for name in line.captures)
            self.space.setdefault("zip", zip)
            words.append(f"dict(zip({key}, ({values})))")
        for at, name in enumerate(line.inputs):
            if not name:
                words.append("None")
            elif name in self._host and at in line.host_inputs:
                words.append(self.on_host(name))
            else:
                words.append(native(name))
        while words and words[-1] == "None":
            words.pop()
        call = f"f{len(self.space)}"
        self.space[call] = line.call
        return [*before, *self._assigned(f"{call}({', '.join(words)})", line, used)]

    def _assigned(self, call: str, line: Line, used: set[str]) -> list[tuple[str, set[str]]]:
        place = self.on_host if line.on_host else self.native
        made = [(at, place(name)) for at, name in enumerate(line.outputs) if name]
        fresh = set() if line.on_host else {variable for _, variable in made}
        if line.bare:
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
