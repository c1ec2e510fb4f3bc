"""Joins a campaign to the live line: what is shown while runs are made."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from levelbench.records import Evaluation, Event, Record, summarise
from levelbench.report.live import LiveLine, live_line

if TYPE_CHECKING:
    from levelbench.experiments.launch import Finished
    from levelbench.experiments.plan import Plan, Step
    from levelbench.experiments.request import Arm

__all__ = ["LiveWatcher"]


class LiveWatcher:
    """A watcher that keeps the line up to date, with the estimate over the arm's finished runs."""

    def __init__(self, plan: Plan, on_stderr: bool) -> None:
        self._total = len(plan.steps)
        stream = sys.stderr if on_stderr else sys.stdout
        self._line: LiveLine = live_line(stream) if stream is not None else LiveLine()
        self._clocks = [arm.specification.clock for arm in plan.arms]
        self._labels = plan.labels
        self._times: list[list[float]] = [[] for _ in plan.arms]
        self._runs = [0] * len(plan.arms)
        self._estimates = [""] * len(plan.arms)
        for (arm, _), record in plan.done.items():
            self._note(arm, record)
        self._position = 0
        self._quality: float | None = None
        self._epoch: float | None = None
        self._phase = "start"
        self._at: tuple[Step, Arm] | None = None
        self._tell(lambda line: line.start(self._total))

    def doubted(self, doubts: list[str]) -> None:
        """Said before the first run, when there is still time to choose otherwise."""
        for each in doubts:
            click.echo(f"doubt: {each}", err=True)

    def started(self, step: Step, arm: Arm) -> None:
        """A run begins."""
        self._position += 1
        self._quality, self._epoch, self._phase, self._at = None, None, "start", (step, arm)
        self._show(0.0)

    def progress(self, events: list[Event], elapsed_s: float, phase: str = "") -> None:
        """Evaluations move the epoch and the quality; ``phase`` is what the run is at."""
        for event in events:
            if isinstance(event, Evaluation):
                self._quality, self._epoch = event.quality.get("validation"), event.epoch
        self._phase = phase or self._phase
        self._show(elapsed_s)

    def finished(self, step: Step, arm: Arm, finished: Finished, record: Record | None) -> None:
        """One line that stays, for each run."""
        label = self._labels[step.arm]
        if record is not None and finished.error is None:
            self._note(step.arm, record)
            run = summarise(record, clock=arm.specification.clock)
            outcome = (
                f"reached in {run.time_to_accuracy_s:.3g} s, {run.epochs_to_target:.3g} epochs"
                if run.time_to_accuracy_s is not None
                else f"missed after {run.given_up_s or 0:.3g} s"
            )
            test = run.quality.get("test")
            outcome += f", test {test:.4f}" if test is not None else ""
            if run.error:
                outcome += f" ({run.error})"
        else:
            outcome = "failed"
        self._tell(lambda line: line.finish_run(label, step.seed, outcome))

    def close(self) -> None:
        """Nothing more comes: the line is put away, however the campaign ended."""
        self._tell(lambda line: line.close())

    def _tell(self, what: Callable[[LiveLine], None]) -> None:
        """Show it, until nobody looks: a display whose pipe was closed must not end the measurement."""
        try:
            what(self._line)
        except BrokenPipeError:
            self._line = LiveLine()

    def _note(self, arm: int, record: Record) -> None:
        self._runs[arm] += 1
        time_s = summarise(record, clock=self._clocks[arm]).time_to_accuracy_s
        if time_s is not None:
            self._times[arm].append(time_s)
        self._estimates[arm] = self._estimate(arm)

    def _show(self, elapsed_s: float) -> None:
        if self._at is None:
            return
        step, arm = self._at
        self._tell(
            lambda line: line.update(
                self._position,
                self._labels[step.arm],
                step.seed,
                self._phase,
                elapsed_s,
                self._quality,
                arm.specification.target.threshold,
                self._estimates[step.arm],
                epoch=self._epoch,
                metric=arm.specification.target.metric,
            )
        )

    def _estimate(self, arm: int) -> str:
        from levelbench.measure.statistics import estimate
        from levelbench.report.numbers import estimate_text

        times, runs = self._times[arm], self._runs[arm]
        if not times:
            return f"reached 0/{runs}" if runs else ""
        found = estimate(times)
        low, high = (found.interval.low, found.interval.high) if found.interval else (None, None)
        count = f"n={found.n}" if found.n == runs else f"of the {found.n}/{runs} that reached"
        return f"{estimate_text(found.value, low, high)} {count}"
