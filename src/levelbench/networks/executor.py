"""The contract between a network and a framework: Framework, opened on a device as a Backend, making Executors.

The one idea: arrays stay the framework's own. The trainer moves them about without looking inside, and only what it
asks for through ``Backend.host`` reaches the host.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.measure.ceilings import GemmMaker
from levelbench.measure.clocks import HOST, Clock
from levelbench.networks.network import Network

__all__ = ["Array", "Backend", "Executor", "Framework"]

Array = Any
"""A framework's own array. Opaque here: a numpy.ndarray, a torch.Tensor, ..."""


class Executor(ABC):
    """A network on a backend, with live parameters. The loss is the mean cross-entropy of the softmax."""

    parameters: dict[str, Array]
    """The live arrays: an update in place (``array -= step``) changes what the network computes, and so does putting
    another array in the place of one (``parameters[name] = array``)."""

    @abstractmethod
    def infer(self, inputs: Array) -> Array:
        """Logits of shape (batch, classes). Leaves no trace: no gradient, no saved activation."""

    @abstractmethod
    def forward(self, inputs: Array, labels: Array) -> Array:
        """The loss of a batch, a scalar array; keeps what :meth:`backward` needs."""

    @abstractmethod
    def backward(self) -> Mapping[str, Array]:
        """Gradients by parameter name of the last :meth:`forward`; to be called once after each."""

    def infer_and_backprop(self, inputs: Array, labels: Array) -> tuple[Array, Mapping[str, Array]]:
        """The loss and its gradients."""
        loss = self.forward(inputs, labels)
        return loss, self.backward()


class Backend(ABC):
    """A framework on one device."""

    @abstractmethod
    def executor(self, network: Network, parameters: Mapping[str, NDArray[np.float32]]) -> Executor:
        """An executor that starts from a copy of these parameters."""

    @abstractmethod
    def array(self, host: NDArray[Any]) -> Array:
        """A native array with the same dtype and values."""

    @abstractmethod
    def host(self, array: Array) -> NDArray[Any]:
        """A copy on the host, once the device has computed it."""

    @abstractmethod
    def take(self, array: Array, indices: Array) -> Array:
        """Rows of ``array`` at ``indices`` (a native array of int64), as a new native array."""

    @abstractmethod
    def mean(self, scalars: Sequence[Array]) -> float:
        """The mean of at least one scalar array, on the host."""

    @abstractmethod
    def seed(self, seed: int) -> None:
        """Seed the framework's own generators."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What a record should say: version, threads, determinism. JSON types only."""

    def clock(self, host: Clock = HOST) -> Clock:
        """A clock whose reading includes the work launched before it: the host's, on a synchronous device."""
        return host


class Framework(ABC):
    """A deep-learning framework, known by name without being imported."""

    name: str

    @abstractmethod
    def lacks(self, device: str = "cpu") -> str | None:
        """``None`` if it can run on ``device``, else what is missing and how to get it. Imports nothing for ``cpu``."""

    @abstractmethod
    def open(self, device: str = "cpu") -> Backend:
        """Import the framework and make ready to use ``device``; ``MissingError`` where it cannot be."""

    def gemms(self) -> Sequence[tuple[str, GemmMaker]]:
        """Matrix products to measure the CPU's ceilings with, by precision; none, where it adds nothing to NumPy."""
        return ()
