"""How ranks behave together: agreement, traffic, delays, pauses, the loss of a rank, phases, checkpoints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from levelbench.checks.findings import EndProbe, Finding, failed, not_tried, noted, passed
from levelbench.distributed.probes.doubles import RATE, SHAPES, SHORT, beginning
from levelbench.distributed.probes.runs import (
    EVEN,
    OTHERS,
    Floats,
    RanksOutcome,
    RankTrace,
    Rehearsal,
    SchemeTrial,
    evaluated,
    place,
    require_alike,
    stopped,
    unlike,
    with_one_worker,
)
from levelbench.distributed.scheme import Scheme
from levelbench.errors import CommunicationError, LevelbenchError, UsageError
from levelbench.measure.timeline import Phase
from levelbench.training.optimizers.rules import Momentum


def initial_broadcast(subject: SchemeTrial) -> list[Finding]:
    """Ranks that start with different parameters and buffers have those of rank 0 before the first step.

    Buffers, which are equal then and which these networks do not change, are still so at the end.
    """
    found: list[Finding] = []
    parameters, buffers = beginning(subject.seed)
    for ranks in subject.ranks:
        outcome = subject.run(Rehearsal(ranks, perturbed=True))
        if outcome.error is not None:
            found.append(stopped(outcome))
            continue
        for trace in outcome.workers:
            own = beginning(subject.seed, trace.rank)
            for what, held, expected, mine in (
                ("parameter", trace.start, parameters, own[0]),
                ("buffer", trace.start_buffers, buffers, own[1]),
            ):
                if name := unlike(held, expected):
                    whose = "its own" if np.array_equal(held[name], mine[name]) and trace.rank else "not that of rank 0"
                    words = f"{place(ranks, trace.rank, 0, name)}: the {what} that the rank starts with is {whose}"
                    found.append(failed(words, f"broadcast rank 0's {what}s in start()"))
                    break
            if not found and (name := _moved(trace.start_buffers, trace.final_buffers)):
                words = f"{place(ranks, trace.rank, None, name)}: steps change the buffer, which is equal on all ranks"
                found.append(failed(words, "leave buffers to the network, or average them over ranks"))
            if found:
                break
    return found or [passed("parameters and buffers of all workers are those of rank 0")]


def _moved(before: dict[str, Floats], after: dict[str, Floats]) -> str:
    """The first array that is another one beyond rounding, as an average of equal ones is; empty if none is."""
    equal = {name: after[name].shape == each.shape and np.allclose(after[name], each) for name, each in before.items()}
    return next((name for name in equal if not equal[name]), "")


def ranks_agree(subject: SchemeTrial) -> Finding:
    """If the scheme claims it, all workers hold the same bits after every step."""
    if not subject.scheme.replicated:
        return not_tried("it does not claim this (replicated = False)")
    for ranks in subject.ranks:
        for case in (Rehearsal(ranks), Rehearsal(ranks, sizes=EVEN)):
            outcome = subject.finished(case)
            if found := disagreement(outcome):
                do = "let all apply the same bits: sum in one order, and use no number that only one rank has"
                return failed(found, do)
    return passed(f"bit by bit after each of {SHORT} steps")


def disagreement(outcome: RanksOutcome) -> str:
    """Where workers first hold different bits; empty if they never do."""
    first, *others = outcome.workers
    for step in range(outcome.case.steps):
        for trace in others:
            if name := unlike(first.after[step], trace.after[step]):
                one, other = first.after[step][name], trace.after[step][name]
                away = float(np.abs(one.astype(np.float64) - other).max(initial=0.0))
                where = place(outcome.case.ranks, trace.rank, step + 1, name)
                return f"{where}: it differs by {away:.1e} from that of rank {first.rank}"
    return ""


def evaluated_weights(subject: SchemeTrial) -> Finding:
    """All workers evaluate the same finite weights; also tells whether they lie between the ranks' own."""
    outside = ""
    for ranks in subject.ranks:
        outcome = subject.finished(Rehearsal(ranks, sizes=EVEN))
        if found := _wrong_evaluation(outcome, subject.scheme.replicated):
            do = "let averaged() return the same weights on all workers, one of each parameter's shape"
            return failed(f"{place(ranks)}: {found}", do)
        outside = outside or _outside(outcome.workers)
    own = "the trained ones" if outcome.workers[0].averaged is None else "the same on all workers"
    # One step more than a round that ends with the run has.
    if subject.scheme.lockstep and (only := _of_one(subject.finished(Rehearsal(subject.most, SHORT + 1)).workers)):
        return noted(f"{own}; {only}")
    return passed(f"{own}; {outside}" if outside else own)


