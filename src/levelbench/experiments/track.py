"""Training loops of somebody's own, measured in place: ``with levelbench.track("my-model", target=...) as run``.

A tracked run leaves the record that ``levelbench run`` leaves: evaluations, step times, phases that sum to the wall
time, meters, the environment, the program's text, and what a process with a clock of its own saw. What nobody but the
program can say is its quality, and the record says that it was reported by the program (``scored_by``).

The program keeps its loop, and whatever it does is measured: there is no time that belongs to no phase. Nothing of it
is replaced or patched.
"""

from __future__ import annotations

import linecache
import math
import numbers
import os
import re
import shlex
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, cast, final

from levelbench import __version__
from levelbench.errors import UnknownNameError, UsageError
from levelbench.experiments.bystander import Bystander
from levelbench.experiments.jobs import Sights, Written
from levelbench.experiments.task_files import own_modules
from levelbench.measure.clocks import HOST, utc_now
from levelbench.measure.crossing import find_crossing, sign_of
from levelbench.measure.environment import capture, capture_after, doubts
from levelbench.measure.meters import meters
from levelbench.measure.meters.resources import own_cpu_s
from levelbench.measure.timeline import Phase, Timeline
from levelbench.records import SCHEMA, End, Evaluation, Header, Measurement, RecordWriter, Samples, Specification
from levelbench.records.locks import claimed
from levelbench.records.schema import (
    Distribution,
    Source,
    Target,
    better_of,
    fault,
    is_share,
    key_of,
    redact,
    source_of_text,
)
from levelbench.records.witness import UNTRAINED
from levelbench.records.writer import new_id, path_part

__all__ = ["Outside", "TrackedRun", "autophase", "examples_of", "predict", "target_of", "track"]

T = TypeVar("T")
Setting = int | float | str | bool

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FRAMEWORKS = ("torch", "jax", "tensorflow", "xgboost", "lightgbm", "sklearn", "numpy")
_RANKS = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))
_MOST_ARGUMENTS = 2000
_CROSSINGS = ("confirmed", "final", "first", "sustained")
_BEFORE_S, _BEFORE_SHARE = 10.0, 0.1
"""Processor time before the clock that no import explains: so many seconds, and this share of the run."""


def track(
    task: str,
    *,
    target: Mapping[str, float],
    settings: Mapping[str, Setting] | None = None,
    recipe: str | None = None,
    seed: int | None = None,
    direction: Literal["higher", "lower"] | None = None,
    scale: tuple[float, float | None] | None = None,
    crossing: Literal["confirmed", "final", "first", "sustained"] = "confirmed",
    budget_s: float | None = None,
    framework: str | None = None,
    device: str = "cpu",
    store: str | os.PathLike[str] | None = None,
    quiet: bool = False,
) -> TrackedRun:
    """Measure the training loop in the block that this opens, and leave a record of it in the store.

    ``target`` is one metric with the value to reach, such as ``{"accuracy": 0.94}``; other metrics may be reported
    beside it. ``direction`` and ``scale`` (lowest and highest value; ``None``: no highest) follow from the metric's
    name where it says what is better, as ``val_loss`` and ``accuracy`` do. ``settings`` are what the runs that are
    compared differ in (``lr=0.1``); ``recipe`` is the name of the program, and that of its file where it is not given.
    ``seed`` tells repetitions apart and is the next one that has no run; seed the program with ``run.seed``. The loop
    ends when the target is reached by the rule ``crossing`` or after ``budget_s`` seconds.

        with levelbench.track("my-model", target={"accuracy": 0.94}, settings={"lr": 0.1}) as run:
            for epoch in run.epochs(30):
                for batch in run.data(loader):
                    with run.phase("forward"):
                        ...
                run.evaluate(lambda: accuracy(model))

    Raises ``UsageError`` for a target, setting or name that cannot be recorded.
    """
    asked = f"tracking {task!r}"
    if not _NAME.fullmatch(task):
        raise UsageError(asked, "the name is not of letters, digits, '.', '_' and '-'", "choose another name")
    if crossing not in _CROSSINGS:
        raise UnknownNameError("crossing rule", crossing, _CROSSINGS)
    source = _source_of(sys._getframe(1))  # the program's frame is known in no other way
    rank, ranks = _place()
    own = Distribution(ranks, "own", {}, "own", "own") if ranks > 1 else None
    specification = Specification(
        task=task,
        recipe=path_part(recipe if recipe is not None else Path(source.name).stem),
        framework=framework or next((name for name in _FRAMEWORKS if name in sys.modules), "python"),
        device=device,
        settings={str(name): _plain(asked, name, value) for name, value in (settings or {}).items()},
        target=target_of(asked, target, direction, scale),
        crossing=crossing,
        clock="wall",
        evaluate_every="time its program does",
        budget_epochs=0.0,
        budget_s=budget_s,
        distribution=own,
        scored_by="program",
    )
    place = Path(store if store is not None else os.environ.get("LEVELBENCH_STORE", "levelbench-results"))
    key = key_of(specification)
    if seed is None and ranks > 1:
        raise UsageError(asked, f"it is one of {ranks} ranks", "give all of them one seed: seed=0")
    return TrackedRun(specification, key, seed, source, place, first=rank == 0, quiet=quiet)


