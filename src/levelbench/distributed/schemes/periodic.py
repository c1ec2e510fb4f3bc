"""Periodic averaging: each worker trains its own model, and from time to time all take the mean of them.

The schemes of the literature differ in how long a round is and how the next one begins: model averaging, local SGD and
DiLoCo are presets of one scheme.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from levelbench.distributed import traffic
from levelbench.distributed.packing import FlatLayout, HostArray, by_dtype
from levelbench.distributed.scheme import Preset, Scheme, SchemeStepper, Traffic, Worker
from levelbench.distributed.schemes.base import (
    OwnModelStepper,
    arrays_of,
    elements,
    kept_arrays,
    number,
    numbers,
    those_under,
    under,
)
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import copy, norm
from levelbench.training.optimizers.base import Stepper
from levelbench.training.optimizers.rules import Momentum


@final
@dataclass(frozen=True)
class Periodic(Scheme):
    """Each worker takes ``period`` steps on its own, with any optimizer; then all take the mean of their models.

    - ``post_local``: up to this step, models are averaged after each step (post-local SGD, Lin et al. 2020).
    - ``growth``: above 0, the period follows the learning rate: a round that begins at rate η takes
      max(period, ⌊(growth / η)²⌋) steps (the quadratic synchronization rule, Gu et al. 2024). The rule of Wang & Joshi
      2019 needs the loss of all workers, which schemes do not get.
    - ``optimizer_state``: also average the floating-point arrays of the optimizer's state; else each keeps its own.
    - ``outer_lr``, ``outer_momentum``, ``nesterov``: an outer optimizer takes the mean movement Δ = 1/p Σ_i (θ - θ_i)
      of a round that began at θ as its gradient: all continue from θ := θ - outer_lr (Δ + outer_momentum v) with
      v := outer_momentum v + Δ; without ``nesterov`` from θ := θ - outer_lr v. With 1 and 0 that is the mean.

    The mean of the workers' models is evaluated. Notes the ``period`` of each round, and for each round of more than
    one step ``drift``: ‖x − x̄‖ / ‖x̄‖ of this worker's parameters and their mean at the round's end.
    """

    period: int = 8
    post_local: int = 0
    growth: float = 0.0
    optimizer_state: bool = False
    outer_lr: float = 1.0
    outer_momentum: float = 0.0
    nesterov: bool = True

    name: ClassVar[str] = "periodic"
    source: ClassVar[str] = (
        "Stich 2019, Local SGD Converges Fast and Communicates Little; Douillard et al. 2023, DiLoCo"
    )
    consistent: ClassVar[bool] = False
    replicated: ClassVar[bool] = False

    def __post_init__(self) -> None:
        checks.at_least(self, 1, "period")
        checks.at_least(self, 0, "post_local")
        checks.not_negative(self, "growth")
        checks.positive(self, "outer_lr")
        checks.share(self, "outer_momentum")

    def steps_of_round(self, step: int, lr: float) -> int:
        """The length of the round that begins with step ``step`` (from 1) at learning rate ``lr``."""
        if step <= self.post_local:
            return 1
        # At a rate of 0 the rule gives infinity; nothing moves then, so any period will do.
        grown = int((self.growth / lr) ** 2) if lr > 0 else 0
        return max(self.period, grown)

    def start(self, worker: Worker) -> SchemeStepper:
        return _PeriodicStepper(worker, self)

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        """One all-reduce of the parameters per ``period`` steps; ignores growth and optimizer state."""
        return traffic.all_reduce(elements(parameters), itemsize, size, rank) * (1 / self.period)

    def traffic_within(self) -> float:
        """With growth the period follows the learning rate, of which nothing is known here."""
        return math.inf if self.growth else 1.0


@final
class _PeriodicStepper(OwnModelStepper):
    kept = True

    def __init__(self, worker: Worker, scheme: Periodic) -> None:
        super().__init__(worker)
        self._scheme = scheme
        self._left = self._period = self._round = 0
        self._packed = self.packed()
        self._drifts: list[tuple[Array, Array]] = []
        self._anchor: dict[str, Array] = {}
        """The parameters at the round's start; only for an outer optimizer."""
        self._outer: Stepper | None = None
        if (scheme.outer_lr, scheme.outer_momentum) != (1.0, 0.0):
            self._anchor = {name: copy(each) for name, each in self.parameters.items()}
            outer = Momentum(scheme.outer_lr, momentum=scheme.outer_momentum, nesterov=scheme.nesterov)
            self._outer = outer.start(worker.backend, self._anchor)

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        worker = self.worker
        if not self._left:
            self._left = self._period = self._scheme.steps_of_round(step, worker.optimizer.lr * factor)
            worker.ledger.note("period", self._period, "steps")
        self.own_step(gradients, step, factor)
        self._left -= 1
        if self._left:
            return
        worker.switch(Phase.COMMUNICATE)
        flats = [self.communicator.all_reduce(flat, "mean") for flat in self._packed.pack(self.parameters)]
        worker.switch(Phase.UPDATE)
        mean = self._packed.unpack(flats)
        if self._period > 1:
            self._drifts.append(self._drift(mean))
        self.parameters.update(mean if self._outer is None else self._moved(self._outer, mean))
        if self._scheme.optimizer_state:
            worker.switch(Phase.COMMUNICATE)
            self._average_state()
            worker.switch(Phase.UPDATE)

    def meet(self) -> None:
        drifts, self._drifts = self._drifts, []
        for apart, whole in drifts:
            self.worker.ledger.note("drift", (float(apart) / float(whole)) ** 0.5 if float(whole) else 0.0)
        super().meet()

    def state(self) -> dict[str, HostArray]:
        drifts = [float(each) for pair in self._drifts for each in pair]
        return (
            super().state()
            | numbers(left=self._left, period=self._period, round=self._round, drifts=drifts)
            | kept_arrays("anchor", self.worker.backend, self._anchor)
            | under("outer", self._outer.state() if self._outer else {})
        )

    def restore(self, state: Mapping[str, HostArray]) -> None:
        super().restore(state)
        self._left, self._period = number("left", state), number("period", state)
        drifts = state["drifts"].tolist()
        self._drifts = list(zip(drifts[::2], drifts[1::2], strict=True))
        if self._outer is not None:
            self._round = number("round", state)
            self._anchor.update(arrays_of("anchor", self.worker.backend, state))
            self._outer.restore(those_under("outer", state))

    def _moved(self, outer: Stepper, mean: Mapping[str, Array]) -> dict[str, Array]:
        """The outer step: all ranks compute it from the same bits, so the models are bitwise identical afterwards."""
        moved = {name: each - mean[name] for name, each in self._anchor.items()}
        self._round += 1
        # The schedule belongs to the inner optimizer: the outer rate is constant, as in the paper.
        outer.step(moved, self._round, 1.0)
        # Copies, because an optimizer on JAX donates its parameters' memory.
        return {name: copy(each) for name, each in self._anchor.items()}

    def _drift(self, mean: Mapping[str, Array]) -> tuple[Array, Array]:
        """‖x − x̄‖² and ‖x̄‖² as native scalars, since reading them now would make a device wait."""
        apart = [norm(self.parameters[name] - each) ** 2 for name, each in mean.items()]
        whole = [norm(each) ** 2 for each in mean.values()]
        return sum(apart[1:], apart[0]), sum(whole[1:], whole[0])

    def _average_state(self) -> None:
        state = self.inner.state()
        floating = {name: each for name, each in sorted(state.items()) if np.issubdtype(each.dtype, np.floating)}
        host, array = self.worker.backend.host, self.worker.backend.array
        for names in by_dtype(floating).values():
            layout = FlatLayout({name: floating[name] for name in names})
            mean = host(self.communicator.all_reduce(array(layout.pack(floating)), "mean"))
            state.update(layout.unpack(mean))
        self.inner.restore(state)