def _of_one(workers: list[RankTrace]) -> str:
    """A description if workers hold different models and one of these is evaluated."""
    weights = evaluated(workers[0])
    same = [trace.rank for trace in workers if not unlike(trace.final, weights)]
    if len(same) != 1 or len(workers) == 1:
        return ""
    return f"those of rank {same[0]}, so what others learnt since they last met it does not count"


def _wrong_evaluation(outcome: RanksOutcome, replicated: bool) -> str:
    first = outcome.workers[0]
    for trace in outcome.workers:
        weights = evaluated(trace)
        if set(weights) != set(SHAPES):
            return f"rank {trace.rank} has weights for {len(set(weights) & set(SHAPES))} of {len(SHAPES)} parameters"
        for name, shape in SHAPES.items():
            if weights[name].shape != shape:
                return f"rank {trace.rank}'s {name!r} has shape {weights[name].shape}, the parameter {shape}"
            if not np.isfinite(weights[name]).all():
                return f"rank {trace.rank}'s {name!r} is not finite"
        # Another probe finds replicas that differ.
        if not (replicated and trace.averaged is None) and (name := unlike(evaluated(first), weights)):
            if trace.averaged is None:
                return f"{name!r} differs between ranks 0 and {trace.rank}, and averaged() returns nothing"
            return f"rank {trace.rank}'s {name!r} differs from rank 0's"
    return ""


def _outside(workers: list[RankTrace]) -> str:
    """A description if an evaluated weight is outside the range of the workers' own."""
    for name in SHAPES:
        held = np.stack([trace.final[name] for trace in workers])
        weights = evaluated(workers[0])[name]
        slack = 1e-9 * (1 + np.abs(held).max())
        if (weights > held.max(0) + slack).any() or (weights < held.min(0) - slack).any():
            return f"{name!r} is outside the workers' range, so it is not an average of theirs"
    return ""


def own_memory(subject: SchemeTrial) -> Finding:
    """No two ranks share memory, and gradients are not needed after their step."""
    ranks = subject.most
    outcome = subject.finished(Rehearsal(ranks))
    views = [_views(trace) for trace in outcome.traces]
    if any(view is None for view in views):
        return passed("arrays of this framework are not writable")
    for one in outcome.traces:
        for other in outcome.traces[one.rank + 1 :]:
            for name in SHAPES:
                if np.shares_memory(views[one.rank][name], views[other.rank][name]):  # type: ignore[index]
                    found = f"{place(ranks, other.rank, None, name)}: its memory is also rank {one.rank}'s"
                    return failed(found, "copy what comes from another rank before keeping it")
    spoiled = subject.finished(Rehearsal(ranks, spoiled=True), "with gradients overwritten after their step ")
    if found := _differs_when_spoiled(spoiled, outcome, subject.scheme.lockstep):
        do = "copy the gradients in step(), or finish with them before it returns"
        return failed(f"{found} when gradients are overwritten once step() has returned", do)
    return passed("no rank shares an array, and gradients are not needed after their step")


def _views(trace: RankTrace) -> dict[str, Floats] | None:
    """NumPy views of the parameters; ``None`` if arrays are not writable."""
    views = {name: np.asarray(each) for name, each in trace.live.items()}
    return views if all(each.flags.writeable for each in views.values()) else None


def _differs_when_spoiled(spoiled: RanksOutcome, plain: RanksOutcome, exact: bool) -> str:
    for trace, other in zip(spoiled.workers, plain.workers, strict=True):
        weights: dict[str, Floats] = evaluated(trace)
        name = next((each for each in SHAPES if not np.isfinite(weights[each]).all()), "")
        if not name and exact:
            name = unlike(weights, evaluated(other))
        if name:
            return f"{place(spoiled.case.ranks, trace.rank, None, name)}: it ends with a different value"
    return ""


