"""A node's function compiled by XLA: forward, and the vector-Jacobian product, once for each structural input.

The one idea: a structural input is a constant of the compiled function, found again by its bytes; all others are its
arguments, for whose shapes and types JAX compiles by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from levelbench.errors import UnsupportedError
from levelbench.frameworks.jax.arrays import is_differentiable
from levelbench.frameworks.jax.derivatives import differentiable
from levelbench.frameworks.jax.operators.registry import Entry
from levelbench.frameworks.jax.program import Program
from levelbench.frameworks.jax.signature import array_key
from levelbench.operators.contract import Pullback
from levelbench.operators.node import OperatorNode
from levelbench.operators.structure import structural

__all__ = ["Kernel", "Source"]

# A loop that slices elsewhere at each step would otherwise fill the memory with programs.
_MOST_PROGRAMS = 4096


class Source(Protocol):
    """What a kernel asks of the backend: where to compute, and random draws."""

    device: Any

    def draw(self) -> tuple[Any, Any]:
        """A key and the number of the draw."""


class Kernel:
    """The compiled functions of a node; ``call`` is the fastest way to the forward one."""

    def __init__(self, node: OperatorNode, entry: Entry, source: Source) -> None:
        self.node = node
        self._entry, self._source = entry, source
        self._function = entry.make(node)
        self._static = [at for at in structural(node) if at < len(node.inputs) and node.inputs[at]]
        self._programs: dict[Any, Program] = {}
        self._recent: tuple[Sequence[_Known], Program | None] = ((), None)
        # Where all inputs are constants of the program, nothing but this tells JAX where to compute.
        self._placed = entry.eager(node) or len(self._static) == sum(1 for each in node.inputs if each)
        direct = not (self._static or self._placed or entry.random)
        self.call: Callable[..., tuple[Any, ...]] = self._make((), ()).forward if direct else self._call

    def vjp(self, *inputs: Any) -> tuple[tuple[Any, ...], Pullback]:
        """The outputs, and what takes their gradients to those of the inputs."""
        program, arguments = self._find(inputs)
        try:
            with jax.default_device(self._source.device):
                outputs, pullback = program.vjp(*self._drawn(), *arguments)
        except NotImplementedError as error:
            reason = str(error).splitlines()[0]
            raise UnsupportedError(
                f"the gradient of {self.node.title} on jax", reason, "use another framework"
            ) from error
        at = differentiable(arguments)
        kinds = [None if each is None else (each.shape, each.dtype) for each in outputs]
        count = len(inputs)

        def pull(*gradients: Any) -> tuple[Any, ...]:
            given = tuple(
                jnp.zeros(*kind) if gradient is None else gradient
                for gradient, kind in zip(gradients, kinds, strict=True)
                if kind is not None and is_differentiable(kind[1])
            )
            found = dict(zip(at, _apply(pullback, given), strict=True)) if given else {}
            return tuple(found.get(place) for place in range(count))

        return outputs, pull

    def backward(self, gradients: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> tuple[Any, ...]:
        """The gradients of inputs, from inputs and, for a random operator, the outputs of the draw."""
        if self._entry.random and self._entry.backward is None:
            raise UnsupportedError(f"the gradient of {self.node.title}", "its draw is not kept", "use vjp: it keeps it")
        program, arguments = self._find(inputs)
        with jax.default_device(self._source.device):
            found: tuple[Any, ...] = program.backward(tuple(gradients), tuple(arguments), tuple(outputs))
        return found

    def _call(self, *inputs: Any) -> tuple[Any, ...]:
        program, arguments = self._find(inputs)
        if self._entry.random or self._placed:
            with jax.default_device(self._source.device):
                return program.forward(*self._drawn(), *arguments)
        found: tuple[Any, ...] = program.forward(*arguments)
        return found

    def _drawn(self) -> tuple[Any, ...]:
        if not self._entry.random:
            return ()
        # Dropout draws in training mode alone, its third input; an inference that drew would change what follows it.
        idle = self.node.op_type == "Dropout" and not any(self.node.inputs[2:])
        return ((jax.random.PRNGKey(0), np.uint32(0)) if idle else self._source.draw(),)

    def _find(self, inputs: Sequence[Any]) -> tuple[Program, Sequence[Any]]:
        """The program for the structural ones of ``inputs``, and the arguments to call it with."""
        if not self._static:
            return self._programs.get(()) or self._make((), ()), inputs
        arguments = list(inputs)
        for at in self._static:
            arguments[at] = None
        # Structural inputs are mostly those of the last call, and comparing is cheaper than looking up.
        expected, program = self._recent
        if program is None or not _same(expected, inputs):
            key = tuple([array_key(inputs[at]) for at in self._static])
            constants = [inputs[at] for at in self._static]
            program = self._programs.get(key) or self._make(constants, key)
            self._recent = [_known(at, each) for at, each in zip(self._static, constants, strict=True)], program
        return program, arguments

    def _make(self, constants: Sequence[Any], key: Any) -> Program:
        if len(self._programs) >= _MOST_PROGRAMS:
            self._programs.pop(next(iter(self._programs)))
        copies = [None if each is None else each.copy() for each in constants]
        program = Program(self.node, self._entry, self._function, dict(zip(self._static, copies, strict=True)))
        self._programs[key] = program
        return program


_Known = tuple[int, bytes | None, Any, Any]
"""A position, and the bytes, type and shape of what was there."""


def _known(at: int, value: Any) -> _Known:
    return (at, None, None, None) if value is None else (at, value.tobytes(), value.dtype, value.shape)


def _same(expected: Sequence[_Known], inputs: Sequence[Any]) -> bool:
    for at, content, dtype, shape in expected:
        value = inputs[at]
        if value is None or content is None:
            if value is not content:
                return False
        elif value.dtype is not dtype or value.shape != shape or value.tobytes() != content:
            return False
    return True


@jax.jit
def _apply(pullback: Any, gradients: tuple[Any, ...]) -> Any:
    return pullback(gradients)
