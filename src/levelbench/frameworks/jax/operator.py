"""An ONNX operator on JAX: a node's functions, compiled by XLA for each set of structural inputs.

Structural inputs are constants of the compiled function, which is looked up by their bytes; all other inputs are
arguments, and JAX itself compiles for their shapes and types. Equal nodes share one kernel.
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
"""A seed's key, and the number of a draw, which is folded into it."""

Arrays = tuple[Array | None, ...]
Bound = Mapping[int, Host | None]
"""Structural inputs by position: constants of a compiled function."""


def signature(node: OperatorNode) -> Hashable:
    """Equal for nodes that compute the same; value names do not matter, but which ones are left out does."""
    attributes = tuple((name, _attribute_key(value)) for name, value in sorted(node.attributes.items()))
    given = tuple(bool(name) for name in node.inputs)
    wanted = tuple(bool(name) for name in node.outputs)
    return node.domain, node.op_type, node.opset, attributes, given, wanted


def array_key(value: Host | None) -> Hashable:
    """A structural input's bytes, type and shape; ``None`` if it is left out."""
    # The type's number is fast to get; hashing the type itself takes as long as all the rest.
    return None if value is None else (value.tobytes(), value.dtype.num, value.shape)


def _attribute_key(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):
        return array_key(value)
    if isinstance(value, list | tuple):
        return tuple(_attribute_key(each) for each in value)
    if hasattr(value, "SerializeToString"):
        return str(value.SerializeToString(deterministic=True))
    # 1, 1.0 and True are equal keys, but different attributes.
    return type(value).__name__, value


# Vector-Jacobian products of functions whose inputs and outputs are not all floating-point. Only floating-point ones
# take part; the others and ``None`` are passed around jax.vjp, so that float0 gradients never appear.


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
    """(gradients, inputs, outputs) -> gradients of inputs; recomputes the forward, of which XLA keeps what it needs."""

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
    """The outputs of a function that cannot be traced; its outputs must not need a gradient."""

    def both(*inputs: Array) -> tuple[Arrays, Function | None]:
        outputs = function(*inputs)
        if differentiable(outputs):
            raise UnsupportedError(
                f"the gradient of {title}", "its output shape depends on values", "use another framework"
            )
        return outputs, None

    return both


class CompiledProgram:
    """``forward(*inputs)``, ``vjp(*inputs)`` and ``backward(gradients, inputs, outputs)`` of a node, compiled.

    They return tuples. Bound structural inputs are passed as ``None``. A random operator takes (key, number of the
    draw) first. An eager operator, whose output shape depends on values, is not compiled.
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
    """Makes a tuple of the outputs that the node names, so that XLA does not compute the others."""
    wanted = [bool(name) for name in node.outputs]

    def outputs(found: Array | Arrays) -> Arrays:
        several = found if isinstance(found, tuple) else (found,)
        return tuple(each if name else None for each, name in zip(several, wanted, strict=False))

    return outputs


def _random_key(node: OperatorNode, draw: Draw) -> Array:
    """The key of a draw; a node with a seed draws the same each time, as in ONNX's reference."""
    if node.get("seed") is not None:
        return jax.random.PRNGKey(int(np.float32(node["seed"]).view(np.uint32)))
    return jax.random.fold_in(*draw)


def _by_pullback(both: Function) -> Function:
    def backward(_: Arrays, inputs: Arrays, __: Arrays) -> Arrays:
        both(*inputs)
        return (None,) * len(inputs)

    return backward


# A loop that slices at different positions would otherwise fill the memory with programs.
_MOST_PROGRAMS = 4096


class KernelSource(Protocol):
    """What a kernel needs from the backend: a device and random draws."""

    device: Any

    def draw(self) -> Draw:
        """The key and the number of the next draw."""


class CompiledKernel:
    """The compiled functions of a node; ``call`` is the fastest way to call the forward one."""

    def __init__(self, node: OperatorNode, entry: JaxEntry, source: KernelSource) -> None:
        self.node = node
        self._entry, self._source = entry, source
        self._function = entry.make(node)
        self._static = [at for at in structural(node) if at < len(node.inputs) and node.inputs[at]]
        self._programs: dict[Any, CompiledProgram] = {}
        self._recent: tuple[Sequence[_Known], CompiledProgram | None] = ((), None)
        # If all inputs are constants of the program, JAX must be told where to compute.
        self._placed = entry.eager(node) or len(self._static) == sum(1 for each in node.inputs if each)
        direct = not (self._static or self._placed or entry.random)
        self.call: Function = self._make((), ()).forward if direct else self._call

    def vjp(self, *inputs: Array) -> tuple[Arrays, Pullback]:
        """The outputs and their pullback."""
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
        """The gradients of inputs, from the inputs and, for a random operator, the outputs of its draw."""
        if self._entry.random and self._entry.backward is None:
            raise UnsupportedError(f"the gradient of {self.node.title}", "its draw is not kept", "use vjp instead")
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
        # Dropout draws only in training mode (its third input); a draw in inference would change all later draws.
        idle = self.node.op_type == "Dropout" and not any(self.node.inputs[2:])
        return ((jax.random.PRNGKey(0), np.uint32(0)) if idle else self._source.draw(),)

    def _find(self, inputs: Sequence[Array | None]) -> tuple[CompiledProgram, Sequence[Array | None]]:
        """The program for the structural inputs, and the arguments to call it with."""
        if not self._static:
            return self._programs.get(()) or self._make((), ()), inputs
        arguments = list(inputs)
        for at in self._static:
            arguments[at] = None
        # Structural inputs are mostly the same as in the last call, and comparing is faster than a lookup.
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
"""The position, bytes, type and shape of a structural input."""


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


class JaxOperator(Operator):
    """An ONNX node, compiled at the first call for each set of shapes and types; calls are asynchronous."""

    def __init__(self, node: OperatorNode, kernel: CompiledKernel) -> None:
        self.node = node
        self._kernel = kernel
        self._call = kernel.call

    def forward(self, *inputs: Array) -> Arrays:
        return self._call(*inputs)

    def backward(
        self, gradients: Sequence[Array | None], inputs: Sequence[Array | None], outputs: Sequence[Array | None]
    ) -> Arrays:
        """The gradients of inputs; recomputes the forward as far as it is needed."""
        return self._kernel.backward(gradients, inputs, outputs)

    def vjp(self, *inputs: Array) -> tuple[Arrays, Pullback]:
        """The outputs and the pullback, which keeps the values that it needs."""
        return self._kernel.vjp(*inputs)
