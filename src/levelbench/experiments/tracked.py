"""A training loop of a user's own while it is measured: its phases, steps, evaluations and record."""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, final

from levelbench import __version__
from levelbench.errors import LevelbenchError, UsageError
from levelbench.experiments.bystander import Bystander
from levelbench.experiments.file_events import Earlier, LeftFiles
from levelbench.experiments.jobs import Sights, Written
from levelbench.experiments.marking import MarkedRun, examples_of, length_of
from levelbench.experiments.off_clock import Spent, spent_doubts
from levelbench.experiments.own_code import Uses, settings_of_a_run
from levelbench.experiments.told import UNSEEN, Page, ToldTimeline
from levelbench.measure.clocks import HOST, utc_now
from levelbench.measure.crossing import find_crossing
from levelbench.measure.environment import capture, capture_after, doubts
from levelbench.measure.meters import meters
from levelbench.measure.timeline import Phase, Timeline
from levelbench.records import SCHEMA, End, Evaluation, Header, Measurement, RecordWriter, Samples, Specification, lines
from levelbench.records.locks import claimed
from levelbench.records.reader import read_header
from levelbench.records.replicates import BEFORE_ENDED_AT
from levelbench.records.schema import (
    Source,
    Target,
    fault,
    redact,
)
from levelbench.records.witness import UNTRAINED
from levelbench.records.writer import new_id, path_part

__all__ = ["Outside", "TrackedRun"]

T = TypeVar("T")

_MOST_ARGUMENTS = 2000

_DISORDERED = (
    "its phases were ended in another order than they were begun, as by tasks that take turns: the time of one may "
    "count to another"
)


@dataclass
class Outside:
    """What the process that watches a program from outside knows of it, where the run is not its own.

    ``failed`` says why the program failed; ``measured`` holds what was measured of it, by name, in place of what meters
    say of this process; ``first`` is what its environment says of the first of these runs, if that does not count;
    ``read`` are the texts that it read and ``data`` its data files, with their digests; ``prepared`` what was done off
    its clock; the rest as in a record's header, and the doubts of its end.
    """

    planned_effect: float | None = None
    planned_runs: int = 0
    replaced: int = 0
    first: dict[str, Any] = field(default_factory=dict)
    failed: str = ""
    measured: dict[str, Measurement] = field(default_factory=dict)
    suspect: list[str] = field(default_factory=list)
    read: dict[str, str] | None = None
    data: dict[str, str] | None = None
    prepared: dict[str, Any] = field(default_factory=dict)


