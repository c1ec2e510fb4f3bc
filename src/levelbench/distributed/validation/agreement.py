"""Whether ranks begin alike, stay alike where they say so, and evaluate the same weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from levelbench.distributed.validation.models import SHAPES, beginning
from levelbench.distributed.validation.rules import SHORT
from levelbench.distributed.validation.runs import EVEN, Case, Outcome, Trace
from levelbench.distributed.validation.subject import Floats, Subject, evaluated, place, stopped, unlike
from levelbench.training.validation.probes import Finding, failed, not_tried, passed

__all__ = ["AGREEMENT"]


def initial_broadcast(subject: Subject) -> Iterator[Finding]:
    """Ranks that begin with other parameters and buffers have those of rank 0 before the first step."""
    seed, wrong = subject.bench.seed, False
    parameters, buffers = beginning(seed)
    for ranks in subject.ranks:
        outcome = subject.run(Case(ranks, perturbed=True))
        if outcome.error is not None:
            wrong = True
            yield stopped("initial broadcast", outcome)
            continue
        for trace in outcome.workers:
            for what, held, expected in (
                ("parameter", trace.start, parameters),
                ("buffer", trace.start_buffers, buffers),
            ):
                name = unlike(held, expected)
                if not name:
                    continue
                wrong = True
                own = beginning(seed, trace.rank)[0 if what == "parameter" else 1][name]
                whose = "its own" if np.array_equal(held[name], own) and trace.rank else "not that of rank 0"
                where = place(ranks, trace.rank, 0, name)
                found = f"{where}: the {what} that the rank begins with is {whose}"
                yield failed("initial broadcast", found, f"broadcast rank 0's {what}s in start()")
                break
            if wrong:
                break
    if not wrong:
        yield passed("initial broadcast", "parameters and buffers of all workers are those of rank 0")


def ranks_agree(subject: Subject) -> Iterator[Finding]:
    """Where the scheme says so, all workers hold the same bits after every step."""
    if not subject.scheme.replicated:
        yield not_tried("ranks agree", "it does not say that they do (replicated = False)")
        return
    for ranks in subject.ranks:
        for case in (Case(ranks), Case(ranks, sizes=EVEN)):
            outcome = subject.run(case)
            if outcome.error is not None:
                yield stopped("ranks agree", outcome)
                return
            if found := _parting(outcome):
                do = "let all apply the same bits: sum in one order, and use no number that only one rank has"
                yield failed("ranks agree", found, do)
                return
    yield passed("ranks agree", f"bit by bit after each of {SHORT} steps")


def _parting(outcome: Outcome) -> str:
    first, *others = outcome.workers
    for step in range(outcome.case.steps):
        for trace in others:
            if name := unlike(first.after[step], trace.after[step]):
                one, other = first.after[step][name], trace.after[step][name]
                away = float(np.abs(one.astype(np.float64) - other).max(initial=0.0))
                where = place(outcome.case.ranks, trace.rank, step + 1, name)
                return f"{where}: it is {away:.1e} away from that of rank {first.rank}"
    return ""


def evaluated_weights(subject: Subject) -> Iterator[Finding]:
    """All workers evaluate the same finite weights; whether they lie among the ranks' own is told."""
    outside = ""
    for ranks in subject.ranks:
        outcome = subject.run(Case(ranks, sizes=EVEN))
        if outcome.error is not None:
            yield stopped("evaluated weights", outcome)
            return
        if found := _misevaluated(outcome, subject.scheme.replicated):
            do = "let averaged() answer with the same weights on all workers, one of each parameter's shape"
            yield failed("evaluated weights", f"{place(ranks)}: {found}", do)
            return
        outside = outside or _outside(outcome.workers)
    own = "those that are trained" if outcome.workers[0].averaged is None else "the same on all workers"
    beside = f"; {outside}" if outside else ""
    yield passed("evaluated weights", own + beside)


def _misevaluated(outcome: Outcome, replicated: bool) -> str:
    first = outcome.workers[0]
    for trace in outcome.workers:
        weights = evaluated(trace)
        if set(weights) != set(SHAPES):
            return f"rank {trace.rank} has weights for {len(set(weights) & set(SHAPES))} of {len(SHAPES)} parameters"
        for name, shape in SHAPES.items():
            if weights[name].shape != shape:
                return f"rank {trace.rank}'s {name!r} has shape {weights[name].shape}, and the parameter {shape}"
            if not np.isfinite(weights[name]).all():
                return f"rank {trace.rank}'s {name!r} is not finite"
        # That replicas differ is told by another probe.
        if not (replicated and trace.averaged is None) and (name := unlike(evaluated(first), weights)):
            if trace.averaged is None:
                return f"{name!r} differs between ranks 0 and {trace.rank}, and averaged() says nothing"
            return f"rank {trace.rank}'s {name!r} is another than rank 0's"
    return ""


def _outside(workers: list[Trace]) -> str:
    """Words where an evaluated weight is larger or smaller than that of every worker."""
    for name in SHAPES:
        held = np.stack([trace.final[name] for trace in workers])
        weights = evaluated(workers[0])[name]
        slack = 1e-9 * (1 + np.abs(held).max())
        if (weights > held.max(0) + slack).any() or (weights < held.min(0) - slack).any():
            return f"{name!r} lies outside of what the workers hold, so it is no average of theirs"
    return ""


def own_memory(subject: Subject) -> Iterator[Finding]:
    """No two ranks hold an array in the same memory, and gradients are not needed after their step."""
    ranks = subject.most
    outcome = subject.run(Case(ranks))
    if outcome.error is not None:
        yield stopped("own memory", outcome)
        return
    views = [_views(trace) for trace in outcome.traces]
    if any(view is None for view in views):
        yield passed("own memory", "arrays of this framework cannot be written to")
        return
    for one in outcome.traces:
        for other in outcome.traces[one.rank + 1 :]:
            for name in SHAPES:
                if np.shares_memory(views[one.rank][name], views[other.rank][name]):  # type: ignore[index]
                    found = f"{place(ranks, other.rank, None, name)}: its memory is also rank {one.rank}'s"
                    yield failed("own memory", found, "copy what comes from another rank before you keep it")
                    return
    spoiled = subject.run(Case(ranks, spoiled=True))
    if spoiled.error is not None:
        yield stopped("own memory", spoiled, "with gradients overwritten after their step ")
    elif found := _spoilt(spoiled, outcome, subject.scheme.lockstep):
        do = "copy the gradients in step(), or be done with them when it returns"
        yield failed("own memory", f"{found} when gradients are overwritten once step() has returned", do)
    else:
        yield passed("own memory", "no rank shares an array, and gradients are not needed after their step")


def _views(trace: Trace) -> dict[str, Any] | None:
    """NumPy's view of each parameter; ``None`` where arrays cannot be written to."""
    views = {name: np.asarray(each) for name, each in trace.live.items()}
    return views if all(each.flags.writeable for each in views.values()) else None


def _spoilt(spoiled: Outcome, plain: Outcome, exact: bool) -> str:
    for trace, other in zip(spoiled.workers, plain.workers, strict=True):
        weights: dict[str, Floats] = evaluated(trace)
        name = next((each for each in SHAPES if not np.isfinite(weights[each]).all()), "")
        if not name and exact:
            name = unlike(weights, evaluated(other))
        if name:
            return f"{place(spoiled.case.ranks, trace.rank, None, name)}: it ends elsewhere"
    return ""


AGREEMENT = (initial_broadcast, ranks_agree, evaluated_weights, own_memory)
