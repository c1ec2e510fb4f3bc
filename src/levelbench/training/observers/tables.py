"""Writes a run's evaluations and steps as CSV, for whoever draws with their own tools.

The one idea: a file under its own name is complete. Evaluations are few and written anew, whole, after each; steps are
many, so they are appended to a draft that gets its name at the end and is readable up to there before.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from levelbench.measure.timeline import Phase
from levelbench.records.schema import Evaluation
from levelbench.training.observers.base import Observer, Progress
from levelbench.training.observers.files import ready, stored, write_whole

if TYPE_CHECKING:
    from levelbench.training.observers.base import Context

__all__ = ["Tables"]

_STEPS = ("step", "epoch", "samples", "time_s")
_FIRST = ("step", "epoch", "samples", "time_s", "loss")
_PHASES = tuple(phase.label for phase in Phase)


class Tables(Observer):
    """``NAME-evaluations.csv`` and ``NAME-steps.csv`` in ``folder``.

    Times are in seconds: of an evaluation since the run's start, of a step its own. Of steps between two evaluations,
    ``epoch`` and ``samples`` are those of the second. A run that goes on from a checkpoint has all evaluations, and the
    steps since the last one before the checkpoint.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._rows: list[Sequence[object]] = []
        self._metrics: tuple[str, ...] = ()

    def on_prepared(self, context: Context) -> None:
        """Begin the draft of the steps; the evaluations that were made before are there already."""
        self._rows = []
        for evaluation in context.earlier:
            self._add(evaluation)
        ready(self._folder)
        with stored(self._draft):
            self._draft.write_text(_lines([_STEPS]), encoding="utf-8")

    def on_evaluation(self, progress: Progress, evaluation: Evaluation, step_times_ns: list[int]) -> None:
        """One row of evaluations, and the steps since the one before."""
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
        """The steps get their name."""
        with stored(self._draft):
            self._draft.replace(self._folder / f"{self._name}-steps.csv")

    @property
    def _draft(self) -> Path:
        return self._folder / f".{self._name}-steps.csv.part"


def _lines(rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
