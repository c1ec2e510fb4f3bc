"""Writes figures (SVG or PNG) and other files, whole or not at all.

matplotlib's global state (a matplotlibrc, the date, random identifiers) stays outside, so that the same numbers make
the same file on every machine.
"""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from levelbench.errors import MissingError, StoreError, UsageError
from levelbench.report.numbers import TIME, Unit, choose_unit

__all__ = ["ENDINGS", "INK", "RULE", "check_ending", "draw", "plain_axes", "time_unit", "write_whole"]

ENDINGS = (".svg", ".png")
INK = "#1b1f24"
RULE = "#c9ced6"


def check_ending(path: Path) -> Path:
    """``path``, if its ending is one of ``ENDINGS``; ``UsageError`` otherwise."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"a figure {path}", f"the ending {path.suffix!r} is none of a figure", "write .svg or .png")
    return path


def draw(path: Path, salt: str, size_in: tuple[float, float], onto: Callable[[Any], None]) -> Path:
    """Draw with ``onto``, which gets an empty matplotlib figure of ``size_in`` (width, height), to ``path``.

    ``salt`` makes the identifiers in an SVG. Raises ``UsageError`` for another ending than ``.svg`` and ``.png``,
    ``MissingError`` without matplotlib and ``StoreError`` where the file cannot be written.
    """
    check_ending(path)
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingError("a figure", "matplotlib is not installed", 'pip install "levelbench[plot]"') from None
    settings = {"svg.hashsalt": salt, "text.parse_math": False, "font.size": 9.5, "axes.axisbelow": True}
    # Settings that someone's matplotlibrc makes would change the drawing: start from the defaults.
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(settings)
        figure = Figure(figsize=size_in, layout="constrained")
        onto(figure)
        return _save(figure, path)


def plain_axes(axes: Any, grid: str = "both") -> None:
    """Axes without a box, with thin lines along ``grid`` (``x``, ``y`` or ``both``)."""
    axes.grid(True, axis=grid, which="major", linewidth=0.5, color=RULE)
    axes.spines[["top", "right"]].set_visible(False)


def time_unit(axis: Any, seconds: list[float]) -> Unit:
    """The unit for these times, with the axis labelled in plain numbers."""
    axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axis.set_minor_formatter(lambda value, _: "")
    return choose_unit(seconds, TIME)


def _save(figure: Any, path: Path) -> Path:
    if path.suffix.lower() == ".svg":
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
        return write_whole(path, text.getvalue())
    raw = io.BytesIO()
    figure.savefig(raw, format="png", dpi=160, metadata={"Software": None})
    beside = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(raw.getvalue())
        beside.replace(path)
    except OSError as error:
        raise StoreError(f"write {path}", error.strerror or str(error), "choose a folder that is writable") from error
    finally:
        beside.unlink(missing_ok=True)
    return path


def write_whole(path: Path, text: str) -> Path:
    """Write ``text`` (UTF-8) to ``path`` in one step, making its folder; ``StoreError`` where that fails."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        found = error.strerror or str(error)
        raise StoreError(f"write {path}", found, "Choose a folder that is writable and has room") from error
    finally:
        # Renamed if all went well; whatever went wrong, an interrupt among it, leaves nothing behind.
        _remove(beside)
    return path


def _remove(path: Path) -> None:
    """Remove what was begun; it may never have been made, or lie on a file system that has become read-only."""
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return
