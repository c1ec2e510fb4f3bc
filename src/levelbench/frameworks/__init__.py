"""Framework adapters, one folder per framework, found through the entry points ``levelbench.frameworks``."""

from __future__ import annotations

import importlib.util
import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from levelbench.errors import MissingError, UsageError
from levelbench.networks.executor import Backend, Executor, checked_parameters
from levelbench.networks.network import Network
from levelbench.operators.contract import Framework

if TYPE_CHECKING:
    from levelbench.measure.ceilings import GemmMaker


def no_forward() -> UsageError:
    """The error of a backward pass without a forward pass before it."""
    return UsageError("the gradients of a loss", "there was no forward pass", "call forward before each backward")


@contextmanager
def keras_on(framework: str) -> Iterator[None]:
    """Inside, ``import keras`` takes this backend, unless the user chose one or has imported it before."""
    if "KERAS_BACKEND" in os.environ:
        yield
        return
    os.environ["KERAS_BACKEND"] = framework
    try:
        yield
    finally:
        del os.environ["KERAS_BACKEND"]


class PackagedFramework(Framework):
    """A framework that comes as a package of the same name, an optional extra of levelbench.

    Its module ``backend`` is imported only when it is needed. It has the ``backend_class``, ``lacking_device(device)``,
    which returns ``None`` or why the installed framework cannot use the device, and ``gemm(dtype)`` for ``gemm_types``.
    """

    title: str
    """The name as its authors write it."""
    backend_class: str
    gemm_types: tuple[str, ...] = ()

    def lacks(self, device: str = "cpu") -> str | None:
        if importlib.util.find_spec(self.name) is None:
            return f"{self.title} is not installed: {self._install}"
        lacking: str | None = None if device == "cpu" else self._module().lacking_device(device)
        return lacking

    def open(self, device: str = "cpu") -> Backend:
        if lacking := self.lacks(device):
            remedy = self._install if "not installed" in lacking else "choose an available device (--device cpu)"
            raise MissingError(f"framework {self.name!r} on device {device!r}", lacking, remedy)
        backend: Backend = getattr(self._module(), self.backend_class)(device)
        return backend

    def gemms(self) -> Sequence[tuple[str, GemmMaker]]:
        return [(name, self._module().gemm(name)) for name in self.gemm_types]

    def _module(self) -> Any:
        return importlib.import_module(f"levelbench.frameworks.{self.name}.backend")

    @property
    def _install(self) -> str:
        return f'pip install "levelbench[{self.name}]"'


class Float32Backend(Backend):
    """A backend that computes in float32 and ONNX's layout only."""

    def executor(
        self,
        network: Network,
        parameters: Mapping[str, NDArray[Any]] | None = None,
        *,
        mode: str | None = None,
        trains: bool = True,
        precision: str = "float32",
        channels_last: bool = False,
    ) -> Executor:
        self.refuse_other_numbers(precision, channels_last)
        values = network.initialise() if parameters is None else checked_parameters(network, parameters)
        return self.executor_of(network, values, self.chosen_mode(mode), trains)

    @abstractmethod
    def executor_of(
        self, network: Network, parameters: Mapping[str, NDArray[Any]], mode: str, trains: bool
    ) -> Executor:
        """An executor for checked parameters and a known mode."""
