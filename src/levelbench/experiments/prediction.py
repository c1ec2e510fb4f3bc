"""Predictions for numbers of ranks that are not here, calibrated on the runs of one process that are.

What a step computes is measured, as is what the scheme itself computes (packing and compressing), what it sends is the
scheme's, and the network is what the user says it is, or what two ranks here measure it to be. How many examples a
target needs is measured as well, never guessed: that of one process where a scheme is consistent, else that of the
scheme's own runs, and where there are none no time to the target is predicted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from levelbench.distributed.finding import named_scheme
from levelbench.distributed.launching import ENGINES
from levelbench.distributed.simulation.encoding import encoding_s
from levelbench.distributed.simulation.model import Calibrated, Compute, ModelShape, Uncertain, link_of, of_samples
from levelbench.distributed.simulation.networks import Interconnect, collective_s, message_bytes
from levelbench.distributed.simulation.predict import Prediction, predict
from levelbench.distributed.sweep import Timed, fit, rounds_of
from levelbench.errors import UnsupportedError, UsageError
from levelbench.experiments.communicators import Encoding, SweepJob, measure_communicator
from levelbench.experiments.request import Arm, load_task
from levelbench.networks.executor import Backend
from levelbench.operators.frameworks import open_framework
from levelbench.records import Distribution, Record, parse_item, summarise
from levelbench.training.task import Recipe, Setting

__all__ = ["ToPredict", "check_simulable", "predictions", "with_measured_links"]

_COMPUTE = ("data", "forward", "backward")
_WARM_UP = 0.1
"""The first share of steps, which are slower than those of a long run."""


@dataclass(frozen=True)
class ToPredict:
    """What is to be predicted: schemes by name with their settings, numbers of ranks, on which network.

    ``links`` are the latency and bandwidth of the network's links with their intervals, where they were measured, and
    ``encodings`` then the time of the schemes' own work, by scheme and number of ranks.
    """

    schemes: Sequence[tuple[str, dict[str, Setting]]]
    ranks: Sequence[int]
    network: Interconnect
    scaling: str = "strong"
    links: tuple[Calibrated, Calibrated] | None = None
    encodings: Mapping[tuple[str, int], Calibrated] | None = None


_LINKS_S = 20.0
_COLLECTIVES = ("all-reduce", "all-gather", "all-to-all")


def with_measured_links(
    wanted: ToPredict, arm: Arm, team: Distribution, records: Sequence[Record], timeout_s: float
) -> ToPredict:
    """The same on links as measured: by collectives of two ranks, started and connected like the runs of ``team``.

    Latency and bandwidth are those of the all-reduce; how each collective differs from them at each size is measured,
    too, and what the schemes compute where both ranks compute. ``arm`` is that of one process, ``records`` are all
    that were made.
    """
    name, options = parse_item(team.engine)
    recipe = _recipe(arm)
    shapes, compute = _shapes(recipe), _compute(_alone(records), _batch(recipe))
    place = arm.specification.framework, arm.specification.device
    both = [(scheme, ranks) for scheme in wanted.schemes for ranks in wanted.ranks]
    encodings = tuple(
        Encoding(*scheme, ranks, shapes, *place, _part(compute, ranks, wanted.scaling)) for scheme, ranks in both
    )
    sizes = _sizes(ModelShape(shapes).nbytes)
    job = SweepJob(team.communicator, _COLLECTIVES, sizes, _LINKS_S, timeout_s, encodings=encodings)
    points = measure_communicator(job, ENGINES[name], 2, lambda _: None, options)
    means = {each: [(at.nbytes, at.times_s) for at in points if at.operation == each] for each in _COLLECTIVES}
    alpha, beta = link_of(fit([_mean(*each) for each in means[_COLLECTIVES[0]]]), rounds_of(_COLLECTIVES[0], 2))
    network = replace(wanted.network, alpha_s=alpha.value, beta=beta.value)
    network = replace(network, measured=tuple(_factors(network, each, means[each]) for each in _COLLECTIVES))
    found = {(at.operation, at.nbytes): Calibrated(*at.times_s) for at in points if at.operation not in _COLLECTIVES}
    return replace(wanted, network=network, links=(alpha, beta), encodings=found)


def _sizes(nbytes: int) -> tuple[int, ...]:
    """Sizes of what schemes send: up to all gradients, where that is not too much to measure."""
    most = min(max(nbytes, 1 << 16), 1 << 22)
    return (1 << 10, *(most // part for part in (32, 8, 4, 2, 1)))


def _mean(nbytes: int, times_s: Sequence[float]) -> Timed:
    """The mean, as a run's time is that of its mean step; with its error, of at least one per cent."""
    mean = float(np.mean(times_s))
    error = float(np.std(times_s, ddof=1)) / len(times_s) ** 0.5 if len(times_s) > 1 else mean / 10
    return Timed(nbytes, mean, max(error, mean / 100))


