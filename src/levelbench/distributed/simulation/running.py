"""One simulation: a scheme on so many ranks, for some steps.

The loop of a simulated rank makes the calls that a real worker's makes, on a real timeline that reads the rank's
virtual clock, so a scheme cannot tell the difference. What is trained is a sum of squares: its gradients are real and
cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import partial
from math import nan
from typing import Any, cast, final

import numpy as np
from numpy.typing import NDArray

from levelbench.distributed.communicators.meeting import LocalCommunicator
from levelbench.distributed.packing import HostArray
from levelbench.distributed.scheme import Observations, Scheme, Worker
from levelbench.distributed.simulation.cluster import COMPUTE, ENCODE, Action, ActionTrace, Cluster, NotPlayed
from levelbench.distributed.simulation.model import Compute, ModelShape, StandIn, stand_in
from levelbench.distributed.simulation.networks import Interconnect
from levelbench.measure.timeline import Phase, Timeline
from levelbench.networks.executor import Array, Backend, Executor
from levelbench.operators.frameworks import open_framework
from levelbench.training.optimizers.base import Optimizer, Stepper
from levelbench.training.optimizers.rules import SGD
from levelbench.training.optimizers.wrappers import Native

_LABELS = tuple(phase.label for phase in Phase)
"""Once: thousands of ranks ask."""


@final
class _VirtualClock:
    """The clock of the rank that asks."""

    def __init__(self, cluster: Cluster) -> None:
        self._scheduler = cluster.scheduler

    def now_ns(self) -> int:
        return round(self._scheduler.current.now_s * 1e9)


@final
class SimulatedExecutor(Executor):
    """A network whose loss is half the squared distance of its parameters from ``rank``, in virtual time."""

    network = None
    mode = "simulated"

    def __init__(
        self, cluster: Cluster, rank: int, small: StandIn, times_s: NDArray[np.float64], forward_share: float
    ) -> None:
        self._cluster, self._target = cluster, np.float32(rank)
        self._weights = {name: small.weights[name] for name in reversed(list(small.shapes))}
        self._times_s = times_s.tolist()
        self._step = -1
        self._forward_share = forward_share
        self._whole_s = 0.0
        self._callback: Callable[[str, Array], Array | None] | None = None
        self._loss = np.zeros((), np.float32)
        self.parameters: MutableMapping[str, Array] = small.arrays()
        self.buffers: MutableMapping[str, Array] = {}

    def infer(self, *inputs: Array) -> tuple[Array, ...]:
        """Nothing, in no time: evaluation is not simulated."""
        return ()

    def forward(self, *inputs: Array) -> Array:
        """A loss of zero; takes the step's forward time."""
        self._step += 1
        self._whole_s = self._times_s[self._step]
        self._compute(self._forward_share)
        return self._loss

    def on_gradient(self, callback: Callable[[str, Array], Array | None] | None) -> bool:
        """Gradients come one after another, those used last first."""
        self._callback = callback
        return True

    def backward(self) -> Mapping[str, Array]:
        """The gradients; takes the step's backward time, in the shares of the parameters."""
        callback, parameters = self._callback, self.parameters
        if callback is None:
            self._compute(1 - self._forward_share)
            return {name: parameters[name] - self._target for name in self._weights}
        result: dict[str, Array] = {}
        for name, weight in self._weights.items():
            self._compute((1 - self._forward_share) * weight)
            gradient = parameters[name] - self._target
            placed = callback(name, gradient)
            result[name] = gradient if placed is None else placed
        return result

    def _compute(self, share: float) -> None:
        self._cluster.spend(self._whole_s * share, Action(COMPUTE, self._step, share))


