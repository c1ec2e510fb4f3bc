"""Summarises a run, with its time to accuracy and other figures, and groups runs of one specification.

A summary is a view of a record under a clock, a crossing rule and a threshold: the run's own unless others are given.
It is never stored, so any record can be read under another rule.

Runs of one specification form a group, which is a row of a comparison. Its label has only the values in which it
differs from the other groups (``digits[framework=torch]``), so labels are short and never ambiguous.
"""

from __future__ import annotations

import hashlib
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct, field

from levelbench.errors import RecordError
from levelbench.records.doubts import without_figures
from levelbench.records.integrity import TRAINING_PHASES, contradictions
from levelbench.records.reader import Record, Status
from levelbench.records.schema import (
    DatasetFacts,
    Distribution,
    Evaluation,
    Measurement,
    Samples,
    Specification,
    Target,
    around_recipes,
)
from levelbench.records.selection import OWN_NAMES, RULES, Value, format_item
from levelbench.records.witness import FIXED_ANSWERS, UNTRAINED, witness_contradictions, witness_doubts

__all__ = ["COUNTED", "OPERATIONS", "RunGroup", "RunSummary", "counts_steps", "group_runs", "labels_of", "one_a_seed"]
__all__ += ["refuse_contradictory", "summarise"]

_SHOWN = 3


_STEP_PHASES = frozenset({*TRAINING_PHASES, "train"})
"""The phases that a step goes through."""

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


class RunSummary(Struct, frozen=True):
    """One run under one view. ``None`` means that there is no such figure; times are in seconds.

    ``time_to_accuracy_s`` is set if the run reached its target, ``given_up_s`` if it did not: how long it tried on the
    same clock, up to its last evaluation, since the test set and meters come after trying. ``phases_s`` are the phases
    up to the evaluation that counts, or up to the last one if the run missed; they sum to the score and ``excluded_s``.
    ``wall_s`` is the whole run. A run is ``hopeless`` if it missed and could never have arrived: it failed, it
    diverged, or its schedule is over and only the end counts. ``stopped_by`` is why its training ended;
    it is ``trained_out`` if it missed although its epochs were all done. It is one of a ``whole`` where all runs are
    there that the command which looks at them asked for, whatever earlier ones did.

    ``checksums`` (SHA-256 by file) identify its data, ``source_digest`` the text of the task with the user's own
    ``modules`` (``settings_read`` are the files, variables and installed packages among them; ``files_read`` are those
    of a program that was run from outside, ``data_read`` the data files, ``prepared_s`` how long it was prepared off
    its clock, ``prepared_files`` what it read that this left), ``around_digest`` that text outside of its recipes,
    ``quality_digest`` and ``data_digest`` the code that scored it and loaded its data (empty in older ones).
    ``contradictions`` say where the record is not consistent; ``integrity.require_consistent`` refuses such a run.
    ``chained`` says whether its lines have checksums;
    ``checksum`` is the last one. ``losses_digest`` and ``qualities_digest`` are digests of its training losses and
    qualities, empty if these do not distinguish runs. ``evaluations`` counts those up to the one that counts, or all if
    the run missed. ``first_quality`` is the quality before training, where that was measured, else at the first
    evaluation, ``first_evaluation_s`` when that was, ``fixed_answers`` that of made-up answers,
    ``first_step_s`` the time of the first step. ``earlier_s`` are the times of up to two evaluations before the one
    that counts, the latest first. Where a program reports its own qualities, ``decimals`` are the most of any of them
    (``None``: more than five), and ``if_rounded_s`` has the times to accuracy with 0, 1, ... decimals up to those that
    they have, ``inf`` for never; ``shares_of`` is the smallest number of examples of which all of them are shares, and
    how many different ones there are (``None``: they are no shares, or too few digits are known); ``moves`` says how
    often they got worse, stayed exactly the same, and changed at all or not, and the median change in units of the
    last digit or example. ``warm_up_s`` is what the first steps took beyond the usual ones, by phase, and
    ``warm_up_evaluation_s`` the same for the first evaluation, both up to the evaluation that counts: compilation,
    where a framework compiles. ``None`` if the record cannot tell. ``samples_between`` has the examples seen at the
    last evaluation below the target and at the one after it, which began the streak that counts, so that the target was
    reached between them; of a run that missed, the former alone.

    ``operations_per_example`` are those of a training example by precision (``records.operations``), or empty with a
    reason; ``read_from_disk_bytes`` and ``read_from_cache_bytes`` what the whole run read, or ``None`` with a reason.
    """

    id: str
    key: str
    task: str
    recipe: str
    framework: str
    device: str
    settings: dict[str, int | float | str | bool]
    seed: int
    status: Status
    reached: bool
    target: Target
    crossing: str
    clock: str
    time_to_accuracy_s: float | None
    given_up_s: float | None
    excluded_s: dict[str, float]
    epochs_to_target: float | None
    samples_to_target: int | None
    steps_to_target: int | None
    time_per_step_s: float | None
    phases_s: dict[str, float]
    quality: dict[str, float]
    peak_memory_bytes: float | None
    energy_j: float | None
    energy_method: str | None
    energy_reason: str | None
    environment: dict[str, Any]
    started: str
    wall_s: float
    error: str | None
    suspect: list[str]
    path: str
    synthetic: bool
    evaluate_every: str = ""
    budget_epochs: float = 0.0
    budget_s: float | None = None
    budget_samples: int | None = None
    budget_j: float | None = None
    plateau: int | None = None
    distribution: Distribution | None = None
    scored_by: Literal["program", "held-out"] | None = None
    held_out: str | None = None
    hopeless: bool = False
    stopped_by: str = ""
    trained_out: bool = False
    source_digest: str = ""
    checksums: dict[str, str] = field(default_factory=dict)
    dataset: DatasetFacts | None = None
    quality_digest: str = ""
    data_digest: str = ""
    planned_effect: float | None = None
    planned_runs: int = 0
    whole: bool = False
    replaced: int = 0
    chosen: list[str] | None = None
    contradictions: list[str] = field(default_factory=list)
    chained: bool = True
    checksum: str = ""
    source_name: str = ""
    around_digest: str = ""
    modules: dict[str, str] = field(default_factory=dict)
    settings_read: list[str] = field(default_factory=list)
    files_read: dict[str, str] = field(default_factory=dict)
    data_read: dict[str, str] = field(default_factory=dict)
    prepared_s: float | None = None
    prepared_files: list[str] = field(default_factory=list)
    losses_digest: str = ""
    qualities_digest: str = ""
    first_quality: float | None = None
    fixed_answers: float | None = None
    evaluations: int = 0
    first_step_s: float | None = None
    first_evaluation_s: float | None = None
    earlier_s: list[float] = field(default_factory=list)
    decimals: int | None = None
    shares_of: tuple[int, int] | None = None
    moves: tuple[int, int, int, float] | None = None
    if_rounded_s: list[float] = field(default_factory=list)
    warm_up_s: dict[str, float] | None = None
    warm_up_evaluation_s: float | None = None
    samples_between: list[int] = field(default_factory=list)
    operations_per_example: dict[str, float] = field(default_factory=dict)
    operations_reason: str | None = None
    read_from_disk_bytes: float | None = None
    read_from_cache_bytes: float | None = None
    read_reason: str | None = None

    @property
    def specification(self) -> Specification:
        """The specification of the run, with the clock, crossing rule and threshold of this view."""
        return Specification(
            task=self.task,
            recipe=self.recipe,
            framework=self.framework,
            device=self.device,
            settings=self.settings,
            target=self.target,
            # A view can also have a rule that no run stops by (interpolated).
            crossing=cast(Any, self.crossing),
            clock=self.clock,
            evaluate_every=self.evaluate_every,
            budget_epochs=self.budget_epochs,
            budget_s=self.budget_s,
            budget_samples=self.budget_samples,
            budget_j=self.budget_j,
            plateau=self.plateau,
            distribution=self.distribution,
            scored_by=self.scored_by,
            held_out=self.held_out,
        )

    @property
    def quality_from(self) -> Literal["program", "held-out"] | None:
        """Who determined the last quality: predictions are scored at the end, which only a run that is done reached."""
        return self.scored_by if self.status == "done" else self.scored_by and "program"


