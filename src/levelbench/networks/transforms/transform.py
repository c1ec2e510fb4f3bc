"""The contract of a transform: takes a network and returns another, with a description of the changes.

Parameters accompany the network. A transform that needs their values (folding, quantisation) gets those of the caller,
or else those of seed 0, and returns values for the new network. Computed values are stored in the model; all others are
still drawn from the seed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import NDArray

from levelbench.errors import UsageError
from levelbench.networks.network import Network

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Allowance:
    """How far a transformed network may differ from the original, relative to the largest magnitude of each tensor.

    ``gradients`` is ``None`` if the transformed network has other parameters or is not meant to be trained.
    """

    outputs: float
    gradients: float | None
    reason: str


ROUNDING = Allowance(1e-4, 1e-3, "only the order of float32 sums may differ")


@dataclass(frozen=True)
class Transformed:
    """The result of a transform.

    ``parameters`` are the values to execute ``network`` with, or ``None`` if none were given: then use the network's
    own ``initialise``. ``changed`` has one line per change, and is empty if there are none. ``exact``: equal except
    for rounding.
    """

    network: Network
    parameters: dict[str, NDArray[Any]] | None
    name: str
    changed: tuple[str, ...]
    exact: bool = True
    tolerance: Allowance = ROUNDING
    details: Any = None
    """Additional results, such as the plan of micro-batching."""


class Transform(ABC):
    """A change to a network. Settings are passed to the constructor, by keyword only."""

    name: ClassVar[str]
    summary: ClassVar[str]
    main: ClassVar[str] = ""
    """The setting given by a word after a colon: ``precision:bfloat16``."""

    @abstractmethod
    def apply(self, network: Network, parameters: Arrays | None = None) -> Transformed:
        """The transformed network; ``DefinitionError`` or ``UnsupportedError`` if that is impossible."""


def words(given: str | Sequence[str]) -> tuple[str, ...]:
    """Several names, in the command line's form: ``gelu+gemm``."""
    return tuple(each for each in given.split("+") if each) if isinstance(given, str) else tuple(given)


def whole_number(name: str, given: str | int, least: int = 1) -> int:
    """A setting that is an integer; ``UsageError`` for anything else, or a value below ``least``."""
    if isinstance(given, str):
        if not given.strip().isdigit():
            raise UsageError(f"setting {name}={given}", "it is not a whole number", f"give {least} or more")
        given = int(given)
    if given < least:
        raise UsageError(f"setting {name}={given}", "it is too small", f"give {least} or more")
    return given


@dataclass(frozen=True)
class TensorDifference:
    """How far one tensor differs from the original's.

    ``kind`` is output, loss, gradient or buffer; ``absolute`` is the largest difference, at ``index``; ``relative`` is
    the same over the largest magnitude of the original's tensor.
    """

    kind: str
    name: str
    batch: int
    absolute: float
    relative: float
    index: tuple[int, ...]
    tolerance: float


@dataclass(frozen=True)
class EquivalenceReport:
    """What was compared; everything is within its tolerance."""

    before: str
    after: str
    batches: tuple[int, ...]
    differences: tuple[TensorDifference, ...]

    @property
    def worst(self) -> TensorDifference | None:
        """The tensor that is closest to its tolerance."""
        return max(self.differences, key=lambda each: each.relative / (each.tolerance or 1.0), default=None)

    def text(self) -> str:
        """The report in one line."""
        kinds = [each.kind for each in self.differences]
        counts = ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))
        worst = self.worst
        if worst is None:
            return "nothing was compared"
        return (
            f"equal at batch {', '.join(map(str, self.batches))}: {counts}; the largest difference is "
            f"{worst.relative:.2g} of the largest magnitude ({worst.kind} {worst.name}; allowed {worst.tolerance:g})"
        )
