"""How much a record rests on, in one short line: how many runs, the interval, and who shares the rank."""

from __future__ import annotations

from levelbench.report.site.payload import Column, EntryPayload

__all__ = ["counted", "standing"]


def counted(entry: EntryPayload, aggregation: str) -> str:
    """On how many runs, or measurements of inference, the entry's figures rest under the rule ``aggregation``."""
    if entry.n == 1:
        return "single run"
    if entry.mode == "inference":
        return f"{entry.reached}/{entry.n} measurements"
    return f"first of {entry.n} runs" if aggregation == "first-run" else f"reached {entry.reached}/{entry.n}"


def standing(entry: EntryPayload, column: Column, aggregation: str, more: int) -> str:
    """``single run``, or ``reached 5/5, [9.1, 10.2]``; then with how many others it shares the first rank."""
    _, bracket, interval = entry.figures[column].text.partition(" [")
    within = [f"[{interval}"] if bracket else ["no interval"] * (entry.n > 1)
    shared = [f"shared with {more} more"] * (more > 0)
    return ", ".join([counted(entry, aggregation), *within, *shared])
