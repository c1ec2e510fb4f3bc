"""Whether the runs of one result were seeded each by itself.

The one idea: two runs of one seed are one run told twice, and Olympic scoring of copies drops nothing. The rule is that
of the official seed checker: every run logs an integer, and no two runs log the same one from the same line of code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from levelbench.records.exchange.mlperf.compliance import LogFinding
from levelbench.records.exchange.mlperf.logs import TrainingLog

__all__ = ["check_seeds"]

_KEYS = ("seed", "run_set_random_seed")


def check_seeds(logs: Sequence[TrainingLog]) -> list[LogFinding]:
    """The findings about the seeds of the runs of one result, in order of the runs."""
    findings: list[LogFinding] = []
    owners: dict[tuple[str, str, int], str] = {}
    for log in logs:
        events = log.all(*_KEYS)
        seeds = [(event, seed) for event in events if (seed := _integer(event.value)) is not None]
        for event in events:
            if _integer(event.value) is None:
                found = f"the seed {event.value!r} is not an integer"
                findings.append(LogFinding("seed-format", "error", log.name, event.line, "seed", found, "log integers"))
        if not events:
            do = "log one integer as `seed`; without it nobody can tell copies from runs"
            findings.append(LogFinding("seed-missing", "error", log.name, None, "seed", "no seed is logged", do))
        if len(seeds) > 1:
            found = f"{len(seeds)} seeds are logged"
            findings.append(LogFinding("seed-several", "warning", log.name, None, "seed", found, "log one a run"))
        for event, seed in seeds:
            place = (str(event.metadata.get("file")), str(event.metadata.get("lineno")), seed)
            owner = owners.setdefault(place, log.name)
            if owner != log.name:
                found = f"seed {seed} was used by {owner} as well"
                findings.append(
                    LogFinding("seed-repeated", "error", log.name, event.line, "seed", found, "draw a new seed a run")
                )
    return findings


def _integer(value: Any) -> int | None:
    """As the official checker's ``int()`` does it, numbers in text included."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None
