"""What the rules see in a curve is what ``measure.crossing`` finds in it."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st

from levelbench.claims.rules._runs import Seen, curves_of
from levelbench.claims.view import CurveView, QualityView, RunView, Side
from levelbench.measure.crossing import find_crossing

QUALITIES = st.lists(st.sampled_from([0.0, 0.5, 1.0, math.nan, math.inf]), min_size=1, max_size=6)


@given(QUALITIES, st.sampled_from(["higher", "lower"]))
@example([0.5], "higher")
@example([0.0, 1.0, 1.0, 0.0, 0.5], "higher")
def test_it_is_touched_confirmed_and_kept_where_crossing_says(quality, direction):
    run = RunView(reached=True, curve=CurveView([float(at) for at in range(len(quality))], quality))
    side = Side(name="a", runs=[run], quality=QualityView(metric="top1", target=0.5, direction=direction))
    rules = "first", "confirmed", "sustained"
    found = [find_crossing(quality, 0.5, direction=direction, rule=rule) for rule in rules]
    first, confirmed, kept = (None if each is None else each.index for each in found)
    assert curves_of(side) == [Seen(0, len(quality), first, confirmed, kept, claimed=True)]