class _Point(Struct, frozen=True):
    """The point of a run's curve at which the score is read."""

    phases_ns: dict[str, int]
    evaluation: Evaluation | None
    index: int = 0
    first_index: int = 0


def counts_steps(record: Record) -> bool:
    """Whether the record counts steps. For a program that does not report them, each evaluation counts as one step."""
    counted = ((each.step, each.samples) for each in record.evaluations)
    return record.header.specification.scored_by is None or any(
        found != (number, number) for number, found in enumerate(counted, 1)
    )


def summarise(
    record: Record, *, clock: str | None = None, crossing: str | None = None, threshold: float | None = None
) -> RunSummary:
    """The summary of ``record`` under its own rules, or under another clock, crossing rule or threshold.

    Time to accuracy is the clock policy's score of the phase totals at the evaluation that counts: the second of two
    for ``confirmed``, a point between two for ``interpolated``. Only a run that is done can have reached its target.
    One that failed, was interrupted or is still running did not, even if its curve has crossed the target, because it
    has produced nothing usable; its ``given_up_s`` says how long it tried.

    Raises ``UnknownNameError`` for an unknown clock or rule, ``UsageError`` for a threshold off the scale.
    """
    from levelbench.measure.policies import policy

    specification = record.header.specification
    target = specification.target
    if threshold is not None:
        target = msgspec.structs.replace(target, threshold=threshold)
        target.require_on_scale()
    clock = clock or specification.clock
    crossing = crossing or specification.crossing
    point = _point_of_crossing(record, target, crossing)
    at = point.evaluation if point else None
    last = point or _Point(_totals_ns(record), None)
    score = policy(clock).score(last.phases_ns)
    memory, energy = _measured(record, "peak_memory"), _measured(record, "energy")
    disk, cache = _measured(record, "read_from_disk"), _measured(record, "read_from_cache")
    operations, operations_reason = _counted_operations(record)
    counted, steps_s = counts_steps(record), _seconds(record.samples.get("step_time"))
    curve = record.evaluations[: last.index + 1] if point else record.evaluations
    rounded, shares = _if_rounded_s(record, target, crossing, clock), _shares_of(record, target)
    decimals = len(rounded) if len(rounded) <= _FINEST else None
    return RunSummary(
        **_same_in_every_view(record),
        reached=point is not None,
        target=target,
        crossing=crossing,
        clock=clock,
        time_to_accuracy_s=score.seconds if point else None,
        given_up_s=None if point else score.seconds,
        hopeless=point is None and _hopeless(record, crossing),
        trained_out=point is None and record.end is not None and record.end.stopped_by == "all epochs done",
        excluded_s=score.excluded_s,
        # A program need not report its progress.
        epochs_to_target=at.epoch or None if at else None,
        samples_to_target=at.samples or None if at and counted else None,
        steps_to_target=at.step or None if at and counted else None,
        time_per_step_s=statistics.median(steps_s) if counted and steps_s else None,
        phases_s={name: ns * 1e-9 for name, ns in last.phases_ns.items()},
        quality=_final_quality(record),
        peak_memory_bytes=memory.value,
        energy_j=energy.value,
        energy_method=energy.method,
        energy_reason=energy.reason,
        wall_s=_wall_ns(record) * 1e-9,
        error=record.end.error if record.end else None,
        suspect=[
            *(record.end.suspect if record.end else ()),
            *_derived(record),
            *_at_target_from_the_start(record, target, crossing),
            *witness_doubts(record),
        ],
        contradictions=[*contradictions(record), *witness_contradictions(record)],
        chained=bool(record.checksum),
        losses_digest=_losses_digest(record),
        qualities_digest=_qualities_digest(record),
        first_quality=_first_quality(record, target.split),
        fixed_answers=_measured(record, FIXED_ANSWERS).value,
        evaluations=point.index + 1 if point else len(record.evaluations),
        first_step_s=steps_s[0] if counted and steps_s else None,
        first_evaluation_s=record.evaluations[0].t_ns * 1e-9 if record.evaluations else None,
        earlier_s=[
            policy(clock).score(each.phases_ns).seconds
            for each in reversed(record.evaluations[max(0, last.index - 2) : last.index])
        ],
        decimals=decimals,
        if_rounded_s=rounded,
        shares_of=shares,
        moves=_moves(record, target, decimals, shares),
        warm_up_s=_warm_up(curve, steps_s) if counted else None,
        warm_up_evaluation_s=_warm_up_evaluation(curve),
        samples_between=_samples_between(record, target, point) if counted else [],
        checksum=record.checksum,
        synthetic=bool(record.end and record.end.dataset and record.end.dataset.synthetic),
        checksums=dict(record.end.dataset.checksums) if record.end and record.end.dataset else {},
        dataset=record.end.dataset if record.end else None,
        operations_per_example=operations,
        operations_reason=operations_reason,
        read_from_disk_bytes=disk.value,
        read_from_cache_bytes=cache.value,
        read_reason=disk.reason,
    )


