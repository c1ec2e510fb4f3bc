"""Carries out a plan for a verb: announces it, shows its progress, and adds measurements until the verdict is clear."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from levelbench.analysis.remaining import CurrentRun, RemainingTime
from levelbench.cli import options as shared
from levelbench.errors import DefinitionError
from levelbench.experiments.kernel import (
    Kind,
    MadeRecord,
    Place,
    Plan,
    Turn,
    UntilClear,
    Watcher,
    carry_out,
    go_on,
    make_plan,
)
from levelbench.experiments.own_code import replaced_code
from levelbench.experiments.processes import ROUNDS
from levelbench.experiments.training import RunPlan, labels
from levelbench.measure.clocks import HOST, utc_now
from levelbench.measure.environment import capture, same_machine
from levelbench.measure.timeline import Phase
from levelbench.records import Evaluation, Record, RunSummary, summarise
from levelbench.report.live import LiveLine, live_line

if TYPE_CHECKING:
    from levelbench.experiments.request import Arm
    from levelbench.measure.verdict import Verdict

__all__ = ["LiveWatcher", "Trial", "measure", "measure_runs"]

W = TypeVar("W")
R = TypeVar("R", bound=MadeRecord)
T = TypeVar("T")

_SECOND_NS = 1_000_000_000
_EARLIER = 100
"""Runs of earlier commands from which the time remaining is predicted at most."""
_START = 0.05
"""Of the time until a process that imports for others has started, the part that every process takes."""
_TRAINING = tuple(
    each.name.lower()
    for each in (Phase.DATA, Phase.FORWARD, Phase.BACKWARD, Phase.COMMUNICATE, Phase.UPDATE, Phase.TRAIN)
)


def measure(
    kind: Kind[W, R],
    arms: Sequence[W],
    count: int,
    *,
    folder: Path,
    watch: Callable[[Plan[W, R]], AbstractContextManager[Watcher[R]]],
    conclude: Callable[[Plan[W, R], dict[Place, R]], T],
    judge: Callable[[T], tuple[Sequence[tuple[str, Verdict]], str]] = lambda found: ((), ""),
    first_seed: int = 0,
    cases: int = 1,
    first_lines: Callable[[Plan[W, R]], Sequence[str]] = lambda plan: (),
    until: UntilClear | None = None,
    fresh: bool = False,
    as_json: bool = False,
) -> T:
    """What ``conclude`` makes of ``count`` records of each arm, or with ``until`` of as many as ``judge`` needs.

    Prints ``first_lines``, the first plan, and ``folder``, where the records go; with ``as_json`` on standard error.
    ``watch`` makes the watcher of a plan.
    """
    environment, began = capture(), utc_now().isoformat(timespec="milliseconds")
    said = False

    def make(number: int) -> T:
        nonlocal said
        seeds = range(first_seed, first_seed + number)
        plan = make_plan(kind, arms, seeds, environment, cases=cases, fresh=fresh, since=began)
        if not said:
            said = True
            records_line = [f"records: {folder}"] if plan.to_go else []
            with shared.as_far_as_read(err=as_json):
                for line in (*first_lines(plan), *plan.lines(), *records_line):
                    click.echo(line, err=as_json)
        with watch(plan) as watcher:
            records = carry_out(plan, kind, watcher)
        return conclude(plan, records)

    counted = "processes" if kind.processes else "runs"
    return go_on(until, count, make, judge, partial(shared.say_look, counted=counted, err=as_json))


def measure_runs(
    kind: Kind[Arm, Record], arms: Sequence[Arm], count: int, *, as_json: bool, **rest: Any
) -> tuple[RunPlan, dict[Place, Record]]:
    """The plan and the records of ``measure``, in the order of the plan, for runs to a target.

    Raises ``DefinitionError`` if a task's file has replaced code of levelbench: this process's account of the runs
    would then come from that code.
    """

    def conclude(plan: RunPlan, records: dict[Place, Record]) -> tuple[RunPlan, dict[Place, Record]]:
        if replaced := replaced_code([arm.reference for arm in plan.arms]):
            raise DefinitionError("a verdict", replaced[0], "the runs are kept; see levelbench compare")
        return plan, dict(sorted(records.items()))

    found: tuple[RunPlan, dict[Place, Record]] = measure(
        kind,
        arms,
        count,
        watch=lambda plan: closing(LiveWatcher(plan, on_stderr=as_json)),
        conclude=conclude,
        as_json=as_json,
        **rest,
    )
    return found


@dataclass
class Trial:
    """The runs that are watched are trial ``number`` of ``total`` of one search or of two that take turns.

    The searches began at ``began_ns`` of the host's clock. ``sides`` are those of the plan's arms, which ``remaining``
    counts as arms; ``later`` are those of the trials after this one.
    """

    number: int
    total: int
    began_ns: int
    remaining: RemainingTime
    sides: Sequence[int]
    later: list[int]


class LiveWatcher(Watcher[Record]):
    """A watcher that updates the live line, with the estimate over the arm's finished runs."""

    def __init__(self, plan: RunPlan, on_stderr: bool, trial: Trial | None = None) -> None:
        stream = sys.stderr if on_stderr else sys.stdout
        self._line: LiveLine = live_line(stream) if stream is not None else LiveLine()
        self._arms = plan.arms
        self._labels = labels(plan.arms)
        self._times: list[list[float]] = [[] for _ in plan.arms]
        self._runs = [0] * len(plan.arms)
        self._estimates = [""] * len(plan.arms)
        rounds = [plan.seeds.index(turn.seed) // ROUNDS for turn in plan.to_go]
        self._trial = trial
        self._keys: Sequence[int] = range(len(plan.arms)) if trial is None else trial.sides
        self._remaining = RemainingTime([]) if trial is None else trial.remaining
        self._remaining.to_go = [self._keys[turn.arm] for turn in plan.to_go] + ([] if trial is None else trial.later)
        self._new_servers = [at == 0 or each != rounds[at - 1] for at, each in enumerate(rounds)]
        for (arm, _), record in plan.done.items():
            run = self._note(arm, record)
            if trial is None:
                self._remaining.finished(arm, run.wall_s, run.epochs_to_target, planned=False)
        for arm, record in plan.earlier[-_EARLIER:]:
            source, environment = record.header.source, record.header.environment
            same = source.whole == plan.arms[arm].source.whole and same_machine(environment, plan.environment)
            if trial is None and same:
                run = summarise(record)
                self._remaining.earlier(arm, run.wall_s, run.epochs_to_target)
        self._position = 0
        self._evaluations: list[Evaluation] = []
        self._before_s = math.inf
        self._import_s: float | None = None
        self._rate: float | None = None
        self._steps = (0, 0, 0)
        self._first_steps: tuple[int, float] | None = None
        self._phase = "start"
        self._at: Turn | None = None
        self._began_ns = self._phase_ns = self._predicted_ns = HOST.now_ns()
        self._known = (0, 0)
        self._predicted: tuple[float, float] | None = None
        self.left_s: tuple[float, float] | None = None
        if trial is None:
            self._tell(lambda line: line.start(len(plan.to_go)))
        else:
            passed_s = (self._began_ns - trial.began_ns) * 1e-9
            self._tell(lambda line: line.start(trial.total, "trial ", passed_s))

    def doubted(self, doubts: list[str]) -> None:
        """Print doubts before the first run, while the user can still change something."""
        for each in doubts:
            click.echo(f"doubt: {each}", err=True)

    def preparing(self, what: str) -> None:
        """A line for what concerns all runs."""
        click.echo(what, err=True)

    def started(self, turn: Turn, number: int, total: int) -> None:
        """A run begins."""
        self._position, self._at = number, turn
        self._evaluations, self._rate, self._steps, self._phase = [], None, (0, 0, 0), "start"
        self._first_steps = None
        self._before_s = math.inf
        self._remaining.imports_to_go = sum(self._new_servers[number:])
        self._import_s = None
        self._began_ns = self._phase_ns = HOST.now_ns()
        self._show(0.0)

    def progress(
        self,
        turn: Turn,
        stage: str,
        elapsed_s: float = 0.0,
        events: Sequence[object] = (),
        steps: tuple[int, int, int] = (0, 0, 0),
    ) -> None:
        """Evaluations update the epoch, the quality, the loss and the rate."""
        if self._import_s is None and elapsed_s > 0:
            self._import_s = 0.0
            if self._new_servers[self._position - 1]:
                before_s = max(self._since_began_s() - elapsed_s, 0.0)
                self._import_s = self._remaining.import_s = (1 - _START) * before_s
        for event in events:
            if isinstance(event, Evaluation):
                self._rate = _samples_per_s(self._last, event)
                self._evaluations.append(event)
                before_s = self._elapsed_s() - event.t_ns * 1e-9
                self._before_s = max(min(self._before_s, before_s), 0.0)
        if stage and stage != self._phase:
            self._phase, self._phase_ns = stage, HOST.now_ns()
        # Steps that stand still, such as during an evaluation, do not make it slower.
        more, self._steps = steps[0] > self._steps[0], steps
        if not self._evaluations and more and stage != "evaluate":
            self._rate = self._first_rate(elapsed_s)
        self._show(elapsed_s)

    def finished(self, turn: Turn, record: Record | None) -> None:
        """One permanent line for each run."""
        label = self._labels[turn.arm]
        epochs = None
        if record is not None and record.status == "done":
            run = self._note(turn.arm, record)
            epochs = run.epochs_to_target
            outcome = (
                f"reached in {run.time_to_accuracy_s:.3g} s"
                + ("" if run.epochs_to_target is None else f", {run.epochs_to_target:.3g} epochs")
                if run.time_to_accuracy_s is not None
                else f"missed after {run.given_up_s or 0:.3g} s"
                + (f" ({run.stopped_by})" if run.stopped_by and not run.error else "")
            )
            test = run.quality.get("test")
            outcome += f", test {test:.4f}" if test is not None else ""
            if run.error:
                outcome += f" ({run.error})"
        else:
            outcome = "failed"
        now = self._current(turn.arm)
        self._remaining.finished(self._keys[turn.arm], now.elapsed_s, epochs, now.pace_s if now.warm else 0.0)
        self._tell(lambda line: line.finish_run(label, turn.seed, outcome))

    def close(self) -> None:
        """Clear the line, however the plan ended."""
        self._tell(lambda line: line.close())

    def _tell(self, what: Callable[[LiveLine], None]) -> None:
        """Update the display, unless its pipe was closed: that must not end the measurement."""
        try:
            what(self._line)
        except BrokenPipeError:
            self._line = LiveLine()

    def _note(self, arm: int, record: Record) -> RunSummary:
        self._runs[arm] += 1
        run = summarise(record, clock=self._arms[arm].specification.clock)
        if run.time_to_accuracy_s is not None:
            self._times[arm].append(run.time_to_accuracy_s)
        self._estimates[arm] = self._estimate(arm)
        return run

    def _show(self, elapsed_s: float) -> None:
        if self._at is None:
            return
        turn, specification = self._at, self._arms[self._at.arm].specification
        target, last = specification.target, self._last
        epoch = None if last is None else last.epoch
        self._predict(turn.arm)
        self._tell(
            lambda line: line.update(
                self._position if self._trial is None else self._trial.number,
                self._labels[turn.arm],
                turn.seed,
                self._phase,
                elapsed_s,
                None if last is None else last.quality.get("validation"),
                target.threshold,
                self._estimates[turn.arm],
                epoch=epoch,
                metric=target.metric,
                left_s=self.left_s,
                steps=self._steps[:2],
                samples_per_s=self._rate,
                loss=None if last is None else last.loss,
            )
        )

    def _first_rate(self, elapsed_s: float) -> float | None:
        """Samples per second before the first evaluation, since steps were first seen: what came before is no step."""
        done, _, examples = self._steps
        if self._first_steps is None:
            self._first_steps = done, elapsed_s
        before, since_s = self._first_steps
        return (done - before) * examples / (elapsed_s - since_s) if done > before and elapsed_s > since_s else None

    def _predict(self, arm: int) -> None:
        """Predict the time remaining once a second and at each evaluation: it takes some milliseconds from the run."""
        now_ns, known = HOST.now_ns(), (self._position, len(self._evaluations))
        if known != self._known or now_ns - self._predicted_ns >= _SECOND_NS:
            self._known, self._predicted_ns = known, now_ns
            self._predicted = self._remaining.range_s(self._current(arm))
        passed_s = (now_ns - self._predicted_ns) * 1e-9
        if self._predicted is None:
            self.left_s = None
        else:
            low, high = self._predicted
            self.left_s = max(low - passed_s, 0.0), max(high - passed_s, 0.0)

    @property
    def _last(self) -> Evaluation | None:
        return self._evaluations[-1] if self._evaluations else None

    def _since_began_s(self) -> float:
        return (HOST.now_ns() - self._began_ns) * 1e-9

    def _elapsed_s(self) -> float:
        """How long the current run has taken, without the imports that its process made for others."""
        return self._since_began_s() - (self._import_s or 0.0)

    def _current(self, arm: int) -> CurrentRun:
        """What is known of the current run. Of the epochs, those since the last evaluation count as well."""
        specification, last = self._arms[arm].specification, self._last
        elapsed_s = self._elapsed_s()
        fixed = specification.crossing in ("final", "sustained")
        if last is None:
            return CurrentRun(self._keys[arm], elapsed_s)
        per_step = last.epoch / last.step if last.step else 0.0
        epoch = max(self._steps[0] * per_step, last.epoch)
        first, began_s = self._evaluations[0], self._before_s
        # The test is no part of the pace.
        trained_s = began_s + last.t_ns * 1e-9 if self._phase in ("test", "done") else elapsed_s
        # What is not slow for being the first: since the first evaluation, if enough has been done since.
        if warm := epoch - first.epoch > 0.3 * first.epoch:
            pace_s = (trained_s - began_s - first.t_ns * 1e-9) / (epoch - first.epoch)
        else:
            prepared_s = first.phases_ns.get("prepare", 0) * 1e-9
            pace_s = (trained_s - began_s - prepared_s) / epoch if epoch else 0.0
        target = specification.target
        best = target.best
        # A program, which is in phase "other", need not have a test.
        evaluation_s = 0.0
        if self._phase != "other":
            evaluation_s = _evaluating_s(last) - sum(map(_evaluating_s, self._evaluations[-2:-1]))
        errors = []
        if best is not None and best != target.threshold:
            errors = [
                (each.epoch, abs(best - each.quality["validation"]) / abs(best - target.threshold))
                for each in self._evaluations
                if "validation" in each.quality
            ]
        return CurrentRun(
            self._keys[arm],
            elapsed_s,
            epoch,
            max(pace_s, 0.0),
            warm,
            self._steps[1] * per_step or specification.budget_epochs or None,
            fixed,
            errors,
            None if specification.budget_s is None else specification.budget_s + began_s,
            evaluation_s,
            self._phase,
            (HOST.now_ns() - self._phase_ns) * 1e-9,
        )

    def _estimate(self, arm: int) -> str:
        from levelbench.measure.statistics import estimate
        from levelbench.report.numbers import text_of

        times, runs = self._times[arm], self._runs[arm]
        if not times:
            return f"reached 0/{runs}" if runs else ""
        found = estimate(times)
        count = f"n={found.n}" if found.n == runs else f"of the {found.n}/{runs} that reached"
        return f"{text_of(found)} {count}"


def _samples_per_s(before: Evaluation | None, now: Evaluation) -> float | None:
    """The training speed since the evaluation ``before``, without the time for evaluations; ``None`` if unknown."""
    # A program that tells only its steps or epochs has one sample for each.
    samples, spent_ns = 0 if now.samples == now.step else now.samples, _training_ns(now)
    if before is not None:
        samples, spent_ns = samples and samples - before.samples, spent_ns - _training_ns(before)
    return samples / spent_ns * _SECOND_NS if samples > 0 and spent_ns > 0 else None


def _evaluating_s(evaluation: Evaluation) -> float:
    return evaluation.phases_ns.get("evaluate", 0) * 1e-9


def _training_ns(evaluation: Evaluation) -> int:
    return sum(evaluation.phases_ns.get(phase, 0) for phase in _TRAINING)