def autophase(model: object, optimizer: object = None, loader: Iterable[T] | None = None) -> _Data[T]:
    """Let a PyTorch module, its optimizer and its loader tell the phases of the run that is being tracked.

    Returns the loader to go through instead, as often as wanted. See :meth:`TrackedRun.autophase`.
    """
    if _active is None:
        do = "call it in the block: with levelbench.track(...) as run"
        raise UsageError("autophase", "no run is being tracked", do)
    _active.autophase(model, optimizer)
    return _Data(_active, loader if loader is not None else ())


def predict(function: Callable[[Any], Any]) -> bool:
    """Give ``levelbench time --held-out`` the predictions of ``function`` for its inputs; without it, do nothing.

    ``function`` gets the inputs as a NumPy array (n, ...) and returns a class for each (n,), or scores (n, classes).
    Training has ended where this is called. Whether there was anything to predict.
    """
    asked, answer = os.environ.get("LEVELBENCH_INPUTS"), os.environ.get("LEVELBENCH_PREDICTIONS")
    if not asked or not answer:
        return False
    import numpy as np

    sys.stdout.write("levelbench: trained\n")
    sys.stdout.flush()
    inputs = Path(asked)
    while not inputs.exists():
        time.sleep(0.001)
    found = np.asarray(function(np.load(inputs, allow_pickle=False)))
    with Path(answer).open("wb") as file:
        np.save(file, found, allow_pickle=False)
    return True


class _Data(Generic[T]):
    """A loader whose batches are a run's."""

    def __init__(self, run: TrackedRun, loader: Iterable[T]) -> None:
        self._run, self._loader = run, loader

    def __iter__(self) -> Iterator[T]:
        return self._run.data(self._loader)

    def __len__(self) -> int:
        return len(cast(Sized, self._loader))

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)


@dataclass
class Outside:
    """What the process that watches a program from outside knows of it, where the run is not its own.

    ``failed`` says why the program failed; ``measured`` holds what was measured of it, by name, in place of what meters
    say of this process; the rest as in a record's header, and the doubts of its end.
    """

    planned_effect: float | None = None
    planned_runs: int = 0
    replaced: int = 0
    failed: str = ""
    measured: dict[str, Measurement] = field(default_factory=dict)
    suspect: list[str] = field(default_factory=list)


