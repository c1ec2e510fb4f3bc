"""Observers that write files: evaluations and steps as CSV, statistics of weights and gradients, a sheet of mistakes.

A file under its final name is complete. Sums of squares are computed where the arrays are and read only at evaluations,
so nothing waits for a device in between.
"""

from __future__ import annotations

import base64
import csv
import html
import io
import math
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UnsupportedError, UsageError
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Array, Backend, Executor
from levelbench.records.schema import Evaluation
from levelbench.training.datasets.base import rows_of
from levelbench.training.observers import Context, Observer, Progress, ready, stored, write_whole

if TYPE_CHECKING:
    from levelbench.training.input import Held

_STEPS = ("step", "epoch", "samples", "time_s")
_FIRST = ("step", "epoch", "samples", "time_s", "loss")
_PHASES = tuple(phase.label for phase in Phase)
_NOISE_SEED = 0x5CA1E
"""Of the batches that are drawn to measure noise: another order than that of any run."""


class Tables(Observer):
    """``NAME-evaluations.csv`` and ``NAME-steps.csv`` in ``folder``.

    Times are in seconds: of an evaluation since the run's start, of a step its own. For steps between two evaluations,
    ``epoch`` and ``samples`` are those of the second. A run resumed from a checkpoint has all evaluations, and the
    steps since the last evaluation before the checkpoint.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._rows: list[Sequence[object]] = []
        self._metrics: tuple[str, ...] = ()

    def on_prepared(self, context: Context) -> None:
        """Start the draft of the steps; earlier evaluations are already included."""
        self._rows = []
        for evaluation in context.earlier:
            self._add(evaluation)
        ready(self._folder)
        with stored(self._draft):
            self._draft.write_text(_lines([_STEPS]), encoding="utf-8")

    def on_evaluation(self, progress: Progress, evaluation: Evaluation, step_times_ns: list[int]) -> None:
        """One row of evaluations, and the steps since the previous one."""
        first = evaluation.step - len(step_times_ns) + 1
        steps = [(first + at, evaluation.epoch, evaluation.samples, ns * 1e-9) for at, ns in enumerate(step_times_ns)]
        with stored(self._draft), self._draft.open("a", encoding="utf-8", newline="") as file:
            file.write(_lines(steps))
        self._add(evaluation)
        write_whole(self._folder / f"{self._name}-evaluations.csv", _lines(self._rows).encode())

    def _add(self, evaluation: Evaluation) -> None:
        if not self._rows:
            self._metrics = tuple(evaluation.quality)
            self._rows.append((*_FIRST, *self._metrics, *(f"{phase}_s" for phase in _PHASES)))
        self._rows.append(
            (
                evaluation.step,
                evaluation.epoch,
                evaluation.samples,
                evaluation.t_ns * 1e-9,
                evaluation.loss,
                *(evaluation.quality.get(each) for each in self._metrics),
                *(evaluation.phases_ns.get(phase, 0) * 1e-9 for phase in _PHASES),
            )
        )

    def on_end(self, progress: Progress) -> None:
        with stored(self._draft):
            self._draft.replace(self._folder / f"{self._name}-steps.csv")

    @property
    def _draft(self) -> Path:
        return self._folder / f".{self._name}-steps.csv.part"


def _lines(rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


_COLUMNS = ("step", "parameter", "weight_norm", "weight_mean", "weight_std", "weight_max", "update_ratio")


@final
class Statistics(Observer):
    """``NAME-statistics.csv`` in ``folder``: a row for each parameter at each evaluation.

    ``update_ratio`` is the norm of the change since the previous evaluation divided by the norm of the weights;
    ``gradient_norm`` the root mean square of the gradient's norm over every ``every``-th step since then. The row ``*``
    covers all parameters together.
    """

    def __init__(self, folder: Path, name: str, every: int = 10) -> None:
        if every < 1:
            raise UsageError(f"gradient statistics every {every} steps", "this is not an interval", "give 1 or more")
        self._folder, self._name, self._every = folder, name, every
        self._executor: Executor | None = None
        self._backend: Backend | None = None
        self._before: dict[str, NDArray[np.float64]] = {}
        self._squares: list[dict[str, Array]] = []
        self._calls = 0
        self._rows: list[tuple[object, ...]] = []

    def on_prepared(self, context: Context) -> None:
        self._executor, self._backend = context.executor, context.backend
        self._rows = [(*_COLUMNS, "gradient_norm")]
        self._squares, self._calls = [], 0
        ready(self._folder)
        self._before = self._weights()
        backward = context.executor.backward

        def watched() -> Mapping[str, Array]:
            gradients = backward()
            if self._calls % self._every == 0:
                # Done before the optimizer, which may overwrite them.
                self._squares.append({name: (each * each).sum() for name, each in gradients.items()})
            self._calls += 1
            return gradients

        # The trainer looks up this method again before each stretch of steps.
        setattr(context.executor, "backward", watched)  # noqa: B010

    def on_evaluation(self, progress: Progress, evaluation: Evaluation, step_times_ns: list[int]) -> None:
        """A row per parameter, and one for all."""
        weights, gradients = self._weights(), self._gradients()
        for name, value in weights.items():
            self._row(evaluation.step, name, value, value - self._before[name], gradients.get(name))
        flat = np.concatenate([each.ravel() for each in weights.values()])
        moved = np.concatenate([(each - self._before[name]).ravel() for name, each in weights.items()])
        squares = [each**2 for each in gradients.values()]
        self._row(evaluation.step, "*", flat, moved, math.sqrt(sum(squares)) if squares else None)
        self._before = weights
        write_whole(self._folder / f"{self._name}-statistics.csv", _lines(self._rows).encode())

    def on_end(self, progress: Progress) -> None:
        if self._executor is not None:
            delattr(self._executor, "backward")

    def _row(
        self, step: int, name: str, value: NDArray[np.float64], moved: NDArray[np.float64], gradient: float | None
    ) -> None:
        norm = float(np.linalg.norm(value))
        ratio = float(np.linalg.norm(moved)) / norm if norm else None
        largest = float(np.abs(value).max(initial=0.0))
        self._rows.append((step, name, norm, float(value.mean()), float(value.std()), largest, ratio, gradient))

    def _weights(self) -> dict[str, NDArray[np.float64]]:
        assert self._executor is not None
        return {name: self._host(each).astype(np.float64) for name, each in self._executor.parameters.items()}

    def _gradients(self) -> dict[str, float]:
        """The root mean square of the norms since the previous evaluation, by parameter."""
        kept, self._squares = self._squares, []
        names = kept[0] if kept else {}
        return {name: math.sqrt(float(np.mean([float(self._host(each[name])) for each in kept]))) for name in names}

    def _host(self, array: Array) -> NDArray[Any]:
        assert self._backend is not None
        return np.asarray(self._backend.host(array))


_NOISE = ("step", "samples", "covariance_trace", "gradient_square")


@final
class GradientNoise(Observer):
    """``NAME-noise.csv`` in ``folder``: trace of the gradient's covariance and its squared norm at each evaluation.

    Their ratio is the simple noise scale B_simple of McCandlish et al. (2018, arXiv:1812.06162, appendix A.1), in
    examples. Both come from gradients of up to ``most`` batches of ``examples`` each (B_small) and of their mean
    (B_big), at the weights of the evaluation: tr = examples x the variance between the small ones, |G|^2 = |mean|^2
    less the noise that is left in it, tr / B_big, in proportion to the share of the split that was not drawn. Either
    estimate is unbiased, so that a small |G|^2 may come out below zero.

    The forward passes draw random numbers (dropout) and update running averages (batch normalisation): the run is
    another one than without the observer, and takes longer.
    """

    def __init__(self, folder: Path, name: str, examples: int = 16, most: int = 32) -> None:
        self._folder, self._name, self._examples, self._most = folder, name, examples, most
        self._context: Context | None = None
        self._rows: list[Sequence[object]] = []

    def on_prepared(self, context: Context) -> None:
        self._context, self._rows = context, [_NOISE]
        if context.recipe.experience is not None:
            found = "its examples are made by the network, and no others are like them"
            raise UnsupportedError("the gradient noise scale", found, "leave out this observer")
        if len(context.dataset.train) < 2 * self._examples:
            found = f"the training split has {len(context.dataset.train)} examples"
            raise UnsupportedError("the gradient noise scale", found, f"it needs {2 * self._examples} or more")
        if context.executor.collective:
            found = "this scheme's passes wait for all ranks, and only the first one observes"
            raise UnsupportedError("the gradient noise scale", found, "use --scheme all-reduce, or one rank")
        ready(self._folder)

    def on_evaluation(self, progress: Progress, evaluation: Evaluation, step_times_ns: list[int]) -> None:
        """A row, from batches that no other evaluation draws."""
        from levelbench.training.input import make_loader
        from levelbench.training.samplers import Shuffled

        assert self._context is not None
        context, recipe = self._context, self._context.recipe
        sampler = Shuffled(self._examples, drop_last=True)
        split = context.dataset.train
        loader = make_loader(
            context.backend, context.dataset, split, sampler, seed=_NOISE_SEED, augment=recipe.augment, mix=recipe.mix
        )
        count = min(self._most, loader.steps)
        total: dict[str, NDArray[np.float64]] = {}
        squares = 0.0
        try:
            for batch in loader.batches(len(self._rows), 0, count):
                context.executor.forward(*batch)
                for name, gradient in context.executor.backward().items():
                    own = np.asarray(context.backend.host(gradient)).astype(np.float64)
                    squares += float((own**2).sum())
                    total[name] = total[name] + own if name in total else own
        finally:
            loader.close()
        mean_square = sum(float((each**2).sum()) for each in total.values()) / count**2
        variance = max(0.0, squares / count - mean_square) * count / (count - 1)
        left = 1.0 - count * self._examples / len(split)
        row = (evaluation.step, evaluation.samples, variance * self._examples, mean_square - left * variance / count)
        self._rows.append(row)
        write_whole(self._folder / f"{self._name}-noise.csv", _lines(self._rows).encode())


Pictures = NDArray[np.uint8]
_GAP = 2
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def as_pictures(rows: NDArray[Any]) -> Pictures | None:
    """Images (n, c, h, w) or flat squares (n, side * side) as (n, h, w, 1 or 3) uint8; ``None`` for other data.

    Other dtypes are stretched so that each image's smallest value is black and its largest white.
    """
    if rows.dtype.kind not in "uif" or rows.size == 0:
        return None
    if rows.ndim == 2:
        side = math.isqrt(rows.shape[1])
        if side < 4 or side * side != rows.shape[1]:
            return None
        rows = rows.reshape(len(rows), 1, side, side)
    if rows.ndim == 3:
        rows = rows[:, None]
    if rows.ndim != 4 or rows.shape[1] not in (1, 3) or rows.dtype.kind == "i":
        return None
    if rows.dtype != np.uint8:
        values = np.nan_to_num(rows.astype(np.float64))
        low = values.min(axis=(1, 2, 3), keepdims=True)
        span = values.max(axis=(1, 2, 3), keepdims=True) - low
        rows = np.round((values - low) / np.where(span > 0, span, 1) * 255).astype(np.uint8)
    return np.ascontiguousarray(rows.transpose(0, 2, 3, 1))


def sheet(pictures: Pictures, across: int) -> Pictures:
    """(h, w, 1 or 3): the pictures (n, h, w, c) row by row with grey gaps; small ones are enlarged by whole pixels."""
    scale = max(1, -(-48 // max(pictures.shape[1:3])))
    large = pictures.repeat(scale, axis=1).repeat(scale, axis=2)
    count, height, width, channels = large.shape
    down = -(-count // across)
    image = np.full((down * (height + _GAP) + _GAP, across * (width + _GAP) + _GAP, channels), 128, np.uint8)
    for at, each in enumerate(large):
        row, column = divmod(at, across)
        top, left = _GAP + row * (height + _GAP), _GAP + column * (width + _GAP)
        image[top : top + height, left : left + width] = each
    return image


def png(image: Pictures) -> bytes:
    """A PNG file of an image (h, w, 1 or 3) uint8 (W3C Portable Network Graphics, second edition)."""
    height, width, channels = image.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    # Each line begins with its filter type: none.
    lines = np.concatenate([np.zeros((height, 1), np.uint8), image.reshape(height, -1)], axis=1)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 6)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


_ACROSS = 10
_LONGEST = 500


@dataclass(frozen=True, eq=False)
class WrongExamples:
    """Examples whose highest output is not that of their label, the most confident first, one row each.

    ``index`` is the row in the split; ``confidence`` the softmax of the predicted class, ``of_label`` that of the
    label. Both are NaN if an output is not finite, and ``of_label`` also if the label is not a class.
    """

    index: NDArray[np.int64]
    label: NDArray[np.int64]
    predicted: NDArray[np.int64]
    confidence: NDArray[np.float64]
    of_label: NDArray[np.float64]
    examples: int

    def __len__(self) -> int:
        return len(self.index)


def wrong_examples(executor: Executor, held: Held) -> WrongExamples:
    """All mistakes on a split.

    :raises UnsupportedError: when the network's outputs are not logits (n, classes) or the labels not classes (n,).
    """
    backend: Backend = held.backend
    logits, labels = [], []
    for *inputs, given in held.batches():
        outputs = executor.infer(*inputs)
        scores, truth = np.asarray(backend.host(outputs[0])), np.asarray(backend.host(given))
        if scores.ndim != 2 or truth.ndim != 1 or truth.dtype.kind not in "iu":
            raise _not_classification(
                f"outputs of shape {scores.shape} and labels of shape {truth.shape} ({truth.dtype})"
            )
        logits.append(scores.astype(np.float64))
        labels.append(truth.astype(np.int64))
    return _rank_mistakes(np.concatenate(logits), np.concatenate(labels))


def _rank_mistakes(scores: NDArray[np.float64], truth: NDArray[np.int64]) -> WrongExamples:
    """The mistakes of logits (n, classes) with labels (n,); rows that are not finite come last."""
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
    return WrongExamples(
        order.astype(np.int64),
        truth[order],
        predicted[order].astype(np.int64),
        confidence[order],
        of_label[order],
        len(truth),
    )


def _not_classification(found: str) -> UnsupportedError:
    return UnsupportedError("the wrong examples of a classifier", found, "use it where labels are classes")


@final
class Mistakes(Observer):
    """``NAME-mistakes.npz`` with all mistakes on the validation split, and a page and a picture of the most confident.

    The test split is not used, because people change recipes after looking at mistakes. The mistakes are those of the
    evaluated weights: averaged ones if the optimizer has them (a moving average, schedule-free).
    """

    def __init__(self, folder: Path, name: str, most: int = 100) -> None:
        if most < 1:
            raise UsageError(f"a sheet of {most} examples", "it would be empty", "give 1 or more")
        self._folder, self._name, self._most = folder, name, most
        self._context: Context | None = None

    def on_prepared(self, context: Context) -> None:
        """Remember the context; refuse data without classes, and a folder that cannot be created, before the run.

        :raises UnsupportedError: when the loss reads several columns of labels, or labels that are not classes.
        """
        split = context.validation.split
        if split.targets != 1:
            raise _not_classification(f"{split.targets} columns of labels")
        labels = split.columns[-1]
        if len(labels.shape) != 1 or labels.dtype.kind not in "iu":
            raise _not_classification(f"labels of shape {labels.shape} ({labels.dtype})")
        ready(self._folder)
        self._context = context

    def on_end(self, progress: Progress) -> None:
        assert self._context is not None
        executor, held, name = self._context.executor, self._context.validation, self._name
        wrong = wrong_examples(executor, held)
        arrays = io.BytesIO()
        names = ("index", "label", "predicted", "confidence", "of_label")
        np.savez_compressed(arrays, allow_pickle=False, **{each: getattr(wrong, each) for each in names})
        write_whole(self._folder / f"{name}-mistakes.npz", arrays.getvalue())
        shown = wrong.index[: self._most]
        pictures = as_pictures(rows_of(held.split.columns[0], shown)) if len(shown) else None
        if pictures is not None:
            write_whole(self._folder / f"{name}-mistakes.png", png(sheet(pictures, _ACROSS)))
        page = _mistakes_page(name, wrong, self._most, pictures, held.split.reference)
        write_whole(self._folder / f"{name}-mistakes.html", page.encode("utf-8", "backslashreplace"))


def _mistakes_page(
    name: str, wrong: WrongExamples, most: int, pictures: Pictures | None, reference: Sequence[object] | None
) -> str:
    """One self-contained HTML file; all text in it is escaped."""
    title = html.escape(name)
    shown = min(most, len(wrong))
    rows = []
    for at in range(shown):
        index = int(wrong.index[at])
        picture = ""
        if pictures is not None:
            encoded = base64.b64encode(png(sheet(pictures[at : at + 1], 1))).decode("ascii")
            picture = f'<img alt="example {index}" src="data:image/png;base64,{encoded}">'
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
        f"the {shown} most confident mistakes are shown.</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></body></html>\n"
    )


def _share(value: float, otherwise: str) -> str:
    return f"{value:.3f}" if np.isfinite(value) else otherwise
