"""The contract of Level 0: a framework opened on a device makes an operator of an ONNX node.

Arrays stay the framework's own, and nothing reaches the host but through ``host``. What an operator must know before it
can compute (the shape for Reshape, the axes of a reduction) is *structural*: it is passed as a NumPy array on every
framework (:mod:`levelbench.operators.node`), so that no device is waited for to read it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UnsupportedError
from levelbench.measure.clocks import HOST, Clock

if TYPE_CHECKING:
    # ONNX takes a while to import, and looking for a framework does not need it.
    import onnx

    from levelbench.measure.ceilings import GemmMaker
    from levelbench.operators.node import OperatorNode

__all__ = [
    "Array",
    "DType",
    "Framework",
    "Function",
    "Operator",
    "OperatorBackend",
    "Pullback",
    "Value",
    "known_upstream",
]

Array = Any
"""A framework's own array. Opaque here: a numpy.ndarray, a torch.Tensor, a jax.Array, ..."""

Value = Any
"""What a value of a graph may be: an array, a list of values (ONNX's sequence), ``None`` (an empty optional)."""

Function = Callable[..., Any]
"""Arrays in (``None`` for one that is left out, NumPy's for structural ones), an array or a tuple of them out."""

DType = np.dtype[Any]
"""The type of an array's elements: NumPy's, or one of ``ml_dtypes``."""

Pullback = Callable[..., tuple[Array | None, ...]]
"""Takes one gradient an output (``None``: zero) and answers with one an input (``None``: not differentiable)."""


class Operator(ABC):
    """An ONNX node on a framework: native arrays in, a tuple of native arrays out, one an output of the node.

    An optional input that is left out is ``None``; so is an output that the node does not name. Structural inputs are
    NumPy arrays. No shape is baked in: each call may bring others.
    """

    node: OperatorNode

    @abstractmethod
    def forward(self, *inputs: Array) -> tuple[Array, ...]:
        """The outputs. Raises ``UnsupportedError`` where the framework cannot (a dtype, a rank)."""

    def backward(
        self, gradients: Sequence[Array | None], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> tuple[Array | None, ...]:
        """The gradients of inputs, given those of outputs: the vector-Jacobian product, by input.

        ``inputs`` and ``outputs`` are those of a :meth:`forward`. ``None`` stands for a zero gradient of an output, and
        in the answer for an input that has none (integers, booleans, structural ones, those left out).
        """
        raise UnsupportedError(f"the gradient of {self.node.title}", "this adapter has none", "use another framework")

    def vjp(self, *inputs: Array) -> tuple[tuple[Array, ...], Pullback]:
        """The outputs, and what takes their gradients to those of the inputs; what is saved in between is its own."""
        outputs = self.forward(*inputs)
        return outputs, lambda *gradients: self.backward(gradients, inputs, outputs)


def known_upstream(faults: Mapping[str, str], seen: Sequence[str], here: str) -> Mapping[str, str]:
    """Each fault with the versions of the framework that it was ``seen`` in, and the one that is ``here`` if not those.

    A fault is not looked for by version: a framework that repaired it passes the test, one that did not is no worse.
    """
    where = f"known upstream, seen in {', '.join(seen)}" + ("" if here in seen else f"; here {here}")
    return MappingProxyType({name: f"{fault}; {where}" for name, fault in faults.items()})


class OperatorBackend(ABC):
    """A framework on one device."""

    any_opset: bool = False
    """Whether it implements each version of an operator that ONNX ever had, and not those of ``OPSETS`` alone."""
    known_faults: Mapping[str, str] = MappingProxyType({})
    """Names of ONNX's node tests that the framework itself answers wrongly, and in which way (`known_upstream`)."""

    @abstractmethod
    def operator(self, node: OperatorNode) -> Operator:
        """The operator that a node describes; ``UnsupportedError`` where there is none."""

    @abstractmethod
    def array(self, host: NDArray[Any]) -> Array:
        """A native array with the same dtype and values; ``UnsupportedError`` for a dtype it has not."""

    @abstractmethod
    def host(self, array: Array) -> NDArray[Any]:
        """A copy on the host with the same dtype (``ml_dtypes`` where NumPy has none), once it has been computed."""

    def model(self, model: onnx.ModelProto) -> Callable[[Sequence[Array]], list[Array]]:
        """A whole ONNX model as a function of its graph's inputs: its nodes one by one, unless a framework can better.

        Raises ``UnsupportedError`` for a node that cannot be made, at once or at the first call.
        """
        from levelbench.operators.program import Program

        return Program(model, self)

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What a record should say: version, threads, determinism. JSON types only."""

    def seed(self, seed: int) -> None:  # noqa: B027  # a framework without random numbers has nothing to seed
        """Seed the framework's own generators."""

    def clock(self, host: Clock = HOST) -> Clock:
        """A clock whose reading includes the work launched before it: the host's, on a synchronous device."""
        return host

    def finish(self, arrays: Sequence[Array]) -> None:  # noqa: B027  # nothing to wait for on a synchronous device
        """Return once ``arrays`` are computed: what a measured call on an asynchronous framework ends with."""


class Framework(ABC):
    """A deep-learning framework, known by name without being imported."""

    name: str
    trains: bool = True
    """Whether its executors train networks, too."""
    modes: tuple[str, ...] = ("eager",)
    """The ways in which it executes networks; the first is taken where nobody chooses."""
    communicators: tuple[str, ...] = ()
    """The libraries between processes that it brings: ``gloo``."""
    imports: tuple[str, ...] = ()
    """The modules that whatever runs on it imports: a process from which runs are forked has imported these."""

    @abstractmethod
    def lacks(self, device: str = "cpu") -> str | None:
        """``None`` if it can run on ``device``, else what is missing and how to get it. Imports nothing for ``cpu``."""

    @abstractmethod
    def open(self, device: str = "cpu") -> OperatorBackend:
        """Import the framework and make ready to use ``device``; ``MissingError`` where it cannot be."""

    def gemms(self) -> Sequence[tuple[str, GemmMaker]]:
        """Matrix products to measure the CPU's ceilings with, by precision; none, where it adds nothing to NumPy."""
        return ()

    def communicator(self, kind: str, place: Any, timeout_s: float) -> Any:
        """The communicator of this rank over ``kind``, one of :attr:`communicators`. Collective.

        ``place`` says where this process is among the ranks and where they meet.
        """
        raise UnsupportedError(f"a communicator over {kind!r}", f"{self.name} brings none", "use gloo or mpi")
