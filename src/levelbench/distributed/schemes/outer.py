"""DiLoCo: workers step on their own for long, and an outer optimizer takes their mean movement for a gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from numpy.typing import NDArray

from levelbench.distributed import traffic
from levelbench.distributed.scheme import Scheme, SchemeStepper, Traffic, Worker
from levelbench.distributed.schemes.averaging import PeriodicStepper, elements
from levelbench.distributed.schemes.keeping import arrays_of, kept_arrays, number, numbers, those_under, under
from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import copy
from levelbench.training.optimizers.rules import Momentum

__all__ = ["DiLoCo"]


@final
class _OuterStepper(PeriodicStepper):
    def __init__(self, worker: Worker, scheme: DiLoCo) -> None:
        super().__init__(worker)
        self._scheme, self._round = scheme, 0
        self._anchor: dict[str, Array] = {name: copy(each) for name, each in self.parameters.items()}
        """Where the round began."""
        outer = Momentum(scheme.outer_lr, momentum=scheme.outer_momentum, nesterov=scheme.nesterov)
        self._outer = outer.start(worker.backend, self._anchor)

    def period(self, step: int, factor: float) -> int:
        return self._scheme.period

    def state(self) -> dict[str, NDArray[Any]]:
        """With where the round began, and the outer optimizer's."""
        anchor = kept_arrays("anchor", self.worker.backend, self._anchor)
        return super().state() | anchor | under("outer", self._outer.state()) | numbers(round=self._round)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """All of that."""
        super().restore(state)
        self._round = number("round", state)
        self._anchor.update(arrays_of("anchor", self.worker.backend, state))
        self._outer.restore(those_under("outer", state))

    def go_on(self, mean: dict[str, Array]) -> Mapping[str, Array]:
        """All compute the same outer step from the same bits, so the models are the same bits afterwards."""
        moved = {name: each - mean[name] for name, each in self._anchor.items()}
        self._round += 1
        # The schedule is that of the inner optimizer: the outer rate is constant, as in the paper.
        self._outer.step(moved, self._round, 1.0)
        # Copies: an optimizer on JAX takes the memory of the parameters that it is given.
        return {name: copy(each) for name, each in self._anchor.items()}


@final
@dataclass(frozen=True)
class DiLoCo(Scheme):
    """Each worker takes ``period`` steps of its own from θ to θ_i, with any optimizer, whose state it keeps.

    Then the outer gradient is Δ = 1/p Σ_i (θ - θ_i), and all go on from θ := θ - outer_lr (Δ + outer_momentum v) with
    v := outer_momentum v + Δ; without ``nesterov`` from θ := θ - outer_lr v. With outer_lr=1 and outer_momentum=0 it is
    local SGD. Evaluated is the mean of the workers' models, which after a round is θ. The paper's period is 500 steps
    for long runs; the default here is for short ones.
    """

    period: int = 16
    outer_lr: float = 0.7
    outer_momentum: float = 0.9
    nesterov: bool = True

    name: ClassVar[str] = "diloco"
    source: ClassVar[str] = "Douillard et al. 2023, DiLoCo: Distributed Low-Communication Training of Language Models"
    consistent: ClassVar[bool] = False
    replicated: ClassVar[bool] = False

    def __post_init__(self) -> None:
        checks.at_least(self, 1, "period")
        checks.positive(self, "outer_lr")
        checks.share(self, "outer_momentum")

    def start(self, worker: Worker) -> SchemeStepper:
        """Go to work; collective."""
        return _OuterStepper(worker, self)

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        """An all-reduce of the parameters in ``period`` steps."""
        return traffic.all_reduce(elements(parameters), itemsize, size, rank) * (1 / self.period)
