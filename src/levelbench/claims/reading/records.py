"""Claims from the runs of a store: a group of runs is a side, and comparable groups are one claim.

The selected runs are the claim. The first group is the base, as in ``levelbench compare``. What else the store has
(other runs of the same specification, other settings of the same task) is what the claim does not count. A ratio is
claimed only if every run of both groups reached its target.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec

from levelbench.claims.reading.run_sides import ends_of, is_study, mode_of, points_of, ranks_of, run_side, to_target
from levelbench.claims.view import Claim, ComparisonView, Side, Summarised, TuningView, Uncounted
from levelbench.errors import LevelbenchError, RecordError, UsageError
from levelbench.measure.statistics import LogRatio, paired_log_ratio, welch_log_ratio
from levelbench.records import Comparability, Record, RunGroup, Store, comparable, group_runs, parse_selector, summarise
from levelbench.records.integrity import require_consistent
from levelbench.records.replicates import against, doubts_together
from levelbench.records.searches import Search, effort_behind, is_trial, searches_behind, trial_ids
from levelbench.records.selection import Selector
from levelbench.records.store import Row
from levelbench.records.summary import in_order

__all__ = ["COMPARED", "claims_of", "comparison_of", "interleaved", "read_runs", "uncounted"]

_PAIRED = "Student's t on the logarithms of the ratios of the times, paired by seed"
_WELCH = "Welch's t on the logarithms of the times"


def comparison_of(gate: Comparability, base_side: Side, new_side: Side) -> ComparisonView:
    """The second of the gate's sides compared with the first: time to the target, if both have at least two times.

    The test is the one that the verdict uses.
    """
    base, new = gate.sides.a, gate.sides.b
    before, after = (
        [run.time_to_accuracy_s for run in runs if run.time_to_accuracy_s is not None]
        for runs in (gate.sides.runs_a, gate.sides.runs_b)
    )
    # What the gate refuses has no ratio; the rules say why it should not be compared.
    all_arrived = base.reached == base.n and new.reached == new.n and not gate.refusals
    paired = gate.sides.paired
    found = None
    if all_arrived and min(len(before), len(after)) >= 2 and min(*before, *after) > 0:
        found = (paired_log_ratio if paired else welch_log_ratio)(after, before)
    ratio = found.ratio if found else None
    if ratio is None and all_arrived and base_side.time_s and new_side.time_s:
        ratio = base_side.time_s / new_side.time_s
    same_scale = ranks_of(base) == ranks_of(new)
    return ComparisonView(
        new=new_side.name,
        base=base_side.name,
        of="target",
        ratio=ratio,
        interval=(found.interval.low, found.interval.high) if found and math.isfinite(found.interval.high) else None,
        base_time_s=base_side.time_s,
        base_kind="same-scale" if same_scale else "one-process" if ranks_of(base) == 1 else None,
        p_value=found.p_value if found else None,
        effect=_effect(found, paired) if found else None,
        test=_test(found, paired) if found else None,
        quality_compared=True,
        performance_compared=True,
        where=new_side.where,
    )


def _test(found: LogRatio, paired: bool) -> str:
    trimmed = f", trimmed by {found.trimmed} at each end (Yuen)" if found.trimmed else ""
    trimmed += f", without {found.accidents} accidents (trimmed)" if found.accidents else ""
    return f"{_PAIRED if paired else _WELCH}{trimmed}"


def _effect(found: LogRatio, paired: bool) -> float | None:
    """The difference of the logarithms in units of their standard deviation (Cohen 1988, d); ``None`` without a spread.

    For pairs, the unit is the standard deviation of their differences.
    """
    deviation = found.deviation_a if paired else math.sqrt((found.deviation_a**2 + found.deviation_b**2) / 2.0)
    return math.log(found.ratio) / deviation if deviation > 0.0 and found.ratio > 0.0 else None


def interleaved(groups: Sequence[RunGroup]) -> bool:
    """Whether a run of one group began between two of another, so that a drift of the machine affects both."""
    order = sorted((run.started, at) for at, group in enumerate(groups) for run in group.runs)
    turns = sum(one[1] != other[1] for one, other in pairwise(order))
    return turns >= len(groups)


def uncounted(
    groups: Sequence[RunGroup],
    rows: Iterable[Row],
    shown: Collection[str] = frozenset(),
    searches: Sequence[Search] = (),
) -> list[Uncounted]:
    """What ``rows`` have besides the runs of ``groups``: first runs of the same specifications, then of other settings.

    ``shown`` are the ids of all runs that are shown together; those in another claim are counted there. Trials of the
    ``searches`` that chose these settings, on either side, are stated with them, and the runs of the other side's
    winner are what it was compared with; trials of other searches count among those with other settings, unless they
    had these.

    Other settings are those of the same task on the same framework and device, because another framework is another
    side, not a trial of this one. A running run does not count yet; an interrupted one counts as a run of the same
    specification unless its seed was run again to the end.
    """
    counted = {run.id for group in groups for run in group.runs} | set(shown)
    keys = {group.key for group in groups}
    ended = {(group.key, run.seed) for group in groups for run in group.runs}
    kinds = {_kind(group.specification) for group in groups}
    behind, trials = searches_behind(keys, searches), trial_ids(searches)
    stated = trial_ids(behind)
    rivals = {side.winner for search in behind for side in search.sides} - keys
    same: list[Row] = []
    other: list[Row] = []
    for row in rows:
        if row.id in counted or row.status == "running" or row.id in stated or row.key in rivals:
            continue
        if row.key in keys:
            if row.id not in trials and (row.status != "interrupted" or (row.key, row.seed) not in ended):
                same.append(row)
        elif _kind(row) in kinds:
            other.append(row)
    return [*_sighting(same, keys, True), *_sighting(other, {row.key for row in other}, False)]


def _kind(run: object) -> tuple[str, ...]:
    return tuple(str(getattr(run, name)) for name in ("task", "framework", "device"))


def _sighting(rows: Sequence[Row], keys: Collection[str], same: bool) -> list[Uncounted]:
    if not rows:
        return []
    states = {name: sum(row.status == name for row in rows) for name in ("done", "failed", "interrupted")}
    missed = sum(row.status == "done" and not row.reached for row in rows)
    words = [f"{count} {name}" for name, count in states.items() if count]
    words += [f"{missed} of them short of the target"] if missed else []
    what = ", ".join(words) + ("" if same else f", of {len(keys)} other specification{'s' if len(keys) > 1 else ''}")
    hours = math.fsum(row.wall_s for row in rows) / 3600.0
    return [Uncounted(what, len(rows), hours, same, rows[0].path)]


COMPARED = 12
"""Up to this many selected groups are compared with each other; more are a list, with each group as its own claim."""

_STATISTICS = {"median": "median", "geometric mean": "geometric", "single value": None}


def read_runs(selector: str, store: Store, problems: list[LevelbenchError] | None = None) -> list[Claim]:
    """The claims that the selected runs make, with what else ``store`` has.

    ``problems`` collects what cannot be read; without it, the first such file is an error. Selecting nothing is a
    ``UsageError`` that names the nearest.
    """
    chosen = parse_selector(selector)
    with _uncollected():
        records = store.find(chosen)
        if store.problems:
            if problems is None:
                raise store.problems[0]
            problems += store.problems
        searches = store.searches(chosen)
        tried = trial_ids(searches)
        # The run that won a search was chosen for its time, and is no measurement of it.
        kept = [each for each in _whole_groups(chosen, records, store) if not is_trial(each, tried)]
        found = claims_of(kept or records, _beside(chosen, store), problems, searches if kept else ())
    if not found and not problems:
        asked, do = f"levelbench lint {selector}", "finish them: repeat the command that started them"
        raise UsageError(asked, f"none of the {len(records)} runs has finished", do)
    return found


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without garbage collection, which takes a third of the time to look at records and finds no cycles in them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _whole_groups(chosen: Selector, records: list[Record], store: Store) -> list[Record]:
    """The whole groups of the selected runs: selecting the latest run is not meant to leave out the others."""
    if chosen.filters or not (chosen.latest or chosen.is_id):
        return records
    kinds = {(record.header.key, record.header.source.whole) for record in records}
    found = [record for key, _ in dict.fromkeys(kinds) for record in store.records(f"[key={key}]")]
    whole = [each for each in found if (each.header.key, each.header.source.whole) in kinds]
    return list({record.header.id: record for record in [*records, *whole]}.values())


def _beside(chosen: Selector, store: Store) -> list[Row]:
    """All runs of the store; none if the selection is the whole store or lies outside it."""
    if chosen.path is not None and not chosen.filters:
        folder = store.path.resolve()
        if chosen.path == folder or not chosen.path.is_relative_to(folder):
            return []
    return store.rows()


def claims_of(
    records: Iterable[Record],
    beside: Sequence[Row] = (),
    problems: list[LevelbenchError] | None = None,
    searches: Sequence[Search] = (),
) -> list[Claim]:
    """One claim for all groups of a task with the same target, crossing rule and clock; one for a scaling study.

    Unfinished runs are not part of a claim, but of what it does not count. ``problems`` collects inconsistent records;
    without it, the first one is an error. ``searches`` are those that chose settings: a claim states their effort.
    """
    by_path: dict[str, Record] = {}
    runs = []
    for record in records:
        try:
            runs.append(require_consistent(summarise(record)))
        except RecordError as problem:
            if problems is None:
                raise
            problems.append(problem)
            continue
        # No rule looks at single steps.
        by_path[str(record.path)] = replace(record, samples={}, ranks={})
    ended = {record.header.id for record in by_path.values() if record.status in ("done", "failed")}
    found = []
    for groups in _together(in_order(group_runs(runs))):
        left_out = uncounted(groups, beside, ended, searches)
        if is_study(groups):
            found.append(_study(groups, by_path, left_out))
        elif len(groups) <= COMPARED:
            found.append(_claim(groups, by_path, left_out, searches))
        else:
            found += [_claim([group], by_path, [], searches) for group in groups]
    return found


def _together(groups: Sequence[RunGroup]) -> list[list[RunGroup]]:
    """Groups that may be compared: same task, target, crossing rule and clock."""
    found: dict[bytes, list[RunGroup]] = {}
    for group in groups:
        each = group.specification
        key = msgspec.json.encode([each.task, each.target, each.crossing, each.clock])
        found.setdefault(key, []).append(group)
    return list(found.values())


def _claim(
    groups: Sequence[RunGroup],
    records: Mapping[str, Record],
    left_out: list[Uncounted],
    searches: Sequence[Search] = (),
) -> Claim:
    names = _names(groups)
    sides = [_tuned(run_side(group, records, name), group, searches) for group, name in zip(groups, names, strict=True)]
    if len(groups) > 1:
        mixed = interleaved(groups)
        sides = [
            msgspec.structs.replace(side, timing=msgspec.structs.replace(side.timing, interleaved=mixed))
            for side in sides
        ]
    gates = [comparable(groups[0], group) for group in groups[1:]]
    return Claim(
        title=f"{', '.join(names[1:])} against {names[0]}" if names[1:] else names[0],
        sides=sides,
        task=groups[0].specification.task,
        read_from="records",
        comparisons=[comparison_of(gate, sides[0], side) for gate, side in zip(gates, sides[1:], strict=True)],
        caveats=_caveats(gates, names) if gates else [str(each) for each in against(groups)],
        summaries=[each for group, side in zip(groups, sides, strict=True) for each in _summaries(group, side)],
        uncounted=left_out,
        where=_where(sides),
    )


def _tuned(side: Side, group: RunGroup, searches: Sequence[Search]) -> Side:
    """The side with the effort of the searches that chose its settings."""
    found = effort_behind(group.key, searches)
    if found is None:
        return side
    tuning = TuningView(trials=found.trials, hours=found.spent_s / 3600.0, budget_equal=found.equal)
    return msgspec.structs.replace(side, tuned=True, tuning=tuning)


def _caveats(gates: Sequence[Comparability], names: Sequence[str]) -> list[str]:
    """What the gate found about each comparison, each sentence once."""
    said: dict[str, str] = {}
    together = doubts_together([(each.sides.a, each.sides.b) for each in gates], [each.caveats for each in gates])
    for caveats, name in zip(together, names[1:], strict=True):
        for each in caveats:
            about = "" if each.subject == "doubts" else f"{name} against {names[0]}: "
            said.setdefault(each.sentence, f"{each.weight}: {about}{each.sentence}")
    return list(said.values())


def _study(groups: Sequence[RunGroup], records: Mapping[str, Record], left_out: list[Uncounted]) -> Claim:
    """The side is the group with the most ranks; every group is a point of it."""
    largest = max(groups, key=ranks_of)
    side = run_side(largest, records, largest.label)
    return Claim(
        title=f"{largest.label}: scaling to {points_of(groups, side.name)[-1].ranks} ranks",
        sides=[side],
        task=largest.specification.task,
        read_from="records",
        scaling=points_of(groups, side.name),
        scaling_mode=mode_of(groups),
        summaries=[each for group in groups for each in _summaries(group, side)],
        uncounted=left_out,
        where=side.where,
    )


def _names(groups: Sequence[RunGroup]) -> list[str]:
    """The groups' labels; if two groups differ only in their source, with the beginning of its digest."""
    labels = [group.label for group in groups]
    return [
        label if labels.count(label) == 1 else f"{label} ({group.source_digest[:8]})"
        for label, group in zip(labels, groups, strict=True)
    ]


def _summaries(group: RunGroup, side: Side) -> list[Summarised]:
    found = to_target(group)
    if found is None:
        return []
    by = _STATISTICS.get(found.statistic.partition(",")[0])
    return [
        Summarised(
            what=f"time to accuracy of {group.label}",
            of="times",
            by="median" if by == "median" else "geometric" if by else None,
            n=found.n,
            value=found.value,
            interval=ends_of(found),
            interval_by=found.interval.method if found.interval else None,
            deterministic=False,
            raw_available=True,
            where=side.where,
        )
    ]


def _where(sides: Sequence[Side]) -> str:
    places = {side.where for side in sides}
    return places.pop() if len(places) == 1 else str(Path(sides[0].where).parent)
