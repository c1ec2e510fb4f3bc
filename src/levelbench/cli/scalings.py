"""Which groups of a report show how something scales: alike in all but their ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from levelbench.analysis.scaling import Scaling
    from levelbench.records import Record, RunGroup

__all__ = ["scalings_of"]


def scalings_of(groups: Sequence[RunGroup], records: Sequence[Record], level: float = 0.95) -> list[Scaling]:
    """One for each task, recipe and settings of which there are runs on several numbers of ranks."""
    import msgspec

    from levelbench.analysis.scaling import scaling

    alike: dict[bytes, list[RunGroup]] = {}
    for group in groups:
        if group.n:
            alone = msgspec.structs.replace(group.specification, distribution=None)
            alike.setdefault(msgspec.json.encode(alone, order="sorted"), []).append(group)
    return [
        scaling(f"Scaling of {members[0].specification.task}", members, records, level)
        for members in alike.values()
        if len({each.specification.distribution and each.specification.distribution.ranks for each in members}) > 1
    ]
