"""Simulates a scheme on many ranks, and predicts from such simulations what a step takes on ranks that are not here.

The loop of a simulated rank makes the same calls as a real worker's, on a real timeline that reads the rank's virtual
clock, so a scheme cannot tell the difference. The loss is a sum of squares, whose gradients are real and cost nothing.

A prediction is marked as one and has an interval, which comes from simulations whose parameters are drawn from the
intervals in which they were measured. Predicted are time and traffic. The number of examples to the target is an
input: for a consistent scheme it follows from the global batch; for others it must be measured at a small scale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import partial
from math import nan
from typing import Any, Literal, cast, final

import numpy as np
from numpy.typing import NDArray

from levelbench.distributed.communicators.meeting import LocalCommunicator
from levelbench.distributed.scheme import Observations, Scheme, Worker
from levelbench.distributed.simulation.cluster import COMPUTE, ENCODE, Action, ActionTrace, Cluster, NotPlayed, replay
from levelbench.distributed.simulation.model import Compute, ModelShape, StandIn, Uncertain, stand_in
from levelbench.distributed.simulation.networks import Interconnect
from levelbench.errors import UsageError
from levelbench.measure.statistics import Estimate, Interval, t_quantile
from levelbench.measure.timeline import Phase, Timeline
from levelbench.networks.executor import Array, Backend, Executor
from levelbench.operators.frameworks import open_framework
from levelbench.training.optimizers.base import Optimizer, Stepper
from levelbench.training.optimizers.rules import SGD
from levelbench.training.optimizers.wrappers import Native, WrapperStepper

_LABELS = tuple(phase.label for phase in Phase)


@final
class _VirtualClock:
    """The virtual clock of the running rank."""

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
        """Return nothing, in no time: evaluation is not simulated."""
        return ()

    def forward(self, *inputs: Array) -> Array:
        """A loss of zero; takes the step's forward time."""
        self._step += 1
        self._whole_s = self._times_s[self._step]
        self._compute(self._forward_share)
        return self._loss

    def on_gradient(self, callback: Callable[[str, Array], Array | None] | None) -> bool:
        """Gradients come one by one, those of the parameters used last first."""
        self._callback = callback
        return True

    def backward(self) -> Mapping[str, Array]:
        """The gradients; takes the step's backward time, divided by the parameters' shares."""
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
    """A copy of the optimizer, of the same type, whose step takes ``each_s`` per element."""
    start, result = optimizer.start, copy(optimizer)

    def spend(gradients: Mapping[str, Array], factor: float) -> Mapping[str, Array]:
        cluster.spend(each_s * sum(each.size for each in gradients.values()))
        return gradients

    def started(backend: Backend, parameters: MutableMapping[str, Array]) -> Stepper:
        return WrapperStepper(start(backend, parameters), spend)

    # The dataclass is frozen.
    object.__setattr__(result, "start", started)
    return result


@dataclass(frozen=True)
class RankOutcome:
    """The result of a rank: when its steps began and ended in virtual seconds, time by phase, and what it noted.

    ``ended_s`` has one entry per step; it is empty for a server.
    """

    began_s: float
    ended_s: tuple[float, ...]
    phases_ns: Mapping[str, int]
    notes: Mapping[str, tuple[str, list[float]]]


def _spent_ns(timeline: Timeline) -> list[int]:
    timeline.switch(timeline.current)
    return [timeline.spent_ns(phase) for phase in range(len(_LABELS))]