def _factors(
    network: Interconnect, operation: str, means: Sequence[tuple[int, Sequence[float]]]
) -> tuple[str, tuple[tuple[float, float], ...]]:
    """How many times as long as on these links a collective of two ranks takes, at messages of which size."""
    own = operation.replace("-", "_")
    factors = []
    for nbytes, times_s in means:
        # A point's size is that of the whole buffer, which for all but an all-reduce has a part for each rank.
        given = nbytes if operation == _COLLECTIVES[0] else nbytes / 2
        factors.append((message_bytes(own, given, 2), float(np.mean(times_s)) / collective_s(network, own, given, 2)))
    return own, tuple(factors)


def check_simulable(arm: Arm, wanted: ToPredict) -> None:
    """Raise what :func:`predictions` would, before anything is measured for it.

    ``UnsupportedError`` for a scheme that brings processes of its own, ``UsageError`` for a number of ranks that it
    cannot have, or more than there are examples in a batch.
    """
    batch = _batch(_recipe(arm))
    for name, settings in wanted.schemes:
        scheme = named_scheme(name, settings)
        if not scheme.counted:
            found = "its framework sends by itself, past what is simulated"
            raise UnsupportedError(f"a simulation of scheme {scheme.name!r}", found, "choose another scheme")
        for ranks in wanted.ranks:
            workers = scheme.workers(ranks)
            if wanted.scaling == "strong" and workers > batch:
                raise UsageError(
                    f"a prediction for {ranks} ranks with strong scaling",
                    f"the batch has {batch} examples, and {workers} workers cannot share it",
                    "leave such numbers out, give the recipe a larger batch (TASK[batch=...]), or --scaling weak",
                )


def predictions(arm: Arm, records: Sequence[Record], wanted: ToPredict) -> list[Prediction]:
    """A prediction for each scheme and number of ranks; ``arm`` is that of one process, ``records`` all that were made.

    ``UsageError`` where no run of one process has come to an end.
    """
    alone = _alone(records)
    recipe = _recipe(arm)
    shapes = _shapes(recipe)
    batch = _batch(recipe)
    compute = _with_fixed_part(_compute(alone, batch), records)
    backend = cast("Backend", open_framework(arm.specification.framework, arm.specification.device))
    found = []
    for name, settings in wanted.schemes:
        scheme = named_scheme(name, settings)
        for ranks in wanted.ranks:
            if wanted.encodings is None:
                encode = encoding_s(scheme, shapes, ranks, backend)
            else:
                encode = wanted.encodings.get((Encoding(name, settings, ranks, {}, "", "").operation, ranks))
            alpha, beta = wanted.links or (None, None)
            found.append(
                predict(
                    scheme,
                    ranks,
                    ModelShape(shapes),
                    replace(compute, encode_s=encode.value if encode else 0.0),
                    wanted.network,
                    batch=batch,
                    scaling=wanted.scaling,
                    uncertain=Uncertain(of_samples(compute.samples_s), alpha, beta, encode),
                    optimizer=recipe.optimizer,
                    examples_to_target=_examples(scheme.name, scheme.consistent, wanted.scaling, alone, records),
                )
            )
    return found


