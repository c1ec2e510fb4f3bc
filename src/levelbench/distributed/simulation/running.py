"""One simulation: a scheme on so many ranks, for some steps."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from math import nan
from typing import Any, cast

from levelbench.distributed.scheme import Scheme
from levelbench.distributed.simulation.cluster import Cluster, NotPlayed
from levelbench.distributed.simulation.communicator import SimulatedCommunicator
from levelbench.distributed.simulation.model import Compute, Model, StandIn, stand_in
from levelbench.distributed.simulation.networks import Network
from levelbench.distributed.simulation.tracing import Trace
from levelbench.distributed.simulation.working import RankOutcome, work
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Backend
from levelbench.operators.frameworks import open_framework
from levelbench.training.optimizers.base import Optimizer
from levelbench.training.optimizers.rules import SGD
from levelbench.training.optimizers.wrappers import Native

__all__ = ["Simulated", "simulate", "trace_of"]

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
    collectives_s: float
    """Seconds in which a collective was under way."""
    trace: Trace
    scale: float
    """Bytes that one of the small model's stands for."""

    def notes(self, name: str) -> list[float]:
        """What ranks noted under a name (``staleness``), all together."""
        return [value for each in self.outcomes for value in each.notes.get(name, ("", []))[1]]


def simulate(
    scheme: Scheme,
    ranks: int,
    model: Model,
    compute: Compute,
    network: Network,
    *,
    steps: int = 10,
    algorithm: str = "auto",
    optimizer: Optimizer | None = None,
    seed: int = 0,
    small: StandIn | None = None,
    meet: bool = True,
) -> Simulated:
    """Let ``ranks`` simulated ranks make ``steps`` steps. ``compute`` is that of one rank's part of the batch.

    Without ``meet`` they end after the last step, where nothing is wanted but times: what schemes note when ranks meet,
    such as staleness, is not there then.
    """
    small = small or stand_in(model)
    fitted, scale = _fitted(scheme, model, small, ranks)
    cluster = Cluster(ranks, network, scale=scale, algorithm=algorithm)
    outcomes = _run(cluster, fitted, small, compute, steps, optimizer, seed, meet)
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
        tuple(cluster.transport.sent),
        tuple(cluster.transport.received),
        cluster.meetings.busy_s,
        cluster.trace,
        scale,
    )


def trace_of(
    scheme: Scheme,
    ranks: int,
    model: Model,
    compute: Compute,
    network: Network,
    *,
    steps: int = 10,
    algorithm: str = "auto",
    optimizer: Optimizer | None = None,
    small: StandIn | None = None,
) -> Trace | None:
    """What each of ``ranks`` ranks does, from the first seven and the last of them, where all do the same.

    The first seven stand for the others in collectives as well. ``None`` where a rank sends to another, or where what
    ranks do differs or depends on times: then only :func:`simulate` says what happens.
    """
    small = small or stand_in(model)
    fitted, scale = _fitted(scheme, model, small, ranks)
    played = (*range(_PLAYED - 1), ranks - 1) if ranks > _PLAYED else None
    cluster = Cluster(ranks, network, scale=scale, algorithm=algorithm, played=played)
    try:
        _run(cluster, fitted, small, compute, steps, optimizer, 0, False)
    except NotPlayed:
        return None
    return cluster.trace if cluster.trace.regular else None


def _run(
    cluster: Cluster,
    fitted: Scheme,
    small: StandIn,
    compute: Compute,
    steps: int,
    optimizer: Optimizer | None,
    seed: int,
    meet: bool,
) -> list[RankOutcome]:
    backend = cast("Backend", open_framework("numpy"))
    # A framework's own optimizer wants its arrays; what an update takes is given, and its numbers are not looked at.
    rule = SGD(1e-3) if optimizer is None or isinstance(optimizer, Native) else optimizer
    communicators = [SimulatedCommunicator(cluster, rank) for rank in cluster.played]
    outcomes: list[RankOutcome] = cluster.scheduler.run(
        [partial(work, each, fitted, backend, rule, small, compute, steps, seed, meet) for each in communicators],
        cluster.played,
    )
    return outcomes


def _fitted(scheme: Scheme, model: Model, small: StandIn, ranks: int) -> tuple[Scheme, float]:
    """The scheme for the small model, and the bytes that one of its bytes stands for.

    Settings in bytes (``..._mb``) are made smaller with the model. Where a scheme does not send in proportion to the
    model, its own closed form says how much more the large one sends.
    """
    changed = {each.name: getattr(scheme, each.name) / small.scale for each in _in_bytes(scheme)}
    fitted = replace(cast("Any", scheme), **changed) if changed else scheme
    little = fitted.traffic(small.shapes, 4, ranks, 0).sent_bytes
    much = scheme.traffic(model.parameters, model.itemsize, ranks, 0).sent_bytes
    return fitted, much / little if little and much else small.scale


def _in_bytes(scheme: Scheme) -> list[Any]:
    return [each for each in fields(cast("Any", scheme)) if each.name.endswith("_mb")]
