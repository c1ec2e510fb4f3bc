"""Framework adapters, one folder per framework, found through the entry points ``levelbench.frameworks``."""

from __future__ import annotations

import importlib.util
from abc import abstractmethod

from levelbench.errors import MissingError, UsageError
from levelbench.networks.executor import Backend
from levelbench.operators.contract import Framework


def no_forward() -> UsageError:
    """The error of a backward pass without a forward pass before it."""
    return UsageError("the gradients of a loss", "there was no forward pass", "call forward before each backward")


class PackagedFramework(Framework):
    """A framework that comes as a package of the same name, an optional extra of levelbench."""

    title: str
    """The name as its authors write it."""

    @abstractmethod
    def lacking_device(self, device: str) -> str | None:
        """``None`` if the framework, which is installed, can use a device other than ``cpu``, else the reason."""

    @abstractmethod
    def backend(self, device: str) -> Backend:
        """The framework on a device that is not lacking; its module is imported only now."""

    def lacks(self, device: str = "cpu") -> str | None:
        """The package, or the device."""
        if importlib.util.find_spec(self.name) is None:
            return f"{self.title} is not installed: {self._install}"
        return None if device == "cpu" else self.lacking_device(device)

    def open(self, device: str = "cpu") -> Backend:
        """Import the framework and take the device."""
        if lacking := self.lacks(device):
            remedy = self._install if "not installed" in lacking else "choose a device that is there (--device cpu)"
            raise MissingError(f"framework {self.name!r} on device {device!r}", lacking, remedy)
        return self.backend(device)

    @property
    def _install(self) -> str:
        return f'pip install "levelbench[{self.name}]"'