_FIRST_STEPS = 3
"""Compilers do their work in the first step, and some again in the second or third (a graph that is recorded)."""


def _warm_up(curve: Sequence[Evaluation], steps_s: Sequence[float]) -> dict[str, float] | None:
    """Seconds by phase that the first steps up to the last evaluation of ``curve`` took beyond the usual ones.

    First are the three at the beginning, the one before the first evaluation, which averages the weights, and the last
    one of the first epoch, whose batch may have another shape. Usual is the mean of all others. Steps are recorded as a
    whole, so the excess is divided among the phases as these exceed their share between two evaluations.
    """
    last = curve[-1].step if curve else 0
    if not last or len(steps_s) < last:
        return None
    firsts = {*range(1, _FIRST_STEPS + 1), curve[0].step}
    firsts |= {round(each.step / each.epoch) for each in curve[:1] if each.epoch > 0}
    usual = [seconds for step, seconds in enumerate(steps_s[:last], 1) if step not in firsts]
    if not usual:
        return None
    mean = statistics.fmean(usual)
    excess = max(0.0, math.fsum(steps_s[step - 1] - mean for step in firsts if step <= last))
    within: Counter[str] = Counter()
    rest: Counter[str] = Counter()
    steps = [0, 0]
    before: tuple[int, Mapping[str, int]] = (0, {})
    for each in curve:
        among = any(before[0] < step <= each.step for step in firsts)
        steps[among] += each.step - before[0]
        for name in _STEP_PHASES & each.phases_ns.keys():
            (within if among else rest)[name] += each.phases_ns[name] - before[1].get(name, 0)
        before = each.step, each.phases_ns
    share = steps[1] / steps[0] if steps[0] else 0.0
    beyond = {name: max(0.0, ns - share * rest[name]) for name, ns in within.items()}
    whole = math.fsum(beyond.values())
    # What a first step spent in other phases, such as a compilation that is marked, is counted there.
    excess = min(excess, whole * 1e-9)
    return {name: min(excess * each / whole, within[name] * 1e-9) for name, each in beyond.items() if each and excess}


