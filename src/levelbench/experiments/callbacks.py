"""Callbacks of trainers, that report to a tracked run.

``run.callback("lightning")`` is an instance of that trainer's own class of callbacks, which is imported when it is
asked for. What a trainer has no event for is not known: where forward, backward and update cannot be told apart they
are one phase, ``train``.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, SupportsFloat

from levelbench.errors import MissingError, UnknownNameError, UsageError
from levelbench.experiments.marking import MarkedRun, examples_of
from levelbench.measure.timeline import Phase

__all__ = ["CALLBACKS", "make_callback"]


_HELD_OUT = re.compile(r"^(?:val|valid|validation|eval|dev)[_/]")


def make_callback(run: MarkedRun, trainer: str, metric: str | None, examples: int | None) -> Any:
    """The callback of ``trainer``; the rest as in :meth:`TrackedRun.callback`."""
    make = CALLBACKS.get(trainer)
    if make is None:
        raise UnknownNameError("trainer", trainer, sorted(CALLBACKS))
    return make(_Reporter(run, metric, examples))


class _Reporter:
    """Reports a trainer's events to a run; all callbacks share it."""

    def __init__(self, run: MarkedRun, metric: str | None, examples: int | None) -> None:
        self.run, self.metric, self._examples = run, metric, examples
        self.phase: Callable[[Phase], None] = self._first_phase
        """Replaced after the first phase."""

    def _first_phase(self, phase: Phase) -> None:
        # One subject, in two files; each event of a step costs on the clock.
        self.run._begin_work()
        self.run._follow_compiler()
        self.phase = self.run._switch
        self.phase(phase)

    def step(self, examples: int = 0, batch: object = None, times: int = 1) -> None:
        """A step has ended, of so many ``times`` the examples of one."""
        if self._examples is not None:
            examples = self._examples * times
        self.run.step(examples or (examples_of(batch) if batch is not None else 0))

    def over(self) -> bool:
        """Whether the training is to end."""
        return self.run._stops()

    def quality(self, logged: Mapping[str, SupportsFloat], epoch: float, prefix: str = "") -> None:
        """Record what the trainer has logged after so many epochs; where it has not validated, nothing.

        What it logs of validation begins with ``prefix``: without it, ``accuracy`` may be that of the training data.
        """
        wanted = self.metric or self.run.metric
        if not wanted:
            return
        name = self.metric if self.metric is not None else prefix + wanted
        if self.metric is None and name not in logged:
            found = [each for each in logged if _HELD_OUT.sub("", each) == name]
            name = found[0] if len(found) == 1 else name
        if name in logged:
            self.run._logged(name, float(logged[name]), epoch)
        elif any(each.startswith(prefix) for each in logged):
            shown = ", ".join(sorted(map(str, logged)))
            do = 'name the one that is the target\'s: run.callback(..., metric="val_acc")'
            raise UsageError(f"the quality {name!r}", f"the trainer logs {shown}", do)


class _Callback:
    """What goes before a trainer's own class among the bases of a callback."""

    def __init__(self, reporter: _Reporter) -> None:
        super().__init__()
        self.reporter = reporter


def _made(reporter: _Reporter, own: type[_Callback], asked: str, *places: str) -> Any:
    """An instance of ``own`` and of the first class of ``module:name`` that is there."""
    return type(own.__name__.strip("_"), (own, _found(asked, *places)), {})(reporter)


def _found(asked: str, *places: str) -> Any:
    for place in places:
        module, _, name = place.partition(":")
        with suppress(ImportError):
            return getattr(importlib.import_module(module), name)
    raise MissingError(f"a callback for {asked}", f"{asked} is not installed", f"pip install {asked}")


class _Lightning(_Callback):
    """All four phases; validation is ``evaluate``, and what it logs is of held-out data."""

    def __init__(self, reporter: _Reporter) -> None:
        super().__init__(reporter)
        self.before: dict[str, float] = {}
        self.validated: set[str] = set()

    def on_train_start(self, trainer: Any, module: object) -> None:
        self.reporter.phase(Phase.DATA)

    def on_train_batch_start(self, trainer: Any, module: object, batch: object, batch_idx: int) -> None:
        self.reporter.phase(Phase.FORWARD)

    def on_before_backward(self, trainer: Any, module: object, loss: object) -> None:
        self.reporter.phase(Phase.BACKWARD)

    def on_after_backward(self, trainer: Any, module: object) -> None:
        self.reporter.phase(Phase.OTHER)

    def on_before_optimizer_step(self, trainer: Any, module: object, optimizer: object) -> None:
        self.reporter.phase(Phase.UPDATE)

    def on_train_batch_end(self, trainer: Any, module: object, outputs: object, batch: object, batch_idx: int) -> None:
        self.reporter.step(batch=batch)
        self.reporter.phase(Phase.DATA)
        self._stop(trainer)

    def on_validation_start(self, trainer: Any, module: object) -> None:
        if not trainer.sanity_checking:
            self.reporter.phase(Phase.EVALUATE)
            self.before = self._logged(trainer)

    def on_validation_end(self, trainer: Any, module: object) -> None:
        if trainer.sanity_checking:
            return
        batches, done = trainer.num_training_batches, trainer.fit_loop.epoch_loop.batch_idx + 1
        logged = self._logged(trainer)
        # Training logs into the same place, and nothing while validation goes on.
        self.validated |= {name for name, value in logged.items() if self.before.get(name) != value}
        logged = {name: value for name, value in logged.items() if name in self.validated}
        self.reporter.quality(logged, trainer.current_epoch + (done / batches if batches else 1.0))
        self.reporter.phase(Phase.DATA)
        self._stop(trainer)

    def on_train_end(self, trainer: Any, module: object) -> None:
        self.reporter.phase(Phase.OTHER)

    def _stop(self, trainer: Any) -> None:
        if self.reporter.over():
            trainer.should_stop = True

    def _logged(self, trainer: Any) -> dict[str, float]:
        return {name: float(value) for name, value in trainer.callback_metrics.items()}


