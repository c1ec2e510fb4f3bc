"""ONNX's operator on JAX: a node's functions, compiled by XLA once for each structural input.

A structural input is a constant of the compiled function, found again by its bytes; all others are its arguments, for
whose shapes and types JAX compiles by itself. Nodes that say the same share one kernel.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from levelbench.errors import UnsupportedError
from levelbench.frameworks.jax.arrays import is_differentiable
from levelbench.frameworks.jax.operators.registry import JaxEntry
from levelbench.frameworks.shared.operators import Host
from levelbench.operators.contract import Function, Operator, Pullback
from levelbench.operators.node import OperatorNode, structural

Draw = tuple[Array, np.uint32]
"""The key of a seed, and the number of a draw that is folded into it."""

Arrays = tuple[Array | None, ...]
Bound = Mapping[int, Host | None]
"""The structural inputs by position: constants of a compiled function."""


def signature(node: OperatorNode) -> Hashable:
    """Equal for nodes that compute the same; names of values do not count, but whether they are left out does."""
    attributes = tuple((name, _attribute_key(value)) for name, value in sorted(node.attributes.items()))
    given = tuple(bool(name) for name in node.inputs)
    wanted = tuple(bool(name) for name in node.outputs)
    return node.domain, node.op_type, node.opset, attributes, given, wanted


def array_key(value: Host | None) -> Hashable:
    """A structural input's bytes, type and shape; ``None`` for one that is left out."""
    # The number of a type is found at once; hashing the type itself takes as long as all the rest.
    return None if value is None else (value.tobytes(), value.dtype.num, value.shape)


def _attribute_key(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):
        return array_key(value)
    if isinstance(value, list | tuple):
        return tuple(_attribute_key(each) for each in value)
    if hasattr(value, "SerializeToString"):
        return str(value.SerializeToString(deterministic=True))
    # 1 and 1.0 and True are equal keys, and different attributes.
    return type(value).__name__, value


# JAX's vector-Jacobian products of functions whose inputs and outputs are not all floating-point.
# Only floating-point inputs and outputs take part. The others, and what is ``None``, are passed by, so that JAX's
# zero-sized type for the gradient of an integer never shows.


def differentiable(inputs: Sequence[Array]) -> list[int]:
    """The positions of floating-point arrays."""
    return [at for at, each in enumerate(inputs) if hasattr(each, "dtype") and is_differentiable(each.dtype)]


def with_pullback(function: Function) -> Function:
    """The outputs, and the pullback of their floating-point ones to the floating-point inputs."""

    def both(*inputs: Array) -> tuple[Arrays, Function | None]:
        at = differentiable(inputs)

        def narrowed(*chosen: Array) -> tuple[Arrays, Arrays]:
            full = list(inputs)
            for place, value in zip(at, chosen, strict=True):
                full[place] = value
            outputs = function(*full)
            return tuple(outputs[place] for place in differentiable(outputs)), outputs

        _, pullback, outputs = jax.vjp(narrowed, *(inputs[place] for place in at), has_aux=True)
        return outputs, pullback

    return both


def gradients_of(function: Function) -> Function:
    """(gradients, inputs, outputs) -> gradients of inputs, by a forward of its own: XLA keeps what it needs of it."""

    def backward(gradients: Arrays, inputs: Arrays, _: Arrays) -> Arrays:
        outputs, pullback = with_pullback(function)(*inputs)
        given = [
            jnp.zeros_like(outputs[place]) if gradients[place] is None else gradients[place]
            for place in differentiable(outputs)
        ]
        found = dict(zip(differentiable(inputs), pullback(tuple(given)), strict=True)) if given else {}
        return tuple(found.get(place) for place in range(len(inputs)))

    return backward


def integer_pullback(function: Function, title: str) -> Function:
    """The outputs of a function that cannot be traced; a gradient only where no output has any."""

    def both(*inputs: Array) -> tuple[Arrays, Function | None]:
        outputs = function(*inputs)
        if differentiable(outputs):
            raise UnsupportedError(
                f"the gradient of {title}", "the shape of its output depends on values", "use another framework"
            )
        return outputs, None

    return both