def _warm_up_evaluation(curve: Sequence[Evaluation]) -> float | None:
    """Seconds that the first evaluation took beyond the mean of the others; ``None`` without others."""
    totals = [each.phases_ns.get("evaluate", 0) * 1e-9 for each in curve]
    return max(0.0, totals[0] - (totals[-1] - totals[0]) / (len(totals) - 1)) if len(totals) > 1 else None


def _derived(record: Record) -> list[str]:
    """Doubts about the machine that follow from the record but are not in its end."""
    if record.end is None or record.status != "done" or not record.checksum:
        return []
    from levelbench.measure.environment import doubts

    # An earlier version may have given the same finding other advice, which follows the colon.
    stated = {without_figures(each).partition(":")[0] for each in record.end.suspect}
    try:
        found = doubts(record.header.environment, record.end.environment_after)
    except (AttributeError, KeyError, TypeError, ValueError):
        return []  # an environment of other types, which states nothing
    return [each for each in found if without_figures(each).partition(":")[0] not in stated]


def _at_target_from_the_start(record: Record, target: Target, crossing: str) -> list[str]:
    """A doubt if the first evaluation had already reached the target."""
    if crossing == "final" or not record.evaluations:
        return []
    from levelbench.measure.crossing import sign_of

    def reached(quality: float | None) -> bool:
        return quality is not None and sign_of(target.direction) * (quality - target.threshold) >= 0

    *before, last = [each.quality.get("validation") for each in record.evaluations]
    if crossing == "confirmed" and reached(last) and not (before and reached(before[-1])) and record.end is not None:
        return [
            "its last evaluation was the first at the target, and the rule confirmed asks for two in a row: evaluate "
            "once more, or count the last one (--crossing final)"
        ]
    if not reached(record.evaluations[0].quality.get("validation")):
        return []
    if record.header.specification.scored_by != "program":
        every = record.header.specification.evaluate_every
        return [
            f"its {target.metric} was at the target at its first evaluation, after {every}, and when it got there is "
            "unknown: evaluate more often (--every), or ask for more"
        ]
    return [
        f"its {target.metric} was at the target when first reported, and {target.direction} is taken to be better: "
        "check that, or evaluate more often"
    ]


def _prepared(record: Record) -> tuple[float | None, list[str]]:
    """How long ``--prepare`` took before the run, and what this left that the run read."""
    found = record.end.environment_after.get("prepared") if record.end is not None else None
    found = found if isinstance(found, dict) else {}
    wall_s, files = found.get("wall_s"), found.get("left")
    return (
        float(wall_s) if isinstance(wall_s, int | float) else None,
        [str(each) for each in files] if isinstance(files, list) else [],
    )


def _same_in_every_view(record: Record) -> dict[str, Any]:
    """The fields that are the same under every view."""
    prepared = _prepared(record)
    header, specification = record.header, record.header.specification
    # Settings that a task reads from files or the environment count as its source, like its imports.
    read = settings_files(record) | {f"${name}": digest for name, digest in variables_read(record).items()}
    read |= packages_imported(record)
    source = msgspec.structs.replace(header.source, modules=header.source.modules | read)
    return {
        "stopped_by": (record.end.stopped_by or "") if record.end else "",
        "id": header.id,
        "key": header.key,
        "task": specification.task,
        "recipe": specification.recipe,
        "framework": specification.framework,
        "device": specification.device,
        "settings": specification.settings,
        "seed": header.seed,
        "status": record.status,
        "environment": header.environment,
        "started": header.started,
        "path": str(record.path),
        "evaluate_every": specification.evaluate_every,
        "budget_epochs": specification.budget_epochs,
        "budget_s": specification.budget_s,
        "budget_samples": specification.budget_samples,
        "budget_j": specification.budget_j,
        "plateau": specification.plateau,
        "distribution": specification.distribution,
        "scored_by": specification.scored_by,
        "held_out": specification.held_out,
        "source_digest": source.whole,
        "source_name": header.source.name,
        "around_digest": around_recipes(header.source.text),
        "modules": source.modules,
        "settings_read": sorted(read),
        "files_read": _digests(record.end.environment_after.get("files_read") if record.end is not None else None),
        "data_read": _digests(record.end.environment_after.get("data_read") if record.end is not None else None),
        "prepared_s": prepared[0],
        "prepared_files": prepared[1],
        "quality_digest": header.source.quality,
        "data_digest": header.source.data,
        "planned_effect": header.planned_effect,
        "planned_runs": header.planned_runs,
        "replaced": header.replaced,
        "chosen": header.chosen,
    }


def settings_files(record: Record) -> dict[str, str]:
    """The files next to the task's file from which it read settings, by name with their SHA-256."""
    return _digests(record.end.environment_after.get("settings_files") if record.end is not None else None)


def variables_read(record: Record) -> dict[str, str]:
    """The environment variables that the task's own code read, by name with the beginning of a digest."""
    return _digests(record.header.environment.get("variables_read"))


def packages_imported(record: Record) -> dict[str, str]:
    """The installed packages that the task's or program's own code imports, by name with their versions."""
    return _digests(record.header.environment.get("packages_imported"))


