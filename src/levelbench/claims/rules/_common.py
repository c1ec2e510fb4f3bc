"""What several rules need: who is compared with whom, findings in one form, numbers in print.

The one idea: ``guilty`` needs evidence, ``not_stated`` a missing fact; no helper turns the second into the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from levelbench.claims.rule import Finding, Severity
from levelbench.claims.view import Claim, Comparison, Side

__all__ = ["Pair", "guilty", "not_stated", "number", "pairs", "percent", "plural", "seconds", "sides", "times"]


class Pair(NamedTuple):
    """One comparison with both of its sides. ``field``, ``new_field`` and ``base_field`` are paths in the claim."""

    comparison: Comparison
    new: Side
    base: Side
    field: str
    new_field: str
    base_field: str

    @property
    def where(self) -> str:
        """Where the comparison was read, or else its new side."""
        return self.comparison.where or self.new.where


def sides(claim: Claim) -> Iterator[tuple[str, Side]]:
    """Every side with its path in the claim: ``("sides[0]", side)``."""
    for at, side in enumerate(claim.sides):
        yield f"sides[{at}]", side


def pairs(claim: Claim) -> Iterator[Pair]:
    """The sides of every comparison; one that names a side which is not there has no pair.

    Where no comparison is stated and exactly one of several sides is called the baseline, each other is compared
    with it: that is what a reader does. Of such a comparison nothing but its sides is known.
    """
    if not claim.comparisons and len(claim.sides) < 2:
        return
    paths = {side.name: path for path, side in sides(claim)}
    for at, comparison in enumerate(claim.comparisons):
        new, base = claim.side(comparison.new), claim.side(comparison.base)
        if new is not None and base is not None:
            yield Pair(comparison, new, base, f"comparisons[{at}]", paths[new.name], paths[base.name])
    if claim.comparisons:
        return
    baselines = [side for side in claim.sides if side.baseline]
    if len(baselines) == 1:
        base = baselines[0]
        for path, side in sides(claim):
            if side is not base:
                yield Pair(Comparison(side.name, base.name), side, base, path, path, paths[base.name])


def guilty(code: str, field: str, found: str, do: str, where: str = "", severity: Severity = "error") -> Finding:
    """A finding that rests on evidence, which ``found`` gives with its numbers."""
    return Finding(code, severity, found, do, field, where)


def not_stated(code: str, field: str, what: str, do: str, where: str = "") -> Finding:
    """A fact that would decide and is missing: ``what`` names it ("the split of the quality of 'a'")."""
    return Finding(code, "not-stated", f"not stated: {what}", do, field, where)


def number(value: float, digits: int = 3) -> str:
    """A number with ``digits`` significant digits, without an exponent from a thousandth to a million."""
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e6):
        return f"{int(value):,}" if abs(value) < 1e15 else f"{value:.{digits}g}"
    if 1e-3 <= abs(value) < 1e6:
        rounded = float(f"{value:.{digits}g}")
        return f"{rounded:,.0f}" if abs(rounded) >= 10**digits else f"{rounded:g}"
    return f"{value:.{digits}g}"


def times(ratio: float) -> str:
    """A ratio: ``"1.62 times"``."""
    return f"{number(ratio)} times"


def percent(share: float) -> str:
    """A share from 0 to 1 in per cent."""
    return f"{number(100 * share)} %"


def seconds(value: float) -> str:
    """A time in the unit that it reads best in."""
    for limit, unit, name in ((7200, 3600, "h"), (120, 60, "min"), (1, 1, "s"), (1e-3, 1e-3, "ms")):
        if abs(value) >= limit:
            return f"{number(value / unit)} {name}"
    return f"{number(value / 1e-6)} µs" if value else "0 s"


def plural(count: int, one: str, several: str = "") -> str:
    """``"1 run"``, ``"3 runs"``."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"