# The functions of a node whose structural inputs are known, compiled when they are first called.


class CompiledProgram:
    """``forward(*inputs)``, ``vjp(*inputs)``, ``backward(gradients, inputs, outputs)``, as tuples.

    Inputs that are bound are passed as ``None``. Those of a random operator come after (key, number of the draw).
    An eager one, whose output's shape depends on values, runs step by step.
    """

    def __init__(self, node: OperatorNode, entry: JaxEntry, function: Function, bound: Bound) -> None:
        outputs = _named(node)

        def plain(*inputs: Array) -> Arrays:
            return outputs(function(*_filled(inputs, bound)))

        def drawn(draw: Draw, *inputs: Array) -> Arrays:
            return outputs(function(_random_key(node, draw), *_filled(inputs, bound)))

        whole: Function = drawn if entry.random else plain
        eager = entry.eager(node)
        backward = gradients_of(whole)
        if entry.backward is not None:
            given = entry.backward(node)

            def backward(gradients: Arrays, inputs: Arrays, outputs: Arrays) -> Arrays:
                return given(gradients, _filled(inputs, bound), outputs)

        self.forward: Function = whole if eager else jax.jit(whole)
        self.vjp: Function = integer_pullback(whole, node.title) if eager else jax.jit(with_pullback(whole))
        self.backward: Function = _by_pullback(integer_pullback(whole, node.title)) if eager else jax.jit(backward)


def _filled(inputs: Arrays, bound: Bound) -> Arrays:
    return tuple(bound.get(at, each) for at, each in enumerate(inputs)) if bound else inputs


def _named(node: OperatorNode) -> Function:
    """What is found as a tuple, without what the node does not name: XLA then leaves out its computation."""
    wanted = [bool(name) for name in node.outputs]

    def outputs(found: Array | Arrays) -> Arrays:
        several = found if isinstance(found, tuple) else (found,)
        return tuple(each if name else None for each, name in zip(several, wanted, strict=False))

    return outputs


def _random_key(node: OperatorNode, draw: Draw) -> Array:
    """The key of a draw; a node with a seed of its own draws the same each time, as ONNX's reference does."""
    if node.get("seed") is not None:
        return jax.random.PRNGKey(int(np.float32(node["seed"]).view(np.uint32)))
    return jax.random.fold_in(*draw)


def _by_pullback(both: Function) -> Function:
    def backward(_: Arrays, inputs: Arrays, __: Arrays) -> Arrays:
        both(*inputs)
        return (None,) * len(inputs)

    return backward


# A node's function compiled by XLA: forward, and the vector-Jacobian product, once for each structural input.


# A loop that slices elsewhere at each step would otherwise fill the memory with programs.
_MOST_PROGRAMS = 4096


class KernelSource(Protocol):
    """What a kernel asks of the backend: where to compute, and random draws."""

    device: Any

    def draw(self) -> Draw:
        """A key and the number of the draw."""