def run_rank(
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
    """Run ``steps`` steps of one rank after an untimed start, and with ``meet`` the meeting after them."""
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
"""The number of ranks to play if the others do the same."""


@dataclass(frozen=True)
class Simulated:
    """The result of a simulation: that of each rank, and what was sent.

    ``step_s`` is the time from the common start until the last worker has ended, divided by the number of steps.
    """

    outcomes: tuple[RankOutcome, ...]
    workers: int
    step_s: float
    communication_share: float
    """The share of the workers' time in which they only communicated."""
    sent_bytes: tuple[float, ...]
    """By rank: bytes of individual messages (send, exchange), without those inside collectives."""
    received_bytes: tuple[float, ...]
    trace: ActionTrace

    def notes(self, name: str) -> list[float]:
        """What all ranks noted under a name, such as ``staleness``, concatenated."""
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
    """Simulate ``steps`` steps of ``ranks`` ranks. ``compute`` is that of one rank's part of the batch.

    Without ``meet``, ranks end after the last step. This is enough if only times are needed; what schemes note when
    ranks meet, such as staleness, is missing then. ``played`` as in :class:`Cluster`.
    """
    small = small or stand_in(model)
    fitted, scale = _fitted(scheme, model, small, ranks)
    cluster = Cluster(ranks, network, scale=scale, algorithm=algorithm, played=played)
    backend = cast("Backend", open_framework("numpy"))
    # A framework's own optimizer needs its arrays. The time of an update is given, and its values do not matter.
    rule = SGD(1e-3) if optimizer is None or isinstance(optimizer, Native) else optimizer
    rest = (fitted, backend, rule, small, compute, steps, seed, meet)
    loops = [partial(run_rank, cluster, rank, *rest) for rank in cluster.played]
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
    """The trace of ``ranks`` ranks if all do the same, from simulating only the first seven and the last.

    These also stand for the others in collectives. ``None`` if a rank sends messages to another, or if what ranks do
    differs or depends on timing; then only :func:`simulate`, which takes the same ``settings``, can tell.
    """
    played = (*range(_PLAYED - 1), ranks - 1) if ranks > _PLAYED else None
    try:
        trace = simulate(scheme, ranks, model, compute, network, meet=False, played=played, **settings).trace
    except NotPlayed:
        return None
    return trace if trace.regular else None


def _fitted(scheme: Scheme, model: ModelShape, small: StandIn, ranks: int) -> tuple[Scheme, float]:
    """The scheme for the small model, and the number of bytes that one of its bytes stands for.

    Settings in bytes (``..._mb``) are scaled with the model. If a scheme's traffic is not proportional to the model,
    its closed form gives the ratio.
    """
    declared = cast("Any", scheme.simulated())
    in_bytes = [each.name for each in fields(declared) if each.name.endswith("_mb")]
    changed = {name: getattr(declared, name) / small.scale for name in in_bytes}
    fitted: Scheme = replace(declared, **changed) if changed else declared
    little = fitted.traffic(small.shapes, 4, ranks, 0).sent_bytes
    much = scheme.traffic(model.parameters, model.itemsize, ranks, 0).sent_bytes
    return fitted, much / little if little and much else small.scale


_STEPS = 10
_FEW_RANKS = 32
"""Up to this number, every rank is simulated in any case."""
_RANK_STEPS = 8192
"""About this many steps of all ranks together are simulated: with many ranks, a few steps show the slowest."""
_DRAWN_RANK_STEPS = 16384
"""About this many are simulated for all draws together if draws cannot be replayed."""
_FEWEST_DRAWS = 3


@dataclass(frozen=True)
class ParallelEfficiency:
    """Examples per second, relative to ``ranks`` times the rate of a single rank with the whole batch.

    Servers count as ranks.
    """

    value: float
    low: float
    high: float
    reason: str = ""


@dataclass(frozen=True)
class Prediction:
    """The prediction for a number of ranks.

    Estimates come from the central simulation; their intervals cover 95 % of the draws, and are ``None`` without draws.
    """

    label: str
    """The scheme."""
    ranks: int
    workers: int
    batch: float
    """Examples per worker and step."""
    step_s: Estimate
    communicate_share: float
    """The share of the workers' time in which they only communicate."""
    efficiency: ParallelEfficiency
    """By time per epoch."""
    examples_per_s: Estimate
    sent_bytes: float
    """Per step, by the scheme's closed form; the maximum over the first eight workers."""
    messages: float
    network: Interconnect
    time_to_target_s: Estimate | None = None
    """Training time without evaluations, from the given number of examples to the target."""
    predicted: Literal[True] = True


def predict(
    scheme: Scheme,
    ranks: int,
    model: ModelShape,
    compute: Compute,
    network: Interconnect,
    *,
    batch: int,
    scaling: str = "strong",
    uncertain: Uncertain | None = None,
    draws: int = 20,
    steps: int | None = None,
    algorithm: str = "auto",
    optimizer: Optimizer | None = None,
    examples_to_target: float | None = None,
    seed: int = 0,
) -> Prediction:
    """Predict time and traffic of a step of ``scheme`` on ``ranks`` ranks.

    At least ``steps`` steps are simulated, rounded up to whole periods of a scheme that communicates periodically
    (``None``: 10, or fewer beyond 800 ranks that send messages). If ranks only use collectives, the trace of one is
    replayed for all, and draws are cheap. Otherwise each draw costs as much as the first simulation, so with many ranks
    there are fewer than ``draws``, but at least three, and the interval is wider (see :func:`_estimate`).

    ``batch`` is the global batch (``strong``) or that of a worker (``weak``); ``compute`` is the time of one rank for
    ``compute.batch`` examples. ``uncertain`` gives the uncertainty of compute and network; without it, the interval
    only shows the spread of steps between seeds. ``examples_to_target`` is an input, see the module's docstring.
    """
    workers = scheme.workers(ranks)
    part = batch / workers if scaling == "strong" else float(batch)
    if part < 1:
        raise UsageError(
            f"{ranks} ranks on a batch of {batch}",
            "some ranks would have no examples",
            "use a larger batch or weak scaling",
        )
    own = compute.at(part)
    small = stand_in(model, parts=max(8, 4 * getattr(scheme, "servers", 1)))
    known = uncertain or Uncertain()
    drawn = [known.draw(own, network, seed, at) for at in range(draws)]
    common = {"algorithm": algorithm, "optimizer": optimizer, "small": small}
    step_s, communicate_share = _simulated(scheme, ranks, model, own, network, drawn, steps, seed, common)
    drawn = drawn[: len(step_s) - 1]
    # The single rank has the same compute in each draw as the ranks have.
    factors = [1.0, *(each.mean_s / own.mean_s if own.mean_s else 1.0 for each, _ in drawn)]
    whole = compute.at(batch)
    alone = [batch / (whole.mean_s * factor + whole.update_s) for factor in factors]
    sent = [scheme.traffic(model.parameters, model.itemsize, ranks, rank) for rank in range(min(workers, 8))]
    most = max(sent, key=lambda each: each.sent_bytes)
    rates = [part * workers / seconds for seconds in step_s]
    efficiency = _estimate([rate / (ranks * one) for rate, one in zip(rates, alone, strict=True)])
    ends = efficiency.interval
    return Prediction(
        scheme.name,
        ranks,
        workers,
        part,
        _estimate(step_s),
        communicate_share,
        ParallelEfficiency(
            efficiency.value, ends.low if ends else efficiency.value, ends.high if ends else efficiency.value
        ),
        _estimate(rates),
        most.sent_bytes,
        most.messages,
        network,
        None if examples_to_target is None else _estimate([examples_to_target / rate for rate in rates]),
    )


def _simulated(
    scheme: Scheme,
    ranks: int,
    model: ModelShape,
    own: Compute,
    network: Interconnect,
    drawn: Sequence[tuple[Compute, Interconnect]],
    steps: int | None,
    seed: int,
    common: dict[str, Any],
) -> tuple[list[float], float]:
    """Seconds per step in the central simulation and in the draws, and the central share of communication."""
    algorithm = common["algorithm"]
    whole = _full_periods(scheme, steps or _STEPS)
    trace = trace_of(scheme, ranks, model, own, network, steps=whole, **common) if ranks > _FEW_RANKS else None
    if trace is not None:
        times = np.stack([own.draw(rank, whole, seed) for rank in range(ranks)])[None]
        central = replay(trace.actions, times, [network], algorithm)
        step_s, communicate_share = float(central.ended_s[0]) / whole, float(central.communication_share[0])
    else:
        whole = _full_periods(scheme, steps or max(2, min(_STEPS, _RANK_STEPS // ranks)))
        first = simulate(scheme, ranks, model, own, network, steps=whole, seed=seed, meet=False, **common)
        trace, step_s, communicate_share = first.trace, first.step_s, first.communication_share
    if not trace.regular:
        few = max(_FEWEST_DRAWS, _DRAWN_RANK_STEPS // (ranks * whole))
        again = [
            simulate(scheme, ranks, model, *each, steps=whole, seed=seed + at, meet=False, **common).step_s
            for at, each in enumerate(drawn[:few], 1)
        ]
    elif drawn:
        # The same actions with draws of compute and network.
        times = np.stack([compute.draw_all(ranks, whole, seed + at) for at, (compute, _) in enumerate(drawn, 1)])
        networks = [network for _, network in drawn]
        encodings_s = [compute.encode_s for compute, _ in drawn]
        again = (replay(trace.actions, times, networks, algorithm, encodings_s).ended_s / whole).tolist()
    else:
        again = []
    return [step_s, *again], communicate_share


def _estimate(values: Sequence[float]) -> Estimate:
    """The first value with an interval from the others, if any.

    With 20 draws or more, the interval lies between the 2.5 % and 97.5 % quantiles. Fewer draws do not have these
    quantiles; then it is where another draw would fall if draws were lognormal (Student's t of their logarithms).
    """
    value, *drawn = values
    if not drawn:
        return Estimate(value, None, 0, "simulated")
    if len(drawn) >= 20 or len(drawn) == 1:
        low, high = np.quantile(np.array(drawn), (0.025, 0.975))
        method = "draws of the calibrated parameters"
    else:
        logs = np.log(np.array(drawn))
        reach = t_quantile(0.975, len(logs) - 1) * logs.std(ddof=1) * (1 + 1 / len(logs)) ** 0.5
        low, high = np.exp(logs.mean() - reach), np.exp(logs.mean() + reach)
        method = f"{len(drawn)} draws of the calibrated parameters, Student's t of their logarithms"
    interval = Interval(min(value, float(low)), max(value, float(high)), 0.95, method)
    return Estimate(value, interval, len(drawn), "simulated")


def _full_periods(scheme: Scheme, steps: int) -> int:
    """At least ``steps``, rounded up to whole periods of a scheme that communicates periodically."""
    period = next((int(getattr(scheme, name)) for name in ("period", "every") if hasattr(scheme, name)), 1)
    return -(-steps // period) * period
