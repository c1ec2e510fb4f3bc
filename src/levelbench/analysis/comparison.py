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
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from levelbench.analysis.ties import beyond_ties
from levelbench.errors import LevelbenchError
from levelbench.measure.design import Between, between_sessions
from levelbench.measure.environment import Difference, same_machine
from levelbench.measure.sequential import seen_at_looks
from levelbench.measure.verdict import (
    CLOCK_STEP_S,
    LEAST_RUNS,
    NOT_INTERLEAVED,
    Verdict,
    VerdictKind,
    format_verdict,
    format_verdicts,
    ratio_sentence,
    verdict,
)
from levelbench.records import Caveat, RunGroup, RunSummary, comparable
from levelbench.records.caveats import ended
from levelbench.records.replicates import doubts_together
from levelbench.records.selection import short_name

if TYPE_CHECKING:
    from levelbench.analysis.attribution import Attribution
    from levelbench.records.store import Row

__all__ = ["Comparison", "answer_in_brief", "check_comparable", "compare", "compare_all", "sessions_seen", "span_of"]
__all__ += ["among_others", "with_common_doubts"]

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

    def __str__(self) -> str:
        """The verdict and why, and what speaks against it."""
        return "\n".join(self.lines())

    __repr__ = __str__

    def answer(self) -> list[str]:
        """The verdict in a sentence, and why."""
        if self.verdict is None:
            return [f"no verdict on {self.b.label} against {self.a.label}"]
        why = [] if self.attribution is None else [f"  why: {'; '.join(self.attribution.lines())}"]
        sentence = format_verdict(replace(self.verdict, reason=self.reason), self.a.label, self.b.label)
        return [sentence, *why, *self._cost_lines()]

    @property
    def reason(self) -> str:
        """The verdict's, with what to do about it."""
        found = "" if self.verdict is None else self.verdict.reason
        # Programs are not started by levelbench run, whose option that is.
        if {run.environment.get("started") for run in (*self.a.runs, *self.b.runs)} & {"in place", "from outside"}:
            return found.replace(NOT_INTERLEAVED, "not interleaved: let levelbench time start both in turns")
        return found

    @property
    def cost(self) -> Verdict | None:
        """The verdict's ratio and interval, of costs instead of times; its ``kind`` remains that of the times.

        ``None`` without a ratio, or without a price of both sides.
        """
        a, b, found = self.a.usd_per_hour, self.b.usd_per_hour, self.verdict
        if a is None or b is None or found is None or found.ratio is None:
            return None
        ratio, low, high = (each if each is None else each * b / a for each in (found.ratio, found.low, found.high))
        return replace(found, ratio=ratio, low=low, high=high)

    def _cost_lines(self) -> list[str]:
        """How the costs compare, if the price is not the same; whose price is missing, if one was given."""
        a, b, costs = self.a, self.b, self.cost
        if (a.usd_per_hour is None) != (b.usd_per_hour is None):
            missing = a.label if a.usd_per_hour is None else b.label
            return [f"  cost: not compared, as no price of {missing} was given (--price RUNS=PRICE)"]
        if costs is None or a.usd_per_hour == b.usd_per_hour:
            return []
        return [f"  cost: {ratio_sentence(costs, a.label, b.label, 'costs', 'as much as')}"]

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


def answer_in_brief(comparisons: Sequence[Comparison], *, why: bool = True, terse: bool = False) -> list[str]:
    """The verdicts on several sides against one baseline: what they have in common is said once, above them.

    The ``terse`` form has ``x0.81`` for ``takes 0.81 times as long``, and the shortest names.
    """
    judged = [each for each in comparisons if each.verdict is not None]
    name = partial(short_name, terse=terse)
    found = [(name(each.b.label), replace(each.verdict, reason=each.reason)) for each in judged if each.verdict]
    base = comparisons[0].a.label
    head, sentences = format_verdicts(name(base) if terse else base, found, terse=terse)
    lines = [f"{head}{', times as long' * terse}:"]
    for each, sentence in zip(judged, sentences, strict=True):
        lines.append(sentence)
        if why and each.attribution is not None:
            lines.append(f"  why: {each.attribution.brief()}")
        lines += each._cost_lines()
    return lines + [f"no verdict on {name(each.b.label)}" for each in comparisons if each.verdict is None]


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

    Several comparisons of a task share the error: each has Bonferroni's level, over those that end in a verdict, and a
    note says so. What else is measured changes no verdict.
    """
    first: dict[str, RunGroup] = {}
    pairs, refusals, verdicts = [], [], Counter[str]()
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
        verdicts[base.specification.task] += not gate.verdict_withheld
    found = []
    for a, b in pairs:
        among = max(1, verdicts[a.specification.task])
        shared = 1 - (1 - level) / among
        one = compare(a, b, margin=margin, level=shared, across_machines=across_machines, history=history)
        if among > 1:
            text = f"{among} comparisons of {a.specification.task} share the error"
            text += f": each interval is a {100 * shared:.4g} % one"
            one = replace(one, caveats=(*one.caveats, Caveat("level", "note", text)))
        found.append(one)
    return with_common_doubts(found), refusals


def with_common_doubts(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """``comparisons`` with each doubt about runs in one sentence for all sides that it concerns."""
    found = doubts_together([(each.a, each.b) for each in comparisons], [each.caveats for each in comparisons])
    return [replace(each, caveats=own) for each, own in zip(comparisons, found, strict=True)]


def among_others(found: Comparison, rows: Iterable[Row | RunSummary]) -> Comparison:
    """``found`` with a note if runs of other specifications among ``rows`` took turns with both sides.

    Whoever looks at several comparisons and then names one has chosen it by its result, which its interval ignores.
    """
    starts: dict[str, list[str]] = {}
    for row in rows:
        if row.status in ("done", "failed"):
            starts.setdefault(row.key, []).append(row.started)
    sides = [[run.started for run in ended(side)] for side in (found.a, found.b)]
    others = sum(
        key not in (found.a.key, found.b.key) and all(_took_turns(side, each) for side in sides)
        for key, each in starts.items()
    )
    if not others:
        return found
    text = f"{others} other{'s' * (others > 1)} took turns with these two: the interval is that of one comparison, "
    text += "chosen before looking; levelbench run of all allows for their number"
    return replace(found, caveats=(*found.caveats, Caveat("level", "note", text)))


def _took_turns(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether what began at these times alternated, as a single command lets its sides do."""
    order = sorted([*((start, False) for start in one), *((start, True) for start in other)])
    fewest = min(len(one), len(other))
    return LEAST_RUNS <= fewest <= sum(before[1] != after[1] for before, after in pairwise(order))


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