class CompiledKernel:
    """The compiled functions of a node; ``call`` is the fastest way to the forward one."""

    def __init__(self, node: OperatorNode, entry: JaxEntry, source: KernelSource) -> None:
        self.node = node
        self._entry, self._source = entry, source
        self._function = entry.make(node)
        self._static = [at for at in structural(node) if at < len(node.inputs) and node.inputs[at]]
        self._programs: dict[Any, CompiledProgram] = {}
        self._recent: tuple[Sequence[_Known], CompiledProgram | None] = ((), None)
        # Where all inputs are constants of the program, nothing but this tells JAX where to compute.
        self._placed = entry.eager(node) or len(self._static) == sum(1 for each in node.inputs if each)
        direct = not (self._static or self._placed or entry.random)
        self.call: Function = self._make((), ()).forward if direct else self._call

    def vjp(self, *inputs: Array) -> tuple[Arrays, Pullback]:
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

        def pull(*gradients: Array) -> Arrays:
            given = tuple(
                jnp.zeros(*kind) if gradient is None else gradient
                for gradient, kind in zip(gradients, kinds, strict=True)
                if kind is not None and is_differentiable(kind[1])
            )
            found = dict(zip(at, _apply(pullback, given), strict=True)) if given else {}
            return tuple(found.get(place) for place in range(count))

        return outputs, pull

    def backward(
        self, gradients: Sequence[Array | None], inputs: Sequence[Array | None], outputs: Sequence[Array | None]
    ) -> Arrays:
        """The gradients of inputs, from inputs and, for a random operator, the outputs of the draw."""
        if self._entry.random and self._entry.backward is None:
            raise UnsupportedError(f"the gradient of {self.node.title}", "its draw is not kept", "use vjp: it keeps it")
        program, arguments = self._find(inputs)
        with jax.default_device(self._source.device):
            found: Arrays = program.backward(tuple(gradients), tuple(arguments), tuple(outputs))
        return found

    def _call(self, *inputs: Array) -> Arrays:
        program, arguments = self._find(inputs)
        if self._entry.random or self._placed:
            with jax.default_device(self._source.device):
                return program.forward(*self._drawn(), *arguments)
        found: Arrays = program.forward(*arguments)
        return found

    def _drawn(self) -> tuple[Draw, ...]:
        if not self._entry.random:
            return ()
        # Dropout draws in training mode alone, its third input; an inference that drew would change what follows it.
        idle = self.node.op_type == "Dropout" and not any(self.node.inputs[2:])
        return ((jax.random.PRNGKey(0), np.uint32(0)) if idle else self._source.draw(),)

    def _find(self, inputs: Sequence[Array | None]) -> tuple[CompiledProgram, Sequence[Array | None]]:
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

    def _make(self, constants: Sequence[Host | None], key: Hashable) -> CompiledProgram:
        if len(self._programs) >= _MOST_PROGRAMS:
            self._programs.pop(next(iter(self._programs)))
        copies = [None if each is None else each.copy() for each in constants]
        program = CompiledProgram(self.node, self._entry, self._function, dict(zip(self._static, copies, strict=True)))
        self._programs[key] = program
        return program


_Known = tuple[int, bytes | None, Any, Any]
"""A position, and the bytes, type and shape of what was there."""


def _known(at: int, value: Host | None) -> _Known:
    return (at, None, None, None) if value is None else (at, value.tobytes(), value.dtype, value.shape)


def _same(expected: Sequence[_Known], inputs: Sequence[Array | None]) -> bool:
    for at, content, dtype, shape in expected:
        value = inputs[at]
        if value is None or content is None:
            if value is not content:
                return False
        elif value.dtype is not dtype or value.shape != shape or value.tobytes() != content:
            return False
    return True


@jax.jit
def _apply(pullback: Function, gradients: Arrays) -> Arrays:
    return pullback(gradients)


# ONNX's operator on JAX: a node and the compiled functions that it shares with its equals.


class JaxOperator(Operator):
    """Compiled at the first call for each set of shapes and types; calls return before they have computed."""

    def __init__(self, node: OperatorNode, kernel: CompiledKernel) -> None:
        self.node = node
        self._kernel = kernel
        self._call = kernel.call

    def forward(self, *inputs: Array) -> Arrays:
        """The outputs."""
        return self._call(*inputs)

    def backward(
        self, gradients: Sequence[Array | None], inputs: Sequence[Array | None], outputs: Sequence[Array | None]
    ) -> Arrays:
        """The gradients of inputs: the forward is computed again as far as it is needed."""
        return self._kernel.backward(gradients, inputs, outputs)

    def vjp(self, *inputs: Array) -> tuple[Arrays, Pullback]:
        """The outputs and the pullback, which keeps what it needs."""
        return self._kernel.vjp(*inputs)
