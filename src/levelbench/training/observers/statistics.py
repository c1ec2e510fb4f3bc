"""Statistics of weights and gradients while training goes on, as CSV: what grows, what stands still, what vanishes.

The one idea: sums of squares are computed where the arrays are, now and then, and read at evaluations only, so no
device is waited for in between.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UsageError
from levelbench.networks.executor import Array, Backend, Executor
from levelbench.records.schema import Evaluation
from levelbench.training.observers.base import Observer, Progress
from levelbench.training.observers.files import ready, write_whole

if TYPE_CHECKING:
    from levelbench.training.observers.base import Context

__all__ = ["Statistics"]

_COLUMNS = ("step", "parameter", "weight_norm", "weight_mean", "weight_std", "weight_max", "update_ratio")


@final
class Statistics(Observer):
    """``NAME-statistics.csv`` in ``folder``: a row for each parameter at each evaluation.

    ``update_ratio`` is the norm of what changed since the evaluation before by the norm of the weights;
    ``gradient_norm`` the root of the mean square of the gradient's norm over every ``every``-th step since then. The
    row of ``*`` is all parameters together.
    """

    def __init__(self, folder: Path, name: str, every: int = 10) -> None:
        if every < 1:
            raise UsageError(f"gradient statistics every {every} steps", "that is no interval", "give 1 or more")
        self._folder, self._name, self._every = folder, name, every
        self._executor: Executor | None = None
        self._backend: Backend | None = None
        self._before: dict[str, NDArray[np.float64]] = {}
        self._squares: list[dict[str, Array]] = []
        self._calls = 0
        self._rows: list[tuple[object, ...]] = []

    def on_prepared(self, context: Context) -> None:
        """Look at gradients from here on, where they leave the executor."""
        self._executor, self._backend = context.executor, context.backend
        self._rows = [(*_COLUMNS, "gradient_norm")]
        self._squares, self._calls = [], 0
        ready(self._folder)
        self._before = self._weights()
        backward = context.executor.backward

        def watched() -> Mapping[str, Array]:
            gradients = backward()
            if self._calls % self._every == 0:
                # Before the optimizer, which may overwrite them.
                self._squares.append({name: (each * each).sum() for name, each in gradients.items()})
            self._calls += 1
            return gradients

        # The trainer asks the executor for its method before each stretch of steps.
        setattr(context.executor, "backward", watched)  # noqa: B010

    def on_evaluation(self, progress: Progress, evaluation: Evaluation, step_times_ns: list[int]) -> None:
        """A row a parameter, and one for all."""
        weights, gradients = self._weights(), self._gradients()
        for name, value in weights.items():
            self._row(evaluation.step, name, value, value - self._before[name], gradients.get(name))
        flat = np.concatenate([each.ravel() for each in weights.values()])
        moved = np.concatenate([(each - self._before[name]).ravel() for name, each in weights.items()])
        squares = [each**2 for each in gradients.values()]
        self._row(evaluation.step, "*", flat, moved, math.sqrt(sum(squares)) if squares else None)
        self._before = weights
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self._rows)
        write_whole(self._folder / f"{self._name}-statistics.csv", text.getvalue().encode())

    def on_end(self, progress: Progress) -> None:
        """Look no more."""
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
        """The root mean square of the norms since the evaluation before, by parameter."""
        kept, self._squares = self._squares, []
        names = kept[0] if kept else {}
        return {name: math.sqrt(float(np.mean([float(self._host(each[name])) for each in kept]))) for name in names}

    def _host(self, array: Any) -> NDArray[Any]:
        assert self._backend is not None
        return np.asarray(self._backend.host(array))
