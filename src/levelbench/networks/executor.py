"""The contract between a network and a framework: a Backend, a framework opened on a device, makes Executors.

The one idea: arrays stay the framework's own. The trainer moves them about without looking inside, and only what it
asks for through ``Backend.host`` reaches the host.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from levelbench.networks.network import Network
from levelbench.operators.contract import Array, OperatorBackend

__all__ = ["Array", "Backend", "Executor"]


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


class Backend(OperatorBackend):
    """A framework on one device that executes and trains whole networks."""

    @abstractmethod
    def executor(self, network: Network, parameters: Mapping[str, NDArray[np.float32]]) -> Executor:
        """An executor that starts from a copy of these parameters."""

    @abstractmethod
    def take(self, array: Array, indices: Array) -> Array:
        """Rows of ``array`` at ``indices`` (a native array of int64), as a new native array."""

    @abstractmethod
    def mean(self, scalars: Sequence[Array]) -> float:
        """The mean of at least one scalar array, on the host."""

    @abstractmethod
    def seed(self, seed: int) -> None:
        """Seed the framework's own generators."""
