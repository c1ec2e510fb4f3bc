"""Runs that lie beside a claim and that it does not count.

The one idea: whoever lints a store sees what an author's table does not show: other runs of the very specification, and
those of other settings of the same task, which are what tuning leaves behind.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from levelbench.claims.view import Uncounted
from levelbench.records import RunGroup
from levelbench.records.rows import Row

__all__ = ["uncounted"]


def uncounted(groups: Sequence[RunGroup], rows: Iterable[Row], shown: Collection[str] = frozenset()) -> list[Uncounted]:
    """What ``rows`` hold beside the runs of ``groups``: first of the same specifications, then of other settings.

    ``shown`` are the ids of all runs that are shown together, in whichever claim: those of another one are counted.

    Other settings are those of the same task on the same framework and device, for another framework is another side
    and not a trial of this one. A run that still runs is none yet; one that was interrupted is one of the same
    specification unless its seed was run again to the end.
    """
    counted = {run.id for group in groups for run in group.runs} | set(shown)
    keys = {group.key for group in groups}
    ended = {(group.key, run.seed) for group in groups for run in group.runs}
    kinds = {_kind(group.specification) for group in groups}
    same: list[Row] = []
    other: list[Row] = []
    for row in rows:
        if row.id in counted or row.status == "running":
            continue
        if row.key in keys:
            if row.status != "interrupted" or (row.key, row.seed) not in ended:
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
