"""An ONNX operator in NumPy: functions of arrays, and the table of their makers by ONNX's name.

The one idea: a maker reads the node's attributes once and answers with plain functions, so a call looks nothing up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from levelbench.errors import UnsupportedError
from levelbench.operators.contract import Pullback
from levelbench.operators.node import OperatorNode

__all__ = ["Kernel", "Maker", "Registry", "Wanted", "as_outputs"]

Wanted = Sequence[bool] | None
"""Which inputs' gradients somebody wants; ``None``: all."""


@dataclass(frozen=True)
class Kernel:
    """What a node computes. A function that meets what it does not cover raises ``UnsupportedError``.

    ``forward(*inputs)`` returns an array or a tuple of the outputs. ``backward(gradients, inputs, outputs)`` returns
    one gradient an input, ``None`` where there is none. ``vjp(*inputs)`` saves work where both are wanted: it returns
    (tuple of outputs, pullback) with ``pullback(*gradients)`` as backward's answer. Where the kernel is ``selective``,
    its backward and vjp also take the keyword ``wanted``, one bool an input (``None``: all), and leave out the
    gradients that nobody wants.
    """

    forward: Callable[..., Any]
    backward: Callable[..., tuple[Any, ...]] | None = None
    vjp: Callable[..., Any] | None = None
    selective: bool = False

    def differentiate(self, inputs: Sequence[Any], wanted: Wanted = None) -> tuple[tuple[Any, ...], Pullback]:
        """The outputs and a function of their gradients; ``UnsupportedError`` where there is no gradient."""
        choice = {"wanted": wanted} if self.selective else {}
        if self.vjp is not None:
            found: tuple[tuple[Any, ...], Pullback] = self.vjp(*inputs, **choice)
            return found
        backward = self.backward
        if backward is None:
            raise UnsupportedError("a gradient on numpy", "the operator has none here", "use another framework")
        outputs = as_outputs(self.forward(*inputs))
        return outputs, lambda *gradients: backward(gradients, inputs, outputs, **choice)


def as_outputs(found: Any) -> tuple[Any, ...]:
    """What a forward returned, as a tuple."""
    return found if isinstance(found, tuple) else (found,)


Maker = Callable[[OperatorNode], Kernel]
"""Makes the kernel of a node. What it does not cover it refuses with ``UnsupportedError``: then ONNX's is taken."""


class Registry:
    """Makers by operator name, filled with the decorator :meth:`add`."""

    def __init__(self) -> None:
        self._makers: dict[str, Maker] = {}

    def add(self, *names: str) -> Callable[[Maker], Maker]:
        """Register a maker under ONNX's ``names``; ``ValueError`` for a name that is taken."""

        def register(maker: Maker) -> Maker:
            for name in names:
                if name in self._makers:
                    raise ValueError(f"operator {name} has two makers in NumPy")
                self._makers[name] = maker
            return maker

        return register

    def merge(self, other: Registry) -> None:
        """Take over the makers of ``other``."""
        for name, maker in other.makers.items():
            self.add(name)(maker)

    @property
    def makers(self) -> MutableMapping[str, Maker]:
        """The makers by name."""
        return self._makers

    def __contains__(self, name: object) -> bool:
        return name in self._makers

    def __getitem__(self, name: str) -> Maker:
        return self._makers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)
