"""Where two arrays differ, as an image: a difference of any rank folded to two dimensions, drawn or in characters.

The one idea: the last two axes are the image; axes before them are laid out as a grid of such images, so that an error
at a border, in a channel or in one sample of a batch is seen as what it is. Large ones are shown by their worst blocks.
"""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from levelbench.errors import MissingError, StoreError, UsageError
from levelbench.report.figures.figure import can_draw

__all__ = ["Folded", "draw_heatmap", "fold", "heatmap_text", "write_heatmap"]

_SHADES = " .:-=+*#%@"
_MOST_ROWS, _MOST_COLUMNS = 24, 72
_MOST_PIXELS = 1024


@dataclass(frozen=True)
class Folded:
    """|difference| as an image: ``rows`` and ``columns`` say which axes they are; NaN lies between images of a grid."""

    image: NDArray[np.float64]
    rows: str
    columns: str
    shape: tuple[int, ...]


def fold(difference: ArrayLike) -> Folded:
    """A difference of any rank as an image; what is not finite stays so."""
    given = np.asarray(difference)
    apart = np.abs(given.astype(np.complex128 if given.dtype.kind == "c" else np.float64)).astype(np.float64)
    shape = apart.shape
    if apart.ndim == 0:
        return Folded(apart.reshape(1, 1), "", "", shape)
    if apart.ndim == 1:
        return Folded(apart.reshape(1, -1), "", "axis 0", shape)
    if apart.ndim == 2:
        return Folded(apart, "axis 0", "axis 1", shape)
    first = apart.reshape(-1, *shape[-2:])
    # Of more than three axes, the one before the image runs across; of three, a grid as square as can be.
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
    return Folded(image[:-1, :-1] if image.size else image, rows, columns, shape)


def _worst_blocks(image: NDArray[np.float64], most_rows: int, most_columns: int) -> NDArray[np.float64]:
    """The image with blocks replaced by their largest value, so that no error is lost to a small picture."""
    for axis, most in ((0, most_rows), (1, most_columns)):
        length = image.shape[axis]
        if length <= most:
            continue
        starts = np.arange(0, length, -(-length // most))
        image = np.fmax.reduceat(image, starts, axis=axis)
    return image


def _level(image: NDArray[np.float64]) -> tuple[NDArray[np.float64], float, float]:
    """The image with zeros as NaN, and the range of what is positive and finite."""
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


def draw_heatmap(difference: ArrayLike, title: str = "", form: Literal["png", "svg"] = "png") -> bytes:
    """The difference as a PNG or SVG file; ``MissingError`` without matplotlib, ``UsageError`` for an empty one."""
    if not can_draw():
        raise MissingError("a heat map as a picture", "matplotlib is not here", "pip install levelbench[plot]")
    folded = fold(difference)
    if not folded.image.size:
        raise UsageError("a heat map", f"the difference is empty, of shape {folded.shape}", "compare arrays of values")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    image, low, high = _level(_worst_blocks(folded.image, _MOST_PIXELS, _MOST_PIXELS))
    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    shown = axes.imshow(np.where(image > 0, image, np.nan), aspect="auto", interpolation="nearest", **_scale(low, high))
    axes.set_title(title)
    axes.set_xlabel(folded.columns)
    axes.set_ylabel(folded.rows)
    axes.set_facecolor("white")
    if high > 0:
        figure.colorbar(shown, label="|difference|")
    buffer = io.BytesIO()
    metadata = {"Date": None} if form == "svg" else {"Software": None}
    figure.savefig(buffer, format=form, metadata=metadata)
    return buffer.getvalue()


def _scale(low: float, high: float) -> dict[str, Any]:
    from matplotlib.colors import LogNorm, Normalize

    return {"norm": LogNorm(low, high) if 0 < low < high else Normalize(0, high or 1.0), "cmap": "viridis"}


def write_heatmap(difference: ArrayLike, path: Path, title: str = "") -> Path:
    """Write the picture to ``path``, whose name ends in .png or .svg; ``StoreError`` where that fails."""
    if path.suffix not in (".png", ".svg"):
        raise UsageError(f"the heat map {path}", f"its name ends in {path.suffix!r}", "end it in .png or .svg")
    drawn = draw_heatmap(difference, title, "png" if path.suffix == ".png" else "svg")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(drawn)
    except OSError as error:
        raise StoreError(f"write {path}", error.strerror or str(error), "choose a folder that is writable") from error
    return path