def _alone(records: Sequence[Record]) -> list[Record]:
    """Those of one process that came to an end; ``UsageError`` where there is none."""
    found = [each for each in records if each.header.specification.distribution is None and each.status == "done"]
    if not found:
        raise UsageError(
            "predictions for more ranks",
            "they are calibrated on runs of one process, and there is none",
            "measure that point, too: --ranks 1,...",
        )
    return found


def _part(compute: Compute, ranks: int, scaling: str) -> float:
    """The seconds that a rank computes in a usual step."""
    return float(np.median(compute.samples_s)) / (ranks if scaling == "strong" else 1)


def _recipe(arm: Arm) -> Recipe:
    return load_task(arm.reference).assemble(arm.specification.recipe, arm.specification.settings)


def _shapes(recipe: Recipe) -> dict[str, tuple[int, ...]]:
    """Those of the parameters that are trained."""
    network = recipe.onnx_network("predictions for more ranks")
    return {each.name: each.shape for each in network.parameters if each.trainable}


def _batch(recipe: Recipe) -> int:
    """Examples of an update."""
    return recipe.sampler.batch * recipe.accumulate


def _compute(records: Sequence[Record], batch: int) -> Compute:
    """The steps of one process: data, forward and backward, and apart from them the optimizer's update."""
    samples: list[float] = []
    update_s, forward = [], []
    for record in records:
        steps = np.asarray(record.samples["step_time"].values, np.float64) * 1e-9
        steps = steps[int(len(steps) * _WARM_UP) :]
        phases = record.evaluations[-1].phases_ns
        worked = sum(phases.get(name, 0) for name in _COMPUTE)
        whole = worked + phases.get("update", 0)
        samples += (steps * worked / whole).tolist()
        update_s.append(float(steps.mean()) * phases.get("update", 0) / whole)
        forward.append((worked - phases.get("backward", 0)) / worked)
    return Compute.measured(
        tuple(samples), batch, update_s=float(np.mean(update_s)), forward_share=float(np.mean(forward))
    )


def _with_fixed_part(compute: Compute, records: Sequence[Record]) -> Compute:
    """What of a step does not shrink with the examples of a rank, where runs on several ranks show it.

    The straight line through the mean step of one process and of workers that had a core each (least squares). Without
    such runs nothing is taken to be fixed.
    """
    sizes, seconds = [float(compute.batch)], [compute.mean_s]
    for record in records:
        team = record.header.specification.distribution
        crowded = record.end is not None and any("ranks share" in each for each in record.end.suspect)
        if team is None or team.scaling != "strong" or record.status != "done" or crowded:
            continue
        work = [
            float(np.mean(np.subtract(found["step_time"].values, found["communicate_time"].values))) * 1e-9
            for found in record.ranks.values()
            if "step_time" in found and "communicate_time" in found
        ]
        if work:
            sizes.append(compute.batch / len(work))
            seconds.append(max(0.0, float(np.mean(work)) - compute.update_s))
    if len(set(sizes)) < 2:
        return compute
    slope = float(np.polyfit(sizes, seconds, 1)[0])
    return replace(compute, fixed_s=min(max(0.0, compute.mean_s - slope * compute.batch), compute.mean_s))


def _examples(
    scheme: str, consistent: bool, scaling: str, alone: Sequence[Record], records: Sequence[Record]
) -> float | None:
    """Training examples to the target, of the runs that say it; ``None`` where none do.

    With weak scaling the batch grows with the ranks, and what training on a small one takes says nothing.
    """
    if scaling == "weak":
        return None
    if consistent:
        own = list(alone)
    else:
        teams = [(each, each.header.specification.distribution) for each in records]
        own = [each for each, team in teams if team and (team.scheme, team.scaling) == (scheme, "strong")]
    found = [count for each in own if (count := summarise(each).samples_to_target) is not None]
    return float(np.mean(found)) if found else None
