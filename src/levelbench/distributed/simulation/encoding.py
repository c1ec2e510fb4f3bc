"""Measures what a scheme itself computes in a step: packing, compressing, adding up what came, unpacking.

A simulation has small arrays and virtual time, in which this costs nothing. So one rank takes real steps with arrays
of the model's real shapes, over a communicator that sends nothing: the other ranks are taken to send what this one
does. Time within its calls, and that of the optimizer, is left out; the simulation has both.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import final

import numpy as np

from levelbench.distributed.communicator import Communicator, Done, Handle, Reduction
from levelbench.distributed.packing import pieces
from levelbench.distributed.scheme import Scheme, Worker
from levelbench.distributed.simulation.model import Calibrated
from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.statistics import t_quantile
from levelbench.measure.timeline import Phase, Timeline
from levelbench.networks.executor import Array, Backend, Executor
from levelbench.training.optimizers.arrays import copy
from levelbench.training.optimizers.base import Optimizer
from levelbench.training.optimizers.rules import SGD

__all__ = ["encoding_s"]

_MOST_RANKS = 64
"""Beyond, time is extrapolated: each further rank's payload takes as long as those before."""
_WARM_UP, _STEPS, _LIMIT_S = 2, 20, 4.0


def encoding_s(
    scheme: Scheme,
    shapes: Mapping[str, tuple[int, ...]],
    ranks: int,
    backend: Backend,
    *,
    clock: Clock = HOST,
    seed: int = 0,
    before: Callable[[], None] = lambda: None,
    slowest: Callable[[list[float]], list[float]] = lambda times_s: times_s,
) -> Calibrated | None:
    """The seconds that a step of ``scheme`` takes on each of ``ranks`` ranks besides communication and update.

    It is the mean of some steps, as a run's time is that of its mean step, with its 95 % interval. ``None`` for a
    scheme that cannot do without real other ranks, or takes no time. With more than 64 ranks the time is that of 64,
    and a straight line from 32 on. ``before`` is called before each step, as the rest of a step would be: where other
    programs run, how fast work is depends on whether a process has waited or computed. ``slowest`` maps the times of
    this rank's steps to those of the slowest rank, for which the others wait.
    """
    few = min(ranks, _MOST_RANKS)
    found = _measured(scheme, shapes, few, backend, clock, seed, before)
    if found is None:
        return None
    found = slowest(found)
    value, factor = statistics.fmean(found), 1.0
    if ranks > few and value > 0:
        half = _measured(scheme, shapes, few // 2, backend, clock, seed, before)
        if half is None:
            return None
        each = max(0.0, value - statistics.fmean(slowest(half))) / (few - few // 2)
        factor = 1 + each * (ranks - few) / value
    if value <= 0:
        return None
    reach = 0.0
    if len(found) > 1:
        reach = t_quantile(0.975, len(found) - 1) * statistics.stdev(found) / len(found) ** 0.5
    return Calibrated(value * factor, max(value - reach, value / 100) * factor, (value + reach) * factor)


def _measured(
    scheme: Scheme,
    shapes: Mapping[str, tuple[int, ...]],
    ranks: int,
    backend: Backend,
    clock: Clock,
    seed: int,
    before: Callable[[], None],
) -> list[float] | None:
    """The times of the steps after the first ones."""
    draws = np.random.default_rng(seed)
    values = {name: draws.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    executor = _Parameters({name: backend.array(each) for name, each in values.items()})
    timeline, echo = Timeline(clock, Phase.OTHER), _Echo(ranks, clock)
    optimizer: Optimizer = SGD(1e-6)
    times_s: list[float] = []
    began_ns = clock.now_ns()
    try:
        workers = scheme.workers(ranks)
        stepper = scheme.start(Worker(echo, backend, executor, optimizer, seed, timeline.switch))
        stepper.share = 1 / workers
        for step in range(1, _WARM_UP + _STEPS + 1):
            gradients = {name: copy(each) for name, each in executor.parameters.items()}
            backend.finish(list(gradients.values()))
            before()
            update_ns, within = timeline.totals_ns().get("update", 0), echo.spent_ns
            start_ns = clock.now_ns()
            timeline.switch(Phase.BACKWARD)
            stepper.step(gradients, step, 1.0)
            backend.finish(list(executor.parameters.values()))
            timeline.switch(Phase.OTHER)
            took_ns = clock.now_ns() - start_ns
            updated_ns = timeline.totals_ns().get("update", 0) - update_ns
            times_s.append((took_ns - updated_ns - (echo.spent_ns - within)) * 1e-9)
            if len(times_s) > _WARM_UP and (clock.now_ns() - began_ns) * 1e-9 > _LIMIT_S:
                break
    except Exception:  # noqa: BLE001  # schemes of others may raise anything where ranks answer like this
        return None
    return times_s[_WARM_UP:] or times_s


@final
class _Parameters(Executor):
    """Parameters alone."""

    network = None
    mode = "simulated"

    def __init__(self, parameters: MutableMapping[str, Array]) -> None:
        self.parameters = parameters
        self.buffers: MutableMapping[str, Array] = {}

    def infer(self, *inputs: Array) -> tuple[Array, ...]:
        """No-op."""
        return ()

    def forward(self, *inputs: Array) -> Array:
        """No-op."""
        return None

    def backward(self) -> Mapping[str, Array]:
        """No-op."""
        return {}


@final
class _Echo(Communicator):
    """Rank 0 among ranks that all send what it does; ``spent_ns`` is the time in its calls."""

    name = "simulated"
    rank = 0

    def __init__(self, size: int, clock: Clock) -> None:
        self.size, self.spent_ns = size, 0
        self._now_ns = clock.now_ns
        self._sent: deque[Array] = deque()

    def start_all_reduce(self, array: Array, op: Reduction = "sum") -> Handle:
        began = self._now_ns()
        joined = {"sum": lambda: array * self.size, "product": lambda: array**self.size}
        found = joined.get(op, lambda: copy(array))()
        self.spent_ns += self._now_ns() - began
        return Done(found)

    def start_broadcast(self, array: Array, root: int = 0) -> Handle:
        return Done(array)

    def start_send(self, array: Array, to: int, tag: int = 0) -> Handle:
        began = self._now_ns()
        self._sent.append(copy(array))
        self.spent_ns += self._now_ns() - began
        return Done(array)

    def start_receive(self, like: Array, source: int, tag: int = 0) -> Handle:
        return Done(self._answer(like))

    def receive_any(self, like: Array, tag: int = 0) -> tuple[Array, int]:
        return self._answer(like), 1

    def reduce_scatter(self, array: Array, op: Reduction = "sum") -> Array:
        bounds = pieces(array.shape[0], self.size)
        return self.all_reduce(array[: bounds[1]], op)

    def all_gather(self, array: Array) -> tuple[Array, ...]:
        return (array,) * self.size

    def gather(self, array: Array, root: int = 0) -> tuple[Array, ...] | None:
        return (array,) * self.size if root == 0 else None

    def scatter(self, arrays: Sequence[Array] | None, like: Array, root: int = 0) -> Array:
        return like if arrays is None else arrays[0]

    def all_to_all(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        return tuple(arrays)

    def exchange(self, array: Array, neighbours: Sequence[int]) -> tuple[Array, ...]:
        return (array,) * len(neighbours)

    def barrier(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _answer(self, like: Array) -> Array:
        """The next of this rank's own messages: a partner sends the same ones."""
        found = self._sent.popleft()
        if found.shape != like.shape:
            raise ValueError("a partner's message is not like this rank's own")
        return found
