"""The operator under test as a function on host arrays, whatever it runs on, and inputs to check it with.

The probes know no framework: they pass NumPy arrays, get NumPy arrays back, and access native arrays only through what
every array library offers (slices, axes, DLPack). More inputs are derived from given ones. Equal sizes in an example
are assumed to belong together, so a size is replaced wherever it occurs; the reference decides whether the result is a
valid input.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from levelbench.checks.arrays import Host, is_float
from levelbench.errors import DefinitionError, LevelbenchError, UnsupportedError, UsageError
from levelbench.operators.contract import Array, Function, Operator, OperatorBackend, as_tuple
from levelbench.operators.node import OperatorNode, structural

Values = tuple[Host | None, ...]
Checkable = Any
"""What can be checked: an :class:`Operator`, a custom operator or its class, a function, a :class:`HostOperator`."""


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings: an operator may warn about an empty axis or infinity, but only its result is judged."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class HostOperator:
    """An operator as a function on host arrays.

    ``call`` takes native arrays; ``pull`` takes native gradients of the outputs and inputs, and returns one per input.
    ``ours`` is whether the user wrote it. Such an operator must do more than a framework's: no outputs that share
    memory with inputs unless ``aliases``, all shapes that the reference accepts, and NaN where the reference has it.
    """

    name: str
    call: Callable[..., Any]
    pull: Callable[[Sequence[Any], Sequence[Any]], Any] | None = None
    to_native: Callable[[Host], Any] = np.asarray
    to_host: Callable[[Any], Host] = np.array
    node: OperatorNode | None = None
    fixed: frozenset[int] = frozenset()
    ours: bool = True
    aliases: bool = False
    deterministic: bool = True
    infer: Callable[..., Any] | None = None

    def native(self, inputs: Sequence[Host | None]) -> list[Array]:
        """Native arrays of copies; structural inputs stay on the host."""
        return [self._native(at, value) for at, value in enumerate(inputs)]

    def _native(self, at: int, value: Host | None) -> Array:
        if value is None:
            return None
        # A fresh copy is aligned the same way in every call, so a kernel has no reason to take another code path.
        copy = value.copy(order="C")
        return copy if at in self.fixed else self.to_native(copy)

    def outputs(self, native: Sequence[Array]) -> tuple[Array, ...]:
        """The native outputs for native inputs."""
        with _quiet():
            return as_tuple(self.call(*native))

    def hosted(self, values: Sequence[Array]) -> Values:
        """Copies on the host."""
        return tuple(None if value is None else np.asarray(self.to_host(value)) for value in values)

    def forward(self, inputs: Sequence[Host | None]) -> Values:
        """The outputs for inputs on the host, which are not changed."""
        return self.hosted(self.outputs(self.native(inputs)))

    def vjp(self, gradients: Sequence[Host | None], inputs: Sequence[Host | None]) -> Values:
        """The gradients of the inputs; ``UnsupportedError`` without a backward, ``DefinitionError`` for a bad count."""
        if self.pull is None:
            raise UnsupportedError(f"the gradient of {self.name}", "it has no backward", "write one")
        native = [None if each is None else self.to_native(each.copy(order="C")) for each in gradients]
        with _quiet():
            gradients = as_tuple(self.pull(native, self.native(inputs)))
        if len(gradients) != len(inputs):
            found = f"it returns {len(gradients)} gradients for {len(inputs)} inputs"
            raise DefinitionError(f"the backward of {self.name}", found, "return one per input, None if it has none")
        return self.hosted(gradients)

    def input_name(self, at: int) -> str:
        """``input 1 'W'``."""
        names = self.node.inputs if self.node else ()
        return f"input {at} {names[at]!r}" if at < len(names) and names[at] else f"input {at}"

    def output_name(self, at: int) -> str:
        """``output 0 'Y'``."""
        names = self.node.outputs if self.node else ()
        return f"output {at} {names[at]!r}" if at < len(names) and names[at] else f"output {at}"

    def may_lack_gradient(self, at: int) -> bool:
        """Whether ONNX's schema says that the input is not differentiable."""
        schema = self.node.schema if self.node is not None else None
        if schema is None:
            return False
        parameters = schema.inputs
        category = parameters[min(at, len(parameters) - 1)].differentiation_category
        return bool(category == type(category).NonDifferentiable)