class _Transformers(_Callback):
    """Forward and backward, with loading the further batches of a step, are ``train``."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: object) -> None:
        self.reporter.phase(Phase.DATA)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: object) -> None:
        self.reporter.phase(Phase.TRAIN)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: object) -> None:
        self.reporter.phase(Phase.UPDATE)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: object) -> None:
        self.reporter.phase(Phase.OTHER)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        self.reporter.step(args.train_batch_size * args.gradient_accumulation_steps)
        self._go_on(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        self._go_on(control)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: object) -> None:
        self.reporter.quality(metrics or {}, state.epoch or 0.0, "eval_")
        self.reporter.phase(Phase.DATA)
        if self.reporter.over():
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **_: object) -> None:
        self.reporter.phase(Phase.OTHER)

    def _go_on(self, control: Any) -> None:
        self.reporter.phase(Phase.EVALUATE if control.should_evaluate else Phase.DATA)
        if self.reporter.over():
            control.should_training_stop = True


class _Keras(_Callback):
    """A batch is one phase, ``train``."""

    model: Any
    fitting = False
    batch = -1

    def on_train_begin(self, logs: object = None) -> None:
        self.fitting = True
        self.reporter.phase(Phase.DATA)

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self.batch = -1

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        self.reporter.phase(Phase.TRAIN)

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        # With steps_per_execution several batches are one event.
        self.reporter.step(times=batch - self.batch if batch > self.batch else 1)
        self.batch = batch
        self.reporter.phase(Phase.DATA)
        self._stop()

    def on_test_begin(self, logs: object = None) -> None:
        if self.fitting:
            self.reporter.phase(Phase.EVALUATE)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.reporter.quality(logs or {}, epoch + 1, "val_")
        self.reporter.phase(Phase.DATA)
        self._stop()

    def on_train_end(self, logs: object = None) -> None:
        self.fitting = False
        self.reporter.phase(Phase.OTHER)

    def _stop(self) -> None:
        if self.reporter.over():
            self.model.stop_training = True


def _held_out(sets: Mapping[str, Mapping[str, SupportsFloat]]) -> Mapping[str, SupportsFloat]:
    """The figures of the last data set that is not called after training."""
    names = [name for name in sets if not name.lower().startswith("train")]
    return sets[names[-1]] if names else next(reversed(list(sets.values())), {})


class _Xgboost(_Callback):
    """An iteration is one phase, ``train``, with its evaluation: both come before the event."""

    def before_iteration(self, model: object, epoch: int, evals_log: object) -> bool:
        self.reporter.phase(Phase.TRAIN)
        return self.reporter.over()

    def after_iteration(self, model: object, epoch: int, evals_log: Mapping[str, Mapping[str, Any]]) -> bool:
        self.reporter.step()
        # That of a cross-validation is a mean with its deviation.
        latest = {
            name: {metric: each[-1][0] if isinstance(each[-1], tuple) else each[-1] for metric, each in found.items()}
            for name, found in evals_log.items()
        }
        self.reporter.quality(_held_out(latest), epoch + 1)
        self.reporter.phase(Phase.OTHER)
        # A cross-validation takes only its early stopping to end it here; it ends before the next iteration.
        return self.reporter.over() and not hasattr(model, "cvfolds")


def _lightgbm(reporter: _Reporter) -> Any:
    """Two, for before and after an iteration, which is one phase, ``train``, with its evaluation."""
    stop = _found("lightgbm", "lightgbm.callback:EarlyStopException")

    def before(state: object) -> None:
        reporter.phase(Phase.TRAIN)

    def after(state: Any) -> None:
        reporter.step()
        found = state.evaluation_result_list or []
        sets: dict[str, dict[str, SupportsFloat]] = {}
        for name, metric, value, *_ in found:
            sets.setdefault(name, {})[metric] = value
        reporter.quality(_held_out(sets), state.iteration + 1)
        reporter.phase(Phase.OTHER)
        if reporter.over():
            raise stop(state.iteration, found)

    vars(before).update(before_iteration=True, order=100)
    vars(after).update(before_iteration=False, order=100)
    return [before, after]


CALLBACKS: Mapping[str, Callable[[_Reporter], Any]] = {
    "keras": lambda reporter: _made(reporter, _Keras, "keras", "keras.callbacks:Callback"),
    "lightgbm": _lightgbm,
    "lightning": lambda reporter: _made(
        reporter, _Lightning, "lightning", "lightning.pytorch:Callback", "pytorch_lightning:Callback"
    ),
    "transformers": lambda reporter: _made(reporter, _Transformers, "transformers", "transformers:TrainerCallback"),
    "xgboost": lambda reporter: _made(reporter, _Xgboost, "xgboost", "xgboost.callback:TrainingCallback"),
}
