"""Whether ranks go on from a checkpoint as if nothing had happened: a scheme's ``state`` and ``restore``.

The one idea: what a state leaves out cannot be seen in it, only in what becomes of a run. So fresh ranks are given what
others kept in the middle of one, and must do bit by bit what those did.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from levelbench.distributed.validation.rules import RATE
from levelbench.distributed.validation.runs import Case, Outcome
from levelbench.distributed.validation.subject import Subject, alike, evaluated, place, stopped, unlike
from levelbench.errors import UsageError
from levelbench.training.optimizers.rules import Momentum
from levelbench.training.validation.probes import Finding, failed, noted, passed

__all__ = ["checkpoints"]

_AT = (5, 6)
"""Steps after which the state is kept: no round of two steps or more is over at both."""
_DO = "let state() hold all that step() reads and has not got from its arguments, and restore() put it back"


def checkpoints(subject: Subject) -> Iterator[Finding]:
    """Fresh ranks that go on from the state of others do bit by bit what those did.

    Ranks that do not go in lockstep are held to it where one of them trains alone, and must come to their end where
    several do.
    """
    plain = subject.run(_case(subject.most))
    if plain.error is not None:
        yield stopped("checkpoints", plain)
        return
    if found := next((each.unkept for each in plain.traces if each.unkept), None):
        said = f"{found}: a run with --checkpoint is refused"
        yield noted("checkpoints", said, "say kept = True in its class once state() and restore() are whole")
        return
    exact = [subject.most] if subject.scheme.lockstep else _alone(subject)
    for ranks in sorted({subject.most, *exact}):
        for at in _AT:
            if finding := _wrong(subject, replace(_case(ranks), saves=at), exact=ranks in exact):
                yield finding
                return
    listed = " and ".join(map(str, _AT))
    if exact:
        where = "" if subject.scheme.lockstep else f", where one trains alone ({exact[0]} ranks)"
        yield passed("checkpoints", f"kept after steps {listed}, fresh ranks go on to the same bits{where}")
    else:
        yield noted("checkpoints", f"kept after steps {listed}, fresh ranks come to the end; no two runs are alike")


def _case(ranks: int) -> Case:
    return Case(ranks, learns=True, optimizer=Momentum(RATE))


def _alone(subject: Subject) -> list[int]:
    """The smallest number of ranks of which one trains; empty where the scheme takes none such."""
    for ranks in (1, 2):
        try:
            if subject.scheme.workers(ranks) == 1 and subject.run(_case(ranks)).error is None:
                return [ranks]
        except UsageError:
            continue
    return []


def _wrong(subject: Subject, case: Case, *, exact: bool) -> Finding | None:
    ranks, at = case.ranks, case.saves
    kept = subject.run(case)
    if kept.error is not None:
        return stopped("checkpoints", kept, f"with the state kept after step {at} ", _DO)
    for trace in kept.traces:
        found = {name: each.dtype for name, each in trace.kept.state.items()} if trace.kept else {}
        odd = next((name for name, dtype in found.items() if dtype.kind not in "biufc"), None)
        if odd is not None:
            what = f"{place(ranks, trace.rank)}: {odd!r} of its state has dtype {found[odd]}"
            return failed("checkpoints", what, "keep arrays of numbers: no pickle is written or read")
    if exact and (finding := alike("checkpoints", subject.run(_case(ranks)), kept, "a run that keeps its state", _DO)):
        return finding
    resumed = subject.run(replace(case, resumes=True))
    if resumed.error is not None:
        return stopped("checkpoints", resumed, f"fresh ranks that go on after step {at}: ", _DO)
    parted = _parting(kept, resumed) if exact else ""
    return failed("checkpoints", f"{parted}, in fresh ranks that go on after step {at}", _DO) if parted else None


def _parting(whole: Outcome, resumed: Outcome) -> str:
    """Where those that went on first hold other bits than those that were not interrupted."""
    ranks, at = whole.case.ranks, whole.case.saves
    for step in range(at, whole.case.steps):
        for one, other in zip(whole.workers, resumed.workers, strict=True):
            if name := unlike(one.after[step], other.after[step - at]):
                return f"{place(ranks, one.rank, step + 1, name)}: other bits"
    for one, other in zip(whole.workers, resumed.workers, strict=True):
        if name := unlike(one.final, other.final) or unlike(evaluated(one), evaluated(other)):
            return f"{place(ranks, one.rank, None, name)}: other bits at the end"
    return ""