def timed(optimizer: Optimizer, cluster: Cluster, each_s: float) -> Optimizer:
    """The optimizer, whose step takes ``each_s`` for each element; a scheme sees of what kind it is."""
    start, result = optimizer.start, copy(optimizer)

    def started(backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        return _TimedStepper(start(backend, parameters), cluster, each_s)

    # Past what keeps a dataclass frozen.
    object.__setattr__(result, "start", started)
    return result


@final
class _TimedStepper(Stepper):
    def __init__(self, inner: Stepper, cluster: Cluster, each_s: float) -> None:
        self._inner, self._cluster, self._each_s = inner, cluster, each_s

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        self._cluster.spend(self._each_s * sum(each.size for each in gradients.values()))
        self._inner.step(gradients, step, factor)

    def state(self) -> dict[str, HostArray]:
        return self._inner.state()

    def restore(self, state: Mapping[str, HostArray]) -> None:
        self._inner.restore(state)

    def averaged(self) -> Mapping[str, Array] | None:
        return self._inner.averaged()


@dataclass(frozen=True)
class RankOutcome:
    """What a rank has to tell: when its steps began and ended in virtual seconds, its phases in between, its notes.

    ``ended_s`` has one entry a step; that of a server is empty.
    """

    began_s: float
    ended_s: tuple[float, ...]
    phases_ns: Mapping[str, int]
    notes: Mapping[str, tuple[str, list[float]]]


def _spent_ns(timeline: Timeline) -> list[int]:
    timeline.switch(timeline.current)
    return [timeline.spent_ns(phase) for phase in range(len(_LABELS))]


def work(
    cluster: Cluster,
    rank: int,
    scheme: Scheme,
    backend: Backend,
    optimizer: Optimizer,
    small: StandIn,
    compute: Compute,
    steps: int,
    seed: int,
    meet: bool,
) -> RankOutcome:
    """``steps`` steps of one rank, after a start that is not timed, and with ``meet`` the meeting after them."""
    communicator, workers = LocalCommunicator(cluster, rank), scheme.workers(cluster.size)
    executor = SimulatedExecutor(cluster, rank, small, compute.draw(rank, steps, seed), compute.forward_share)
    elements = sum(each.size for each in executor.parameters.values())
    clock = _VirtualClock(cluster)
    timeline = Timeline(clock, Phase.PREPARE)
    ledger = Observations()
    rule = timed(optimizer, cluster, compute.update_s / elements)
    stepper = scheme.start(Worker(communicator, backend, executor, rule, seed, timeline.switch, ledger, clock))
    communicator.barrier()
    before = _spent_ns(timeline)
    began_s, ended_s = cluster.now_s, []
    ledger.take()
    cluster.trace.open(rank)
    if rank < workers:
        stepper.share = 1 / workers
        for step in range(1, steps + 1):
            timeline.switch(Phase.FORWARD)
            stepper.executor.forward()
            timeline.switch(Phase.BACKWARD)
            gradients = stepper.executor.backward()
            timeline.switch(Phase.COMMUNICATE)
            cluster.spend(compute.encode_s, Action(ENCODE, 0, compute.encode_s))
            stepper.step(gradients, step, 1.0)
            ended_s.append(cluster.now_s)
    else:
        timeline.switch(Phase.COMMUNICATE)
        stepper.serve(1, steps, lambda step: 1.0)
    timeline.switch(Phase.OTHER)
    cluster.trace.close(rank)
    spent = zip(_LABELS, _spent_ns(timeline), before, strict=True)
    phases = {label: ns - was for label, ns, was in spent if ns}
    if meet:
        stepper.meet()
        stepper.close()
    return RankOutcome(began_s, tuple(ended_s), phases, ledger.take())


_PLAYED = 8
"""So many ranks are played where the others do the same."""


@dataclass(frozen=True)
class Simulated:
    """One simulation: what each rank tells, and what was sent.

    ``step_s`` is the time of all steps, from the common start until the last worker has ended, by their number.
    """

    outcomes: tuple[RankOutcome, ...]
    workers: int
    step_s: float
    communication_share: float
    """Of the workers' time, the part in which they did nothing but communicate."""
    sent_bytes: tuple[float, ...]
    """By rank: bytes of messages one by one (send, exchange), without those inside collectives."""
    received_bytes: tuple[float, ...]
    trace: ActionTrace

    def notes(self, name: str) -> list[float]:
        """What ranks noted under a name (``staleness``), all together."""
        return [value for each in self.outcomes for value in each.notes.get(name, ("", []))[1]]


def simulate(
    scheme: Scheme,
    ranks: int,
    model: ModelShape,
    compute: Compute,
    network: Interconnect,
    *,
    steps: int = 10,
    algorithm: str = "auto",
    optimizer: Optimizer | None = None,
    seed: int = 0,
    small: StandIn | None = None,
    meet: bool = True,
    played: Sequence[int] | None = None,
) -> Simulated:
    """Let ``ranks`` simulated ranks make ``steps`` steps. ``compute`` is that of one rank's part of the batch.

    Without ``meet`` they end after the last step, where nothing is wanted but times: what schemes note when ranks meet,
    such as staleness, is not there then. ``played`` as in :class:`Cluster`.
    """
    small = small or stand_in(model)
    fitted, scale = _fitted(scheme, model, small, ranks)
    cluster = Cluster(ranks, network, scale=scale, algorithm=algorithm, played=played)
    backend = cast("Backend", open_framework("numpy"))
    # A framework's own optimizer wants its arrays; what an update takes is given, and its numbers are not looked at.
    rule = SGD(1e-3) if optimizer is None or isinstance(optimizer, Native) else optimizer
    rest = (fitted, backend, rule, small, compute, steps, seed, meet)
    loops = [partial(work, cluster, rank, *rest) for rank in cluster.played]
    outcomes: list[RankOutcome] = cluster.scheduler.run(loops, cluster.played)
    workers = scheme.workers(ranks)
    began = outcomes[0].began_s
    last = max(each.ended_s[-1] for each in outcomes[:workers])
    talking = sum(each.phases_ns.get(Phase.COMMUNICATE.label, 0) for each in outcomes[:workers])
    spent = sum(sum(each.phases_ns.values()) for each in outcomes[:workers])
    return Simulated(
        tuple(outcomes),
        workers,
        (last - began) / steps,
        talking / spent if spent else nan,
        tuple(cluster.sent),
        tuple(cluster.received),
        cluster.trace,
    )


def trace_of(
    scheme: Scheme, ranks: int, model: ModelShape, compute: Compute, network: Interconnect, **settings: Any
) -> ActionTrace | None:
    """What each of ``ranks`` ranks does, from the first seven and the last of them, where all do the same.

    The first seven stand for the others in collectives as well. ``None`` where a rank sends to another, or where what
    ranks do differs or depends on times: then only :func:`simulate`, whose ``settings`` these are, says what happens.
    """
    played = (*range(_PLAYED - 1), ranks - 1) if ranks > _PLAYED else None
    try:
        trace = simulate(scheme, ranks, model, compute, network, meet=False, played=played, **settings).trace
    except NotPlayed:
        return None
    return trace if trace.regular else None


def _fitted(scheme: Scheme, model: ModelShape, small: StandIn, ranks: int) -> tuple[Scheme, float]:
    """The scheme for the small model, and the bytes that one of its bytes stands for.

    Settings in bytes (``..._mb``) are made smaller with the model. Where a scheme does not send in proportion to the
    model, its own closed form says how much more the large one sends.
    """
    declared = cast("Any", scheme)
    in_bytes = [each.name for each in fields(declared) if each.name.endswith("_mb")]
    changed = {name: getattr(scheme, name) / small.scale for name in in_bytes}
    fitted = replace(declared, **changed) if changed else scheme
    little = fitted.traffic(small.shapes, 4, ranks, 0).sent_bytes
    much = scheme.traffic(model.parameters, model.itemsize, ranks, 0).sent_bytes
    return fitted, much / little if little and much else small.scale
