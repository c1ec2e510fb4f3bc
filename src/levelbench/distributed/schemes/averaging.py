"""Model averaging: each worker moves a model of its own, and now and then all take the mean of them.

The one idea: what differs between the schemes whose models part is only when and with whom they are averaged again; so
a worker's own step, what is evaluated and how far the models are apart stand here once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from levelbench.distributed import traffic
from levelbench.distributed.packing import Layout, by_dtype
from levelbench.distributed.scheme import Scheme, SchemeStepper, Traffic, Worker
from levelbench.distributed.schemes.base import BaseStepper, number, numbers
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import norm

__all__ = ["ModelAveraging", "OwnModelStepper", "PeriodicStepper", "elements", "weighted"]


def elements(parameters: Mapping[str, tuple[int, ...]]) -> int:
    """The number of elements of all parameters of these shapes."""
    return sum(prod(shape) for shape in parameters.values())


def weighted(gradients: Mapping[str, Array], weight: float) -> Mapping[str, Array]:
    """All gradients times ``weight``; they may be overwritten."""
    if weight == 1:
        return gradients
    result = {}
    for name, gradient in gradients.items():
        gradient *= weight
        result[name] = gradient
    return result


class OwnModelStepper(BaseStepper):
    """A worker with a model of its own. Evaluated is the mean of all workers' models; nobody trains on with it."""

    def own_step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        """The optimizer's step with this worker's gradient times share · workers.

        That weight is 1 where all have equally many examples, and such that over workers the mean of the weighted
        gradients is the gradient of the global batch; it is 0 where a worker has no example.
        """
        self.update(weighted(gradients, self.share * self.communicator.size), step, factor)

    def meet(self) -> None:
        """Note how far the models are apart."""
        self.worker.switch(Phase.COMMUNICATE)
        self.note_divergence()

    def averaged(self) -> Mapping[str, Array]:
        """The mean over workers of what each one's optimizer would have evaluated."""
        return self.mean_of_ranks(self.inner.averaged())


class PeriodicStepper(OwnModelStepper):
    """Steps of its own for a while, then :meth:`synchronise` with all others, and so on.

    How many steps is asked at the beginning of each round. ``state_too``: the floating point arrays of the optimizer's
    state are averaged after each round as well, over the host. Of each round of more than one step it notes ``drift``:
    ‖x − x̄‖ / ‖x̄‖ of this worker's parameters and their mean, at the round's end.
    """

    kept = True

    def __init__(self, worker: Worker, state_too: bool = False) -> None:
        super().__init__(worker)
        self._left = self._period = 0
        self._state_too = state_too
        self._packed = self.packed()
        self._drifts: list[tuple[Array, Array]] = []

    @abstractmethod
    def period(self, step: int, factor: float) -> int:
        """How many steps the round takes that begins with step number ``step``; the same on all workers."""

    @abstractmethod
    def go_on(self, mean: dict[str, Array]) -> Mapping[str, Array]:
        """The parameters to go on with after a round, given the mean of all workers', which may be overwritten."""

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        """A step of its own; the last one of a round synchronises."""
        if not self._left:
            self._left = self._period = self.period(step, factor)
        self.own_step(gradients, step, factor)
        self._left -= 1
        if self._left:
            return
        self.worker.switch(Phase.COMMUNICATE)
        flats = [self.communicator.all_reduce(flat, "mean") for flat in self._packed.pack(self.parameters)]
        self.worker.switch(Phase.UPDATE)
        mean = self._packed.unpack(flats)
        if self._period > 1:
            self._drifts.append(self._drift(mean))
        self.parameters.update(self.go_on(mean))
        if self._state_too:
            self.worker.switch(Phase.COMMUNICATE)
            self._average_state()
            self.worker.switch(Phase.UPDATE)

    def meet(self) -> None:
        """Note what was left on the device until now, and how far the models are apart."""
        drifts, self._drifts = self._drifts, []
        for apart, whole in drifts:
            self.worker.ledger.note("drift", (float(apart) / float(whole)) ** 0.5 if float(whole) else 0.0)
        super().meet()

    def state(self) -> dict[str, NDArray[Any]]:
        """The optimizer's, and how far the round is."""
        drifts = [float(each) for pair in self._drifts for each in pair]
        return super().state() | numbers(left=self._left, period=self._period, drifts=drifts)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """All of that."""
        super().restore(state)
        self._left, self._period = number("left", state), number("period", state)
        drifts = state["drifts"].tolist()
        self._drifts = list(zip(drifts[::2], drifts[1::2], strict=True))

    def _drift(self, mean: Mapping[str, Array]) -> tuple[Array, Array]:
        """‖x − x̄‖² and ‖x̄‖² as native scalars: reading them now would make a device wait."""
        names = list(mean)
        apart = [norm(self.parameters[name] - mean[name]) ** 2 for name in names]
        whole = [norm(mean[name]) ** 2 for name in names]
        return sum(apart[1:], apart[0]), sum(whole[1:], whole[0])

    def _average_state(self) -> None:
        state = self.inner.state()
        floating = {name: each for name, each in sorted(state.items()) if np.issubdtype(each.dtype, np.floating)}
        host, array = self.worker.backend.host, self.worker.backend.array
        for names in by_dtype(floating).values():
            layout = Layout({name: floating[name] for name in names})
            mean = host(self.communicator.all_reduce(array(layout.pack(floating)), "mean"))
            state.update(layout.unpack(mean))
        self.inner.restore(state)


@final
class _EveryStepper(PeriodicStepper):
    def __init__(self, worker: Worker, scheme: ModelAveraging) -> None:
        super().__init__(worker, scheme.optimizer_state)
        self._every = scheme.every

    def period(self, step: int, factor: float) -> int:
        return self._every

    def go_on(self, mean: dict[str, Array]) -> Mapping[str, Array]:
        return mean


@final
@dataclass(frozen=True)
class ModelAveraging(Scheme):
    """Each worker i steps by its own gradient, then all take the mean: x := 1/p Σ_i (x_i - update_i(g_i)).

    With plain SGD it is synchronous all-reduce to rounding; with a state (momentum, Adam) each worker keeps its own,
    unless ``optimizer_state`` averages that as well. ``every`` is the number of steps between two averages.
    """

    every: int = 1
    optimizer_state: bool = False

    name: ClassVar[str] = "model-averaging"
    aliases: ClassVar[tuple[str, ...]] = ("mavg",)
    source: ClassVar[str] = "McDonald, Hall & Mann 2010, Distributed Training Strategies for the Structured Perceptron"
    consistent: ClassVar[bool] = False
    replicated: ClassVar[bool] = False

    def __post_init__(self) -> None:
        checks.at_least(self, 1, "every")

    def start(self, worker: Worker) -> SchemeStepper:
        """Go to work; collective."""
        return _EveryStepper(worker, self)

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        """An all-reduce of the parameters in ``every`` steps; that of the optimizer's state is not known here."""
        return traffic.all_reduce(elements(parameters), itemsize, size, rank) * (1 / self.every)
