"""Writes figures (SVG or PNG) and other files, completely or not at all.

matplotlib's global state (a matplotlibrc, the date, random identifiers) is kept out, so that the same numbers give the
same file on every machine.
"""

from __future__ import annotations

import io
import math
import os
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from levelbench.errors import MissingError, StoreError, UsageError
from levelbench.report.numbers import TIME, Unit, choose_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as PlotAxis
    from matplotlib.figure import Figure as Canvas
    from matplotlib.text import Text as Words
    from matplotlib.transforms import Bbox

    from levelbench.measure.statistics import Interval

__all__ = [
    "ENDINGS",
    "INK",
    "MARKERS",
    "RULE",
    "Spot",
    "bars_said",
    "check_ending",
    "draw",
    "label_ratios",
    "picture",
    "place_label",
    "plain_axes",
    "spots_around",
    "time_unit",
    "wrap_titles",
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
        wrap_titles(figure)
        raw = io.BytesIO()
        if ending == ".svg":
            figure.savefig(raw, format="svg", metadata={"Date": None, "Creator": None})
        else:
            figure.savefig(raw, format="png", dpi=160, metadata={"Software": None})
        return raw.getvalue()


def wrap_titles(figure: Canvas) -> None:
    """Break titles into lines that fit: that of the figure into its width, others into that of their axes."""
    from matplotlib.text import Annotation, Text

    for words in figure.texts:
        if words.get_text() and words.get_text() == figure.get_suptitle():
            _wrap(words, 0.98 * figure.bbox.width)
    titles = [
        (each, axes)
        for axes in figure.axes
        for each in axes.get_children()
        if isinstance(each, Text) and not isinstance(each, Annotation) and each.get_text() in _titles(axes)
    ]
    # Titles that are too wide would leave no width to the axes.
    for title, _ in titles:
        title.set_visible(False)
    figure.draw_without_rendering()
    for title, axes in titles:
        title.set_visible(True)
        _wrap(title, axes.get_window_extent().width)


def _titles(axes: Axes) -> set[str]:
    return {axes.get_title(place) for place in ("left", "center", "right")} - {""}


def _wrap(words: Words, width: float) -> None:
    """Break between words, or after a comma where a word alone is too wide, into lines of about the same length."""

    def fits(line: str, within: float) -> bool:
        words.set_text(line)
        return float(words.get_window_extent().width) <= within

    def filled(pieces: Sequence[str], within: float) -> list[str]:
        lines = [""]
        for piece in pieces:
            if lines[-1] and not fits((lines[-1] + piece).rstrip(), within):
                lines.append("")
            lines[-1] += piece
        return [line.rstrip() for line in lines]

    found = []
    for line in words.get_text().split("\n"):
        pieces: list[str] = []
        # A number stays with its unit and name.
        for word in re.findall(r"(?:\S+ = \S+|\S+ %|\S+)\s*|\s+", line):
            pieces += [word] if fits(word.rstrip(), width) else re.findall("[^,]+,*|,+", word)
        lines = filled(pieces, width)
        for share in range(95, 45, -5):
            narrower = filled(pieces, width * share / 100)
            if len(narrower) > len(lines) or not all(fits(each, width * share / 100) for each in narrower):
                break
            lines = narrower
        found += lines
    words.set_text("\n".join(found))


@dataclass(frozen=True)
class Spot:
    """A place for a label: ``by`` points from ``at`` (data coordinates), on the side to which ``by`` leads."""

    at: tuple[float, float]
    by: tuple[float, float]

    @property
    def sides(self) -> tuple[Literal["left", "center", "right"], Literal["bottom", "center", "top"]]:
        """The alignment: the label begins here and leads away from the point."""
        x, y = self.by
        return (
            "left" if x > 0 else "right" if x < 0 else "center",
            "bottom" if y > 0 else "top" if y < 0 else "center",
        )


def spots_around(at: tuple[float, float]) -> list[Spot]:
    """Places around a point, the nearest first."""
    angles = [0, 180, 90, 270, 45, 135, 315, 225, *(22.5 + 45 * step for step in range(8))]
    ways = [(round(math.cos(math.radians(each)), 1), round(math.sin(math.radians(each)), 1)) for each in angles]
    return [Spot(at, (x * by, y * by)) for by in (5, 12, 22, 34, 50, 70) for x, y in ways]


_FAR = 10
"""Points from which on a line leads from a label to what it names."""


def place_label(axes: Axes, text: str, spots: Sequence[Spot], taken: list[Bbox], **style: Any) -> None:
    """Write ``text`` at the spot that covers least of what is ``taken`` (in pixels), the first of equal ones.

    Its own place is then taken, too. The layout must be final, apart from the axes' content.
    """
    from matplotlib.transforms import Bbox

    pixels = axes.figure.dpi / 72
    # With some room: a label that touches the edge looks cut.
    inside = axes.get_window_extent().padded(-3 * pixels)
    draft = axes.annotate(text, spots[0].at, **style)
    size = draft.get_window_extent()
    draft.remove()

    def box(spot: Spot) -> Bbox:
        x, y = axes.transData.transform(spot.at) + [each * pixels for each in spot.by]
        across, up = spot.sides
        left = x - size.width * {"left": 0.0, "center": 0.5, "right": 1.0}[across]
        low = y - size.height * {"bottom": 0.0, "center": 0.5, "top": 1.0}[up]
        return Bbox.from_bounds(left, low, size.width, size.height)

    def cost(spot: Spot) -> float:
        own = box(spot)
        covered = [area for each in taken if (area := _area(own, each))]
        outside = _area(own, own) - _area(own, inside)
        return 5 * (sum(covered) + outside) + 20 * len(covered) + math.hypot(*spot.by)

    best = min(spots, key=cost)
    across, up = best.sides
    line = {"arrowstyle": "-", "linewidth": 0.5, "color": INK, "alpha": 0.5, "shrinkA": 0, "shrinkB": 3}
    written = axes.annotate(
        text, best.at, best.by, textcoords="offset points", ha=across, va=up,
        arrowprops=line if math.hypot(*best.by) > _FAR else None, **style,
    )  # fmt: skip
    written.set_in_layout(False)
    taken.append(box(best))


def _area(one: Bbox, other: Bbox) -> float:
    """The common area of two boxes."""
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return float(max(width, 0.0) * max(height, 0.0))


def plain_axes(axes: Axes, grid: str = "both") -> None:
    """Axes without a box, with thin lines along ``grid`` (``x``, ``y`` or ``both``)."""
    axes.grid(True, axis=grid, which="major", linewidth=0.5, color=RULE)
    axes.spines[["top", "right"]].set_visible(False)


def bars_said(known: Iterable[Interval | None]) -> str:
    """What the bars of a figure are: of which level, the range of few values, or that there are none."""
    several = list(known)
    levels = sorted({f"{each.level * 100:g} % intervals" for each in several if each and not each.is_range})
    ranges = ["lowest and highest of few runs"] * any(each is not None and each.is_range for each in several)
    if not (levels or ranges):
        return "no intervals"
    return f"bars{', where known' * any(each is None for each in several)}: {', '.join([*levels, *ranges])}"


def time_unit(axis: PlotAxis, seconds: list[float]) -> Unit:
    """The unit for these times; labels the axis with plain numbers."""
    axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axis.set_minor_formatter(lambda value, _: "")
    return choose_unit(seconds, TIME)


def label_ratios(axis: PlotAxis, text: Callable[[float], str]) -> None:
    """Label a logarithmic axis of ratios: between powers of ten as far as there is room."""

    def between(value: float, _: object) -> str:
        left, right = axis.get_view_interval()
        most = ((2.5, "123456789"), (8, "2357"), (100, "25"), (math.inf, ""))
        return text(value) if f"{value:e}"[0] in next(each for width, each in most if right / left < width) else ""

    axis.set_major_formatter(lambda value, _: text(value))
    axis.set_minor_formatter(between)


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
