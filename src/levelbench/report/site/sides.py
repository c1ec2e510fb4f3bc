"""An entry on each of its boards: one of inference is ranked in every scenario that it measured.

The one idea: on every board it is the same entry with the same page; figures, counts and flags alone are a scenario's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from levelbench.report.site.state import BoardKey, Entry

__all__ = ["MOST_APART", "TOO_MANY", "in_order", "keys_of", "sides", "too_many"]

MOST_APART = 50
"""How many boards of scenarios a task has under one ruleset: their bounds and queries are their authors' choice."""
TOO_MANY = (
    f"Its scenario would have a board beyond the {MOST_APART} that a task has, which are those of most entries. "
    "Measure a latency bound or a number of samples a query that others measured."
)


def keys_of(entry: Entry) -> list[BoardKey]:
    """The boards that it belongs on, that of its first scenario first; none of an entry that cannot be shown."""
    if entry.board is None:
        return []
    ruleset, task, _ = entry.board
    return [entry.board, *((ruleset, task, each.scenario) for each in entry.further)]


def sides(entry: Entry) -> Iterator[Entry]:
    """The entry as each board shows it, those aside that are not built."""
    if not entry.further:
        yield entry
        return
    assert entry.payload is not None, "only what is shown has further scenarios"
    for key, own in zip(keys_of(entry), (None, *entry.further), strict=True):
        if key in entry.off:
            continue
        facts = (
            {} if own is None else {name: getattr(own, name) for name in own.__struct_fields__ if name != "scenario"}
        )
        yield msgspec.structs.replace(
            entry, board=key, payload=msgspec.structs.replace(entry.payload, **facts), further=[]
        )


def in_order(key: BoardKey) -> tuple[str, str, str, float, int]:
    """By task, then rules; the task's own board before those of scenarios."""
    ruleset, task, scenario = key
    if scenario is None:
        return task, ruleset, "", 0.0, 0
    return task, ruleset, scenario.name, scenario.bound_s or 0.0, scenario.samples or 0


def too_many(groups: Iterable[Sequence[BoardKey]]) -> set[BoardKey]:
    """The boards of scenarios that are not built, of the boards that each entry belongs on.

    Of as many entries the one goes that is the first scenario of fewer: it is not their only board.
    """
    counts: Counter[BoardKey] = Counter()
    firsts: Counter[BoardKey] = Counter()
    for keys in groups:
        # Nearly all are of one board, which is no scenario's.
        if len(keys) > 1 or (keys and keys[0][2] is not None):
            counts.update(key for key in keys if key[2] is not None)
            firsts.update(keys[:1])
    found: set[BoardKey] = set()
    taken: Counter[tuple[str, str]] = Counter()
    for key in sorted(counts, key=lambda key: (-counts[key], -firsts[key], in_order(key))):
        taken[key[:2]] += 1
        if taken[key[:2]] > MOST_APART:
            found.add(key)
    return found