@final
class TrackedRun:
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
    ) -> None:
        self._seed, self._picks_seed = seed, seed is None
        self.reached = self.over = False
        self._specification, self._key, self._source, self._store = specification, key, source, store
        self._outside = outside
        self._first, self._quiet = first, quiet
        self._timeline: Timeline = cast(Timeline, None)
        self._phase: int = Phase.PREPARE
        self._phases = {phase.label: _PhaseBlock(self, phase) for phase in Phase}
        self._state: Literal["new", "open", "closed"] = "new"
        self._thread = self._mark_ns = 0
        self._step_open = False
        self._step_spans: list[tuple[int, int]] = []
        self._steps = self._steps_looked_at = self._samples = 0
        self._epochs, self._share, self._counts_epochs = 0, 0.0, False
        self._counts_steps, self._steps_before_epoch, self._looking = False, 0, False
        self.hooked: dict[int, int] = {}
        """How often what :meth:`autophase` was given has passed forward, by its identity."""
        self._evaluations: list[Evaluation] = []
        self._quality: dict[str, float] = {}
        self._budget_spent = self._ended = self._follows = False
        self._held_ns: dict[str, int] | None = None
        self._hooks: list[Any] = []

    def __enter__(self) -> Self:
        global _active  # one run a process: its clock, meters and record are the process's
        if self._state != "new" or _active is not None:
            raise UsageError(f"tracking {self._specification.task!r}", "a run is being tracked already", "end it first")
        # First of all: what it takes to start is on no clock, and no load from elsewhere.
        self._bystander = Bystander()
        environment = capture()
        framework = {"name": self._specification.framework, "device": self._specification.device}
        outside = self._outside
        started = "in place" if outside is None else "from outside"
        self._environment: dict[str, Any] = {**environment, "framework": framework, "started": started}
        # A process of its own has done nothing before its clock.
        before = _Spent.now() - _tracked if outside is None else _Spent()
        self._before_s = before.cpu_s
        self._environment["before_clock"] = {"cpu_s": round(before.cpu_s, 4), "wall_s": round(before.wall_s, 4)}
        if self._picks_seed and outside is None:
            self._environment["seed_picked"] = True
        if outside is None and sys.argv[1:]:
            self._environment["arguments"] = redact(shlex.join(sys.argv[1:]))[:_MOST_ARGUMENTS]
        folder = self._folder
        # Of programs that start at once each is to have a seed of its own.
        with claimed(folder / f".{self._key[:8]}", lambda: None) if self._picks_seed else nullcontext():
            if self._seed is None:
                self._seed = _next_seed(folder, self._key)
            writer = RecordWriter.create(self._store, self._header()) if self._first else None
        self._record = Written(writer.path if writer else Path(), writer)
        self._thread, self._state, _active = threading.get_ident(), "open", self
        self._gauges = meters()
        for gauge in self._gauges:
            gauge.start()
        self._sights = Sights(HOST, self._bystander.tell, self._bystander.hear)
        self._sights.begin()
        self._timeline = Timeline(HOST)
        self._sights.started(self._timeline)
        self._mark_ns = self._timeline.switched_ns
        return self

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
        global _active, _tracked  # noqa: PLW0603  # both are the process's
        if self._state != "open":
            return
        self._state, _active = "closed", None
        for hook in self._hooks:
            hook.remove()
        try:
            # Interrupted from the keyboard: the record has no end, as one that was killed.
            if not isinstance(error, KeyboardInterrupt | GeneratorExit):
                self._end(error)
        finally:
            self._bystander.close()
            self._record.__exit__(None, None, None)
            _tracked = _Spent.now()

    @property
    def seed(self) -> int:
        """That of the run; where nobody gave one, the next one that has no run when it is first asked for."""
        if self._seed is None:
            self._seed = _next_seed(self._folder, self._key)
        return self._seed

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
        length = len(batches) if isinstance(batches, Sized) else 0
        count, taken, back = examples or examples_of, 0, self._phase
        # A loader starts its workers here.
        self._switch(Phase.DATA)
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
            self._samples += count(batch)
            try:
                yield batch
            except GeneratorExit:
                self._finish_step()
                raise

    def step(self, examples: int = 1) -> None:
        """A step ends here: for loops that do not take their batches from :meth:`data`."""
        self._need_own("step")
        self._begin_work()
        self._counts_steps = True
        self._samples += examples
        self._step_open = True
        self._finish_step()

    def phase(self, name: str) -> _PhaseBlock:
        """``with run.phase("forward")``: what is done in it belongs to this phase; phases may be nested.

        Names are those of ``levelbench.Phase``: data, forward, backward, communicate, update, evaluate, ...
        """
        found = self._phases.get(name)
        if found is None:
            raise UnknownNameError("phase", name, list(self._phases))
        return found

    def autophase(self, model: object, optimizer: object = None) -> None:
        """Let the hooks of a PyTorch module and its optimizer tell the phases, while this run goes on.

        A forward pass is ``forward``, what follows it ``backward`` until the optimizer steps, which is ``update``. A
        forward pass without gradients is ``evaluate``. One hook before and one after each, and none in the backward
        pass. Raises ``UsageError`` for what has no such hooks.
        """
        from levelbench.experiments.callbacks import hook_phases

        self._need_own("autophase")
        self._hooks += hook_phases(self, model, optimizer)

    def callback(self, trainer: str, *, metric: str | None = None, examples: int | None = None) -> object:
        """A callback for ``lightning``, ``transformers``, ``keras``, ``xgboost`` or ``lightgbm`` (a list of two there).

        It tells phases, steps and the quality after each evaluation, and ends the training when the run is over.
        ``metric`` is the name under which the trainer logs the target's metric on held-out data, where it is not that
        of the target (after ``val_`` for Keras and ``eval_`` for Transformers); ``examples`` is how many examples a
        step has, where the trainer does not say it. Raises ``MissingError`` where the trainer is not installed.
        """
        from levelbench.experiments.callbacks import make_callback

        self._need_own("callback")
        self._counts_steps = True
        return make_callback(self, trainer, metric, examples)

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
        """Record a quality that a program has told of itself, after so many epochs where it tells these."""
        if epoch is not None and epoch > self._epochs + self._share:
            self._epochs, self._share = int(epoch), epoch - int(epoch)
        self.evaluate(quality)
        return self._evaluations[-1]

    def hold(self) -> None:
        """The clock of the last evaluation stops here; what its quality is will be told by :meth:`evaluate_held`."""
        if self._held_ns is None:
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
        # Of an epoch whose length nobody has told it is looked at at the end.
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
        except (TypeError, ValueError) as error:
            raise UsageError(asked, f"a quality is no number: {values!r}"[:200], "return a number") from error
        value, high = plain.pop(target.metric), math.inf if target.high is None else target.high
        if not (math.isnan(value) or target.low <= value <= high):
            found = f"{target.metric} is {value:g}, on a scale from {target.low:g} to {high:g}"
            do = "report it on that scale, or give track(..., scale=(lowest, highest))"
            if self._outside is not None:
                do = "give the target in per cent, as in --target accuracy=94, where the program prints per cent"
            raise UsageError(asked, found, do)
        return value, {split: value, **{f"{split}.{name}": each for name, each in plain.items()}}

    def _stops(self) -> bool:
        """Whether a loop is to end."""
        if self._state == "open" and self._specification.budget_s is not None and not self.over:
            spent_ns = self._timeline.switched_ns - self._timeline.started_ns
            self._budget_spent = self.over = spent_ns > self._specification.budget_s * 1e9
        return self.over

    def _begin_work(self) -> None:
        if self._phase == Phase.PREPARE:
            self._follow_device()
            self._switch(Phase.OTHER)
            self._mark_ns = self._timeline.switched_ns if self._timeline is not None else 0

    def _follow_device(self) -> None:
        """Let the phases be those of the current CUDA device, as soon as the program has begun to use it."""
        # Another thread may be about to import it.
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if self._follows or self._state != "open" or cuda is None or not cuda.is_initialized():
            return
        from levelbench.experiments.callbacks import CudaEvents

        self._timeline.follow(CudaEvents(cuda))
        self._follows = True

    def _switch(self, phase: int) -> None:
        if self._state == "open":
            self._timeline.switch(phase)
            self._phase = phase

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
        done = error is None or (isinstance(error, SystemExit) and error.code in (None, 0))
        outside = self._outside or Outside()
        if not done or outside.failed or not self._evaluations:
            why = outside.failed or "it made no evaluation"
            if error is not None and not done:
                why = fault(error, Path(self._source.name))
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
        suspect = [*doubts(self._environment, after), *outside.suspect]
        if self._before_s > max(_BEFORE_S, _BEFORE_SHARE * elapsed_ns * 1e-9):
            suspect.append(
                f"its process spent {self._before_s:.3g} s of processor time before its clock started: begin to track "
                "before anything is trained"
            )
        if self._steps and not all(self.hooked.values()):
            suspect.append("autophase saw no forward pass: its phases are not told apart; give it what the loop calls")
        stopped_by = "its program ended"
        if self.reached:
            stopped_by = "target reached"
        elif self._budget_spent:
            stopped_by = f"budget of {self._specification.budget_s:g} s spent"
        quality = {**self._evaluations[-1].quality, **self._quality}
        self._record.append(
            End("done", elapsed_ns, totals, quality, None, suspect, after, None, stopped_by, witness=witness)
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


@final
class _PhaseBlock:
    """What is done in this block belongs to one phase. One object a phase, which may be nested in itself."""

    __slots__ = ("_outer", "_phase", "_run")

    def __init__(self, run: TrackedRun, phase: int) -> None:
        self._run, self._phase = run, phase
        self._outer: list[int] = []

    def __enter__(self) -> None:
        run = self._run
        run._need_own("phase")  # one subject, in two classes
        run._begin_work()
        self._outer.append(run._phase)
        run._switch(self._phase)

    def __exit__(self, *_: object) -> None:
        self._run._switch(self._outer.pop())


@dataclass(frozen=True)
class _Spent:
    """Processor time and wall time of this process."""

    cpu_s: float = 0.0
    wall_s: float = 0.0

    @classmethod
    def now(cls) -> _Spent:
        return cls(own_cpu_s(), _running_s())

    def __sub__(self, other: _Spent) -> _Spent:
        return _Spent(max(0.0, self.cpu_s - other.cpu_s), max(0.0, self.wall_s - other.wall_s))


def _running_s() -> float:
    """How long ago this process started, as the kernel knows it; 0 where nobody tells, or where a person is typing."""
    # In an interactive session most of that time is waiting for the next line.
    if hasattr(sys, "ps1"):
        return 0.0
    try:
        started = int(Path("/proc/self/stat").read_text(errors="replace").rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


_active: TrackedRun | None = None
_tracked = _Spent()
"""What this process had spent when its last run ended: another run in it begins from there."""


def _leave_to_parent() -> None:
    global _active, _tracked  # noqa: PLW0603
    _tracked = _Spent()
    if _active is not None:
        _active._forked()
        _active = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def _source_of(frame: FrameType) -> Source:
    """The text of the program that calls, with the user's own modules that it imports."""
    name = frame.f_code.co_filename
    text = "".join(linecache.getlines(name, frame.f_globals))
    module = sys.modules.get(str(frame.f_globals.get("__name__")))
    modules = own_modules(module) if getattr(module, "__file__", None) else {}
    return source_of_text(Path(name).name, text, modules=modules)


def _place() -> tuple[int, int]:
    """The rank of this process among those of one launch, and how many they are."""
    for rank, size in _RANKS:
        if os.environ.get(rank, "").isdecimal() and os.environ.get(size, "").isdecimal():
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1


def _plain(asked: str, name: object, value: object) -> Setting:
    if isinstance(value, bool | str):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real) and math.isfinite(float(value)):
        return float(value)
    raise UsageError(asked, f"{name} is {value!r}"[:200], "give a finite number; a setting may be text")


def target_of(
    asked: str,
    given: Mapping[str, float],
    direction: Literal["higher", "lower"] | None,
    scale: tuple[float, float | None] | None,
) -> Target:
    """The target that ``{metric: value}`` is; what is not given follows from the metric's name, or ``UsageError``."""
    if not isinstance(given, Mapping) or len(given) != 1:
        raise UsageError(asked, f"its target is {given!r}"[:200], 'give one metric with a value: {"accuracy": 0.94}')
    ((metric, value),) = given.items()
    threshold = _plain(asked, metric, value)
    if isinstance(threshold, bool | str):
        raise UsageError(asked, f"its target {metric} is {threshold!r}", "give a number")
    way = direction or better_of(str(metric))
    if way is None:
        do = "say it: direction='lower' or 'higher' (--direction)"
        raise UsageError(asked, f"whether a higher or a lower {metric} is better does not follow from its name", do)
    sign_of(way)
    low, high = scale if scale is not None else (0.0, 1.0 if is_share(str(metric)) else None)
    target = Target(str(metric), float(threshold), way, float(low), None if high is None else float(high))
    target.require_on_scale()
    return target


def _next_seed(folder: Path, key: str) -> int:
    """The first seed from 0 on that no record of this key has."""
    found = (re.match(rf"{key[:8]}-s(\d+)-", each.name) for each in folder.glob(f"*/{key[:8]}-s*.jsonl"))
    taken = {int(each[1]) for each in found if each}
    return next(seed for seed in range(len(taken) + 1) if seed not in taken)


def examples_of(batch: object) -> int:
    """The length of a batch, or of its first part; 0 where it has none."""
    if isinstance(batch, Mapping):
        batch = next(iter(batch.values()), ())
    elif isinstance(batch, list | tuple) and batch and not isinstance(batch[0], int | float | str):
        batch = batch[0]
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else 0
    return len(batch) if isinstance(batch, Sized) and not isinstance(batch, str | bytes) else 0
