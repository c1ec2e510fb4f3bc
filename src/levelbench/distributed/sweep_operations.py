"""The operations of a communicator as work to be timed, each with what its result must be.

The one idea: ``nbytes`` means what it means in NCCL's tests (nccl-tests, doc/PERFORMANCE.md), so that figures can be
laid side by side: the whole buffer, of which each rank gives or keeps a part where the operation cuts it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from levelbench.distributed.communicator import Communicator
from levelbench.errors import CheckFailedError, UnknownNameError
from levelbench.networks.executor import Array, Backend

__all__ = ["ITEMSIZE", "OPERATIONS", "Operation", "operation_named", "require_right"]

ITEMSIZE = 4
"""Bytes of an element: float32."""

Prepared = tuple[Callable[[], object], int]
"""The work, and the bytes that it moves in the sense of this module."""


@dataclass(frozen=True)
class Operation:
    """``prepare(communicator, backend, elements, value)`` makes arrays of about so many elements, all of this value.

    ``bus``: what the bandwidth nbytes / t is multiplied with, for a number of ranks, to be that of the busiest link.
    ``calls``: how many of the operation there are in the work. ``sized``: whether it has a size at all.
    """

    name: str
    prepare: Callable[[Communicator, Backend, int, float], Prepared]
    bus: Callable[[int], float]
    calls: int = 1
    sized: bool = True


def operation_named(name: str) -> Operation:
    """The operation of that name; ``UnknownNameError`` where there is none."""
    if name not in OPERATIONS:
        raise UnknownNameError("operation of a communicator", name, OPERATIONS)
    return OPERATIONS[name]


def require_right(operation: Operation, communicator: Communicator, backend: Backend) -> None:
    """Let all ranks do it once on a few elements; ``CheckFailedError`` where a result is wrong. Collective."""
    size, rank = communicator.size, communicator.rank
    work, _ = operation.prepare(communicator, backend, 4 * size + 1, rank + 1.0)
    found = work()
    arrays = found if isinstance(found, tuple) else (found,)
    values = [backend.host(each) for each in arrays if each is not None]
    for value, wanted in zip(values, _wanted(operation.name, rank, size), strict=False):
        if not (value == wanted).all():
            raise CheckFailedError(
                f"{operation.name} on {size} ranks over {communicator.name}",
                f"rank {rank} got {value.ravel()[:3].tolist()}..., which should be {wanted:g}",
                "repair the communicator before it is timed",
            )


def _wanted(name: str, rank: int, size: int) -> list[float]:
    """What the arrays that come back hold when rank r gave r + 1."""
    total = size * (size + 1) / 2
    everybody = [each + 1.0 for each in range(size)]
    return {
        "all-reduce": [total],
        "reduce-scatter": [total],
        "all-gather": everybody,
        "all-to-all": everybody,
        "gather": everybody,
        "broadcast": [1.0],
        "scatter": [1.0],
        "exchange": [(rank - 1) % size + 1.0, (rank + 1) % size + 1.0],
        "send-receive": [{0: 2.0, 1: 1.0}.get(rank, rank + 1.0)],
    }.get(name, [])


def _array(backend: Backend, elements: int, value: float) -> Array:
    host: NDArray[np.float32] = np.full(elements, value, np.float32)
    return backend.array(host)


def _all_reduce(communicator: Communicator, backend: Backend, elements: int, value: float) -> Prepared:
    array = _array(backend, elements, value)
    return lambda: communicator.all_reduce(array), elements * ITEMSIZE


def _broadcast(communicator: Communicator, backend: Backend, elements: int, value: float) -> Prepared:
    array = _array(backend, elements, value)
    return lambda: communicator.broadcast(array), elements * ITEMSIZE


def _reduce_scatter(communicator: Communicator, backend: Backend, elements: int, value: float) -> Prepared:
    array = _array(backend, elements, value)
    return lambda: communicator.reduce_scatter(array), elements * ITEMSIZE


def _all_gather(communicator: Communicator, backend: Backend, elements: int, value: float) -> Prepared:
    part = -(-elements // communicator.size)
    array = _array(backend, part, value)
    return lambda: communicator.all_gather(array), part * communicator.size * ITEMSIZE


def _gather(communicator: Communicator, backend: Backend, elements: int, value: float) -> Prepared:
    part = -(-elements // communicator.size)
    array = _array(backend, part, value)
    return lambda: communicator.gather(array), part * communicator.size * ITEMSIZE


def _scatter(communicator: Communicator, backend: Backend, elements: int, value: float) -> Prepared:
    part = -(-elements // communicator.size)
    arrays = [_array(backend, part, value) for _ in range(communicator.size)] if communicator.rank == 0 else None
    room = _array(backend, part, value)
    return lambda: communicator.scatter(arrays, room), part * communicator.size * ITEMSIZE


def _all_to_all(communicator: Communicator, backend: Backend, elements: int, value: float) -> Prepared:
    part = -(-elements // communicator.size)
    arrays = [_array(backend, part, value) for _ in range(communicator.size)]
    return lambda: communicator.all_to_all(arrays), part * communicator.size * ITEMSIZE


def _exchange(communicator: Communicator, backend: Backend, elements: int, value: float) -> Prepared:
    array = _array(backend, elements, value)
    rank, size = communicator.rank, communicator.size
    both = ((rank - 1) % size, (rank + 1) % size)
    return lambda: communicator.exchange(array, both), elements * ITEMSIZE


def _send_receive(communicator: Communicator, backend: Backend, elements: int, value: float) -> Prepared:
    array, room = _array(backend, elements, value), _array(backend, elements, value)

    def there_and_back() -> Array:
        if communicator.rank == 0:
            communicator.send(array, 1)
            return communicator.receive(room, 1)
        if communicator.rank == 1:
            found = communicator.receive(room, 0)
            communicator.send(array, 0)
            return found
        return array

    return there_and_back, elements * ITEMSIZE


def _barrier(communicator: Communicator, backend: Backend, elements: int, value: float) -> Prepared:
    return communicator.barrier, 0


def _all_but_one(size: int) -> float:
    return (size - 1) / size


def _once(size: int) -> float:
    return 1.0


OPERATIONS: Mapping[str, Operation] = MappingProxyType(
    {
        each.name: each
        for each in (
            Operation("all-reduce", _all_reduce, lambda size: 2 * _all_but_one(size)),
            Operation("reduce-scatter", _reduce_scatter, _all_but_one),
            Operation("all-gather", _all_gather, _all_but_one),
            Operation("broadcast", _broadcast, _once),
            Operation("gather", _gather, _all_but_one),
            Operation("scatter", _scatter, _all_but_one),
            Operation("all-to-all", _all_to_all, _all_but_one),
            # To both neighbours of a ring, at once.
            Operation("exchange", _exchange, lambda size: 2.0),
            # From rank 0 to rank 1 and back, of which a half counts.
            Operation("send-receive", _send_receive, _once, calls=2),
            Operation("barrier", _barrier, _once, sized=False),
        )
    }
)
