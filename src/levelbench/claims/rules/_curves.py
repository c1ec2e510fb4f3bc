"""What the curves of a side say about its target: touched, confirmed, kept, or never reached.

The one idea: the crossing is computed again from the evaluations, as ``measure.crossing`` has it, and never believed.
"""

from __future__ import annotations

import math
from itertools import repeat
from operator import ge, le
from typing import NamedTuple

from levelbench.claims.rules._quality import direction_of
from levelbench.claims.view import Side

__all__ = ["Seen", "curves_of"]


class Seen(NamedTuple):
    """One run's curve against the target; indices are of evaluations, ``at`` is the run's.

    ``first`` touches the target, ``confirmed`` is the second in a row that does, ``kept`` begins the stretch that
    lasts to the end; each is ``None`` where there is none. ``claimed`` is what the run itself states.
    """

    at: int
    evaluations: int
    first: int | None
    confirmed: int | None
    kept: int | None
    claimed: bool | None

    @property
    def ends_at_its_first_touch(self) -> bool:
        """Whether nothing was evaluated after the target had been touched for the first time."""
        return self.first is not None and self.first == self.evaluations - 1


_MOST = 12
_known: dict[int, tuple[Side, list[Seen]]] = {}
"""The last sides that a rule asked about, for the next rule that does; each is held, so no other has its identity."""


def curves_of(side: Side) -> list[Seen]:
    """Every curve of a run that did not fail and whose columns are of one length.

    There is none where the target, or whether more is better, is unknown.
    """
    held = _known.get(id(side))
    if held is None or held[0] is not side:
        while len(_known) >= _MOST:
            _known.pop(next(iter(_known)), None)
        held = _known[id(side)] = side, _seen(side)
    return held[1]


def _seen(side: Side) -> list[Seen]:
    sign, target = direction_of(side.quality), side.quality.target
    if sign is None or target is None or math.isnan(target):
        return []
    at_target = ge if sign > 0 else le
    found = []
    for at, run in enumerate(side.runs):
        if run.curve is None or run.failed or not run.curve.quality:
            continue
        if len(run.curve.time_s) != len(run.curve.quality):
            continue
        # A byte an evaluation: a quality that is no number is at no target.
        reached = bytes(map(at_target, run.curve.quality, repeat(target)))
        evaluations = len(reached)
        first, pair, kept = reached.find(1), reached.find(b"\1\1"), reached.rfind(0) + 1
        found.append(
            Seen(
                at,
                evaluations,
                first=first if first >= 0 else None,
                confirmed=pair + 1 if pair >= 0 else None,
                kept=kept if kept < evaluations else None,
                claimed=run.reached,
            )
        )
    return found
