"""What is checked, seen as a function on host arrays, wherever it runs: an operator, a custom operator or a function.

The one idea: the checks know of no framework. They hand over NumPy arrays, get NumPy arrays back, and reach the native
arrays in between only through what every array library offers (slices, axes, DLPack).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DefinitionError, LevelbenchError, UnsupportedError, UsageError
from levelbench.operators.contract import Operator, OperatorBackend
from levelbench.operators.node import OperatorNode, structural
from levelbench.operators.validation.tolerances import is_float

__all__ = ["Attempt", "Host", "Subject", "attempt", "subject_of", "widened"]

Host = NDArray[Any]
Values = tuple[Host | None, ...]


@contextmanager
def _quiet() -> Iterator[None]:
    """An operator that is given an empty axis or infinity may warn; what it answers is what is judged."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class Subject:
    """``call`` takes native arrays; ``pull`` takes gradients of outputs and inputs, native, and answers by input.

    ``ours`` is whether it was written by the user, who is held to more than a framework is: no outputs that share
    memory with inputs unless ``aliases``, every shape that the reference takes, NaN where the reference has it.
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

    def native(self, inputs: Sequence[Host | None]) -> list[Any]:
        """Native arrays of copies; structural inputs stay on the host."""
        return [self._native(at, value) for at, value in enumerate(inputs)]

    def _native(self, at: int, value: Host | None) -> Any:
        if value is None:
            return None
        # A fresh copy is aligned alike at every call, so a kernel has no reason to take another path.
        copy = value.copy(order="C")
        return copy if at in self.fixed else self.to_native(copy)

    def outputs(self, native: Sequence[Any]) -> tuple[Any, ...]:
        """The native outputs for native inputs."""
        with _quiet():
            found = self.call(*native)
        return tuple(found) if isinstance(found, tuple | list) else (found,)

    def hosted(self, values: Sequence[Any]) -> Values:
        """Copies on the host."""
        return tuple(None if value is None else np.asarray(self.to_host(value)) for value in values)

    def forward(self, inputs: Sequence[Host | None]) -> Values:
        """The outputs for inputs on the host, which stay as they are."""
        return self.hosted(self.outputs(self.native(inputs)))

    def vjp(self, gradients: Sequence[Host | None], inputs: Sequence[Host | None]) -> Values:
        """The gradients of inputs; ``UnsupportedError`` without a backward, ``DefinitionError`` for a wrong number."""
        if self.pull is None:
            raise UnsupportedError(f"the gradient of {self.name}", "it has no backward", "write one")
        native = [None if each is None else self.to_native(each.copy(order="C")) for each in gradients]
        with _quiet():
            found = self.pull(native, self.native(inputs))
        answer = tuple(found) if isinstance(found, tuple | list) else (found,)
        if len(answer) != len(inputs):
            says = f"it answers with {len(answer)} gradients for {len(inputs)} inputs"
            raise DefinitionError(f"the backward of {self.name}", says, "return one an input, None where there is none")
        return self.hosted(answer)

    def input_name(self, at: int) -> str:
        """``input 1 'W'``."""
        names = self.node.inputs if self.node else ()
        return f"input {at} {names[at]!r}" if at < len(names) and names[at] else f"input {at}"

    def output_name(self, at: int) -> str:
        """``output 0 'Y'``."""
        names = self.node.outputs if self.node else ()
        return f"output {at} {names[at]!r}" if at < len(names) and names[at] else f"output {at}"

    def may_lack_gradient(self, at: int) -> bool:
        """Whether ONNX's schema says that the input is not differentiable, or does not say that it is."""
        schema = self.node.schema if self.node is not None else None
        if schema is None:
            return False
        parameters = schema.inputs
        category = parameters[min(at, len(parameters) - 1)].differentiation_category
        return bool(category == type(category).NonDifferentiable)