def subject_of(
    operator: Checkable,
    backend: OperatorBackend | None = None,
    *,
    name: str = "",
    backward: Function | None = None,
) -> HostOperator:
    """The subject for an :class:`Operator` of ``backend`` (``None``: on NumPy arrays), a custom operator or a function.

    ``backward(gradients, inputs, outputs)`` goes with a function.
    """
    if isinstance(operator, HostOperator):
        return operator
    if isinstance(operator, Operator):
        return _of_operator(operator, backend, name)
    if hasattr(operator, "forward"):
        return _of_custom(operator, name)
    if callable(operator):
        pull = None if backward is None else _pull_of(operator, backward)
        found = name or getattr(operator, "__name__", type(operator).__name__)
        return HostOperator(found, operator, pull, aliases=getattr(operator, "aliases", False))
    kind = type(operator).__name__
    raise UsageError("a check", f"a {kind} is neither an operator nor a function", "give something with a forward")


def _of_operator(operator: Operator, backend: OperatorBackend | None, name: str) -> HostOperator:
    def pull(gradients: Sequence[Array], inputs: Sequence[Array]) -> Array:
        return operator.vjp(*inputs)[1](*gradients)

    node: OperatorNode | None = getattr(operator, "node", None)
    fixed = frozenset(structural(node)) if node is not None else frozenset[int]()
    subject = HostOperator(
        name or (node.title if node else type(operator).__name__),
        operator.forward,
        pull,
        node=node,
        fixed=fixed,
        ours=bool(node is not None and node.domain),
        aliases=not (node is not None and node.domain),
    )
    return subject if backend is None else replace(subject, to_native=backend.array, to_host=backend.host)


def _of_custom(operator: Checkable, name: str) -> HostOperator:
    """A custom operator on NumPy arrays."""
    instance = operator() if isinstance(operator, type) else operator
    has = getattr(instance, "has_backward", hasattr(instance, "backward"))
    has = has() if callable(has) else has
    names = tuple(getattr(instance, "inputs", ()))
    outputs = tuple(getattr(instance, "outputs", ("output",)))
    found = name or str(getattr(instance, "name", "") or type(instance).__name__)
    return HostOperator(
        found,
        instance.forward,
        _pull_of(instance.forward, instance.backward) if has else None,
        node=OperatorNode(found, names, outputs, domain="levelbench.custom") if names else None,
        aliases=bool(getattr(instance, "aliases", False)),
        deterministic=bool(getattr(instance, "deterministic", True)),
        infer=getattr(instance, "infer", None),
    )


def _pull_of(forward: Function, backward: Function) -> Function:
    def pull(gradients: Sequence[Array], inputs: Sequence[Array]) -> Array:
        return backward(tuple(gradients), tuple(inputs), as_tuple(forward(*inputs)))

    return pull


@dataclass(frozen=True)
class Attempt:
    """The outcome of calling foreign code: a value or an error; ``refused`` if the error is a deliberate refusal."""

    value: Any = None
    error: str = ""
    refused: bool = False

    @property
    def worked(self) -> bool:
        """Whether there is a value."""
        return not self.error


def attempt(function: Function, *arguments: Array) -> Attempt:
    """The outcome of the call; no exception of an operator ends a check."""
    try:
        return Attempt(function(*arguments))
    except LevelbenchError as error:
        return Attempt(error=f"{error.asked}: {error.found}", refused=isinstance(error, UnsupportedError | UsageError))
    except Exception as error:  # noqa: BLE001  # the boundary to operators
        text = str(error).splitlines()[0][:200] if str(error) else "no message"
        return Attempt(error=f"{type(error).__name__}: {text}")


def widened(
    inputs: Sequence[Host | None], dtype: DTypeLike = np.float64, keep: frozenset[int] = frozenset()
) -> list[Host | None]:
    """The inputs with every real floating-point one as ``dtype``, except structural ones (``keep``)."""
    return [
        value if value is None or at in keep or not is_float(value.dtype) else value.astype(dtype)
        for at, value in enumerate(inputs)
    ]


Inputs = list[Host | None]


def replaced(inputs: Sequence[Host | None], at: int, value: Host) -> Inputs:
    """The inputs with ``value`` in place of input ``at``."""
    return [*inputs[:at], value, *inputs[at + 1 :]]


_PRIMES = (7, 13, 17, 19)
_LONG = 4096
_MOST_ELEMENTS = 2**17
# A float16 sum of 4096 such values (225) gets stuck at 128: half its spacing there, 0.0625, exceeds each of them.
_SHORT_OF_STUCK = (0.05, 0.06)


def describe(inputs: Sequence[Host | None]) -> str:
    """``float32[8,16], int64[4]``."""
    return ", ".join(
        "none" if each is None else f"{each.dtype}[{','.join(str(size) for size in each.shape)}]" for each in inputs
    )


