"""MPI's requests as handles, with an end to waiting.

The one idea: MPI's own wait has no timeout, so a request is tested in a loop that looks at the clock. In between the
processor is offered to whoever wants it: with more ranks than cores that is the rank which is waited for.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from time import sleep
from typing import Any, final

import ml_dtypes
import numpy as np

from levelbench.distributed.communicator import Handle
from levelbench.errors import UnsupportedError
from levelbench.measure.clocks import HOST, Clock
from levelbench.networks.executor import Array

__all__ = ["Late", "Pending", "sum_of", "until"]

_AWAKE_S = 1e-3


class Late(Exception):
    """The time is over."""


def until(ask: Callable[[], Any], timeout_s: float, clock: Clock = HOST, *, naps: bool = False) -> Any:
    """The first answer of ``ask`` that is true; :class:`Late` where there is none in time.

    ``naps``: sleep for a hundredth of what was waited, once that is a millisecond. It is for waits in which nothing is
    under way that needs to be moved on.
    """
    if answer := ask():
        return answer
    began_ns = clock.now_ns()
    while not (answer := ask()):
        waited_s = (clock.now_ns() - began_ns) * 1e-9
        if waited_s > timeout_s:
            raise Late
        if naps and waited_s > _AWAKE_S:
            sleep(waited_s / 100)
        else:
            os.sched_yield()
    return answer


@final
class Pending(Handle):
    """A request that is under way; ``result`` makes the result of it, ``named()`` a named error of what MPI raises."""

    def __init__(
        self,
        named: Callable[[], AbstractContextManager[None]],
        request: Any,
        result: Callable[[], Array],
        timeout_s: float,
    ) -> None:
        self._named, self._request, self._result, self._timeout_s = named, request, result, timeout_s

    def wait(self) -> Array:
        """The result."""
        with self._named():
            until(self._request.Test, self._timeout_s)
        return self._result()

    def done(self) -> bool:
        """Whether it is over; what is under way in this process moves on."""
        with self._named():
            return bool(self._request.Test())


def sum_of(mpi: Any, dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """MPI's datatype for a dtype, and the operation that adds elements of it.

    MPI has no halves, so they travel as integers of their width and NumPy adds them. ``UnsupportedError`` for a dtype
    that has no sum.
    """
    if dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):

        def add(given: Any, into: Any, datatype: Any) -> None:
            total = np.frombuffer(into, dtype)
            np.add(total, np.frombuffer(given, dtype), out=total)

        return mpi.UINT16_T, mpi.Op.Create(add, commute=True)
    if dtype.kind not in "iufc" or dtype.char == "g":
        raise UnsupportedError(f"the sum of {dtype} over mpi", "it adds numbers of MPI's types", "cast it")
    return mpi.Datatype.fromcode(dtype.char), mpi.SUM
