"""The table and the figure of ``analyze utilisation``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from levelbench.records.caveats import shortened
from levelbench.report.drawing import draw, plain_axes
from levelbench.report.markup import SERIES
from levelbench.report.tables import Absent, CellValue, Column, ColumnKind, Table, clean, estimate_cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from levelbench.analysis.utilisation import PeakShare, Utilisation

__all__ = ["utilisation_table", "write_utilisation"]

_NOTES = {
    "datasheet": "Operations: 3 forward passes of the zoo's network an example, 2 per multiply-add. Peak: the "
    "datasheet's for the fastest precision, of all devices together. Examples: up to the end of the curve, on the "
    "entry's clock.",
    "measured": "Operations: 2 per multiply-add of products, forward and gradients, of the examples until the target. "
    "Peak: the highest rate measured on the machine with a large matrix product in that precision (operator, network). "
    "How much that peak varied is in no interval.",
}


def utilisation_table(found: Utilisation) -> Table:
    """One row for each entry or group, the highest share first, those without one last."""
    order = sorted(found.shares, key=lambda each: -each.share.value if each.share else 1.0)

    def share(each: PeakShare) -> CellValue:
        return Absent(each.reason) if each.share is None else estimate_cell(each.share)

    def scaled(value: float | None, by: float) -> float | None:
        return None if value is None else value * by

    return Table.of(
        "utilisation",
        f"Operations a second as a share of the {found.of} peak",
        order,
        (Column("label", "entry" if found.of == "datasheet" else "runs of"), lambda each: each.label),
        (Column("share", "of the peak", ColumnKind.SHARE), share),
        (Column("n", "n", ColumnKind.NUMBER), lambda each: each.n or None),
        (Column("gflop_s", "GFLOP/s", ColumnKind.NUMBER), lambda each: scaled(each.flop_s, 1e-9)),
        (Column("peak_gflop_s", "peak GFLOP/s", ColumnKind.NUMBER), lambda each: scaled(each.peak_flop_s, 1e-9)),
        (Column("examples_s", "examples/s", ColumnKind.NUMBER), lambda each: each.examples_s),
        (
            Column("gflop_per_example", "GFLOP an example", ColumnKind.NUMBER),
            lambda each: scaled(each.flops_per_example, 1e-9),
        ),
        (Column("network", "network"), lambda each: each.network or None),
        (Column("machine", "machine"), lambda each: each.machine or None),
        notes=(_NOTES[found.of], *_spread(found)),
    ).without_empty()


def _spread(found: Utilisation) -> list[str]:
    """What the brackets of several runs are, and of which statistic."""
    several = [each.share.interval for each in found.shares if each.share and each.share.interval]
    if not several:
        return []
    levels = {f"{each.level * 100:g} % intervals" for each in several if not each.is_range}
    few = ["of fewer than six runs the lowest and the highest"] * any(each.is_range for each in several)
    return [f"Geometric means over the n runs; brackets: {', '.join([*sorted(levels), *few])}."]


def write_utilisation(found: Utilisation, path: Path) -> Path | None:
    """Draw each known share with its interval; ``None`` if none is known. Raises as ``drawing.draw``."""
    count = sum(each.share is not None for each in found.shares)
    if not count:
        return None

    def onto(figure: Canvas) -> None:
        _draw(figure.add_subplot(), found)
        # Below the whole figure, as names may leave little room for the axes.
        said = [f"operations a second, % of the {found.of} peak", *_spread(found)]
        figure.supxlabel("\n".join(said).replace("brackets", "bars"), fontsize=9)

    return draw(path, "utilisation", (6.8, 1.3 + 0.24 * count), onto)


def _draw(axes: Axes, found: Utilisation) -> None:
    known = [
        (shortened(each.label) + (f" (n = {each.n})" if each.n > 1 else ""), each.share)
        for each in found.shares
        if each.share is not None
    ]
    known.sort(key=lambda each: -each[1].value)
    for at, (_, share) in enumerate(known):
        if share.interval is not None:
            axes.plot(
                [100 * share.interval.low, 100 * share.interval.high], [at, at], color=SERIES[0][0], linewidth=1.4
            )
        axes.plot(100 * share.value, at, "o", color=SERIES[0][0], markersize=5)
    axes.set_yticks(range(len(known)), [clean(label) for label, _ in known])
    axes.set_ylim(len(known) - 0.5, -0.5)
    axes.set_xlim(0, 108 * max(max(share.value, share.interval.high if share.interval else 0.0) for _, share in known))
    plain_axes(axes)