AGREEMENT = (initial_broadcast, ranks_agree, evaluated_weights, own_memory)


_ITEMSIZE = 8
_LONG = 48
"""Steps if a scheme does not send the same in each: hopefully several of its periods."""
_FEW = 3
_SPOILT_STEP = 4
_ERRORS = 4.0
"""How many standard errors the mean over steps may be off, beyond the factor that the scheme allows."""


def traffic(subject: SchemeTrial) -> Finding:
    """Each rank's bytes and messages, counted at the communicator, are those that the scheme declares."""
    summary = ""
    # After a warm-up, as long again.
    long = max(_LONG, 2 * getattr(subject.scheme, "warmup_steps", 0))
    for ranks in subject.ranks:
        for case in (Rehearsal(ranks, sizes=EVEN), Rehearsal(ranks, long, sizes=EVEN)):
            outcome = subject.finished(case)
            judged = [_judge(subject.scheme, each, case) for each in outcome.traces]
            if not any(wrong for wrong, _ in judged):
                break
        wrong = next((found for found, _ in judged if found), "")
        if wrong:
            return failed(wrong, "correct traffic(), or send no more than it declares")
        summary = summary or next((how for _, how in judged if how), "")
    if not summary and (finding := _message_by_message(subject) or _of_other_ranks(subject)):
        return finding
    status = noted if "expectation" in summary else passed
    return status(summary or f"each rank sends what is declared, in each of {SHORT} steps")


def _message_by_message(subject: SchemeTrial) -> Finding | None:
    """What is wrong if collectives are built from messages, each of which is counted."""
    case = Rehearsal(subject.most, _FEW, sizes=EVEN, messages=True)
    outcome = subject.finished(case, "with collectives built from messages ")
    wrong = next((found for each in outcome.traces if (found := _judge(subject.scheme, each, case)[0])), "")
    if not wrong or _sent_later(subject, outcome):
        return None
    do = "let traffic() add the closed forms of levelbench.distributed.traffic"
    return failed(f"{wrong}, message by message", do)


def _of_other_ranks(subject: SchemeTrial) -> Finding | None:
    """What is wrong on a number of ranks that was not asked for, where each step sends what is declared on those."""
    for ranks in OTHERS:
        if ranks in subject.ranks:
            continue
        case = Rehearsal(ranks, _FEW, sizes=EVEN)
        try:
            outcome = subject.run(case)
        except UsageError:
            continue
        # What goes wrong there is a finding of the probe of other ranks.
        if outcome.error is None:
            wrong = next((found for each in outcome.traces if (found := _judge(subject.scheme, each, case)[0])), "")
            if wrong:
                return failed(wrong, "correct traffic(): it has to hold for any number of ranks")
    return None


def _sent_later(subject: SchemeTrial, outcome: RanksOutcome) -> bool:
    """Whether each step sends what is declared, but some of it in a later step or when ranks meet.

    So does a collective that a step only starts: a run of twice as many steps then sends that much more.
    """
    case = outcome.case
    longer = subject.finished(replace(case, steps=2 * case.steps), "with collectives built from messages ")
    for short, long in zip(outcome.traces, longer.traces, strict=True):
        declared = subject.scheme.traffic(dict(SHAPES), _ITEMSIZE, case.ranks, short.rank)
        more = np.sum(long.sent + long.met, 0) - np.sum(short.sent + short.met, 0)
        if more.tolist() != [declared.sent_bytes * case.steps, declared.messages * case.steps]:
            return False
    return True


