"""Tables and figures of operators: benchmarks, conformance, the machine's ceilings, maps of errors.

In the heat map of a difference, the last two axes are the image,
and the axes before them a grid of such images; large ones are shown by their worst blocks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from levelbench.errors import UsageError
from levelbench.measure.ceilings import Ceilings
from levelbench.measure.selftest import Diagnosis
from levelbench.measure.verdict import format_verdict
from levelbench.records.benchmark_summary import BenchmarkSummary, Entry
from levelbench.report.drawing import check_ending, draw
from levelbench.report.numbers import number
from levelbench.report.tables import (
    Absent,
    Cell,
    Column,
    ColumnKind,
    Number,
    Table,
    Text,
    clean,
    error_text,
    estimate_cell,
    share_cell,
    verdict_text,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

__all__ = ["HeatmapImage", "algorithm_lines", "ceilings_line", "ceilings_table", "conformance_table", "details_table"]
__all__ += ["doctor_lines", "fold", "heatmap_text", "problems_table", "summary_lines"]
__all__ += ["totals_table", "write_heatmap"]

_GIGA = 1e-9
_NATIVE = "the same framework's own, if it has one"


def problems_table(summary: BenchmarkSummary) -> Table:
    """A row per problem; by arm time, GFLOP/s, share of the ceiling, error and verdict against its baseline."""
    columns = [Column("problem", "problem")]
    judged = [summary.baseline(at) != at for at in range(len(summary.frameworks))]
    for at, name in enumerate(summary.frameworks):
        key = name.replace(" ", "_")
        columns += [
            Column(f"{key}_time_s", f"{name} time", ColumnKind.TIME_S),
            Column(f"{key}_gflop_s", f"{name} GFLOP/s", ColumnKind.NUMBER),
            Column(f"{key}_share", f"{name} of ceiling", ColumnKind.SHARE, digits=2),
            Column(f"{key}_error", f"{name} error", ColumnKind.TEXT),
        ]
        columns += [Column(f"{key}_verdict", f"{name}/{summary.frameworks[summary.baseline(at)]}")] * judged[at]
    rows = tuple(
        (Text(problem.name), *(cell for at, entry in enumerate(entries) for cell in _cells(entry, judged[at], summary)))
        for problem, entries in summary.rows
    )
    return Table(_name(summary), _title(summary), tuple(columns), rows, _notes(summary))


def _cells(entry: Entry, judged: bool, summary: BenchmarkSummary) -> list[Cell]:
    if entry.time is None:
        reason = Absent(f"{entry.status}: {entry.reason}")
        return [reason, Absent(), Absent(), Absent(), *([Absent()] * judged)]
    remark = {"wrong": "WRONG", "failed": "FAILED", "unchecked": "unchecked"}.get(entry.status, "")
    rate: Cell = Absent("its FLOPs are not known") if entry.flops is None else Absent()
    if entry.flop_s is not None:
        rate = Number(entry.flop_s * _GIGA)
    share = share_cell(entry.share, _no_share(entry, summary))
    return [estimate_cell(entry.time, remark=remark), rate, share, _error(entry), *([_verdict(entry)] * judged)]


def _error(entry: Entry) -> Cell:
    """The relative L2 error; the other errors are in the records and in the JSON."""
    relative = entry.errors.get("relative")
    if entry.status == "wrong":
        return Absent(entry.reason)
    if relative is None:
        return Absent(entry.checked)
    return error_text(relative)


def _verdict(entry: Entry) -> Cell:
    if entry.verdict is None:
        return Absent()
    return Text(verdict_text(entry.verdict))


def details_table(summary: BenchmarkSummary) -> Table:
    """A row per problem and framework: FLOPs, bytes and intensity, every error, and what was compared."""
    every = [
        (problem, name, entry)
        for problem, entries in summary.rows
        for name, entry in zip(summary.frameworks, entries, strict=True)
    ]

    def error(kind: str) -> Callable[[tuple[object, str, Entry]], str | None]:
        """With three digits, because errors span twenty orders of magnitude."""
        return lambda row: None if (found := row[2].errors.get(kind)) is None else f"{found:.3g}"

    return Table.of(
        f"{_name(summary)}_details",
        f"{_title(summary)}: details",
        every,
        (Column("problem", "problem"), lambda row: row[0].name),
        (Column("framework", "framework"), lambda row: row[1]),
        (Column("status", "status"), lambda row: row[2].status),
        (Column("flops", "FLOPs", ColumnKind.NUMBER), lambda row: row[2].flops),
        (Column("bytes", "compulsory bytes", ColumnKind.BYTES), lambda row: row[2].bytes),
        *((Column(kind, kind), error(kind)) for kind in ("l1", "l2", "linf", "relative", "ulp", "cosine")),
        (Column("checked", "compared"), lambda row: row[2].checked),
        (Column("algorithm", "algorithm"), lambda row: row[2].algorithm or row[2].algorithm_reason),
        (Column("reason", "reason"), lambda row: row[2].reason),
    )


def summary_lines(summary: BenchmarkSummary) -> list[str]:
    """One line per framework: how many results of each kind, and the mean ratio to the first."""
    lines = []
    for at, total in enumerate(summary.totals):
        counts = ", ".join(f"{count} {status}" for status, count in sorted(total.counts.items()))
        line = f"{total.arm}: {counts}"
        if total.verdict is not None:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted((total.kinds or {}).items()))
            mean = format_verdict(total.verdict, summary.frameworks[summary.baseline(at)], total.arm)
            line += f"; {kinds}; geometric mean over {total.compared}: {mean}"
        lines.append(line)
    return lines


def algorithm_lines(summary: BenchmarkSummary) -> list[str]:
    """Per framework, the algorithms that it says it chose, with the number of problems, and why others are not known.

    None for a framework that says nothing of any problem: the reason is in the details.
    """
    lines = []
    for at, name in enumerate(summary.frameworks):
        entries = [found[at] for _, found in summary.rows]
        told = Counter(each.algorithm for each in entries if each.algorithm)
        untold = Counter(each.algorithm_reason for each in entries if each.algorithm_reason)
        if told:
            many = len(entries) > 1
            parts = [f"{each} ({count})" if many else each for each, count in told.most_common(_MOST_ALGORITHMS)]
            parts += [f"{len(told) - len(parts)} others (in --json)"] * (len(told) > len(parts))
            parts += [f"not known ({count}): {reason}" for reason, count in untold.items()]
            lines.append(f"algorithm of {name}: {' | '.join(parts)}")
    return lines


_MOST_ALGORITHMS = 3


def ceilings_line(ceilings: Mapping[str, Any]) -> str:
    """The ceilings in one line."""
    parts = [f"{name} {number(limit['value'] * _GIGA)} GFLOP/s" for name, limit in ceilings["flop_s"].items()]
    parts += [f"memory ({name}) {number(limit['value'] * _GIGA)} GB/s" for name, limit in _memory(ceilings)]
    return f"ceilings: {', '.join(parts) or 'none measured'}"


def _memory(ceilings: Mapping[str, Any]) -> Sequence[tuple[str, Any]]:
    return [each for each in ceilings["bandwidth_b_s"].items() if each[0] == "triad"]


def _no_share(entry: Entry, summary: BenchmarkSummary) -> str:
    if entry.flops is None:
        return ""
    if summary.cache == "cold":
        return "with cold caches a call is under no roof"
    if entry.bytes is None:
        return "a view, or its bytes are not known"
    if summary.ceilings["bandwidth_b_s"].get("triad") and not entry.flops:
        return "faster than memory: its data is in a cache, or it is a view (levelbench analyze roofline)"
    return "no ceiling was measured for it, or its data is in a cache (levelbench analyze roofline)"


def _name(summary: BenchmarkSummary) -> str:
    return "".join(each if each.isalnum() else "_" for each in summary.title)


def _title(summary: BenchmarkSummary) -> str:
    return f"{summary.title}, {summary.direction}, {summary.cache} caches, on {summary.device}"


def _notes(summary: BenchmarkSummary) -> tuple[str, ...]:
    counts = sorted(set(summary.processes))
    processes = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    own = any(summary.own)
    notes = [
        f"time: a call, over {processes} process{'es' * (counts[-1] > 1)} per framework, one median each; intervals at "
        f"{summary.level:.0%}.",
        "of ceiling: the minimum time that the ceilings allow, over the time; c: bound by arithmetic, m: by memory.",
        "error: relative L2 against NumPy in float64 on the same inputs.",
        *["of yours, the error is against its `reference`, and FLOPs and bytes are those of its `cost`."] * own,
        *["channels_last: inputs with 4 or 5 axes have their channels last in memory; elsewhere ONNX's layout."]
        * any(summary.layouts),
    ]
    if len(summary.frameworks) > 1:
        first = _NATIVE if own and not all(summary.own) else summary.frameworks[0]
        notes.append(
            f"verdict: against {first}; SAME within ±{number(summary.margin * 100)} %; FASTER and SLOWER after Holm's "
            "correction over the problems."
        )
    return (*notes, *dict.fromkeys(problem.note for problem, _ in summary.rows if problem.note))


Counts = Mapping[str, int]
_WORDS = ("wrong", "unsupported", "upstream")


def conformance_table(found: Sequence[tuple[str, Mapping[str, Counts]]]) -> Table:
    """Passed tests of all, by operator (rows) and framework (columns), with the status of the others.

    ``found`` has (framework, counts by status by operator) over the same tests.
    """
    columns = (Column("operator", "Operator"), *(Column(name, name) for name, _ in found))
    rows: list[tuple[Cell, ...]] = [
        (Text(operator), *(_cell(counts[operator]) for _, counts in found)) for operator in found[0][1]
    ]
    return Table("conformance_operators", "ONNX's node tests by operator", columns, tuple(rows))


def totals_table(found: Sequence[tuple[str, Counts]]) -> Table:
    """One row per framework: tests, passed, wrong, unsupported, upstream."""

    def count(key: str) -> tuple[Column, Callable[[tuple[str, Counts]], float]]:
        return Column(key, key.capitalize(), ColumnKind.NUMBER, digits=5), lambda row: row[1][key]

    return Table.of(
        "conformance",
        "ONNX's node tests",
        found,
        (Column("framework", "Framework"), lambda row: row[0]),
        (Column("tests", "Tests", ColumnKind.NUMBER, digits=5), lambda row: sum(row[1].values())),
        *(count(key) for key in ("passed", *_WORDS)),
        notes=("unsupported: refused, with a reason (--verbose); upstream: wrong, by a known fault in the framework",),
    )


def _cell(counts: Counts) -> Cell:
    rest = [f"{counts[word]} {word}" for word in _WORDS if counts[word]]
    return Text(", ".join([f"{counts['passed']}/{sum(counts.values())}", *rest]))


def ceilings_table(ceilings: Ceilings) -> Table:
    """Measured limits: matrix products by precision in GFLOP/s, memory bandwidth by kernel in GB/s."""
    rows: list[tuple[Cell, ...]] = [
        (Text(f"matrix product, {dtype}"), estimate_cell(limit, scale=_GIGA), Text("GFLOP/s"))
        for dtype, limit in ceilings.flop_s.items()
    ]
    rows += [
        (Text(f"memory, {kernel}"), estimate_cell(limit, scale=_GIGA), Text("GB/s"))
        for kernel, limit in ceilings.bandwidth_b_s.items()
    ]
    columns = (
        Column("limit", "limit of this machine"),
        Column("value", "measured", ColumnKind.NUMBER),
        Column("unit", ""),
    )
    note = "Medians with 95 % intervals. A multiply-add counts as 2 operations; copy counts 2 words, triad 3 (STREAM)."
    return Table("ceilings", "Ceilings", columns, tuple(rows), (note,))


def doctor_lines(diagnosis: Diagnosis) -> list[str]:
    """The findings about clock and noise, each doubt, and whether the machine is fit to measure on, with reasons."""
    against = diagnosis.against
    answer = "yes: it is quiet, with the threads and settings it should have"
    if against:
        answer = f"no: {'; '.join(each.partition(': ')[0] for each in against)}"
    doubts = [f"doubt: {doubt}" for doubt in diagnosis.doubts]
    return [*diagnosis.sentences(), *doubts, f"fit to measure on: {answer}"]


_SHADES = " .:-=+*#%@"
_MOST_ROWS, _MOST_COLUMNS = 24, 72
_MOST_PIXELS = 1024


@dataclass(frozen=True)
class HeatmapImage:
    """|difference| as an image: ``rows`` and ``columns`` name their axes; NaN separates the images of a grid."""

    image: NDArray[np.float64]
    rows: str
    columns: str
    shape: tuple[int, ...]


def fold(difference: ArrayLike) -> HeatmapImage:
    """A difference of any rank as an image; values that are not finite stay so."""
    given = np.asarray(difference)
    apart = np.abs(given.astype(np.complex128 if given.dtype.kind == "c" else np.float64)).astype(np.float64)
    shape = apart.shape
    if apart.ndim == 0:
        return HeatmapImage(apart.reshape(1, 1), "", "", shape)
    if apart.ndim == 1:
        return HeatmapImage(apart.reshape(1, -1), "", "axis 0", shape)
    if apart.ndim == 2:
        return HeatmapImage(apart, "axis 0", "axis 1", shape)
    first = apart.reshape(-1, *shape[-2:])
    # With more than three axes, the one before the image runs across; with three, the grid is as square as possible.
    across = shape[-3] if apart.ndim > 3 else max(1, math.ceil(math.sqrt(len(first))))
    down = -(-len(first) // max(1, across))
    image = np.full((down * (shape[-2] + 1), across * (shape[-1] + 1)), np.nan)
    for at, each in enumerate(first):
        row, column = divmod(at, across)
        top, left = row * (shape[-2] + 1), column * (shape[-1] + 1)
        image[top : top + shape[-2], left : left + shape[-1]] = each
    outer = ", ".join(str(axis) for axis in range(apart.ndim - 3))
    rows = f"axes {outer} | {apart.ndim - 2}" if apart.ndim > 3 else "axes 0 | 1"
    columns = f"axes {apart.ndim - 3} | {apart.ndim - 1}" if apart.ndim > 3 else "axes 0 | 2"
    return HeatmapImage(image[:-1, :-1] if image.size else image, rows, columns, shape)


def _worst_blocks(image: NDArray[np.float64], most_rows: int, most_columns: int) -> NDArray[np.float64]:
    """The image with blocks replaced by their largest value, so that a small picture hides no error."""
    for axis, most in ((0, most_rows), (1, most_columns)):
        length = image.shape[axis]
        if length <= most:
            continue
        starts = np.arange(0, length, -(-length // most))
        image = np.fmax.reduceat(image, starts, axis=axis)
    return image


def _level(image: NDArray[np.float64]) -> tuple[NDArray[np.float64], float, float]:
    """The image with zeros as NaN, and the range of the positive finite values."""
    seen = image[np.isfinite(image) & (image > 0)]
    if not seen.size:
        return image, 0.0, 0.0
    return image, float(seen.min()), float(seen.max())


def heatmap_text(difference: ArrayLike, title: str = "") -> str:
    """The difference in characters, on a logarithmic scale from the smallest to the largest; ``!`` is not finite."""
    folded = fold(difference)
    if not folded.image.size:
        return f"{title}: empty, shape {folded.shape}".removeprefix(": ")
    image, low, high = _level(_worst_blocks(folded.image, _MOST_ROWS, _MOST_COLUMNS))
    infinite = np.isinf(np.asarray(difference, np.float64)).any() or np.isnan(np.asarray(difference, np.float64)).any()
    lines = [title] if title else []
    if high == 0:
        return "\n".join([*lines, "some values are not finite" if infinite else "no difference"])
    span = math.log(high / low) or 1.0
    for row in image:
        lines.append("".join(_character(float(value), low, span) for value in row).rstrip() or " ")
    axes = "; ".join(f"{name}: {each}" for name, each in (("down", folded.rows), ("across", folded.columns)) if each)
    lines.append(f"shape {folded.shape}{f'; {axes}' if axes else ''}")
    lines.append(f"'{_SHADES[1]}' {low:.3g} to '{_SHADES[-1]}' {high:.3g}, logarithmic; blank is zero")
    return "\n".join(lines)


def _character(value: float, low: float, span: float) -> str:
    if math.isinf(value):
        return "!"
    if math.isnan(value) or value == 0:
        return " "
    share = math.log(value / low) / span if value > low else 0.0
    return _SHADES[1 + min(len(_SHADES) - 2, round(share * (len(_SHADES) - 2)))]


def write_heatmap(difference: ArrayLike, path: Path, title: str = "") -> Path:
    """Draw the difference to a .png or .svg file; ``UsageError`` for an empty one, else as :func:`draw`."""
    check_ending(path)
    folded = fold(difference)
    if not folded.image.size:
        raise UsageError("a heat map", f"the difference is empty, of shape {folded.shape}", "compare arrays of values")
    return draw(path, title or "heat map", (6.4, 4.8), lambda figure: _draw_heatmap(figure, folded, title))


def _draw_heatmap(figure: Canvas, folded: HeatmapImage, title: str) -> None:
    from matplotlib.colors import LogNorm, Normalize

    image, low, high = _level(_worst_blocks(folded.image, _MOST_PIXELS, _MOST_PIXELS))
    norm = LogNorm(low, high) if 0 < low < high else Normalize(0, high or 1.0)
    axes = figure.add_subplot()
    values = np.where(image > 0, image, np.nan)
    shown = axes.imshow(values, aspect="auto", interpolation="nearest", norm=norm, cmap="viridis")
    axes.set_title(clean(title))
    axes.set_xlabel(folded.columns)
    axes.set_ylabel(folded.rows)
    axes.set_facecolor("white")
    if high > 0:
        figure.colorbar(shown, label="|difference|")