def _digests(found: object) -> dict[str, str]:
    return {str(name): str(digest) for name, digest in found.items()} if isinstance(found, dict) else {}


def _losses_digest(record: Record) -> str:
    losses = [each.loss for each in record.evaluations if each.loss is not None]
    return hashlib.sha256(repr(losses).encode()).hexdigest()[:16] if len(set(losses)) > 1 else ""


def _qualities_digest(record: Record) -> str:
    curve = [sorted(each.quality.items()) for each in record.evaluations]
    return hashlib.sha256(repr(curve).encode()).hexdigest()[:16] if len({repr(each) for each in curve}) > 1 else ""


def _hopeless(record: Record, crossing: str) -> bool:
    """Whether a run that missed could not have arrived later: it failed, diverged, or completed a fixed schedule.

    A run that stopped at its own lower target could have gone on to the target of this view.
    """
    end = record.end
    if end is None:
        return False
    ended = crossing == "final" and not _cut_short(record) and end.stopped_by != "target reached"
    return end.status == "failed" or end.error is not None or ended


def _cut_short(record: Record) -> bool:
    """Whether a budget in seconds ended the run: its last evaluation is not the end of its schedule."""
    return record.end is not None and (record.end.stopped_by or "").startswith("budget")


def _point_of_crossing(record: Record, target: Target, rule: str) -> _Point | None:
    from levelbench.measure.crossing import find_crossing

    curve = record.evaluations
    qualities = [evaluation.quality.get(target.split, math.nan) for evaluation in curve]
    found = find_crossing(qualities, target.threshold, direction=target.direction, rule=rule)
    if found is None or record.status != "done" or (rule == "final" and _cut_short(record)):
        return None
    at = curve[found.index]
    share = 1.0 if found.position is None else found.position - (found.index - 1)
    if share >= 1.0 or found.index == 0:
        return _Point(at.phases_ns, at, found.index, found.first_index)
    return _Point(*_between(curve[found.index - 1], at, share), found.index, found.first_index)


_FINEST = 5


def _if_rounded_s(record: Record, target: Target, rule: str, clock: str) -> list[float]:
    """See :class:`RunSummary`; one time for each number of decimals that would not show the qualities as reported."""
    from levelbench.measure.crossing import find_crossing
    from levelbench.measure.policies import policy

    if record.header.specification.scored_by != "program" or record.status != "done":
        return []
    qualities = [each.quality.get(target.split, math.nan) for each in record.evaluations]
    found: list[float] = []
    for decimals in range(_FINEST + 1):
        rounded = [round(each, decimals) if math.isfinite(each) else math.nan for each in qualities]
        if all(abs(each - exact) < 1e-12 for each, exact in zip(rounded, qualities, strict=True) if exact == exact):
            break
        at = find_crossing(rounded, target.threshold, direction=target.direction, rule=rule)
        reached = at is not None and not (rule == "final" and _cut_short(record))
        phases_ns = record.evaluations[at.index].phases_ns if at is not None else {}
        found.append(policy(clock).score(phases_ns).seconds if reached else math.inf)
    return found


_MOST_EXAMPLES = 100_000


def _shares_of(record: Record, target: Target) -> tuple[int, int] | None:
    """See :class:`RunSummary`."""
    if record.header.specification.scored_by != "program":
        return None
    found = {each.quality.get(target.split, math.nan) for each in record.evaluations}
    # Per cent, as some print it.
    scale = 100 if max(found, default=0.0) > 1 else 1
    examples = 1
    for quality in found:
        share = quality / scale
        if not 0 <= share <= 1:
            return None
        fraction = Fraction(share).limit_denominator(_MOST_EXAMPLES)
        examples = math.lcm(examples, fraction.denominator)
        if abs(share - fraction) > _EXACT or examples > _MOST_EXAMPLES:
            return None
    return examples, len(found)


def _moves(
    record: Record, target: Target, decimals: int | None, shares: tuple[int, int] | None
) -> tuple[int, int, int, float] | None:
    """See :class:`RunSummary`."""
    from levelbench.measure.crossing import sign_of

    if record.header.specification.scored_by != "program":
        return None
    qualities = [each.quality.get(target.split, math.nan) for each in record.evaluations]
    if not qualities or not all(map(math.isfinite, qualities)):
        return None
    changes = [sign_of(target.direction) * (after - before) for before, after in pairwise(qualities)]
    moved = [abs(each) for each in changes if each]
    example = 0.0 if shares is None else (100 if max(qualities) > 1 else 1) / shares[0]
    finest = max(example, 0.0 if decimals is None else 10.0**-decimals)
    units = 0.0 if not moved else statistics.median(moved) / finest if finest else math.inf
    return sum(each < 0 for each in changes), sum(each == 0 for each in changes), len(changes), units


_EXACT = 1e-12
"""Fractions of up to 100,000 examples lie at least 1e-10 apart."""