def _mapped(inputs: Sequence[Host | None], fixed: frozenset[int], function: Function) -> Inputs:
    return [
        value
        if value is None or at in fixed or not is_float(value.dtype)
        else np.asarray(function(value.astype(np.float64))).astype(value.dtype)
        for at, value in enumerate(inputs)
    ]


def other_values(
    inputs: Sequence[Host | None], fixed: frozenset[int], random: np.random.Generator
) -> Iterator[tuple[str, Inputs]]:
    """The same shapes with other values: fresh, negative, large, small, shifted, with zeros and ties, all equal."""
    yield "fresh values", _mapped(inputs, fixed, lambda x: np.flip(x) * random.uniform(0.5, 1.5, x.shape))
    yield "negative values", _mapped(inputs, fixed, lambda x: -np.abs(x))
    yield "values times 100", _mapped(inputs, fixed, lambda x: 100 * x)
    yield "values times 0.001", _mapped(inputs, fixed, lambda x: 0.001 * x)
    yield "values plus 1000", _mapped(inputs, fixed, lambda x: x + 1000)
    yield "zeros and ties", _mapped(inputs, fixed, lambda x: np.round(2 * x) / 2)
    yield "all equal", _mapped(inputs, fixed, lambda x: np.full_like(x, 0.5))


def special_values(
    inputs: Sequence[Host | None], fixed: frozenset[int], random: np.random.Generator
) -> Iterator[tuple[str, int, Inputs]]:
    """(value, input, inputs with that value at one place) for NaN, both infinities and each floating-point input."""
    for at, value in enumerate(inputs):
        if value is None or at in fixed or not is_float(value.dtype) or not value.size:
            continue
        place = int(random.integers(value.size))
        for name, special in (("NaN", np.nan), ("infinity", np.inf), ("-infinity", -np.inf)):
            changed = value.copy(order="C")
            changed.reshape(-1)[place] = special
            yield name, at, replaced(inputs, at, changed)


def _resized(
    inputs: Sequence[Host | None],
    fixed: frozenset[int],
    old: int,
    new: int,
    random: np.random.Generator,
    positive: bool = False,
) -> Inputs:
    """The inputs with each size ``old`` changed to ``new``; integers and booleans keep their values, repeated."""
    found: Inputs = []
    for at, value in enumerate(inputs):
        if value is None or at in fixed or (old not in value.shape and not positive):
            found.append(value)
            continue
        shape = tuple(new if size == old else size for size in value.shape)
        if not is_float(value.dtype):
            found.append(np.resize(value, shape).astype(value.dtype))
        elif positive:
            found.append(random.uniform(*_SHORT_OF_STUCK, shape).astype(value.dtype))
        else:
            # Draw from the existing values, so that variances stay positive and probabilities below one.
            pool = value.astype(np.float64).ravel() if value.size else np.ones(1)
            found.append((random.choice(pool, shape) * random.uniform(0.9, 1.0, shape)).astype(value.dtype))
    return found


def _sizes(inputs: Sequence[Host | None], fixed: frozenset[int]) -> list[int]:
    found = [each.shape for at, each in enumerate(inputs) if each is not None and at not in fixed]
    return list(dict.fromkeys(size for shape in found for size in shape))


def other_shapes(
    inputs: Sequence[Host | None], fixed: frozenset[int], random: np.random.Generator, first_only: bool = False
) -> Iterator[tuple[str, Inputs]]:
    """Inputs with each size in turn changed, wherever it occurs, to 1, a prime, the next size (a square), and 0.

    ``first_only``: only the sizes of the first input.
    """
    sizes = _sizes(inputs[:1] if first_only else inputs, fixed)
    for old, following in zip(sizes, [*sizes[1:], *sizes[:1]], strict=True):
        prime = next(each for each in _PRIMES if each not in sizes)
        for new in dict.fromkeys((1, prime, following, 0)):
            if new != old:
                yield f"size {old} as {new}", _resized(inputs, fixed, old, new, random)


def long_inputs(
    inputs: Sequence[Host | None], fixed: frozenset[int], random: np.random.Generator
) -> Iterator[tuple[str, Inputs]]:
    """Inputs with each size in turn 4096, and small positive values: long sums in which a narrow accumulator sticks."""
    for old in _sizes(inputs, fixed):
        grown = [
            math.prod(_LONG if size == old else size for size in each.shape)
            for at, each in enumerate(inputs)
            if each is not None and at not in fixed
        ]
        if max(grown, default=0) <= _MOST_ELEMENTS:
            yield f"size {old} as {_LONG}", _resized(inputs, fixed, old, _LONG, random, positive=True)