def _judge(scheme: Scheme, trace: RankTrace, case: Rehearsal) -> tuple[str, str]:
    """What is wrong, or in what weaker sense than in every step it is right."""
    try:
        declared = scheme.traffic(dict(SHAPES), _ITEMSIZE, case.ranks, trace.rank)
    except NotImplementedError:
        return f"{place(case.ranks, trace.rank)}: traffic() is not implemented", ""
    expected = (declared.sent_bytes, declared.messages)
    if trace.trains and all(each == expected for each in trace.sent):
        return "", ""
    # For a server only the sum over all steps is known.
    sums = list(accumulate(trace.sent, lambda one, other: (one[0] + other[0], one[1] + other[1])))
    steps = range(1, len(sums) + 1) if trace.trains else [case.steps]
    ends = [
        at
        for at, total in zip(steps, sums, strict=False)
        if np.allclose(total, np.array(expected) * at, rtol=1e-12, atol=0.0)
    ]
    if any(at * 2 >= case.steps for at in ends):
        period = "" if not trace.trains else f", exact after {max(ends)} steps"
        return "", f"each rank sends what is declared on average{period}" if trace.trains else ""
    # Warm-ups may take a while.
    later = trace.sent[len(trace.sent) // 2 :] if trace.trains else trace.sent
    if trace.trains and case.steps >= _LONG and np.allclose(np.mean(later, 0), expected, rtol=1e-12, atol=0.0):
        return "", f"each rank sends what is declared, in the last {len(later)} of {case.steps} steps"
    mean = (sums[-1][0] / case.steps, sums[-1][1] / case.steps)
    if trace.trains:
        mean = tuple(np.mean(later, 0).tolist())
    within = scheme.traffic_within()
    if within > 1 and _near(mean, expected, within, later):
        summary = "an expectation" + (f", to within a factor of {within:g}" if math.isfinite(within) else "")
        return "", f"{summary}: {_words(mean)} per step, with {_words(expected)} declared"
    return f"{place(case.ranks, trace.rank)}: it sends {_words(mean)} per step, but declares {_words(expected)}", ""


def _near(mean: Sequence[float], expected: Sequence[float], within: float, sent: Sequence[tuple[int, int]]) -> bool:
    """Whether the means are as expected, up to a factor and the chance variation over these steps."""
    # Standard errors of the means of bytes and messages; zero without several steps.
    errors: Floats = np.std(sent, 0, ddof=1) / np.sqrt(len(sent)) if len(sent) > 1 else np.zeros(2)
    return all(
        other / within - _ERRORS * error <= one <= other * within + _ERRORS * error
        for one, other, error in zip(mean, expected, errors.tolist(), strict=True)
    )


def _words(traffic: tuple[float, float]) -> str:
    sent, messages = traffic
    return f"{sent:,.6g} B in {messages:.4g} messages"


_SEEDS = 3


def determinism(subject: SchemeTrial) -> Finding:
    """A scheme in lockstep ends with the same bits when run again."""
    if not subject.scheme.lockstep:
        return not_tried("ranks are not in lockstep (lockstep = False)")
    case = Rehearsal(subject.most)
    first, second = subject.run(case), subject.again(case)
    require_alike(first, second, "a second run")
    return passed("two runs, the same bits")


def random_delays(subject: SchemeTrial) -> Finding:
    """No order of arrival causes a deadlock or, in lockstep, another result."""
    lockstep = subject.scheme.lockstep
    for ranks in subject.ranks:
        plain = subject.run(Rehearsal(ranks))
        cases = [Rehearsal(ranks, late=seed) for seed in range(_SEEDS)]
        cases += [Rehearsal(ranks, slow=0), Rehearsal(ranks, slow=ranks - 1)]
        for case in cases if ranks == subject.most else cases[:1]:
            how = f"with random delays (seed {case.late}) " if case.slow is None else f"with rank {case.slow} slow "
            outcome = subject.finished(case, how, "do not rely on an order of arrival")
            if lockstep:
                require_alike(plain, outcome, "a run with delays")
    result = "the same bits each time" if lockstep else "none hangs"
    return passed(f"{_SEEDS} seeds, the first and the last rank slow: {result}")


def unbuffered_sends(subject: SchemeTrial) -> Finding:
    """It completes even if a send waits until its message is received."""
    do = "start the receive before waiting for the send, or let half of the ranks receive first"
    for ranks in subject.ranks:
        subject.finished(Rehearsal(ranks, synchronous=True), "where sends wait for their receivers ", do)
    return passed("a send may wait for its receiver")


def pauses(subject: SchemeTrial) -> Finding:
    """It may be interrupted for an evaluation at any step, twice, without any effect, also on the optimizer's state."""
    plain = Rehearsal(subject.most, optimizer=Momentum(RATE / 2))
    do = "let meet() do nothing if nothing is in progress, and serve() end with its last step"
    outcome = subject.finished(replace(plain, pauses=(1, SHORT // 2)), "with meet() in between, twice in a row, ", do)
    if subject.scheme.lockstep:
        require_alike(subject.run(plain), outcome, "a run with evaluations")
    return passed("meet() twice after the first and the sixth step")


def lost_rank(subject: SchemeTrial) -> Finding:
    """When a rank dies, all others soon end with a ``CommunicationError``."""
    ranks = subject.most
    plain = subject.run(Rehearsal(ranks))
    survived = ""
    for rank in (0, ranks - 1):
        most = plain.traces[rank].operations
        for at in sorted({1, max(1, most // 2), most}) if most else ():
            outcome = subject.run(Rehearsal(ranks, dies=(rank, at)))
            found, done = _after_a_loss(outcome, rank)
            where = f"{place(ranks)}: rank {rank} dies at its operation {at} of {most}"
            if found:
                do = "let a CommunicationError end the rank: do not catch it or retry"
                return failed(f"{where}, {found}", do)
            if done and at != most:
                survived = survived or f"{where}, and {done} as if nothing had happened"
    if survived and subject.scheme.lockstep:
        return failed(survived, "do not continue without a rank in lockstep: its gradients are missing")
    if survived:
        return noted(survived)
    return passed("rank 0 and the last one, at their first operation, in the middle and at the end")


def _after_a_loss(outcome: RanksOutcome, lost: int) -> tuple[str, str]:
    """What is wrong with how the others ended, and which of them completed all steps."""
    done = []
    for trace in outcome.traces:
        if trace.rank == lost:
            continue
        if trace.error is None and not trace.finished:
            return f"and rank {trace.rank} has not ended: step {trace.step}, {trace.doing()}", ""
        if trace.error is not None and not isinstance(trace.error, CommunicationError):
            return f"and rank {trace.rank} raises {type(trace.error).__name__}: {trace.error}", ""
        if trace.stubborn:
            return f"and rank {trace.rank} keeps communicating, {trace.doing()}", ""
        if trace.finished:
            done.append(f"rank {trace.rank} ends")
    return "", " and ".join(done)


def phases(subject: SchemeTrial) -> Finding:
    """A step waits for others in phase ``communicate`` and returns in phase ``update``, so time is recorded there."""
    outcome = subject.finished(Rehearsal(subject.most))
    for trace in outcome.workers:
        if wrong := trace.phases - {Phase.UPDATE}:
            named = ", ".join(each.label for each in sorted(wrong))
            found = f"{place(subject.most, trace.rank)}: step() returns in phase {named}"
            return failed(found, "call switch(Phase.UPDATE) before the update")
        for operation, during in sorted(trace.talks.items()):
            if wrong := during - {Phase.COMMUNICATE}:
                named = ", ".join(each.label for each in sorted(wrong))
                found = f"{place(subject.most, trace.rank)}: it waits for {operation} in phase {named}"
                return failed(found, "call switch(Phase.COMMUNICATE) before waiting for others")
    return passed("communication and update are recorded as such")


def not_finite(subject: SchemeTrial) -> list[Finding]:
    """A gradient that is not finite on one rank shows in what all evaluate, or ends the run: it is never swallowed."""
    found: list[Finding] = []
    for value in (float("nan"), float("inf"), float("-inf")):
        rank, step = subject.scheme.workers(subject.most) - 1, _SPOILT_STEP
        outcome = subject.run(Rehearsal(subject.most, sizes=EVEN, spoilt=(rank, step, value)))
        where = f"{value} in the gradient of {place(subject.most, rank, step)}"
        if outcome.error is not None:
            ends = any(isinstance(each.error, LevelbenchError) for each in outcome.traces)
            found.append(noted(f"{where} ends the run: {outcome.why()}") if ends else stopped(outcome, f"{where}: "))
            continue
        swallowed = [
            each.rank
            for each in outcome.workers
            if all(np.isfinite(weights).all() for weights in evaluated(each).values())
        ]
        if swallowed and not any(_moved(each.after[step - 2], each.after[step - 1]) for each in outcome.workers):
            found.append(noted(f"{where}: no rank makes that step"))
        elif swallowed:
            who = "all weights" if len(swallowed) == len(outcome.workers) else f"the weights of rank {swallowed[0]}"
            said = f"{where} is swallowed: after {outcome.case.steps - step} more steps {who} are finite"
            found.append(failed(said, "let it show on all ranks, or raise an error"))
    return found or [passed("NaN and infinities of one rank show in the weights of all")]


ROBUSTNESS = (determinism, random_delays, unbuffered_sends, pauses, lost_rank, not_finite, phases)


KEPT_AFTER = (5, 6)
"""Steps after which the state is saved: no round of two steps or more ends at both."""
RESTORABLE = "let state() contain all that step() uses besides its arguments, and restore() put it back"


def checkpoints(subject: SchemeTrial) -> Finding:
    """Fresh ranks that resume from the state of others continue bit by bit like those.

    Without lockstep, this is required if only one rank trains; otherwise, only that they complete.
    """
    plain = subject.finished(_case(subject.most))
    if found := next((each.unkept for each in plain.traces if each.unkept), None):
        summary = f"{found}: a run with --checkpoint is refused"
        return noted(summary, "declare kept = True in its class once state() and restore() are complete")
    exact = [subject.most] if subject.scheme.lockstep else with_one_worker(subject, _case(subject.most))
    for ranks in sorted({subject.most, *exact}):
        for at in KEPT_AFTER:
            _require_resumable(subject, replace(_case(ranks), saves=at), exact=ranks in exact)
    listed = " and ".join(map(str, KEPT_AFTER))
    if exact:
        where = "" if subject.scheme.lockstep else f", with a single worker ({exact[0]} ranks)"
        return passed(f"saved after steps {listed}, fresh ranks resume with the same bits{where}")
    return noted(f"saved after steps {listed}, fresh ranks complete; no two runs are equal")


def _case(ranks: int) -> Rehearsal:
    return Rehearsal(ranks, learns=True, optimizer=Momentum(RATE))


def _require_resumable(subject: SchemeTrial, case: Rehearsal, *, exact: bool) -> None:
    """End the probe if ranks cannot resume from what is saved after step ``case.saves``."""
    ranks, at = case.ranks, case.saves
    kept = subject.finished(case, f"with the state saved after step {at} ", RESTORABLE)
    for trace in kept.traces:
        found = {name: each.dtype for name, each in trace.kept.state.items()} if trace.kept else {}
        odd = next((name for name, dtype in found.items() if dtype.kind not in "biufc"), None)
        if odd is not None:
            what = f"{place(ranks, trace.rank)}: {odd!r} of its state has dtype {found[odd]}"
            raise EndProbe(failed(what, "save arrays of numbers: no pickle is written or read"))
    if exact:
        require_alike(subject.run(_case(ranks)), kept, "a run that saves its state", RESTORABLE)
    resumed = subject.finished(replace(case, resumes=True), f"fresh ranks resumed after step {at}: ", RESTORABLE)
    if exact and (where := _first_difference(kept, resumed)):
        raise EndProbe(failed(f"{where}, in fresh ranks resumed after step {at}", RESTORABLE))


def _first_difference(whole: RanksOutcome, resumed: RanksOutcome) -> str:
    """Where resumed ranks first differ from uninterrupted ones."""
    ranks, at = whole.case.ranks, whole.case.saves
    for step in range(at, whole.case.steps):
        for one, other in zip(whole.workers, resumed.workers, strict=True):
            if name := unlike(one.after[step], other.after[step - at]):
                return f"{place(ranks, one.rank, step + 1, name)}: different bits"
    for one, other in zip(whole.workers, resumed.workers, strict=True):
        if name := unlike(one.final, other.final) or unlike(evaluated(one), evaluated(other)):
            return f"{place(ranks, one.rank, None, name)}: different bits at the end"
    return ""
