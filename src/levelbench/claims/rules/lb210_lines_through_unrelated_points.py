"""LB210: points are joined by lines, but there is nothing between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import guilty, not_stated
from levelbench.claims.view import Claim, FigureView

_DO = "draw points or bars with intervals, or measure enough points in between to justify a line"
_CONTINUOUS = ("time", "epochs", "samples", "operations")


def _check(claim: Claim) -> Iterator[Diagnostic]:
    for at, figure in enumerate(claim.figures):
        yield from _drawn(figure, f"figures[{at}]", figure.where or claim.where)


def _drawn(figure: FigureView, field: str, where: str) -> Iterator[Diagnostic]:
    if figure.joined is False:
        return
    if figure.joined is None:
        if figure.interpolable is False or figure.x == "category":
            yield not_stated(f"{field}.joined", f"whether lines join the points of '{figure.what}'", _DO, where)
    elif figure.x == "category":
        found = f"'{figure.what}' joins categories by lines, but there is nothing between two categories"
        yield guilty(f"{field}.joined", found, _DO, where, "warning")
    elif figure.interpolable is False:
        x = "its points" if figure.x is None else f"points along {figure.x}"
        found = f"'{figure.what}' joins {x} by lines, though values between them have no meaning"
        yield guilty(f"{field}.joined", found, _DO, where, "warning")
    elif figure.interpolable is None and figure.x not in _CONTINUOUS:
        what = f"whether values between the joined points of '{figure.what}' have a meaning"
        yield not_stated(f"{field}.interpolable", what, _DO, where)


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
