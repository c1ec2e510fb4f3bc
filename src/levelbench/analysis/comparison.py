"""Compares two groups of runs: whether they are comparable, the verdict, the reason, the differences of machines.

One gate, ``records.comparable``, finds everything that speaks against a comparison before anything is computed. What it
refuses is an error; if it withholds the verdict, only figures are given; anything else is reported with the verdict.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from levelbench.errors import LevelbenchError
from levelbench.measure.design import Between, between_sessions
from levelbench.measure.environment import Difference, same_machine
from levelbench.measure.sequential import seen_at_looks
from levelbench.measure.statistics.distributions import binomial_cdf
from levelbench.measure.verdict import CLOCK_STEP_S, NOT_INTERLEAVED, Verdict, VerdictKind, format_verdict, verdict
from levelbench.records import Caveat, RunGroup, RunSummary, comparable
from levelbench.records.caveats import ended

if TYPE_CHECKING:
    from levelbench.analysis.attribution import Attribution

__all__ = ["Comparison", "beyond_ties", "check_comparable", "compare", "compare_all", "sessions_seen", "span_of"]

_FEW = 4
"""The interval of the times is trusted where more than one pair in so many differs by an evaluation."""

History = Callable[[], Sequence[RunGroup]]
"""Returns the groups of all available runs."""


@dataclass(frozen=True)
class Comparison:
    """``b`` compared with ``a``. ``verdict`` is ``None`` if the gate withholds it (another machine, another quality).

    ``differences`` has every difference between the first run of ``a`` and any other run, once each. ``caveats`` has
    everything that the gate found, most serious first.
    """

    a: RunGroup
    b: RunGroup
    verdict: Verdict | None
    attribution: Attribution | None
    differences: tuple[Difference, ...]
    machines_differ: bool
    caveats: tuple[Caveat, ...] = ()

    def answer(self) -> list[str]:
        """The verdict in a sentence, and why."""
        if self.verdict is None:
            return [f"no verdict on {self.b.label} against {self.a.label}"]
        why = [] if self.attribution is None else [f"  why: {'; '.join(self.attribution.lines())}"]
        return [format_verdict(self.verdict, self.a.label, self.b.label), *why]

    def lines(self, said: set[str] | None = None) -> list[str]:
        """The answer, then what the gate found, and how the machines differ if that forbids a verdict.

        ``said`` collects the printed sentences, so that several comparisons print each only once.
        """
        return [*self.answer(), *self.caveat_lines(said)]

    def caveat_lines(self, said: set[str] | None = None) -> list[str]:
        """What the gate found and how the machines differ; skips what is in ``said``, and adds the rest to it."""
        lines = [f"  {each}" for each in self.new_caveats(set() if said is None else said)]
        if self.machines_differ:
            lines += [f"    {each.path}: {each.a} | {each.b}" for each in self.differences]
        return lines

    def new_caveats(self, said: set[str]) -> list[Caveat]:
        """What the gate found and is not in ``said`` yet; its sentences are added to ``said``."""
        new = [each for each in self.caveats if each.sentence not in said]
        said.update(each.sentence for each in new)
        return new


def check_comparable(a: RunGroup, b: RunGroup) -> None:
    """Raise what :func:`levelbench.records.comparable` refuses: ``IncomparableError`` or ``RecordError``."""
    comparable(a, b).require()


def compare(
    a: RunGroup,
    b: RunGroup,
    *,
    margin: float = 0.02,
    level: float = 0.95,
    across_machines: bool = False,
    history: History | None = None,
) -> Comparison:
    """Compare time to accuracy. Runs that missed or failed count; interrupted or unfinished ones do not.

    Arms with the same seeds are compared in pairs, which removes the luck of the seed from the ratio. ``history``
    returns the groups of earlier runs and is called only if the arms did not take turns: runs of the same task on this
    machine then show how much sessions vary. ``IncomparableError`` or ``RecordError`` for what the gate refuses.
    """
    from levelbench.analysis.attribution import attribute

    gate = comparable(a, b, across_machines=across_machines)
    gate.require()
    outcome = None if gate.verdict_withheld else _outcome(a, b, margin, level)
    if outcome is not None and history is not None and outcome.reason.endswith(NOT_INTERLEAVED):
        machine = ended(a)[0].environment
        between = sessions_seen(
            group
            for group in history()
            if group.specification.task == a.specification.task and same_machine(machine, group.runs[0].environment)
        )
        outcome = _outcome(a, b, margin, level, between)
    sides = gate.sides
    return Comparison(a, b, outcome, attribute(a, b), sides.differences, not sides.one_machine, gate.caveats)


def compare_all(
    groups: Sequence[RunGroup],
    margin: float,
    level: float,
    across_machines: bool = False,
    history: History | None = None,
) -> tuple[list[Comparison], list[str]]:
    """Each group compared with the first of its task; and a line for each refused comparison, with the reason.

    Several comparisons share the error: each has Bonferroni's level, over the comparisons that end in a verdict.
    """
    first: dict[str, RunGroup] = {}
    pairs, refusals, verdicts = [], [], 0
    for group in groups:
        base = first.setdefault(group.specification.task, group)
        if base is group:
            continue
        gate = comparable(base, group, across_machines=across_machines)
        try:
            gate.require()
        except LevelbenchError as error:
            refusals.append(f"no verdict on {group.label}: {error.found}")
            continue
        pairs.append((base, group))
        verdicts += not gate.verdict_withheld
    shared = 1 - (1 - level) / max(1, verdicts)
    found = [
        compare(a, b, margin=margin, level=shared, across_machines=across_machines, history=history) for a, b in pairs
    ]
    return found, refusals


def _outcome(a: RunGroup, b: RunGroup, margin: float, level: float, between: Between | None = None) -> Verdict:
    runs_a, runs_b = _by_seed(_ended(a)), _by_seed(_ended(b))
    for group, runs in ((a, runs_a), (b, runs_b)):
        if all(run.status == "failed" for run in runs):
            # What fails every time is broken; how fast its recipe would be is unknown, so there is nothing to judge.
            why = f"all {len(runs)} runs of {group.label} failed: {runs[0].error or 'no reason is recorded'}"
            n_a, n_b = len(runs_a), len(runs_b)
            return Verdict(VerdictKind.UNCLEAR, None, None, None, n_a, n_b, margin, level, None, why)
    effects = [run.planned_effect for run in (*runs_a, *runs_b) if run.planned_effect]
    if not effects:
        return _judged(runs_a, runs_b, margin, level, between)
    return seen_at_looks(
        lambda count, at: _judged(runs_a[:count], runs_b[:count], margin, at, between),
        min(len(runs_a), len(runs_b)),
        min(effects),
        level,
    )


def _judged(
    a: Sequence[RunSummary], b: Sequence[RunSummary], margin: float, level: float, between: Between | None
) -> Verdict:
    found = verdict(
        [run.time_to_accuracy_s for run in a],
        [run.time_to_accuracy_s for run in b],
        margin=margin,
        level=level,
        paired=[run.seed for run in a] == [run.seed for run in b],
        censored_at_a=_given_up(a),
        censored_at_b=_given_up(b),
        spent_a=[run.given_up_s or 0.0 for run in a if run.time_to_accuracy_s is None],
        spent_b=[run.given_up_s or 0.0 for run in b if run.time_to_accuracy_s is None],
        spans_a=[span_of(run) for run in a],
        spans_b=[span_of(run) for run in b],
        between=between,
        resolution=CLOCK_STEP_S,
    )
    return beyond_ties(found, a, b)


def beyond_ties(found: Verdict, a: Sequence[RunSummary], b: Sequence[RunSummary]) -> Verdict:
    """The verdict, its interval widened by evaluations that too few runs show; UNCLEAR if they could change it.

    A run that needs one more evaluation takes a jump longer. Few of n runs say little about how many of all do: up to
    Clopper and Pearson's bound may, which may exceed the margin of SAME, or undo a difference. From one run in four on,
    the interval of the times has seen enough of them.
    """
    jumps = evaluation_jumps(a, b)
    if jumps is None or found.ratio is None:
        return found
    n, usual, paired = len(jumps), _one_more(a, b), _paired(a, b)
    for way in (1, -1):
        late = [abs(jump) for jump in jumps if jump * way > 0]
        if len(late) > n / _FEW:
            continue
        jump = math.fsum(late) / len(late) if late else usual
        center = _without(way, a, b, jumps) if paired and late else math.log(found.ratio)
        bound = unseen_share(n, found.level, len(late)) * jump
        edge = math.exp(center + way * bound)
        if way == 1 and found.high is not None:
            found = replace(found, high=max(found.high, edge))
        elif way == -1 and found.low is not None:
            found = replace(found, low=min(found.low, edge))
        allowed = math.log1p(found.margin) if found.kind is VerdictKind.SAME else -way * center
        undone = {VerdictKind.SAME: True, VerdictKind.FASTER: way == 1, VerdictKind.SLOWER: way == -1}
        if undone.get(found.kind) and bound > allowed:
            more = _to_bound(max(0.0, allowed / jump), n, found.level, len(late))
            reason = tie_reason(n, found.level, paired=paired, seen=len(late))
            found = replace(found, kind=VerdictKind.UNCLEAR, runs_to_settle=more, reason=reason)
    return found


def evaluation_jumps(a: Sequence[RunSummary], b: Sequence[RunSummary]) -> list[float] | None:
    """What evaluations add to the logarithm of the time in each pair: above 0 where ``b``'s run needs more of them.

    Without common seeds, runs are compared with the number of evaluations that most need. ``None`` where evaluations
    are not what makes times differ: runs with equal losses are the same computation, which ties under every seed, as
    runs of a fixed length do; runs without common seeds of which a quarter differ from the others; and those of which
    some missed, unless all tie.
    """
    if a[0].crossing in ("final", "interpolated") or not all(run.evaluations for run in (*a, *b)):
        return None
    if _paired(a, b):
        if all(x.losses_digest and x.losses_digest == y.losses_digest for x, y in zip(a, b, strict=True)):
            return None
        pairs = list(zip(a, b, strict=True))
        if not all(x.reached and y.reached for x, y in pairs) and any(_place(x) != _place(y) for x, y in pairs):
            return None
        return [0.0 if _place(x) == _place(y) else math.log(y.evaluations / x.evaluations) for x, y in pairs]
    places = Counter(_place(run) for run in (*a, *b))
    (_, usual), most = places.most_common(1)[0]
    alike = most == len((*a, *b))
    if not alike and (most < (1 - 1 / _FEW) * len((*a, *b)) or not all(run.reached for run in (*a, *b))):
        return None
    jumps = [math.log(run.evaluations / usual) for run in b] + [math.log(usual / run.evaluations) for run in a]
    jumps.sort(key=abs, reverse=True)
    return jumps[: min(len(a), len(b))]


def step_of_ties(a: Sequence[RunSummary], b: Sequence[RunSummary]) -> float | None:
    """What one more evaluation adds to the logarithm of a time, if all runs of both arms tie at one; else ``None``."""
    jumps = evaluation_jumps(a, b)
    return None if jumps is None or any(jumps) else _one_more(a, b)


def unseen_share(n: int, level: float, seen: int = 0) -> float:
    """The largest share of all pairs that differ, if ``seen`` of ``n`` do (Clopper and Pearson's one-sided bound)."""
    if not seen:
        return -math.expm1(math.log1p(-level) / n)
    low, high = seen / n, 1.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_cdf(seen, n, middle) > 1 - level else (low, middle)
    return high


def tie_reason(n: int, level: float, *, paired: bool, seen: int = 0) -> str:
    """Why ties decide nothing, in words."""
    what = "pairs" if paired else "runs"
    share = f"{100 * unseen_share(n, level, seen):.0f} %"
    if seen:
        return f"{seen} of {n} {what} differ{'s' * (seen == 1)} by an evaluation, and up to {share} of all may"
    return f"all {what} tie at an evaluation, and up to {share} may differ by one"


def _paired(a: Sequence[RunSummary], b: Sequence[RunSummary]) -> bool:
    return [run.seed for run in a] == [run.seed for run in b]


def _place(run: RunSummary) -> tuple[int | None, int]:
    return run.steps_to_target, run.evaluations


def _one_more(a: Sequence[RunSummary], b: Sequence[RunSummary]) -> float:
    """What one more evaluation adds to the logarithm of a run's time, on average."""
    return sum(math.log1p(1 / run.evaluations) for run in (*a, *b)) / len((*a, *b))


def _without(way: int, a: Sequence[RunSummary], b: Sequence[RunSummary], jumps: Sequence[float]) -> float:
    """The mean logarithm of b / a over the pairs that do not jump that way."""
    pairs = [(x.time_to_accuracy_s, y.time_to_accuracy_s, jump) for x, y, jump in zip(a, b, jumps, strict=True)]
    kept = [math.log(y / x) for x, y, jump in pairs if x and y and jump * way <= 0]
    return math.fsum(kept) / len(kept)


def _to_bound(share: float, n: int, level: float, seen: int) -> int | None:
    """How many more pairs, of which as large a share differs, bring the bound down to ``share``; ``None``: none do."""
    if not share > seen / n:
        return None
    if not seen:
        return math.ceil(math.log(1 - level) / math.log(1 - share)) - n if share < 1 else None
    counts = (n * factor for factor in range(2, 51))
    return next((count - n for count in counts if unseen_share(count, level, seen * count // n) <= share), None)


def span_of(run: RunSummary) -> tuple[float, float]:
    """When a run started and ended, in seconds since 1970."""
    started = datetime.fromisoformat(run.started).timestamp()
    return started, started + run.wall_s


def sessions_seen(groups: Iterable[RunGroup]) -> Between | None:
    """How much sessions vary, from ``groups`` of runs on one machine; ``None`` if no group has two sessions."""
    arrived = [[run for run in group.runs if run.time_to_accuracy_s] for group in groups]
    return between_sessions(
        [([run.time_to_accuracy_s or 0.0 for run in runs], [span_of(run) for run in runs]) for runs in arrived]
    )


def _ended(group: RunGroup) -> list[RunSummary]:
    return ended(group)


def _by_seed(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """The runs by seed, so that arms with the same seeds form pairs: same weights, same batches, close in time."""
    return sorted(runs, key=lambda run: (run.seed, run.started))


def _given_up(runs: Sequence[RunSummary]) -> list[float] | None:
    """How long each run that missed had tried, in order; infinite if it could never arrive, ``None`` if unknown."""
    missed = [run for run in runs if run.time_to_accuracy_s is None]
    times = [math.inf if run.hopeless or run.status == "failed" else run.given_up_s or 0.0 for run in missed]
    # A run without a duration says nothing about the times of the others.
    return times if all(time > 0.0 for time in times) else None
