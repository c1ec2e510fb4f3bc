"""Many comparisons at once: p values adjusted for a whole suite.

Of a hundred comparisons of equal things five come out "significant" at 5 %, so a suite's verdicts are
taken on p values that bound the chance of even one false alarm.
"""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p values, in the order given (Holm 1979); reject where one is below alpha.

    Bounds the family-wise error under any dependence, and is never weaker than Bonferroni's correction.
    """
    if not all(0.0 <= p <= 1.0 for p in p_values):
        raise ValueError("p values lie between 0 and 1")
    adjusted = [0.0] * len(p_values)
    greatest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        greatest = max(greatest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = greatest
    return adjusted
