"""Local SGD: workers step on their own for several steps, then take the mean of their models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from levelbench.distributed import traffic
from levelbench.distributed.scheme import Scheme, SchemeStepper, Traffic, Worker
from levelbench.distributed.schemes.averaging import PeriodicStepper, elements
from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks

__all__ = ["LocalSGD"]


@final
class _LocalStepper(PeriodicStepper):
    def __init__(self, worker: Worker, scheme: LocalSGD) -> None:
        super().__init__(worker, scheme.optimizer_state)
        self._scheme = scheme

    def period(self, step: int, factor: float) -> int:
        steps = self._scheme.steps_of_round(step, self.worker.optimizer.lr * factor)
        self.worker.ledger.note("period", steps, "steps")
        return steps

    def go_on(self, mean: dict[str, Array]) -> Mapping[str, Array]:
        return mean


@final
@dataclass(frozen=True)
class LocalSGD(Scheme):
    """Each worker takes ``period`` steps of its own, with any optimizer; then all take the mean of their models.

    - ``post_local``: in steps 1 to this one models are averaged after each (post-local SGD, Lin et al. 2020).
    - ``growth``: above 0 the period follows the learning rate: a round that begins at rate η takes
      max(period, ⌊(growth / η)²⌋) steps (the quadratic synchronization rule, Gu et al. 2024). The rule of Wang & Joshi
      2019 needs the loss of all workers, which no scheme is given.
    - ``optimizer_state``: average the floating point arrays of the optimizer's state too; else each keeps its own.
    """

    period: int = 8
    post_local: int = 0
    growth: float = 0.0
    optimizer_state: bool = False

    name: ClassVar[str] = "local-sgd"
    source: ClassVar[str] = "Stich 2019, Local SGD Converges Fast and Communicates Little"
    consistent: ClassVar[bool] = False
    replicated: ClassVar[bool] = False

    def __post_init__(self) -> None:
        checks.at_least(self, 1, "period")
        checks.at_least(self, 0, "post_local")
        checks.not_negative(self, "growth")

    def steps_of_round(self, step: int, lr: float) -> int:
        """How many steps the round takes that begins with step number ``step`` (from 1) at learning rate ``lr``."""
        if step <= self.post_local:
            return 1
        # A rate of 0 would wait for ever; nothing moves at it, so any period does.
        grown = int((self.growth / lr) ** 2) if lr > 0 else 0
        return max(self.period, grown)

    def start(self, worker: Worker) -> SchemeStepper:
        """Go to work; collective."""
        return _LocalStepper(worker, self)

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        """An all-reduce of the parameters in ``period`` steps, without what growth saves and the state adds."""
        return traffic.all_reduce(elements(parameters), itemsize, size, rank) * (1 / self.period)
