"""Keeps the examples that a classifier gets wrong at the end of a run, the surest mistakes first, to be looked at."""

from __future__ import annotations

import base64
import html
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UnsupportedError, UsageError
from levelbench.networks.executor import Backend, Executor
from levelbench.training.observers.base import Observer, Progress
from levelbench.training.observers.files import ready, write_whole
from levelbench.training.observers.pictures import as_pictures, png, sheet

if TYPE_CHECKING:
    from levelbench.training.input.held import Held
    from levelbench.training.observers.base import Context

__all__ = ["Mistakes", "Wrong", "wrong_examples"]

_ACROSS = 10
_LONGEST = 500


@dataclass(frozen=True, eq=False)
class Wrong:
    """Examples whose highest output is not that of their label, the surest first, one row each.

    ``index`` is the row in the split; ``confidence`` the softmax of the predicted class, ``of_label`` that of the
    label's. Both are NaN where an output is not finite, and ``of_label`` where the label is none of the classes.
    """

    index: NDArray[np.int64]
    label: NDArray[np.int64]
    predicted: NDArray[np.int64]
    confidence: NDArray[np.float64]
    of_label: NDArray[np.float64]
    examples: int

    def __len__(self) -> int:
        return len(self.index)


def wrong_examples(executor: Executor, held: Held) -> Wrong:
    """All mistakes on a split.

    :raises UnsupportedError: where the network's outputs are no logits (n, classes) or the labels no classes (n,).
    """
    backend: Backend = held.backend
    logits, labels = [], []
    for *inputs, given in held.batches():
        outputs = executor.infer(*inputs)
        scores, truth = np.asarray(backend.host(outputs[0])), np.asarray(backend.host(given))
        if scores.ndim != 2 or truth.ndim != 1 or truth.dtype.kind not in "iu":
            raise _no_classes(f"outputs of shape {scores.shape} and labels of shape {truth.shape} ({truth.dtype})")
        logits.append(scores.astype(np.float64))
        labels.append(truth.astype(np.int64))
    return _ranked(np.concatenate(logits), np.concatenate(labels))


def _ranked(scores: NDArray[np.float64], truth: NDArray[np.int64]) -> Wrong:
    """What is wrong of logits (n, classes) and labels (n,); rows that are not finite come last."""
    rows, finite = np.arange(len(truth)), np.asarray(np.isfinite(scores).all(axis=1))
    safe = np.where(finite[:, None], scores, 0.0)
    exponentials = np.exp(safe - safe.max(axis=1, keepdims=True))
    shares = exponentials / exponentials.sum(axis=1, keepdims=True)
    shares[~finite] = np.nan
    predicted = scores.argmax(axis=1)
    confidence = shares[rows, predicted]
    of_label = np.full(len(truth), np.nan)
    known = (truth >= 0) & (truth < scores.shape[1])
    of_label[known] = shares[rows[known], truth[known]]
    # As in the accuracy, a row with a NaN is never right.
    (wrong,) = np.nonzero((predicted != truth) | np.isnan(scores).any(axis=1))
    order = wrong[np.argsort(-confidence[wrong], kind="stable")]
    return Wrong(
        order.astype(np.int64),
        truth[order],
        predicted[order].astype(np.int64),
        confidence[order],
        of_label[order],
        len(truth),
    )


def _no_classes(found: str) -> UnsupportedError:
    return UnsupportedError("the wrong examples of a classifier", found, "use it where labels are classes")


@final
class Mistakes(Observer):
    """``NAME-mistakes.npz`` with all mistakes on the validation split, and a page and a picture of the surest ones.

    The test split is not looked at: whoever looks at mistakes changes recipes by them. They are those of the weights
    that are evaluated: averaged ones where the optimizer has them (a moving average, schedule-free).
    """

    def __init__(self, folder: Path, name: str, most: int = 100) -> None:
        if most < 1:
            raise UsageError(f"a sheet of {most} examples", "that is none", "give 1 or more")
        self._folder, self._name, self._most = folder, name, most
        self._context: Context | None = None

    def on_prepared(self, context: Context) -> None:
        """Remember where to look; refuse what has no classes, and a folder that cannot be made, before the run.

        :raises UnsupportedError: where the loss reads more than one column of labels, or labels that are no classes.
        """
        split = context.validation.split
        if split.targets != 1:
            raise _no_classes(f"{split.targets} columns of labels")
        labels = split.columns[-1]
        if len(labels.shape) != 1 or labels.dtype.kind not in "iu":
            raise _no_classes(f"labels of shape {labels.shape} ({labels.dtype})")
        ready(self._folder)
        self._context = context

    def on_end(self, progress: Progress) -> None:
        """Look, and write."""
        assert self._context is not None
        executor, held, name = self._context.executor, self._context.validation, self._name
        wrong = wrong_examples(executor, held)
        arrays = io.BytesIO()
        np.savez_compressed(
            arrays,
            allow_pickle=False,
            index=wrong.index,
            label=wrong.label,
            predicted=wrong.predicted,
            confidence=wrong.confidence,
            of_label=wrong.of_label,
        )
        write_whole(self._folder / f"{name}-mistakes.npz", arrays.getvalue())
        shown = wrong.index[: self._most]
        pictures = as_pictures(_rows(held.split.columns[0], shown)) if len(shown) else None
        if pictures is not None:
            write_whole(self._folder / f"{name}-mistakes.png", png(sheet(pictures, _ACROSS)))
        page = _page(name, wrong, self._most, pictures, held.split.reference)
        write_whole(self._folder / f"{name}-mistakes.html", page.encode("utf-8", "backslashreplace"))


def _rows(column: Any, indices: NDArray[np.int64]) -> NDArray[Any]:
    rows = column[indices] if isinstance(column, np.ndarray) else column.take(indices, None)
    return np.asarray(rows)


def _page(name: str, wrong: Wrong, most: int, pictures: NDArray[np.uint8] | None, reference: Any) -> str:
    """One HTML file that needs nothing beside it; every word in it is escaped."""
    title = html.escape(name)
    shown = min(most, len(wrong))
    rows = []
    for at in range(shown):
        index = int(wrong.index[at])
        picture = "" if pictures is None else f'<img alt="example {index}" src="{_address(pictures[at : at + 1])}">'
        text = "" if reference is None else html.escape(str(reference[index])[:_LONGEST])
        cells = (
            picture,
            str(index),
            str(int(wrong.label[at])),
            str(int(wrong.predicted[at])),
            _share(wrong.confidence[at], "not finite"),
            _share(wrong.of_label[at], "no such class" if np.isfinite(wrong.confidence[at]) else "not finite"),
            text,
        )
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "".join(
        f'<th scope="col">{each}</th>'
        for each in ("Example", "Row", "Label", "Predicted", "Confidence", "Of the label", "Text")
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{title}: mistakes</title>"
        "<style>body{font:15px sans-serif;margin:2em}td,th{padding:.3em .8em;text-align:left}"
        "img{image-rendering:pixelated;min-width:48px}</style></head><body>"
        f"<h1>{title}</h1><p>{len(wrong)} of {wrong.examples} validation examples are wrong; "
        f"the {shown} surest mistakes are shown.</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></body></html>\n"
    )


def _share(value: float, otherwise: str) -> str:
    return f"{value:.3f}" if np.isfinite(value) else otherwise


def _address(pictures: NDArray[np.uint8]) -> str:
    return "data:image/png;base64," + base64.b64encode(png(sheet(pictures, 1))).decode("ascii")
