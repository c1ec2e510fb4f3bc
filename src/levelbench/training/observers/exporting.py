"""What exporters share: at each evaluation a run's figures, as names and numbers, go to somebody else's format."""

from __future__ import annotations

import importlib.util
import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from levelbench.errors import LevelbenchError, MissingError, UsageError
from levelbench.records.schema import Evaluation, Specification
from levelbench.training.observers.base import Observer, Progress

if TYPE_CHECKING:
    from levelbench.training.observers.base import Context

__all__ = ["Exporter", "figures", "require"]


class Exporter(Observer):
    """Sends the figures of each evaluation on, from a run of that name and specification.

    One that cannot be opened is an error before the first step. One that fails later is given up with a warning: a run
    is not lost because a disk or a server of somebody else's is full.
    """

    def __init__(self, asked: str, name: str, specification: Specification) -> None:
        self.asked, self.name, self.specification = asked, name, specification
        self._gone = False

    def on_prepared(self, context: Context) -> None:
        """Open it, with what the run is."""
        try:
            self._open(self.name, msgspec.to_builtins(self.specification))
        except LevelbenchError:
            raise
        except Exception as error:  # the boundary to a package that may raise anything
            found = f"it raised {type(error).__name__}: {error}"
            raise UsageError(self.asked, found, "give another place, or leave the observer out") from error

    def on_evaluation(self, progress: Progress, evaluation: Evaluation, step_times_ns: list[int]) -> None:
        """Send the figures."""
        self._try(lambda: self._send(evaluation.step, figures(evaluation, step_times_ns)))

    def on_end(self, progress: Progress) -> None:
        """Close it."""
        self._try(self._close)

    def _try(self, what: Callable[[], None]) -> None:
        if self._gone:
            return
        try:
            what()
        except Exception as error:  # noqa: BLE001  # the boundary to a package that may raise anything
            self._gone = True
            warnings.warn(f"{self.asked} is given up: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=2)

    @abstractmethod
    def _open(self, name: str, specification: dict[str, Any]) -> None:
        """Begin a run of that name; ``specification`` is what it is to be, in JSON types."""

    @abstractmethod
    def _send(self, step: int, values: Mapping[str, float]) -> None:
        """Take the figures at a step."""

    @abstractmethod
    def _close(self) -> None:
        """Bring all to where it goes."""


def figures(evaluation: Evaluation, step_times_ns: list[int]) -> dict[str, float]:
    """The figures of an evaluation by name; what is not finite, or not there, is left out."""
    found: dict[str, float] = {
        **{f"quality/{name}": value for name, value in evaluation.quality.items()},
        "epoch": evaluation.epoch,
        "samples": float(evaluation.samples),
        "time_s": evaluation.t_ns * 1e-9,
        **{f"phase_s/{name}": ns * 1e-9 for name, ns in evaluation.phases_ns.items()},
    }
    if evaluation.loss is not None:
        found["loss"] = evaluation.loss
    if step_times_ns:
        found["step_time_s"] = sum(step_times_ns) * 1e-9 / len(step_times_ns)
    return {name: value for name, value in found.items() if math.isfinite(value)}


def require(package: str, extra: str, asked: str) -> None:
    """``MissingError`` unless the package is here; it is not imported to find out."""
    if importlib.util.find_spec(package) is None:
        raise MissingError(asked, f"the package {package} is not here", f'pip install "levelbench[{extra}]"')
