"""The canvas of a page's drawings: matplotlib's SVG in the page's colours and font, with marks that can be pointed at.

matplotlib draws in placeholder colours that become the page's CSS variables, so one drawing is readable on light and on
dark. Identifiers are salted with the figure's name, and there is no date. What a mark says travels through matplotlib
as its identifier and becomes a ``<title>``, which a browser shows at the pointer without any script.
"""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING

from levelbench.report.markup import PHASES, SERIES
from levelbench.report.tables import clean

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

__all__ = ["INK_PLACEHOLDER", "mark", "page_canvas", "page_svg", "phase_colour", "series_colour", "time_scale"]

INK_PLACEHOLDER = "#010203"
_FAINT = "#010204"
_WIDTH_IN = 5.4


def series_colour(at: int) -> str:
    """The placeholder of series ``at``."""
    return f"#0101{16 + at % len(SERIES):02x}"


def phase_colour(name: str) -> str:
    """The placeholder of a phase."""
    names = list(PHASES)
    return f"#0102{16 + (names.index(name) if name in PHASES else len(names) - 1):02x}"


def _variables() -> dict[str, str]:
    """The CSS value of each placeholder."""
    found = {INK_PLACEHOLDER: "currentColor", _FAINT: "var(--faint)"}
    found |= {series_colour(at): f"var(--series-{at})" for at in range(len(SERIES))}
    return found | {phase_colour(name): f"var(--phase-{name})" for name in PHASES}


def time_scale(seconds: Sequence[float]) -> tuple[float, str]:
    """The unit of a time axis: its size in seconds and its symbol."""
    from levelbench.report.numbers import TIME, choose_unit

    unit = choose_unit(seconds, TIME)
    return unit.size, unit.symbol


@contextmanager
def page_canvas(name: str, height_in: float) -> Iterator[tuple[Canvas, Axes]]:
    """A figure with one pair of axes in the page's style; global settings are restored afterwards."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as Canvas

    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "text.parse_math": False,
        "font.family": ["sans-serif"],
        "font.size": 9.5,
        "axes.unicode_minus": True,
        **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), INK_PLACEHOLDER),
        **dict.fromkeys(("axes.edgecolor", "grid.color", "xtick.color", "ytick.color"), _FAINT),
        **dict.fromkeys(("axes.spines.top", "axes.spines.right", "axes.spines.left"), False),
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.linewidth": 0.6,
        "ytick.major.size": 0,
    }
    # A user's matplotlibrc would change the drawing: start from the defaults.
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams.update(settings)
        # A missing glyph or a tight layout makes a drawing less pretty, but must not prevent the report.
        warnings.simplefilter("ignore")
        canvas = Canvas(figsize=(_WIDTH_IN, height_in), layout="constrained")
        FigureCanvasSVG(canvas)
        canvas.patch.set_visible(False)
        axes = canvas.add_subplot()
        axes.patch.set_visible(False)
        yield canvas, axes


def mark(artist: Artist, *told: tuple[str, str, str]) -> None:
    """Let the pointer read ``artist``: ``told`` has its group, its run and a sentence, or one such for each point."""
    # In digits, so that it needs no quotes.
    artist.set_gid(f"marks:{json.dumps(told).encode().hex()}" if told else None)


def _marked(text: str) -> str:
    """The drawing with what :func:`mark` said as titles: of each point if there are several, else of the whole mark."""
    before, *rest = re.split(r'<g id="marks:([0-9a-f]+)">', text)
    parts = [before]
    for told, after in zip(rest[::2], rest[1::2], strict=True):
        marks = json.loads(bytes.fromhex(told))
        named = [
            (
                f'data-group="{escape(clean(group))}" data-run="{escape(clean(run))}"',
                f"<title>{escape(clean(said), quote=False)}</title>",
            )
            for group, run, said in marks
        ]
        if len(named) == 1:
            ((attributes, title),) = named
            parts.append(f"<g {attributes}>{title}{after}")
            continue
        points = iter(named)

        def point(found: re.Match[str], points: Iterator[tuple[str, str]] = points) -> str:
            attributes, title = next(points)
            return f"<use {attributes} {found[1]}>{title}</use>"

        parts.append("<g>" + re.sub(r"<use ([^>]*)/>", point, after, count=len(named)))
    return "".join(parts)


def page_svg(canvas: Canvas, name: str) -> str:
    """The drawing as an ``<svg>`` element that scales to its box, with CSS variables for colours."""
    out = io.StringIO()
    canvas.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    variables = _variables()
    text = re.sub(
        r"((?:fill|stroke): )(#[0-9a-f]{6})", lambda found: found[1] + variables.get(found[2], found[2]), text
    )
    text = _marked(text)
    # Identifiers such as figure_1 would be the same in every drawing of one page.
    text = re.sub(r'(<g) id="[a-z_0-9A-Z.]+"', r"\1", text)
    # Use the page's font; "<" in a label is escaped, so only elements match.
    text = re.sub(r'(<text style="font-size: [\d.]+px;) font-family: [^;"]*;', r"\1", text)
    head = re.sub(r' (width|height)="[\d.]+pt"', "", text[: text.index(">")])
    return head + ' aria-hidden="true" focusable="false"' + text[text.index(">") :].rstrip() + "\n"
