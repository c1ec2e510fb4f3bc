"""What a check of a communicator works with on one rank: numbers that tell where they come from, and the faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from levelbench.distributed.communicator import Communicator
from levelbench.networks.executor import Array
from levelbench.operators.contract import OperatorBackend
from levelbench.operators.validation.findings import Finding, failed, passed

__all__ = ["DTYPES", "SHAPES", "Probe"]

DTYPES = ("float32", "float64", "int64")
SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (5,), (3, 4), (37,))
_MOST = 3


@final
class Probe:
    """One check on one rank; ``salt`` is the number of the check."""

    def __init__(self, communicator: Communicator, salt: int, backend: OperatorBackend | None = None) -> None:
        self.communicator = communicator
        self.rank, self.size = communicator.rank, communicator.size
        self.case = ""
        """What is being tried, in words."""
        self._backend = backend
        self._salt = salt * 1000
        self._cases = 0
        self._faults: list[tuple[str, str]] = []

    def next_case(self, words: str) -> None:
        """Begin another case; its numbers are not those of the one before."""
        self.case = words
        self._salt += 1

    def values(self, rank: int, shape: Sequence[int] = (5,), dtype: DTypeLike = "float32", at: int = 0) -> NDArray[Any]:
        """What ``rank`` gives in this case; ``at`` tells apart several arrays. Whole numbers below 2^15, as a rule."""
        return self._spread(self._pattern(rank, at), shape, dtype)

    def _pattern(self, rank: int, at: int) -> NDArray[Any]:
        return np.arange(11) * 100 + rank * 7 + self._salt % 89 + at * 1301 + 1

    @staticmethod
    def _spread(pattern: NDArray[Any], shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        length = prod(shape)
        return np.tile(pattern.astype(dtype), -(-length // len(pattern)))[:length].reshape(tuple(shape))

    def own(self, shape: Sequence[int] = (5,), dtype: DTypeLike = "float32", at: int = 0) -> Array:
        """What this rank gives, as an array of the framework."""
        return self.native(self.values(self.rank, shape, dtype, at))

    def native(self, host: NDArray[Any]) -> Array:
        """As an array of the framework: a new one."""
        return host.copy() if self._backend is None else self._backend.array(host)

    def total(self, shape: Sequence[int] = (5,), dtype: DTypeLike = "float32", at: int = 0) -> NDArray[Any]:
        """The sum of what all ranks give."""
        patterns = [self._pattern(rank, at) for rank in range(self.size)]
        return self._spread(np.sum(patterns, axis=0), shape, dtype)

    def host(self, array: Array) -> NDArray[Any]:
        """What is in an array."""
        return np.asarray(array) if self._backend is None else self._backend.host(array)

    def expect(self, what: str, found: Any, expected: NDArray[Any], tolerance: float = 0.0) -> None:
        """``found`` is an array of that shape, dtype and content, to a relative tolerance."""
        self._cases += 1
        if found is None or not hasattr(found, "shape"):
            self._fault(f"{what} is {found!r}, and an array was expected")
            return
        host = self.host(found)
        if host.shape != expected.shape or host.dtype != expected.dtype:
            self._fault(f"{what} is {_kind(host)}, and {_kind(expected)} was expected")
            return
        if np.array_equal(host, expected):
            return
        off = np.abs(host.astype(np.float64) - expected.astype(np.float64)) > tolerance * np.abs(expected)
        if off.any():
            place = tuple(int(each[0]) for each in np.nonzero(np.atleast_1d(off)))
            got, wanted = (np.atleast_1d(each)[place] for each in (host, expected))
            self._fault(
                f"{what} has {got:g} at {list(place)}, and {wanted:g} was expected; {off.sum()} of {off.size} differ"
            )

    def require(self, holds: bool, what: str) -> None:
        """A fault unless it holds."""
        self._cases += 1
        if not holds:
            self._fault(what)

    def raises(self, kind: type[Exception], what: str, call: Callable[[], object]) -> None:
        """``call`` raises an error of that kind on this rank, and sends nothing."""
        self._cases += 1
        try:
            call()
        except kind:
            return
        except Exception as error:  # noqa: BLE001  # the communicator under check is anybody's code
            self._fault(f"{what} raises {type(error).__name__}, and {kind.__name__} was expected")
            return
        self._fault(f"{what} raises nothing, and {kind.__name__} was expected")

    def findings(self, check: str) -> list[Finding]:
        """The first few faults, or that there was none."""
        found = [failed(check, f"rank {self.rank}: {what}", case) for case, what in self._faults[:_MOST]]
        return found or [passed(check, f"{self._cases} cases")]

    def _fault(self, what: str) -> None:
        self._faults.append((self.case, what))


def _kind(array: NDArray[Any]) -> str:
    return f"{array.dtype.name} of shape {array.shape}"
