"""A forward and its backward made ready for probing: the dtype to probe in, outputs as one vector, the form of answers.

The one idea: probing is done in float64 wherever the operator computes in it, since differences in float32 see only
one part in a few hundred.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UnsupportedError, UsageError
from levelbench.operators.validation.slopes import Evaluate
from levelbench.operators.validation.subject import Host, Subject, attempt, widened
from levelbench.operators.validation.tolerances import is_float

__all__ = ["GradientReport", "InputGradient", "Probe", "Status", "make_probe"]

Status = Literal["right", "wrong", "not tried"]


@dataclass(frozen=True)
class InputGradient:
    """What was found of one input's gradient. ``worst`` is the largest deviation, as a share of what was allowed."""

    name: str
    status: Status
    detail: str
    worst: float = 0.0


@dataclass(frozen=True)
class GradientReport:
    """All inputs of an operator, and the dtype that they were probed in."""

    name: str
    dtype: str
    inputs: tuple[InputGradient, ...]

    @property
    def notes(self) -> list[str]:
        """What a reader should know: which inputs were moved, left out or not tried."""
        return [f"{each.name}: {each.detail}" for each in self.inputs if each.detail]


@dataclass(frozen=True)
class Probe:
    """``inputs`` are those that are probed at, ``floats`` the positions of floating-point outputs."""

    subject: Subject
    inputs: tuple[Host | None, ...]
    outputs: tuple[Host | None, ...]
    floats: tuple[int, ...]
    dtype: np.dtype[Any]

    def evaluate(self, at: int) -> Evaluate:
        """The floating-point outputs as one float64 vector, as a function of input ``at``."""

        def call(value: NDArray[Any]) -> NDArray[np.float64]:
            return self.flat(self.subject.forward([*self.inputs[:at], value, *self.inputs[at + 1 :]]))

        return call

    def flat(self, outputs: Sequence[Host | None]) -> NDArray[np.float64]:
        """One vector of the floating-point ones among ``outputs``."""
        parts = [np.asarray(outputs[at]).astype(np.float64).ravel() for at in self.floats]
        return np.concatenate(parts) if parts else np.zeros(0)

    def split(self, flat: NDArray[np.float64]) -> list[Host | None]:
        """Gradients of outputs with the values of ``flat``; ``None`` for outputs that are not floating-point."""
        found: list[Host | None] = [None] * len(self.outputs)
        start = 0
        for at in self.floats:
            output = np.asarray(self.outputs[at])
            found[at] = flat[start : start + output.size].reshape(output.shape).astype(output.dtype)
            start += output.size
        return found

    def random_gradients(self, random: np.random.Generator) -> list[Host | None]:
        """Normal ones."""
        return self.split(random.standard_normal(sum(np.asarray(self.outputs[at]).size for at in self.floats)))

    def vjp(self, gradients: Sequence[Host | None], inputs: Sequence[Host | None]) -> tuple[Host | None, ...]:
        """The backward's answer."""
        return self.subject.vjp(gradients, inputs)

    def form_of(self, gradient: Host, at: int) -> str | None:
        """What is wrong with the shape or dtype of the gradient of input ``at``, if anything."""
        value = self.inputs[at]
        assert value is not None
        name = self.subject.input_name(at)
        if gradient.shape != value.shape:
            return f"the gradient of {name} has the shape {gradient.shape}, and the input {value.shape}"
        if gradient.dtype != value.dtype:
            return f"the gradient of {name} has the dtype {gradient.dtype}, and the input {value.dtype}"
        return None


def make_probe(subject: Subject, inputs: Sequence[Host | None]) -> Probe:
    """In float64 if the forward takes it and answers in it, else as given.

    Raises ``UsageError`` for inputs that the forward refuses, and for outputs of which none is floating-point.
    """
    if subject.pull is None:
        raise UnsupportedError(f"the gradient of {subject.name}", "it has no backward", "check the forward alone")
    if any(each is not None and is_float(each.dtype) for each in inputs):
        wide = tuple(widened(inputs, keep=subject.fixed))
        found = attempt(subject.forward, wide)
        probe = _probe(subject, wide, found.value) if found.worked else None
        if probe is not None and probe.dtype == np.float64:
            zeros = probe.split(np.zeros(sum(np.asarray(probe.outputs[at]).size for at in probe.floats)))
            if not attempt(probe.vjp, zeros, wide).refused:
                return probe
    given = tuple(inputs)
    found = attempt(subject.forward, given)
    if not found.worked:
        raise UsageError(f"the gradient of {subject.name}", f"its forward fails: {found.error}", "give other inputs")
    probe = _probe(subject, given, found.value)
    if probe is None:
        raise UnsupportedError(f"the gradient of {subject.name}", "no output is floating-point", "check the forward")
    return probe


def _probe(subject: Subject, inputs: tuple[Host | None, ...], outputs: tuple[Host | None, ...]) -> Probe | None:
    floats = tuple(at for at, each in enumerate(outputs) if each is not None and is_float(each.dtype))
    if not floats:
        return None
    found = [np.asarray(outputs[at]).dtype for at in floats]
    free = [each for at, each in enumerate(inputs) if each is not None and at not in subject.fixed]
    found += [each.dtype for each in free if is_float(each.dtype)]
    return Probe(subject, inputs, outputs, floats, min(found, key=lambda each: each.itemsize))