@final
@dataclass(frozen=True)
class ModelAveraging(Preset):
    """Each worker i steps by its own gradient, then all take the mean: x := 1/p Σ_i (x_i - update_i(g_i)).

    With plain SGD, this is synchronous all-reduce to rounding. With optimizer state (momentum, Adam) each worker keeps
    its own, unless ``optimizer_state`` averages it too. ``every`` is the number of steps between two averages.
    """

    every: int = 1
    optimizer_state: bool = False

    name: ClassVar[str] = "model-averaging"
    aliases: ClassVar[tuple[str, ...]] = ("mavg",)
    source: ClassVar[str] = "McDonald, Hall & Mann 2010, Distributed Training Strategies for the Structured Perceptron"

    def __post_init__(self) -> None:
        checks.at_least(self, 1, "every")

    @property
    def meant(self) -> Periodic:
        return Periodic(self.every, optimizer_state=self.optimizer_state)


@final
@dataclass(frozen=True)
class LocalSGD(Preset):
    """Each worker takes ``period`` steps on its own; then all take the mean of their models: see :class:`Periodic`."""

    period: int = 8
    post_local: int = 0
    growth: float = 0.0
    optimizer_state: bool = False

    name: ClassVar[str] = "local-sgd"
    source: ClassVar[str] = "Stich 2019, Local SGD Converges Fast and Communicates Little"

    @property
    def meant(self) -> Periodic:
        return Periodic(self.period, self.post_local, self.growth, self.optimizer_state)


@final
@dataclass(frozen=True)
class DiLoCo(Preset):
    """Long rounds with an outer optimizer: see :class:`Periodic`. Each worker keeps its optimizer's state.

    With outer_lr=1 and outer_momentum=0 this is local SGD. The paper's period is 500 steps, for long runs; the default
    here is for short ones.
    """

    period: int = 16
    outer_lr: float = 0.7
    outer_momentum: float = 0.9
    nesterov: bool = True

    name: ClassVar[str] = "diloco"
    source: ClassVar[str] = "Douillard et al. 2023, DiLoCo: Distributed Low-Communication Training of Language Models"

    @property
    def meant(self) -> Periodic:
        return Periodic(self.period, outer_lr=self.outer_lr, outer_momentum=self.outer_momentum, nesterov=self.nesterov)
