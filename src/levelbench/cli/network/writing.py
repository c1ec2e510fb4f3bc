"""Writes what ``levelbench network`` hands over: figures, CSV, Markdown; and refuses places for them beforehand."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from levelbench.cli import options as shared
from levelbench.errors import LevelbenchError, UsageError

if TYPE_CHECKING:
    from levelbench.records.network_summary import NetworkSummary

__all__ = ["check_figures", "write_all"]

_ENDINGS = (".svg", ".png")


def check_figures(place: Path | None) -> None:
    """Refuse a place for figures that is neither a folder nor the name of a figure, or that cannot be written to."""
    if place is None:
        return
    if place.is_dir() or not place.suffix:
        shared.check_writable(place / "figure.svg")
        return
    if place.suffix.lower() not in _ENDINGS:
        found = "its ending is not that of a figure"
        raise UsageError(f"--plot {place}", found, "write .svg or .png, or the name of a folder")
    shared.check_writable(place)


def write_all(summary: NetworkSummary, store: Path, given: dict[str, Any]) -> dict[str, str]:
    """The paths of what was written by name, and why a figure was not."""
    from levelbench.report.drawing import write_whole

    written: dict[str, str] = {}
    if given["csv_path"] is not None:
        written |= _write_csv(summary, given["csv_path"])
    if given["markdown_path"] is not None:
        written["markdown"] = str(write_whole(given["markdown_path"], _markdown(summary, given["by"], given["top"])))
    return written | _write_figures(summary, store, given["plot"])


def _write_csv(summary: NetworkSummary, path: Path) -> dict[str, str]:
    from levelbench.report.drawing import write_whole
    from levelbench.report.networks import operators_table, records_table
    from levelbench.report.tables import to_csv

    written = {"csv": str(write_whole(path, to_csv(records_table(summary))))}
    operators = operators_table(summary)
    if operators.rows:
        beside = path.with_name(f"{path.stem}-operators{path.suffix}")
        written["csv_of_operators"] = str(write_whole(beside, to_csv(operators)))
    return written


def _markdown(summary: NetworkSummary, by: str, top: int) -> str:
    from levelbench.report.networks import breakdown_tables, latency_table, phases_table, records_table
    from levelbench.report.tables import to_markdown

    tables = [
        latency_table(summary),
        *breakdown_tables(summary, by, top),
        phases_table(summary),
        records_table(summary),
    ]
    return "\n".join(to_markdown(each.without_empty()) for each in tables)


def _write_figures(summary: NetworkSummary, store: Path, place: Path | None) -> dict[str, str]:
    from levelbench.report.network_figures import write_breakdown, write_latency, write_memory_curve

    writers: dict[str, Callable[[NetworkSummary, Path], Path]] = {
        "breakdown": write_breakdown,
        "latency": write_latency,
    }
    if any(arm.transforms for arm in summary.arms):
        writers["memory"] = write_memory_curve
    written = {}
    for kind, write in writers.items():
        try:
            written[kind] = str(write(summary, _figure_path(summary, kind, store, place)))
        except LevelbenchError as error:
            # What was measured has been shown; a missing matplotlib is told where a figure was asked for.
            if place is not None and not isinstance(error, UsageError):
                raise
            written[f"no_{kind}"] = error.found
    return written


def _figure_path(summary: NetworkSummary, kind: str, store: Path, place: Path | None) -> Path:
    """Beside the records under a name that tells what it shows; else in the folder, or beside the name, asked for."""
    from levelbench.report.networks import file_name

    if place is not None and place.suffix.lower() in _ENDINGS and not place.is_dir():
        return place.with_name(f"{place.stem}-{kind}{place.suffix}")
    if place is not None:
        return place / f"{file_name(summary)}-{summary.direction}-{kind}.svg"
    shown = [*(case.title for case, _ in summary.rows), *(arm.title for arm in summary.arms)]
    digest = zlib.crc32("\n".join(shown).encode())
    return store / "networks" / f"{file_name(summary)}-{summary.direction}-{kind}-{digest:08x}.svg"
