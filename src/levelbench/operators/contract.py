"""The contract of Level 0: a framework opened on a device turns ONNX nodes into operators.

Arrays stay the framework's own, and only ``host`` copies them to the host. Inputs that an operator must know before it
can compute (the shape for Reshape, the axes of a reduction) are *structural*: they are passed as NumPy arrays on every
framework (:mod:`levelbench.operators.node`), so that reading them never waits for a device.
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
    # ONNX takes a while to import, and finding a framework does not need it.
    import onnx

    from levelbench.measure.ceilings import GemmMaker
    from levelbench.operators.node import OperatorNode

Array = Any
"""A framework's own array. Opaque here: a numpy.ndarray, a torch.Tensor, a jax.Array, ..."""

Value = Any
"""A value of a graph: an array, a list of values (ONNX's sequence), or ``None`` (an empty optional)."""

Function = Callable[..., Any]
"""Takes arrays (``None`` for an omitted one, NumPy's for structural ones), returns an array or a tuple of arrays."""

DType = np.dtype[Any]
"""The type of an array's elements: NumPy's, or one of ``ml_dtypes``."""

Pullback = Callable[..., tuple[Array | None, ...]]
"""Takes one gradient per output (``None``: zero) and returns one per input (``None``: not differentiable)."""


def as_tuple(found: Array) -> tuple[Array, ...]:
    """The result of a forward or backward, which may be one array or several."""
    return tuple(found) if isinstance(found, tuple | list) else (found,)


class Operator(ABC):
    """An ONNX node on a framework: takes native arrays, returns a tuple of native arrays, one per output of the node.

    An omitted optional input is ``None``; so is an output that the node does not name. Structural inputs are NumPy
    arrays. No shape is baked in: every call may have different ones.
    """

    node: OperatorNode

    @abstractmethod
    def forward(self, *inputs: Array) -> tuple[Array, ...]:
        """The outputs. Raises ``UnsupportedError`` for what the framework cannot do (a dtype, a rank)."""

    def backward(
        self, gradients: Sequence[Array | None], inputs: Sequence[Array], outputs: Sequence[Array]
    ) -> tuple[Array | None, ...]:
        """The gradients of the inputs, given those of the outputs: the vector-Jacobian product, by input.

        ``inputs`` and ``outputs`` are those of a :meth:`forward`. ``None`` stands for a zero gradient of an output. In
        the result it stands for an input without a gradient (integers, booleans, structural and omitted ones).
        """
        raise UnsupportedError(f"the gradient of {self.node.title}", "this adapter has none", "use another framework")

    def vjp(self, *inputs: Array) -> tuple[tuple[Array, ...], Pullback]:
        """The outputs, and a function from their gradients to those of the inputs, which owns what it saves."""
        outputs = self.forward(*inputs)
        return outputs, lambda *gradients: self.backward(gradients, inputs, outputs)


def known_upstream(faults: Mapping[str, str], seen: Sequence[str], here: str) -> Mapping[str, str]:
    """Each fault with the framework versions in which it was ``seen``, and the installed one (``here``) if it differs.

    Faults are not tied to versions: a framework that fixed one passes the test, and one that did not is no worse.
    """
    where = f"known upstream, seen in {', '.join(seen)}" + ("" if here in seen else f"; here {here}")
    return MappingProxyType({name: f"{fault}; {where}" for name, fault in faults.items()})


