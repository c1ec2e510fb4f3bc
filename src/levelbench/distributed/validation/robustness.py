"""Whether a scheme bears late messages, unbuffered sends, pauses, and the loss of a rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from levelbench.distributed.validation.rules import SHORT
from levelbench.distributed.validation.runs import Case, Outcome
from levelbench.distributed.validation.subject import Subject, alike, place, stopped
from levelbench.errors import CommunicationError
from levelbench.measure.timeline import Phase
from levelbench.training.validation.probes import Finding, failed, not_tried, noted, passed

__all__ = ["ROBUSTNESS"]

_SEEDS = 3


def determinism(subject: Subject) -> Iterator[Finding]:
    """A scheme in lockstep ends with the same bits when it is run again."""
    if not subject.scheme.lockstep:
        yield not_tried("determinism", "ranks do not go in lockstep (lockstep = False)")
        return
    case = Case(subject.most)
    first, second = subject.run(case), subject.bench.again(case)
    yield alike("determinism", first, second, "a second run") or passed("determinism", "two runs, the same bits")


def random_delays(subject: Subject) -> Iterator[Finding]:
    """No order of arrival leads to a deadlock or, in lockstep, to another result."""
    lockstep = subject.scheme.lockstep
    for ranks in subject.ranks:
        plain = subject.run(Case(ranks))
        cases = [Case(ranks, late=seed) for seed in range(_SEEDS)]
        cases += [Case(ranks, slow=0), Case(ranks, slow=ranks - 1)]
        for case in cases if ranks == subject.most else cases[:1]:
            outcome = subject.run(case)
            if outcome.error is not None:
                how = f"with random delays (seed {case.late}) " if case.slow is None else f"with rank {case.slow} slow "
                yield stopped("random delays", outcome, how, "do not rely on an order of arrival")
                return
            if lockstep and (finding := alike("random delays", plain, outcome, "a run with delays")):
                yield finding
                return
    result = "the same bits each time" if lockstep else "none hangs"
    yield passed("random delays", f"{_SEEDS} seeds, the first and the last rank slow: {result}")


def unbuffered_sends(subject: Subject) -> Iterator[Finding]:
    """It goes through where a send lasts until its message is received."""
    for ranks in subject.ranks:
        outcome = subject.run(Case(ranks, synchronous=True))
        if outcome.error is not None:
            do = "start the receive before you wait for the send, or let half of the ranks receive first"
            yield stopped("unbuffered sends", outcome, "where sends wait for their receivers ", do)
            return
    yield passed("unbuffered sends", "a send may wait for its receiver")


def pauses(subject: Subject) -> Iterator[Finding]:
    """It may be stopped for an evaluation at any step, twice, and goes on as if nothing had been."""
    plain = Case(subject.most)
    outcome = subject.run(replace(plain, pauses=(1, SHORT // 2)))
    if outcome.error is not None:
        do = "let meet() do nothing where nothing is under way, and serve() end with its last step"
        yield stopped("pauses", outcome, "with meet() in between, twice in a row, ", do)
        return
    if subject.scheme.lockstep and (finding := alike("pauses", subject.run(plain), outcome, "a run with evaluations")):
        yield finding
        return
    yield passed("pauses", "meet() twice after the first and the sixth step, and on")


def lost_rank(subject: Subject) -> Iterator[Finding]:
    """When a rank dies, all others end with a ``CommunicationError``, and soon."""
    ranks = subject.most
    plain = subject.run(Case(ranks))
    survived = ""
    for rank in (0, ranks - 1):
        most = plain.traces[rank].operations
        for at in sorted({1, max(1, most // 2), most}) if most else ():
            outcome = subject.run(Case(ranks, dies=(rank, at)))
            found, done = _after_a_loss(outcome, rank)
            where = f"{place(ranks)}: rank {rank} dies at its operation {at} of {most}"
            if found:
                do = "let a CommunicationError end the rank: do not catch it, and do not try again"
                yield failed("lost rank", f"{where}, {found}", do)
                return
            if done and at != most:
                survived = survived or f"{where}, and {done} as if nothing had happened"
    if survived and subject.scheme.lockstep:
        yield failed("lost rank", survived, "do not go on without a rank in lockstep: its gradients are missing")
    elif survived:
        yield noted("lost rank", survived)
    else:
        yield passed("lost rank", "rank 0 and the last one, at their first operation, in the midst and at the end")


def _after_a_loss(outcome: Outcome, lost: int) -> tuple[str, str]:
    """What is wrong with how the others ended, and who came to the end of all steps."""
    done = []
    for trace in outcome.traces:
        if trace.rank == lost:
            continue
        if trace.error is None and not trace.finished:
            return f"and rank {trace.rank} has not ended: step {trace.step}, {trace.doing()}", ""
        if trace.error is not None and not isinstance(trace.error, CommunicationError):
            return f"and rank {trace.rank} raises {type(trace.error).__name__}: {trace.error}", ""
        if trace.stubborn:
            return f"and rank {trace.rank} goes on talking, again and again, {trace.doing()}", ""
        if trace.finished:
            done.append(f"rank {trace.rank} ends")
    return "", " and ".join(done)


def phases(subject: Subject) -> Iterator[Finding]:
    """A step waits for others in phase ``communicate`` and returns in phase ``update``: so its time is booked."""
    outcome = subject.run(Case(subject.most))
    if outcome.error is not None:
        yield stopped("phases", outcome)
        return
    for trace in outcome.workers:
        if wrong := trace.phases - {Phase.UPDATE}:
            named = ", ".join(each.label for each in sorted(wrong))
            found = f"{place(subject.most, trace.rank)}: step() returns in phase {named}"
            yield failed("phases", found, "call switch(Phase.UPDATE) before the update")
            return
        for operation, during in sorted(trace.talks.items()):
            if wrong := during - {Phase.COMMUNICATE}:
                named = ", ".join(each.label for each in sorted(wrong))
                found = f"{place(subject.most, trace.rank)}: it waits for {operation} in phase {named}"
                yield failed("phases", found, "call switch(Phase.COMMUNICATE) before you wait for others")
                return
    yield passed("phases", "communication and update are booked as such")


ROBUSTNESS = (determinism, random_delays, unbuffered_sends, pauses, lost_rank, phases)
