"""Predicts what a step takes on ranks that are not here.

A prediction says that it is one, of what, and how sure it is: its interval comes from simulations whose
parameters are drawn from the intervals in which they were measured. It predicts time and traffic. How many examples
training needs to its target is not predicted but given: it follows from the global batch where a scheme is consistent,
and must be measured at a small scale where it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from levelbench.distributed.scheme import Scheme
from levelbench.distributed.simulation.cluster import replay
from levelbench.distributed.simulation.model import Compute, ModelShape, Uncertain, stand_in
from levelbench.distributed.simulation.networks import Interconnect
from levelbench.distributed.simulation.running import simulate, trace_of
from levelbench.errors import UsageError
from levelbench.measure.statistics import Estimate, Interval, t_quantile
from levelbench.training.optimizers.base import Optimizer

_STEPS = 10
_FEW_RANKS = 32
"""Up to so many, every rank is simulated whatever it does."""
_RANK_STEPS = 8192
"""About so many steps of all ranks together are simulated: of many ranks, few steps show the slowest well enough."""
_DRAWN_RANK_STEPS = 16384
"""About so many are simulated for all draws together, where draws cannot be replayed."""
_FEWEST_DRAWS = 3


@dataclass(frozen=True)
class ParallelEfficiency:
    """Examples a second, as a share of ``ranks`` times those of one rank alone, which makes the whole batch.

    Servers count as ranks.
    """

    value: float
    low: float
    high: float
    reason: str = ""


@dataclass(frozen=True)
class Prediction:
    """What is predicted for a number of ranks.

    Estimates are of the central simulation; their intervals hold 95 % of the draws, and are ``None`` without draws.
    """

    label: str
    """The scheme."""
    ranks: int
    workers: int
    batch: float
    """Examples a worker and step."""
    step_s: Estimate
    communicate_share: float
    """Of the workers' time, the part in which they do nothing but communicate."""
    efficiency: ParallelEfficiency
    """In time per epoch."""
    examples_per_s: Estimate
    sent_bytes: float
    """A step, of that of the first eight workers which sends most, by the scheme's closed form."""
    messages: float
    network: Interconnect
    time_to_target_s: Estimate | None = None
    """Training alone, without evaluations: the examples to the target that were given, at this rate."""
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
    """Time and traffic of a step of ``scheme`` on ``ranks`` ranks.

    At least ``steps`` steps are simulated, as many as make whole periods of a scheme that talks now and then (``None``:
    10, and fewer of more than 800 ranks that send messages to one another). Where ranks talk by collectives alone, what
    one does is replayed for all, and draws cost little. Else each costs as much as the first simulation: of many ranks
    there are then fewer than ``draws``, at least three, and the interval is wider for it (see :func:`_estimate`).

    ``batch`` is the global one (``strong``) or that of a worker (``weak``), ``compute`` what one rank takes for
    ``compute.batch`` examples. ``uncertain`` says how well compute and network are known; without it the interval shows
    the spread of steps from one seed to another alone. ``examples_to_target`` is an input: see the module.
    """
    workers = scheme.workers(ranks)
    part = batch / workers if scaling == "strong" else float(batch)
    if part < 1:
        raise UsageError(
            f"{ranks} ranks on a batch of {batch}",
            "some ranks would have no example",
            "choose a larger batch, or weak scaling",
        )
    own = compute.at(part)
    small = stand_in(model, parts=max(8, 4 * getattr(scheme, "servers", 1)))
    known = uncertain or Uncertain()
    drawn = [known.draw(own, network, seed, at) for at in range(draws)]
    common = {"algorithm": algorithm, "optimizer": optimizer, "small": small}
    step_s, communicate_share = _simulated(scheme, ranks, model, own, network, drawn, steps, seed, common)
    drawn = drawn[: len(step_s) - 1]
    # What one rank does alone has the same compute in every draw as the ranks have.
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
    """Seconds a step, of the central simulation and of the draws; and the central share of communication."""
    algorithm = common["algorithm"]
    whole = _whole_periods(scheme, steps or _STEPS)
    trace = trace_of(scheme, ranks, model, own, network, steps=whole, **common) if ranks > _FEW_RANKS else None
    if trace is not None:
        times = np.stack([own.draw(rank, whole, seed) for rank in range(ranks)])[None]
        central = replay(trace.actions, times, [network], algorithm)
        step_s, communicate_share = float(central.ended_s[0]) / whole, float(central.communication_share[0])
    else:
        whole = _whole_periods(scheme, steps or max(2, min(_STEPS, _RANK_STEPS // ranks)))
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
        again = (replay(trace.actions, times, networks, algorithm).ended_s / whole).tolist()
    else:
        again = []
    return [step_s, *again], communicate_share


def _estimate(values: Sequence[float]) -> Estimate:
    """The first is the value; the others, if any, say how far it may be off.

    Of 20 draws and more the interval lies between their 2.5 % and 97.5 % quantiles. Fewer have no such quantiles: there
    it is where another draw would fall, if draws were lognormal (Student's t of their logarithms).
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


def _whole_periods(scheme: Scheme, steps: int) -> int:
    """At least ``steps``, and a multiple of the steps between two times at which the scheme talks."""
    period = next((int(getattr(scheme, name)) for name in ("period", "every") if hasattr(scheme, name)), 1)
    return -(-steps // period) * period