def _samples_between(record: Record, target: Target, point: _Point | None) -> list[int]:
    """See :class:`RunSummary`; empty without an evaluation."""
    from levelbench.measure.crossing import sign_of

    curve, sign = record.evaluations, sign_of(target.direction)
    if point is not None:
        first = point.first_index
        return [curve[first - 1].samples if first else 0, curve[first].samples]
    wanted = sign * target.threshold
    below = [each.samples for each in curve if not sign * each.quality.get(target.split, math.nan) >= wanted]
    return below[-1:] or [0] * bool(curve)


def _between(before: Evaluation, after: Evaluation, share: float) -> tuple[dict[str, int], Evaluation]:
    """Phases and evaluation interpolated between two evaluations, ``share`` of the way."""

    def mix(a: float, b: float) -> float:
        return a + share * (b - a)

    phases_ns = {name: round(mix(before.phases_ns.get(name, 0), ns)) for name, ns in after.phases_ns.items()}
    evaluation = msgspec.structs.replace(
        after,
        t_ns=round(mix(before.t_ns, after.t_ns)),
        step=round(mix(before.step, after.step)),
        epoch=mix(before.epoch, after.epoch),
        samples=round(mix(before.samples, after.samples)),
        phases_ns=phases_ns,
    )
    return phases_ns, evaluation


def _totals_ns(record: Record) -> dict[str, int]:
    """The phase totals at the last evaluation, until which a run tried; without evaluations, those of its end.

    A program that was watched from outside tried until its end.
    """
    from_outside = record.header.environment.get("started") == "from outside" and record.end is not None
    if record.evaluations and not from_outside:
        return record.evaluations[-1].phases_ns
    return record.end.phases_ns if record.end is not None else {}


def _wall_ns(record: Record) -> int:
    if record.end is not None:
        return record.end.t_ns
    return record.evaluations[-1].t_ns if record.evaluations else 0


def _final_quality(record: Record) -> dict[str, float]:
    last: Mapping[str, float] = record.evaluations[-1].quality if record.evaluations else {}
    return {**last, **(record.end.quality if record.end else {})}


def _seconds(samples: Samples | None) -> list[float]:
    """The finite values in seconds; empty if their unit is not one of time."""
    if samples is None or samples.unit not in _SECONDS:
        return []
    return [value * _SECONDS[samples.unit] for value in samples.values if math.isfinite(value)]


def _measured(record: Record, name: str) -> Measurement:
    """The last measurement of that name, or one that says that there is none."""
    absent = Measurement(name, "", None, None, "not measured")
    return next((each for each in reversed(record.measurements) if each.name == name), absent)


def _first_quality(record: Record, split: str) -> float | None:
    """What it began with: after the first steps, the draw of the weights decides more than where they came from."""
    untrained = _measured(record, UNTRAINED).value
    if untrained is not None:
        return untrained
    return record.evaluations[0].quality.get(split) if record.evaluations else None


OPERATIONS = "operations/"
"""Begins the name of the measurement; its precision follows."""
COUNTED = "2 per multiply-add of convolutions, matrix products, recurrent layers and attention, forward and gradients"


def _counted_operations(record: Record) -> tuple[dict[str, float], str | None]:
    """Operations of one training example by precision, or why they are not known.

    In a record of an earlier version there is neither.
    """
    found: dict[str, float] = {}
    reason = None
    for each in record.measurements:
        if each.name.startswith(OPERATIONS):
            if each.value is not None and math.isfinite(each.value) and each.value > 0:
                found[each.name.removeprefix(OPERATIONS)] = each.value
            reason = each.reason or reason
    return found, None if found else reason


_PARTS = ("recipe", "framework", "device")
_TARGET = ("metric", "split", "direction", "low", "high")
_RULES = ("crossing", "clock", *RULES)
_DISTRIBUTED = frozenset({"scheme", "engine", "communicator", "scaling", "lr_scale"})
"""Not shown in a label only because runs of a single process lack it. The same holds for a scheme's own settings."""


def refuse_contradictory(record: Record) -> None:
    """``RecordError`` for a run, just made, that contradicts itself, so that every other command would refuse it."""
    if found := summarise(record).contradictions:
        raise RecordError(
            f"the run of {record.header.specification.task}, seed {record.header.seed}",
            f"its record contradicts itself: {'; '.join(found[:_SHOWN])} ({record.path})",
            "find the cause in the program or on the machine, and run it again; until then it does not count",
        )


