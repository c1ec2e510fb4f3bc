"""LB303: speed-ups of single optimisations are multiplied, as if they were independent."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from levelbench.claims.rule import Diagnostic, read_rule
from levelbench.claims.rules._common import guilty, not_stated, number, percent, times
from levelbench.claims.view import Claim, CompositionView

_DO = "measure all of them together, to the same target, and claim that figure"
_NEAR = 0.05
"""How close a claim must be to the product to count as multiplied, and a measurement to confirm it."""


def _check(claim: Claim) -> Iterator[Diagnostic]:
    for at, each in enumerate(claim.compositions):
        if len(each.parts) >= 2 and all(ratio > 0 for ratio in each.parts.values()):
            yield from _one(f"compositions[{at}]", each)


def _one(field: str, each: CompositionView) -> Iterator[Diagnostic]:
    product = math.prod(each.parts.values())
    parts = " x ".join(f"{number(ratio)} ({name})" for name, ratio in each.parts.items())
    claimed, measured = each.claimed, each.measured
    if each.quality_kept is False and (claimed or measured):
        found = f"{parts} together are claimed as {times(claimed or measured or 0.0)}, but the quality is not kept"
        yield guilty(f"{field}.quality_kept", found, _DO, each.where)
    if claimed is not None and measured is not None:
        if claimed > (1.0 + _NEAR) * measured:
            found = f"{parts} are claimed as {times(claimed)}, but together give {times(measured)}:"
            found += f" {percent(measured / product)} of the product {number(product)}"
            yield guilty(f"{field}.claimed", found, _DO, each.where)
    elif claimed is not None and product > 1.0 and abs(claimed / product - 1.0) <= _NEAR:
        found = f"{parts} are claimed as {times(claimed)}, their product, but were not measured together"
        yield guilty(f"{field}.claimed", found, _DO, each.where)
    elif claimed is not None:
        what = f"what {parts} give when measured together"
        yield not_stated(f"{field}.measured", what, _DO, each.where)
    if measured is not None and each.quality_kept is None:
        what = f"whether the quality is kept when {parts} are combined"
        yield not_stated(f"{field}.quality_kept", what, _DO, each.where)


rule = read_rule(Path(__file__).with_suffix(".md"), _check)