@final
class TrackedRun(MarkedRun):
    """A run in place; made by :func:`track`, measured from the beginning of its ``with`` block to the end.

    ``reached`` says whether the target was reached, ``over`` whether the loop is to end: then :meth:`epochs` and
    :meth:`data` stop, and one more evaluation is recorded if time was what ended it. For one thread of one process; in
    a forked child it measures nothing.
    """

    def __init__(
        self,
        specification: Specification,
        key: str,
        seed: int | None,
        source: Source,
        store: Path,
        *,
        first: bool,
        quiet: bool,
        outside: Outside | None = None,
        uses: Uses | None = None,
    ) -> None:
        super().__init__()
        self._seed, self._picks_seed = seed, seed is None
        self.reached = self.over = False
        self._specification, self._key, self._source, self._store = specification, key, source, store
        self._outside, self._uses = outside, uses or Uses()
        self._first, self._quiet = first, quiet
        self._mark_ns = 0
        self._apart_ns: list[int] = []
        """When the open blocks of what is no step began."""
        self._step_open = False
        self._step_spans: list[tuple[int, int]] = []
        self._steps = self._steps_looked_at = self._samples = 0
        self._ranks = specification.distribution.ranks if specification.distribution else 1
        self._epochs, self._share, self._counts_epochs = 0, 0.0, False
        self._steps_before_epoch, self._looking = 0, False
        self._evaluations: list[Evaluation] = []
        self._quality: dict[str, float] = {}
        self._budget_spent = self._ended = False
        self._held_ns: dict[str, int] | None = None

    def __enter__(self) -> Self:
        # One run a process: its clock, meters and record are the process's.
        if self._state != "new" or MarkedRun.current is not None:
            raise UsageError(f"tracking {self._specification.task!r}", "a run is being tracked already", "end it first")
        # First of all: what it takes to start is on no clock, and no load from elsewhere.
        self._bystander = Bystander()
        environment = capture(apart=self._store)
        framework = {"name": self._specification.framework, "device": self._specification.device}
        outside = self._outside
        started = "in place" if outside is None else "from outside"
        self._environment: dict[str, Any] = {**environment, "framework": framework, "started": started}
        if outside is not None:
            self._environment |= outside.first
        # A process of its own has done nothing before its clock.
        before = Spent.now() - _tracked if outside is None else Spent()
        self._before = before
        self._environment["before_clock"] = {"cpu_s": round(before.cpu_s, 4), "wall_s": round(before.wall_s, 4)}
        if self._picks_seed and outside is None:
            self._environment["seed_picked"] = True
        kind, quality = _ended_at
        if outside is None and kind == self._kind and math.isfinite(quality):
            self._environment[BEFORE_ENDED_AT] = quality
        if self._uses.packages:
            self._environment["packages_imported"] = dict(self._uses.packages)
        if outside is None and sys.argv[1:]:
            self._environment["arguments"] = redact(shlex.join(sys.argv[1:]))[:_MOST_ARGUMENTS]
        folder = self._folder
        # Of programs that start at once each is to have a seed of its own.
        with claimed(folder / f".{self._key[:8]}", lambda: None) if self._picks_seed else nullcontext():
            if self._seed is None:
                self._seed = self._next_seed()
            writer = RecordWriter.create(self._store, self._header()) if self._first else None
        known = (*self._specification.settings.values(), self.seed)
        self._variables = settings_of_a_run(self._uses.variables, known)
        self._left = self._watch_files() if self._first and outside is None else None
        self._record = Written(writer.path if writer else Path(), writer)
        self._thread, self._state, MarkedRun.current = threading.get_ident(), "open", self
        self._gauges = meters()
        for gauge in self._gauges:
            gauge.start()
        self._sights = Sights(HOST, self._bystander.tell, self._bystander.hear)
        self._sights.begin()
        self._timeline = Timeline(HOST) if outside is None else ToldTimeline()
        self._sights.started(self._timeline)
        self._mark_ns = self._timeline.switched_ns
        return self

    def _watch_files(self) -> LeftFiles:
        """What the program reads that lay there before it began, in so far as earlier runs of it may have left it."""
        begun_ns = int((utc_now().timestamp() - self._before.wall_s) * 1e9)
        earlier = Earlier(_first_start_ns(self._folder, self._key))
        with suppress(OSError):
            here = Path.cwd()
            return LeftFiles(here, sys.argv, [self._store], earlier, begun_ns=begun_ns, light=True)
        return LeftFiles(Path(), [], [])

    def _header(self) -> Header:
        outside = self._outside
        header = Header(
            schema=SCHEMA,
            id=new_id(),
            key=self._key,
            seed=self.seed,
            started=utc_now().isoformat(timespec="milliseconds"),
            specification=self._specification,
            environment=self._environment,
            source=self._source,
            version=__version__,
            planned_effect=None if outside is None else outside.planned_effect,
            planned_runs=0 if outside is None else outside.planned_runs,
            replaced=0 if outside is None else outside.replaced,
        )
        self.id = header.id
        return header

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _tracked, _ended_at  # noqa: PLW0603  # they are the process's
        if self._state != "open":
            return
        self._state, MarkedRun.current = "closed", None
        self._release()
        try:
            # Interrupted from the keyboard: the record has no end, as one that was killed.
            if not isinstance(error, KeyboardInterrupt | GeneratorExit):
                self._end(error)
        finally:
            self._bystander.close()
            if self._left is not None:
                self._left.__exit__()
            self._record.__exit__(None, None, None)
            _tracked = Spent.now()
            if self.quality is not None:
                _ended_at = self._kind, self.quality

    @property
    def _kind(self) -> tuple[str, str]:
        """Qualities of runs of one kind can be compared."""
        return self._specification.task, self.metric

    @property
    def seed(self) -> int:
        """The seed of the run; by default the first one without a run when this is first read."""
        if self._seed is None:
            self._seed = self._next_seed()
        return self._seed

    def _next_seed(self) -> int:
        """The first seed from 0 on that no record has of this key, program and packages: an edited one starts anew."""
        taken = set[int]()
        for path in self._folder.glob(f"*/{self._key[:8]}-s*.jsonl"):
            if (named := re.match(rf"{self._key[:8]}-s(\d+)-", path.name)) is None or int(named[1]) in taken:
                continue
            with suppress(LevelbenchError, OSError):
                header = read_header(path, lines.RUN)
                packages = header.environment.get("packages_imported", {})
                if header.source.whole != self._source.whole or packages != self._uses.packages:
                    continue
            taken.add(int(named[1]))
        return next(seed for seed in range(len(taken) + 1) if seed not in taken)

    @property
    def _folder(self) -> Path:
        return self._store / path_part(self._specification.task)

    @property
    def held(self) -> bool:
        """Whether the clock of the last evaluation has stopped."""
        return self._held_ns is not None

    @property
    def target(self) -> Target:
        """What is to be reached."""
        return self._specification.target

    @property
    def metric(self) -> str:
        """That of the target."""
        return self.target.metric

    @property
    def quality(self) -> float | None:
        """The quality of the last evaluation."""
        return self._evaluations[-1].quality["validation"] if self._evaluations else None

    @property
    def path(self) -> Path:
        """Its record."""
        return self._record.path

    def epochs(self, most: int) -> Iterator[int]:
        """0, 1, ... up to ``most`` - 1, while the run is not over."""
        for number in range(most):
            if self._stops():
                return
            self._begin_work()
            self._counts_epochs, self._steps_before_epoch = True, self._steps
            yield number
            self._epochs, self._share = self._epochs + 1, 0.0

    def data(self, batches: Iterable[T], examples: Callable[[T], int] | None = None) -> Iterator[T]:
        """``batches``, while the run is not over; waiting for one is the phase ``data``, what is done with it a step.

        ``examples`` says how many there are in a batch; without it they are the length of its first part.
        """
        self._need_own("data")
        if self._looking:
            # Of the held-out data that a quality goes through nothing is a step.
            yield from batches
            return
        self._begin_work()
        self._follow_device()
        self._counts_steps = True
        length = length_of(batches)
        count, taken, back = examples or examples_of, 0, self._enclosing()
        # A loader starts its workers here.
        self._switch(Phase.DATA)
        outer = bool(self.in_batch)
        try:
            source = iter(batches)
        finally:
            self._switch(back)
        while not self._stops():
            self._need_own("data")
            self._switch(Phase.DATA)
            self._finish_step(self._timeline.switched_ns if self._timeline is not None else 0)
            try:
                batch = next(source)
            except StopIteration:
                self._switch(back)
                self._passed()
                return
            except BaseException:
                self._switch(back)
                raise
            self._switch(back)
            taken += 1
            if length:
                self._share = max(self._share, min(1.0, taken / length))
            self._step_open = True
            self._samples += count(batch) * self._ranks
            try:
                self.in_batch = True
                yield batch
            except GeneratorExit:
                self._finish_step()
                raise
            finally:
                self.in_batch = outer

    def step(self, examples: int = 1) -> None:
        """A step ends here: for loops that do not take their batches from :meth:`data`.

        ``examples`` are this process's; each of several ranks is taken to have had as many.
        """
        self._need_own("step")
        self._begin_work()
        self._counts_steps = True
        self._samples += examples * self._ranks
        self._step_open = True
        self._finish_step()

    def evaluate(
        self,
        quality: Callable[[], float | Mapping[str, float]] | float | Mapping[str, float],
        *,
        loss: float | None = None,
    ) -> float:
        """Record the quality on held-out data, and whether it reached the target; the value of the target's metric.

        ``quality`` is a function that measures it, on the clock as phase ``evaluate``, or its result: a number, or
        several by the names of their metrics. ``loss`` is the mean training loss since the last evaluation. Raises
        ``UsageError`` for a value off the metric's scale.
        """
        self._need_own("evaluate")
        self._begin_work()
        back = self._phase
        self._switch(Phase.EVALUATE)
        # Without steps of its own, what lies between two evaluations is one.
        self._step_open = self._step_open or (not self._counts_steps and self._steps == self._steps_looked_at)
        self._finish_step(self._timeline.switched_ns)
        self._looking = True
        try:
            value, named = self._values(quality() if callable(quality) else quality, "validation")
            if not self._ended:
                self._note(named, loss)
        finally:
            self._looking = False
            self._switch(back)
            self._mark_ns = self._timeline.switched_ns
        return value

    def evaluate_at(self, quality: float, epoch: float | None) -> Evaluation:
        """Record a quality that a program reports, after ``epoch`` epochs if it reports them."""
        if epoch is not None and epoch > self._epochs + self._share:
            self._epochs, self._share = int(epoch), epoch - int(epoch)
        self.evaluate(quality)
        return self._evaluations[-1]

    def hold(self) -> None:
        """The clock of the last evaluation stops here; :meth:`evaluate_held` adds the quality."""
        if self._held_ns is None:
            if isinstance(self._timeline, ToldTimeline):
                self._timeline.end_listening()
            self._begin_work()
            self._switch(Phase.EVALUATE)
            self._step_open = True
            self._finish_step(self._timeline.switched_ns)
            self._held_ns = self._timeline.totals_ns()
            self._sights.evaluated()

    def evaluate_held(self, quality: float) -> None:
        """Record the quality at the moment that was held."""
        _, named = self._values(quality, "validation")
        self._note(named, None, self._held_ns)

    def spend(self) -> None:
        """The budget is spent."""
        self._budget_spent = self.over = True

    def test(self, quality: Callable[[], float | Mapping[str, float]] | float | Mapping[str, float]) -> float:
        """Record the final quality on test data, after training; as :meth:`evaluate`, and it ends nothing."""
        self._need_own("test")
        back = self._phase
        self._switch(Phase.EVALUATE)
        try:
            value, named = self._values(quality() if callable(quality) else quality, "test")
        finally:
            self._switch(back)
            self._mark_ns = self._timeline.switched_ns
        self._quality |= named
        return value

    def _note(self, quality: dict[str, float], loss: float | None, phases_ns: Mapping[str, int] | None = None) -> None:
        held = phases_ns is not None
        phases_ns = self._timeline.totals_ns() if phases_ns is None else dict(phases_ns)
        now_ns = sum(phases_ns.values())
        # A step without a known number of examples has one at least.
        self._samples = max(self._samples, self._steps)
        # An epoch of unknown length counts as whole when it is evaluated.
        untold = self._counts_epochs and not self._share and self._steps > self._steps_before_epoch
        epoch, shown = self._epochs + (1.0 if untold else self._share), None if loss is None else float(loss)
        evaluation = Evaluation(now_ns, self._steps, epoch, self._samples, quality, shown, phases_ns)
        self._evaluations.append(evaluation)
        self._record.append(Samples("step_time", "ns", self._timeline.on_device(self._step_spans)))
        self._record.append(evaluation)
        if not held:
            self._sights.evaluated()
        self._step_spans, self._steps_looked_at = [], self._steps
        target, rule = self._specification.target, self._specification.crossing
        if rule in ("confirmed", "first"):
            curve = [each.quality[target.split] for each in self._evaluations]
            found = find_crossing(curve, target.threshold, direction=target.direction, rule=rule)
            self.reached = found is not None
        if self._specification.budget_s is not None and now_ns > self._specification.budget_s * 1e9:
            self._budget_spent = True
        self.over = self._ended = self.reached or self._budget_spent

    def _values(self, given: float | Mapping[str, float], split: str) -> tuple[float, dict[str, float]]:
        target = self._specification.target
        asked = f"evaluating {self._specification.task}"
        values = dict(given) if isinstance(given, Mapping) else {target.metric: given}
        if target.metric not in values:
            raise UsageError(
                asked, f"it gives {', '.join(map(str, values)) or 'nothing'}", f"give {target.metric!r}, its target's"
            )
        try:
            plain = {str(name): float(value) for name, value in values.items()}
            plain[target.metric] = target.read(plain[target.metric])
        except (TypeError, ValueError, OverflowError) as error:
            raise UsageError(asked, f"a quality is no number: {values!r}"[:200], "return a number") from error
        value, (low, high) = plain.pop(target.metric), target.ends
        if not (math.isnan(value) or low <= value <= high):
            do = "report it on that scale, or give track(..., scale=(lowest, highest))"
            if self._outside is not None:
                do = "say its scale: --scale LOWEST,HIGHEST"
                if target.is_per_cent(value):
                    do = f"if it is printed in per cent: --target {target.metric}={100 * target.threshold:g}; else {do}"
            raise UsageError(asked, f"{target.metric} is {value:g}, on a scale {target.scale}", do)
        return value, {split: value, **{f"{split}.{name}": each for name, each in plain.items()}}

    def listen(self, path: Path) -> dict[str, str]:
        """Split what is ``train`` by what a program reports through the file ``path``; the variables that tell it."""
        if isinstance(self._timeline, ToldTimeline):
            self._timeline.listen(Page.create(path))
        return {"LEVELBENCH_PHASES": str(path)}

    def program_ended(self) -> str:
        """What comes now is no phase of the program that was listened to; the one that it had not left, if any."""
        timeline = self._timeline
        if not isinstance(timeline, ToldTimeline):
            return ""
        if timeline.program_ended():
            self._switch(Phase.OTHER)
        return timeline.ended_inside

    def _logged(self, metric: str, quality: float, epoch: float) -> None:
        self.evaluate_at(quality, epoch)

    def _stops(self) -> bool:
        """Whether a loop is to end."""
        if self._state == "open" and self._specification.budget_s is not None and not self.over:
            spent_ns = self._timeline.switched_ns - self._timeline.started_ns
            self._budget_spent = self.over = spent_ns > self._specification.budget_s * 1e9
        return self.over

    def _begin_work(self) -> None:
        if self._phase == Phase.PREPARE and not self._open:
            super()._begin_work()
            self._mark_ns = self._timeline.switched_ns if self._timeline is not None else 0

    def _set_apart(self, *, begins: bool) -> None:
        if self._state == "open":
            now_ns = self._timeline.switched_ns
            if begins:
                self._apart_ns.append(now_ns)
            elif self._apart_ns and (began_ns := self._apart_ns.pop()) and not self._apart_ns:
                # A step may have ended in it.
                self._mark_ns = min(now_ns, self._mark_ns + now_ns - began_ns)

    def _finish_step(self, now_ns: int | None = None) -> None:
        """The step that is open ends; the next begins now, or after what is not a step."""
        if self._step_open and self._state == "open":
            now_ns = HOST.now_ns() if now_ns is None else now_ns
            self._step_spans.append((self._mark_ns, now_ns))
            self._mark_ns, self._step_open = now_ns, False
            self._steps += 1

    def _passed(self) -> None:
        """The data have been gone through once."""
        if self._counts_epochs:
            self._share = 1.0
        else:
            self._epochs, self._share = self._epochs + 1, 0.0

    def _need_own(self, what: str) -> None:
        found, do = "", "call it in the block: with levelbench.track(...) as run"
        if self._state == "new":
            found = "the run has not begun"
        elif self._state == "closed" and what in ("evaluate", "test"):
            found, do = (
                "the run has ended, or this is a fork of it",
                "call it in the block, in its own process",
            )
        elif self._state == "open" and threading.get_ident() != self._thread:
            found, do = "it is called in another thread", "call it in the thread that began the run"
        if found:
            raise UsageError(f"run.{what} of {self._specification.task}", found, do)

    def _end(self, error: BaseException | None) -> None:
        totals = self._timeline.totals_ns()
        witness = self._sights.end()
        readings = [gauge.stop() for gauge in self._gauges]
        after, elapsed_ns = capture_after(), sum(totals.values())
        went_on = [] if self._left is None else self._left.doubts("remove it before each run")
        done = error is None or (isinstance(error, SystemExit) and error.code in (None, 0))
        outside = self._outside or Outside()
        if not done or outside.failed or not self._evaluations:
            why = outside.failed or "it made no evaluation"
            if error is not None and not done:
                why = fault(error, Path(self._source.name))
                if self._outside is not None and isinstance(error, LevelbenchError):
                    # The place is one of ours: what the program did is no line of Python.
                    why = f"{error.asked}: {error.found}"
            self._record.append(End("failed", elapsed_ns, totals, error=why))
            self._say(f"failed: {why}")
            return
        for each in readings:
            if (own := outside.measured.get(each.name)) is not None:
                self._record.append(own)
                continue
            self._record.append(Measurement(each.name, each.unit, each.value, each.method, each.reason))
        metric = self._specification.target.metric
        self._record.append(Measurement(UNTRAINED, metric, None, None, "the network is its program's own"))
        suspect = [*doubts(self._environment, after), *outside.suspect, *went_on]
        if outside.read is not None:
            after["files_read"] = outside.read
        elif self._left is not None and (read := self._variables | self._left.settings(self._uses.settings)):
            after["files_read"] = read
        data = outside.data if self._left is None else self._left.data()
        if data is not None:
            after["data_read"] = data
        if outside.prepared:
            after["prepared"] = outside.prepared
        suspect += spent_doubts(self._before, elapsed_ns)
        if isinstance(self._timeline, ToldTimeline) and self._timeline.contradicted:
            suspect.append(self._timeline.contradicted)
        unseen = self._timeline.unseen if isinstance(self._timeline, ToldTimeline) else self._steps and self.missing
        suspect += [UNSEEN] if unseen else []
        suspect += [_DISORDERED] if self.disordered else []
        stopped_by = "its program ended"
        if self.reached:
            stopped_by = "target reached"
        elif self._budget_spent:
            stopped_by = f"budget of {self._specification.budget_s:g} s spent"
        elif math.isnan(self._evaluations[-1].quality[self._specification.target.split]):
            stopped_by = f"diverged: {self._specification.target.metric} is not a number"
        diverged = stopped_by if stopped_by.startswith("diverged") else None
        quality = {**self._evaluations[-1].quality, **self._quality}
        self._record.append(
            End("done", elapsed_ns, totals, quality, diverged, suspect, after, None, stopped_by, witness=witness)
        )
        self._say(self._outcome())

    def _outcome(self) -> str:
        target, last = self._specification.target, self._evaluations[-1]
        value = f"{target.metric} {last.quality[target.split]:.4g}"
        if self.reached:
            return f"{value} after {last.t_ns * 1e-9:.4g} s: target {target.threshold:g} reached"
        return f"{value} after {last.t_ns * 1e-9:.4g} s (target {target.threshold:g})"

    def _say(self, outcome: str) -> None:
        if self._first and not self._quiet:
            said = f"levelbench: {self._specification.task}, seed {self.seed}: {outcome}. levelbench show {self.id}"
            with suppress(AttributeError, OSError, ValueError):
                # A program may have closed it.
                sys.stderr.write(f"{said}\n")

    def _forked(self) -> None:
        """In a child of the process: the record, its lock and its clock are the parent's."""
        self._state = "closed"
        self._record.__exit__(None, None, None)


_tracked = Spent()
"""What this process had spent when its last run ended: another run in it begins from there."""


_ended_at: tuple[tuple[str, str], float] = ("", ""), math.nan
"""The task and metric of this process's last run, and its last quality: a network may be trained on."""


def _leave_to_parent() -> None:
    global _tracked  # noqa: PLW0603
    _tracked = Spent()
    if isinstance(MarkedRun.current, TrackedRun):
        MarkedRun.current._forked()
        MarkedRun.current = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def _first_start_ns(folder: Path, key: str) -> int:
    """When the first run of this key in the store began, since 1970; now if there is none."""
    found = folder.glob(f"*/{key[:8]}-s*.jsonl")
    with suppress(LevelbenchError, OSError, ValueError):
        first = min(found, key=lambda path: path.stat().st_mtime_ns)
        return int(datetime.fromisoformat(read_header(first, lines.RUN).started).timestamp() * 1e9)
    return int(utc_now().timestamp() * 1e9)