@dataclass(frozen=True)
class RunGroup:
    """Runs of one specification and source that ended (done or failed), in the order given.

    ``unfinished`` holds the runs that were interrupted or are running: an interruption says nothing about the recipe,
    so they are not replicates, but they are kept to be reported. ``repeats`` holds runs of a seed of which another run
    counts: they have the same batches, so they show how the machine varies, not the recipe. ``unselected`` are
    the seeds of further runs of the specification that the reader's selection left out. ``usd_per_hour`` is what the
    whole system costs, if a reader says so: no record holds it.
    """

    label: str
    key: str
    specification: Specification
    runs: tuple[RunSummary, ...]
    unfinished: tuple[RunSummary, ...] = ()
    source_digest: str = ""
    repeats: tuple[RunSummary, ...] = ()
    unselected: tuple[int, ...] = ()
    usd_per_hour: float | None = None

    @property
    def chosen(self) -> list[str] | None:
        """The settings that were set, for labels; ``None`` if unknown."""
        return next((run.chosen for run in (*self.runs, *self.unfinished) if run.chosen is not None), None)

    @property
    def n(self) -> int:
        """How many runs ended."""
        return len(self.runs)

    @property
    def reached(self) -> int:
        """How many of them reached the target."""
        return sum(run.reached for run in self.runs)

    def times(self) -> list[float | None]:
        """Time to accuracy in seconds of each run; ``None`` if it never reached the target."""
        return [run.time_to_accuracy_s for run in self.runs]

    def given_up(self) -> list[float]:
        """How long each run that never reached the target tried, in seconds, in the order of its ``None``.

        ``math.inf`` for a hopeless run, which would never have arrived.
        """
        return [math.inf if run.hopeless else run.given_up_s or 0.0 for run in self.runs if not run.reached]

    @property
    def to_repeat(self) -> str:
        """What makes more of its runs, which levelbench cannot start if they are those of a program of its own."""
        return "-n 5" if self.specification.scored_by is None else "run the program itself again"

    def own(self, records: Iterable[Record]) -> list[Record]:
        """Those of ``records`` that are runs of this group, including unfinished ones."""
        paths = {run.path for run in (*self.runs, *self.unfinished, *self.repeats)}
        return [record for record in records if record.header.key == self.key and str(record.path) in paths]


def group_runs(runs: Iterable[RunSummary | Record]) -> list[RunGroup]:
    """The groups of ``runs`` (records are summarised under their own rules), in the order in which they first occur.

    Runs of a group have the same key, the same source (an edited task may do something else) and are read on the same
    clock (which is not part of the key). Groups without any run that ended are left out. Of several runs with one id
    the first counts; of several finished runs of one seed, the earliest.
    """
    once: dict[tuple[str, str, str], RunSummary] = {}
    for run in runs:
        summary = summarise(run) if isinstance(run, Record) else run
        once.setdefault((summary.id, summary.key, summary.clock), summary)
    members: dict[tuple[str, str, str], list[RunSummary]] = {}
    for summary in once.values():
        members.setdefault((summary.key, summary.source_digest, summary.clock), []).append(summary)
    members = {key: group for key, group in members.items() if any(map(_ended, group))}
    specifications = [group[0].specification for group in members.values()]
    chosen = [next((run.chosen for run in group if run.chosen is not None), None) for group in members.values()]
    labels = labels_of(specifications, [source for _, source, _ in members], chosen)
    found = []
    for ((key, source, _), group), specification, label in zip(members.items(), specifications, labels, strict=True):
        finished, unfinished = filter(_ended, group), tuple(run for run in group if not _ended(run))
        counted, repeats = one_a_seed(tuple(finished))
        found.append(RunGroup(label, key, specification, counted, unfinished, source, repeats))
    return found


def in_order(groups: Iterable[RunGroup]) -> list[RunGroup]:
    """``groups`` in the order of measurement, the first being the baseline; groups that took turns are sorted by label.

    A coin toss decides which of them ran first, and the baseline must not depend on it. Numbers sort by size.
    """
    found: list[list[RunGroup]] = []
    until = ""
    for group in sorted(groups, key=lambda group: min(run.started for run in group.runs)):
        if min(run.started for run in group.runs) > until:
            found.append([])
        found[-1].append(group)
        until = max(until, *(run.started for run in group.runs))
    return [group for each in found for group in sorted(each, key=_label_order)]


_NUMBER = re.compile(r"(\d+(?:\.\d+)?)")


def _label_order(group: RunGroup) -> list[tuple[float, str]]:
    words = _NUMBER.split(group.label)
    return [(float(word), "") if at % 2 else (0.0, word) for at, word in enumerate(words)]


def one_a_seed(runs: Sequence[RunSummary]) -> tuple[tuple[RunSummary, ...], tuple[RunSummary, ...]]:
    """The runs that count, and those that repeat the seed of an earlier one. Failed runs always count."""
    first: dict[int, RunSummary] = {}
    for run in sorted((run for run in runs if run.status == "done"), key=lambda run: (run.started, run.id)):
        first.setdefault(run.seed, run)
    repeats = tuple(run for run in runs if run.status == "done" and first[run.seed] is not run)
    return tuple(run for run in runs if run not in repeats), repeats


def _ended(run: RunSummary) -> bool:
    return run.status in ("done", "failed")


