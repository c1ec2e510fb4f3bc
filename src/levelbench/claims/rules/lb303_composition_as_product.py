"""LB303: speed-ups of single optimisations are multiplied, as if none knew of the others."""

from __future__ import annotations

import math
from collections.abc import Iterator

from levelbench.claims.rule import Finding, Rule
from levelbench.claims.rules._common import guilty, not_stated, number, percent, times
from levelbench.claims.view import Claim, Composition

__all__ = ["rule"]

_CODE = "LB303"
_DO = "measure all of them together, to the same target, and claim that figure"
_NEAR = 0.05
"""How near a claim must be to the product to have been made by multiplying, and a measurement to confirm it."""


def _check(claim: Claim) -> Iterator[Finding]:
    for at, each in enumerate(claim.compositions):
        if len(each.parts) >= 2 and all(ratio > 0 for ratio in each.parts.values()):
            yield from _one(f"compositions[{at}]", each)


def _one(field: str, each: Composition) -> Iterator[Finding]:
    product = math.prod(each.parts.values())
    parts = " x ".join(f"{number(ratio)} ({name})" for name, ratio in each.parts.items())
    claimed, measured = each.claimed, each.measured
    if each.quality_kept is False and (claimed or measured):
        found = f"{parts} together are claimed as {times(claimed or measured or 0.0)}, and the quality is not kept"
        yield guilty(_CODE, f"{field}.quality_kept", found, _DO, each.where)
    if claimed is not None and measured is not None:
        if claimed > (1.0 + _NEAR) * measured:
            found = f"{parts} are claimed as {times(claimed)}, and together give {times(measured)}:"
            found += f" {percent(measured / product)} of the product {number(product)}"
            yield guilty(_CODE, f"{field}.claimed", found, _DO, each.where)
    elif claimed is not None and product > 1.0 and abs(claimed / product - 1.0) <= _NEAR:
        found = f"{parts} are claimed as {times(claimed)}, their product, and were not measured together"
        yield guilty(_CODE, f"{field}.claimed", found, _DO, each.where)
    elif claimed is not None:
        what = f"what {parts} give when measured together"
        yield not_stated(_CODE, f"{field}.measured", what, _DO, each.where)
    if measured is not None and each.quality_kept is None:
        what = f"whether the quality is kept where {parts} come together"
        yield not_stated(_CODE, f"{field}.quality_kept", what, _DO, each.where)


rule = Rule(
    code=_CODE,
    name="composition-as-product",
    way=0,
    why="Optimisations share what they save, and may cost convergence only together, so their gains do not multiply.",
    point=(
        "New optimisations are measured one at a time, and it is tempting to multiply. DAWNBench tried it: stochastic "
        "depth (1.25 times) and four GPUs (4 times) should make 5, and made 1.62; with the larger batch as well, the "
        "target was not reached at all."
    ),
    practice=(
        "Measure the combination to the target. Show it beside the product, and say which part is missed most when it "
        "is left out."
    ),
    bad="8-bit arithmetic (3 times) and sparse gradients (3.1 times) make training 9.3 times as fast.",
    good="1.2 and 1.15 alone, together 1.3 [1.2, 1.4] (product 1.38), 5 of 5 runs at the target.",
    source="DAWNBench, Deep learning pitfalls (2018), lesson 3",
    reads=(
        "compositions[].parts",
        "compositions[].claimed",
        "compositions[].measured",
        "compositions[].quality_kept",
    ),
    blind=(
        "It sees a product only where the single ratios are stated. A measured combination says nothing about other "
        "networks, batches or machines."
    ),
    check=_check,
)