class OperatorBackend(ABC):
    """A framework on one device."""

    any_opset: bool = False
    """Whether it implements every version of every operator that ONNX ever had, and not only those of ``OPSETS``."""
    known_faults: Mapping[str, str] = MappingProxyType({})
    """Names of ONNX's node tests that the framework itself gets wrong, and how (`known_upstream`)."""

    @abstractmethod
    def operator(self, node: OperatorNode) -> Operator:
        """The operator that a node describes; ``UnsupportedError`` if there is none."""

    @abstractmethod
    def array(self, host: NDArray[Any]) -> Array:
        """A native array with the same dtype and values; ``UnsupportedError`` for a dtype it does not have."""

    @abstractmethod
    def host(self, array: Array) -> NDArray[Any]:
        """A copy on the host with the same dtype (``ml_dtypes`` if NumPy has none), once it has been computed."""

    def memory(self, array: Array) -> NDArray[Any] | None:
        """The memory of a native array, to read and change its values between calls; ``None`` if not on the host."""
        return None

    def written(self, array: Array) -> None:  # noqa: B027  # most frameworks keep nothing that depends on values
        """Tell the framework that the :meth:`memory` of an array was changed."""

    def channels_last(self, array: Array) -> Array:
        """The values of an array with four or five axes, its channels last in memory; others are as they are.

        Raises ``UnsupportedError`` if the framework has ONNX's layout only.
        """
        raise UnsupportedError("channels_last on this framework", "it computes in ONNX's layout", "use torch")

    def algorithm(self, operator: Operator, call: Callable[[], object]) -> tuple[str | None, str]:
        """The algorithm that the framework chooses in a ``call`` of ``operator``, in its own words; else ``None``, why.

        The call is made once or not at all. Nothing here belongs into a timed call: telling takes time.
        """
        return None, "this framework does not tell"

    def model(self, model: onnx.ModelProto) -> Callable[[Sequence[Array]], list[Array]]:
        """A whole ONNX model as a function of its graph's inputs: node by node, unless a framework has a better way.

        Raises ``UnsupportedError`` for a node that is not supported, either immediately or at the first call.
        """
        from levelbench.operators.program import Program

        return Program(model, self)

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What goes into a record: version, threads, determinism. JSON types only."""

    def seed(self, seed: int) -> None:  # noqa: B027  # a framework without random numbers has nothing to seed
        """Seed the framework's own generators."""

    def clock(self, host: Clock = HOST) -> Clock:
        """A clock whose reading includes the work launched before it; on a synchronous device, the host's clock."""
        return host

    def finish(self, arrays: Sequence[Array]) -> None:  # noqa: B027  # nothing to wait for on a synchronous device
        """Return once ``arrays`` are computed. Ends every measured call on an asynchronous framework."""


class Framework(ABC):
    """A deep-learning framework, known by name without being imported."""

    name: str
    trains: bool = True
    """Whether its executors can also train networks."""
    operators: bool = True
    """Whether it also runs single operators."""
    modes: tuple[str, ...] = ("eager",)
    """The ways in which it executes networks; the first is the default."""
    communicators: tuple[str, ...] = ()
    """The communication libraries that it provides, such as ``gloo``."""
    channels_last: bool = False
    """Whether its operators take arrays whose channels are last in memory (``OperatorBackend.channels_last``)."""
    imports: tuple[str, ...] = ()
    """The modules that every run on it needs: a process from which runs are forked imports them beforehand."""

    @abstractmethod
    def lacks(self, device: str = "cpu") -> str | None:
        """``None`` if it can run on ``device``, else what is missing and how to get it. Imports nothing for ``cpu``."""

    def lacks_custom(self) -> tuple[str, str] | None:
        """``None`` if it calls operators of the user's own, else what is missing and what to do. Imports nothing."""
        return None

    @abstractmethod
    def open(self, device: str = "cpu") -> OperatorBackend:
        """Import the framework and prepare ``device`` for use; ``MissingError`` if that is not possible."""

    def gemms(self) -> Sequence[tuple[str, GemmMaker]]:
        """Matrix products to measure the CPU's ceilings with, by precision; empty if it adds nothing to NumPy."""
        return ()

    def communicator(self, kind: str, place: Any, timeout_s: float) -> Any:
        """The communicator of this rank over ``kind``, one of :attr:`communicators`. Collective.

        ``place`` says where this process is among the ranks and where they meet.
        """
        raise UnsupportedError(f"a communicator over {kind!r}", f"{self.name} provides none", "use gloo or mpi")