def labels_of(
    specifications: Sequence[Specification],
    sources: Sequence[str] = (),
    chosen: Sequence[Sequence[str] | None] = (),
) -> list[str]:
    """The shortest ``task[name=value,...]`` for each: the values that differ between those of the same task.

    Where recipes differ, of their settings only those that differ within a recipe: its name stands for the others.
    ``sources`` are the digests of the tasks' texts, one per specification, or empty. ``chosen`` are the settings that
    were set, as a record's header has them. Where they are known of all of a task, those that are not common to all are
    shown, and defaults only where the rest of a label would select another one's runs too.
    """
    views = [
        _view(each, source) for each, source in zip(specifications, sources or [""] * len(specifications), strict=True)
    ]
    kinds: dict[str, dict[str, set[tuple[bool, Value]]]] = {}
    by_task: dict[str, list[Mapping[str, Value]]] = {}
    counts: Counter[tuple[str, str]] = Counter()
    for specification, view in zip(specifications, views, strict=True):
        by_task.setdefault(specification.task, []).append(view)
        for name, value in view.items():
            # A boolean is not a number, although True == 1.
            kinds.setdefault(specification.task, {}).setdefault(name, set()).add((isinstance(value, bool), value))
            counts[specification.task, name] += 1
    settings = {name for each in specifications for name in each.settings}
    implied = {task: _implied(found, settings) for task, found in by_task.items()}
    labels: list[tuple[str, dict[str, Value]]] = []
    for specification, view in zip(specifications, views, strict=True):
        task = specification.task
        some = {name for name in view if counts[task, name] < len(by_task[task]) and "." not in name} - _DISTRIBUTED
        hidden = implied[task][view["recipe"]]
        shown = {n: v for n, v in view.items() if (len(kinds[task][n]) > 1 or n in some) and n not in hidden}
        labels.append((task, shown))
    if chosen:
        for task in by_task:
            places = [at for at, each in enumerate(specifications) if each.task == task]
            found = [(specifications[at], labels[at][1], chosen[at]) for at in places]
            _show_chosen(found, [views[at] for at in places])
    return [format_item(*each) for each in labels]


def _show_chosen(
    found: Sequence[tuple[Specification, dict[str, Value], Sequence[str] | None]], views: Sequence[Mapping[str, Value]]
) -> None:
    """Change what labels of one task show by what was chosen, if that is known of all."""
    known = [
        {name: each.settings[name] for name in names if name in each.settings}
        for each, _, names in found
        if names is not None
    ]
    if len(known) < len(found):
        return
    common = set.intersection(*(set(own.items()) for own in known)) if len(known) > 1 else set()
    set_in: dict[str, set[str]] = {}
    for (each, _, _), own in zip(found, known, strict=True):
        set_in.setdefault(each.recipe, set()).update(own)
    for (each, shown, names), own, view in zip(found, known, views, strict=True):
        implied = each.settings.keys() - set_in[each.recipe] if "recipe" in shown else set()
        kept = {name: value for name, value in shown.items() if name not in implied}
        recipe = {"recipe": each.recipe} if "recipe" in (names or ()) else {}
        told = {**recipe, **{name: value for name, value in own.items() if (name, value) not in common}, **kept}
        defaults = {name for name in told if name in each.settings and name not in (*own, *recipe)}
        rest = told.keys() - defaults
        rivals = [other for other in views if other is not view and all(_equal(name, told, other) for name in rest)]
        for name in defaults:
            if all(_equal(name, told, other) for other in rivals):
                del told[name]
        shown.clear()
        order = dict.fromkeys(("recipe", "framework", "device", *sorted(each.settings), *told))
        shown.update((name, told[name]) for name in order if name in told)


def _equal(name: str, a: Mapping[str, Value], b: Mapping[str, Value]) -> bool:
    return name in b and (type(a[name]) is bool, a[name]) == (type(b[name]) is bool, b[name])


def _implied(views: Sequence[Mapping[str, Value]], settings: set[str]) -> dict[Value, set[str]]:
    """The names that each of several recipes implies: its ``settings``, and the rules that come with it.

    A name whose value differs between runs of the recipe is not implied, except a budget that is its ``epochs``.
    """
    recipes = _by_recipe(views)
    names = {name for view in views for name in view}
    own = {name for name in names if sum(name in view for view in views) < len(views)} | {"crossing", "budget_epochs"}
    own |= settings - {"recipe", "framework", "device"}
    implied = {
        recipe: {name for name in own if len(recipes) > 1 and len({view.get(name) for view in group}) == 1}
        for recipe, group in recipes.items()
    }
    for recipe, group in recipes.items():
        if all(view["budget_epochs"] == view.get("epochs") for view in group):
            implied[recipe].add("budget_epochs")
    return implied


def _by_recipe(views: Sequence[Mapping[str, Value]]) -> dict[Value, list[Mapping[str, Value]]]:
    groups: dict[Value, list[Mapping[str, Value]]] = {}
    for view in views:
        groups.setdefault(view["recipe"], []).append(view)
    return groups


def _view(specification: Specification, source: str) -> dict[str, Value]:
    """Everything that can distinguish specifications of one task, in the order of labels."""
    view: dict[str, Value] = {name: getattr(specification, name) for name in _PARTS}
    view |= dict(sorted(specification.settings.items()))
    view |= specification.team()
    view["target"] = specification.target.threshold
    view |= {name: getattr(specification.target, name) for name in _TARGET}
    view |= {name: "none" if (value := getattr(specification, name)) is None else value for name in _RULES}
    view |= {"source": source[:8]} if source else {}
    # Selections read the setting first, except for names of their own.
    return view | {name: value for name, value in specification.settings.items() if name not in OWN_NAMES}
