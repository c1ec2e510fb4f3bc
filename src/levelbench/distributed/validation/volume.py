"""Whether a scheme sends what it declares: bytes and messages by rank, against its own closed form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from levelbench.distributed.scheme import Scheme, Traffic
from levelbench.distributed.validation.models import SHAPES
from levelbench.distributed.validation.rules import SHORT
from levelbench.distributed.validation.runs import EVEN, Case, Trace
from levelbench.distributed.validation.subject import Floats, Subject, place, stopped
from levelbench.training.validation.probes import Finding, failed, noted, passed

__all__ = ["traffic"]

_ITEMSIZE = 8
_LONG = 48
"""Steps, where a scheme does not send the same at each: several of its periods, hopefully."""
_FEW = 3
_ERRORS = 4.0
"""How many standard errors of its mean over steps an expectation may be beyond the factor that the scheme gives it."""


def traffic(subject: Subject) -> Iterator[Finding]:
    """Bytes and messages of each rank, as counted at the communicator, are those that the scheme declares."""
    said = ""
    for ranks in subject.ranks:
        for case in (Case(ranks, sizes=EVEN), Case(ranks, _LONG, sizes=EVEN)):
            outcome = subject.run(case)
            if outcome.error is not None:
                yield stopped("traffic", outcome)
                return
            judged = [_judged(subject.scheme, each, case) for each in outcome.traces]
            if not any(wrong for wrong, _ in judged):
                break
        wrong = next((found for found, _ in judged if found), "")
        if wrong:
            yield failed("traffic", wrong, "correct traffic(), or send no more than it says")
            return
        said = said or next((how for _, how in judged if how), "")
    if not said and (finding := _message_by_message(subject)):
        yield finding
        return
    status = noted if "expectation" in said else passed
    yield status("traffic", said or f"each rank sends what is declared, at each of {SHORT} steps")


def _message_by_message(subject: Subject) -> Finding | None:
    """What is wrong where collectives are made of messages, and each of these is counted."""
    case = Case(subject.most, _FEW, sizes=EVEN, messages=True)
    outcome = subject.run(case)
    if outcome.error is not None:
        return stopped("traffic", outcome, "with collectives that are made of messages ")
    wrong = next((found for each in outcome.traces if (found := _judged(subject.scheme, each, case)[0])), "")
    do = "let traffic() add up the closed forms of levelbench.distributed.traffic"
    return failed("traffic", f"{wrong}, message by message", do) if wrong else None


def _judged(scheme: Scheme, trace: Trace, case: Case) -> tuple[str, str]:
    """What is wrong, and in which other sense than at every step it is right."""
    try:
        declared = scheme.traffic(dict(SHAPES), _ITEMSIZE, case.ranks, trace.rank)
    except NotImplementedError:
        return f"{place(case.ranks, trace.rank)}: traffic() is not there", ""
    expected = (declared.sent_bytes, declared.messages)
    if trace.trains and all(each == expected for each in trace.sent):
        return "", ""
    # Of a server only the sum over all steps is known.
    sums = list(accumulate(trace.sent, lambda one, other: (one[0] + other[0], one[1] + other[1])))
    steps = range(1, len(sums) + 1) if trace.trains else [case.steps]
    ends = [at for at, total in zip(steps, sums, strict=False) if _equal(total, declared, at)]
    if any(at * 2 >= case.steps for at in ends):
        period = "" if not trace.trains else f", exact after {max(ends)} steps"
        return "", f"each rank sends what is declared on average{period}" if trace.trains else ""
    # Warm-ups may take a while.
    later = trace.sent[len(trace.sent) // 2 :] if trace.trains else trace.sent
    if trace.trains and case.steps == _LONG and all(each == expected for each in later):
        return "", f"each rank sends what is declared, in the last {len(later)} of {case.steps} steps"
    mean = (sums[-1][0] / case.steps, sums[-1][1] / case.steps)
    if trace.trains:
        mean = tuple(np.mean(later, 0).tolist())
    within = scheme.traffic_within()
    if within > 1 and _near(mean, expected, within, _scatter(later)):
        said = f"an expectation, to within a factor of {within:g}"
        return "", f"{said}: {_words(mean)} a step, and {_words(expected)} are declared"
    return f"{place(case.ranks, trace.rank)}: it sends {_words(mean)} a step, and {_words(expected)} are declared", ""


def _equal(total: tuple[float, float], declared: Traffic, steps: int) -> bool:
    return bool(np.allclose(total, (declared.sent_bytes * steps, declared.messages * steps), rtol=1e-12, atol=0.0))


def _scatter(sent: Sequence[tuple[int, int]]) -> Floats:
    """Standard errors of the means of bytes and messages over steps; zeros where there are not several."""
    return np.std(sent, 0, ddof=1) / np.sqrt(len(sent)) if len(sent) > 1 else np.zeros(2)


def _near(mean: Sequence[float], expected: Sequence[float], within: float, errors: Floats) -> bool:
    """Whether the means are the expected ones, but for a factor and for what chance makes of so many steps."""
    return all(
        other / within - _ERRORS * error <= one <= other * within + _ERRORS * error
        for one, other, error in zip(mean, expected, errors.tolist(), strict=True)
    )


def _words(traffic: tuple[float, float]) -> str:
    sent, messages = traffic
    return f"{sent:,.6g} B in {messages:.4g} messages"
