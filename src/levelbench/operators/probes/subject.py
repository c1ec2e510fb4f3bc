"""The operator under test as a function on host arrays, whatever it runs on, and inputs to check it with.

The probes know no framework: they pass NumPy arrays, get NumPy arrays back, and access native arrays only through what
every array library offers (slices, axes, DLPack).
"""

from __future__ import annotations

import dis
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
from levelbench.operators.custom.library import is_foreign
from levelbench.operators.node import OperatorNode, structural

Values = tuple[Host | None, ...]
Checkable = Any
"""What can be checked: an :class:`Operator`, a custom operator or its class, a function, a :class:`HostOperator`."""


@contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings: an operator may warn about an empty axis or infinity, but only its result is judged."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class HostOperator:
    """An operator as a function on host arrays.

    ``call`` takes native arrays; ``pull`` takes native gradients of the outputs and inputs, and returns one per input.
    ``begin`` does the same in two parts, between which there may be other calls: it takes inputs, and returns outputs
    and the function from their gradients. ``direct`` is the user's own function of NumPy arrays, without the adapter
    that copies outputs which share memory.
    ``ours`` is whether the user wrote it. Such an operator must do more than a framework's: no outputs that share
    memory with inputs unless ``aliases``, all shapes that the reference accepts, and NaN where the reference has it.
    """

    name: str
    call: Callable[..., Any]
    pull: Callable[[Sequence[Any], Sequence[Any]], Any] | None = None
    begin: Callable[[Sequence[Any]], tuple[Sequence[Any], Callable[[Sequence[Any]], Any]]] | None = None
    to_native: Callable[[Host], Any] = np.asarray
    to_host: Callable[[Any], Host] = np.array
    node: OperatorNode | None = None
    fixed: frozenset[int] = frozenset()
    ours: bool = True
    aliases: bool = False
    deterministic: bool = True
    infer: Callable[..., Any] | None = None
    direct: Callable[..., Any] | None = None
    backend: OperatorBackend | None = None

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
        with quiet():
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
        with quiet():
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
        begin = None if backward is None else _begin_of(operator, backward)
        found = name or getattr(operator, "__name__", type(operator).__name__)
        return HostOperator(found, operator, _pull_of(begin), begin, aliases=getattr(operator, "aliases", False))
    kind = type(operator).__name__
    raise UsageError("a check", f"a {kind} is neither an operator nor a function", "give something with a forward")


def _of_operator(operator: Operator, backend: OperatorBackend | None, name: str) -> HostOperator:
    def begin(inputs: Sequence[Array]) -> tuple[Sequence[Array], Callable[[Sequence[Array]], Array]]:
        outputs, pullback = operator.vjp(*inputs)
        return outputs, lambda gradients: pullback(*gradients)

    node: OperatorNode | None = getattr(operator, "node", None)
    fixed = frozenset(structural(node)) if node is not None else frozenset[int]()
    subject = HostOperator(
        name or (node.title if node else type(operator).__name__),
        operator.forward,
        _pull_of(begin),
        begin,
        node=node,
        fixed=fixed,
        ours=bool(node is not None and node.domain),
        aliases=not (node is not None and node.domain),
    )
    return (
        subject if backend is None else replace(subject, to_native=backend.array, to_host=backend.host, backend=backend)
    )


def _of_custom(operator: Checkable, name: str) -> HostOperator:
    """A custom operator on NumPy arrays."""
    instance = operator() if isinstance(operator, type) else operator
    has = getattr(instance, "has_backward", hasattr(instance, "backward"))
    has = has() if callable(has) else has
    names = tuple(getattr(instance, "inputs", ()))
    outputs = tuple(getattr(instance, "outputs", ("output",)))
    found = name or str(getattr(instance, "name", "") or type(instance).__name__)
    begin = _begin_of(instance.forward, instance.backward) if has else None
    return HostOperator(
        found,
        instance.forward,
        _pull_of(begin),
        begin,
        node=OperatorNode(found, names, outputs, domain="levelbench.custom") if names else None,
        aliases=bool(getattr(instance, "aliases", False)),
        deterministic=bool(getattr(instance, "deterministic", True)),
        infer=getattr(instance, "infer", None),
    )


def _begin_of(forward: Function, backward: Function) -> Function:
    def begin(inputs: Sequence[Array]) -> tuple[Sequence[Array], Callable[[Sequence[Array]], Array]]:
        outputs = as_tuple(forward(*inputs))
        return outputs, lambda gradients: backward(tuple(gradients), tuple(inputs), outputs)

    return begin


def _pull_of(begin: Function | None) -> Function | None:
    """Forward and backward with nothing between them."""
    return None if begin is None else lambda gradients, inputs: begin(inputs)[1](gradients)


@dataclass(frozen=True)
class Attempt:
    """The outcome of calling foreign code: a value or an error.

    ``refused`` is whether the error is a deliberate refusal, and ``declined`` whether it is a ``ValueError`` that a
    ``raise`` in the user's own code made.
    """

    value: Any = None
    error: str = ""
    refused: bool = False
    declined: bool = False

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
        return Attempt(error=f"{type(error).__name__}: {text}", declined=_declines(error))


def _declines(error: Exception) -> bool:
    """Whether it is a ``ValueError`` of a ``raise`` statement in the user's code, and not of an array library."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not isinstance(error, ValueError):
        return False
    code = trace.tb_frame.f_code
    return is_foreign(code.co_filename) and dis.opname[code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"


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