def subject_of(
    operator: Any,
    backend: OperatorBackend | None = None,
    *,
    name: str = "",
    backward: Callable[..., Any] | None = None,
) -> Subject:
    """The subject of an :class:`Operator` of ``backend`` (``None``: on NumPy arrays), a custom operator, a function.

    ``backward(gradients, inputs, outputs)`` goes with a function.
    """
    if isinstance(operator, Subject):
        return operator
    if isinstance(operator, Operator):
        return _of_operator(operator, backend, name)
    if hasattr(operator, "forward"):
        return _of_custom(operator, name)
    if callable(operator):
        pull = None if backward is None else _pull_of(operator, backward)
        found = name or getattr(operator, "__name__", type(operator).__name__)
        return Subject(found, operator, pull, aliases=getattr(operator, "aliases", False))
    kind = type(operator).__name__
    raise UsageError("a check", f"a {kind} is neither an operator nor a function", "give one that has a forward")


def _of_operator(operator: Operator, backend: OperatorBackend | None, name: str) -> Subject:
    def pull(gradients: Sequence[Any], inputs: Sequence[Any]) -> Any:
        return operator.vjp(*inputs)[1](*gradients)

    node: OperatorNode | None = getattr(operator, "node", None)
    fixed = frozenset(structural(node)) if node is not None else frozenset[int]()
    subject = Subject(
        name or (node.title if node else type(operator).__name__),
        operator.forward,
        pull,
        node=node,
        fixed=fixed,
        ours=bool(node is not None and node.domain),
        aliases=not (node is not None and node.domain),
    )
    return subject if backend is None else replace(subject, to_native=backend.array, to_host=backend.host)


def _of_custom(operator: Any, name: str) -> Subject:
    """A custom operator on NumPy arrays."""
    instance = operator() if isinstance(operator, type) else operator
    has = getattr(instance, "has_backward", hasattr(instance, "backward"))
    has = has() if callable(has) else has
    names = tuple(getattr(instance, "inputs", ()))
    outputs = tuple(getattr(instance, "outputs", ("output",)))
    found = name or str(getattr(instance, "name", "") or type(instance).__name__)
    return Subject(
        found,
        instance.forward,
        _pull_of(instance.forward, instance.backward) if has else None,
        node=OperatorNode(found, names, outputs, domain="levelbench.custom") if names else None,
        aliases=bool(getattr(instance, "aliases", False)),
        deterministic=bool(getattr(instance, "deterministic", True)),
        infer=getattr(instance, "infer", None),
    )


def _pull_of(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    def pull(gradients: Sequence[Any], inputs: Sequence[Any]) -> Any:
        found = forward(*inputs)
        outputs = tuple(found) if isinstance(found, tuple | list) else (found,)
        return backward(tuple(gradients), tuple(inputs), outputs)

    return pull


@dataclass(frozen=True)
class Attempt:
    """What came of a call of code that is not ours: a value, or an error; ``refused`` where it was stated as one."""

    value: Any = None
    error: str = ""
    refused: bool = False

    @property
    def worked(self) -> bool:
        """Whether there is a value."""
        return not self.error


def attempt(function: Callable[..., Any], *arguments: Any) -> Attempt:
    """The call's outcome; nothing that an operator raises ends a check."""
    try:
        return Attempt(function(*arguments))
    except LevelbenchError as error:
        return Attempt(error=f"{error.asked}: {error.found}", refused=isinstance(error, UnsupportedError | UsageError))
    except Exception as error:  # noqa: BLE001  # the boundary to operators
        text = str(error).splitlines()[0][:200] if str(error) else "no message"
        return Attempt(error=f"{type(error).__name__}: {text}")


def widened(
    inputs: Sequence[Host | None], dtype: Any = np.float64, keep: frozenset[int] = frozenset()
) -> list[Host | None]:
    """The inputs with every real floating-point one as ``dtype``, structural ones (``keep``) as they are."""
    return [
        value if value is None or at in keep or not is_float(value.dtype) else value.astype(dtype)
        for at, value in enumerate(inputs)
    ]
