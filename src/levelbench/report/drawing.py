"""Writes figures (SVG or PNG) and other files, completely or not at all.

matplotlib's global state (a matplotlibrc, the date, random identifiers) is kept out, so that the same numbers give the
same file on every machine.
"""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from levelbench.errors import MissingError, StoreError, UsageError
from levelbench.report.numbers import TIME, Unit, choose_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as PlotAxis
    from matplotlib.figure import Figure as Canvas

__all__ = [
    "ENDINGS",
    "INK",
    "MARKERS",
    "RULE",
    "check_ending",
    "draw",
    "picture",
    "plain_axes",
    "time_unit",
    "write_whole",
]

ENDINGS = (".svg", ".png")
INK = "#1b1f24"
RULE = "#c9ced6"
MARKERS = "osD^vPX*"


def check_ending(path: Path) -> Path:
    """``path``, if its ending is one of ``ENDINGS``; ``UsageError`` otherwise."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"a figure {path}", f"its name ends in {path.suffix!r}", "end it in .svg or .png")
    return path


def draw(path: Path, salt: str, size_in: tuple[float, float], onto: Callable[[Canvas], None]) -> Path:
    """Draw to ``path`` with ``onto``, which gets an empty matplotlib figure of ``size_in`` (width, height).

    ``salt`` determines the identifiers in an SVG. Raises ``UsageError`` for an ending other than ``.svg`` and ``.png``,
    ``MissingError`` without matplotlib, and ``StoreError`` if the file cannot be written.
    """
    check_ending(path)
    return write_whole(path, picture(path.suffix.lower(), salt, size_in, onto))


def picture(ending: str, salt: str, size_in: tuple[float, float], onto: Callable[[Canvas], None]) -> bytes:
    """The same as the content of a file with this ending, one of ``ENDINGS``; ``MissingError`` without matplotlib."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingError("a figure", "matplotlib is not installed", 'pip install "levelbench[plot]"') from None
    settings = {"svg.hashsalt": salt, "text.parse_math": False, "font.size": 9.5, "axes.axisbelow": True}
    # A user's matplotlibrc would change the drawing: start from the defaults.
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(settings)
        figure = Figure(figsize=size_in, layout="constrained")
        onto(figure)
        raw = io.BytesIO()
        if ending == ".svg":
            figure.savefig(raw, format="svg", metadata={"Date": None, "Creator": None})
        else:
            figure.savefig(raw, format="png", dpi=160, metadata={"Software": None})
        return raw.getvalue()


def plain_axes(axes: Axes, grid: str = "both") -> None:
    """Axes without a box, with thin lines along ``grid`` (``x``, ``y`` or ``both``)."""
    axes.grid(True, axis=grid, which="major", linewidth=0.5, color=RULE)
    axes.spines[["top", "right"]].set_visible(False)


def time_unit(axis: PlotAxis, seconds: list[float]) -> Unit:
    """The unit for these times; labels the axis with plain numbers."""
    axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axis.set_minor_formatter(lambda value, _: "")
    return choose_unit(seconds, TIME)


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write ``content`` (text as UTF-8) to ``path`` atomically, creating its folder; ``StoreError`` if that fails."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        found = error.strerror or str(error)
        raise StoreError(f"write {path}", found, "Choose a folder that is writable and has room") from error
    finally:
        # It is renamed on success; any failure, an interrupt included, leaves nothing behind. It may never have been
        # created, or be on a file system that has become read-only.
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    return path
