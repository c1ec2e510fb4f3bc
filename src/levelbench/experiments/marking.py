"""How a program says which phase it is in: through the hooks of its parts, its trainer's events, or its functions.

What it says goes to the run that it tracks in place or, under ``levelbench time``, to the process that measures it.
Started in any other way, the program runs as if nothing had been said.
"""

from __future__ import annotations

import atexit
import copy
import functools
import inspect
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sized
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from types import GeneratorType, MethodType
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast, final

from levelbench.errors import UnknownNameError, UsageError
from levelbench.experiments.told import TRAINED, Page, TellingTimeline, channel_of, open_channel, told_quality
from levelbench.measure.timeline import CudaEvents, Phase, Timeline

__all__ = ["MarkedRun", "autophase", "callback", "examples_of", "length_of", "phases", "place_of_rank", "predict"]

T = TypeVar("T")

_NO_STEP = frozenset({Phase.PREPARE, Phase.COMPILE})
_ASKS_AGAIN = 1000
"""Milliseconds."""

_RANKS = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))


class MarkedRun(ABC):
    """A run that a program tells its phases, from one thread. ``current`` is the one that is tracked in place."""

    current: ClassVar[MarkedRun | None] = None

    def __init__(self) -> None:
        self._state: Literal["new", "open", "closed"] = "new"
        self._timeline: Timeline = cast(Timeline, None)
        self._phase: int = Phase.PREPARE
        self._open: list[tuple[int, int]] = []
        self.disordered = False
        """Whether blocks of phases were left in another order than they were entered."""
        self._phases = {phase.label: _PhaseBlock(self, phase) for phase in Phase}
        self._thread = 0
        self._follows = self._counts_steps = False
        self.in_batch: bool | None = None
        """Whether a batch is being worked on; ``None`` until there is one."""
        self._hooks: list[Any] = []
        self.hooked: dict[int, Any] = {}
        """What tells the passes and steps of each part that :meth:`autophase` was given, by its identity."""
        self.missing: set[object] = set()
        """Those of them that have seen none, or no forward pass before the last step."""

    @property
    @abstractmethod
    def metric(self) -> str:
        """The metric that a trainer is to log, or nothing where that does not matter."""

    @abstractmethod
    def data(self, batches: Iterable[T]) -> Iterator[T]:
        """``batches``; waiting for one is the phase ``data``."""

    @abstractmethod
    def step(self, examples: int = 1) -> None:
        """A step ends here."""

    @abstractmethod
    def _logged(self, metric: str, quality: float, epoch: float) -> None:
        """A trainer has logged this quality on held-out data after so many epochs."""

    @abstractmethod
    def _stops(self) -> bool:
        """Whether a loop is to end."""

    @abstractmethod
    def _need_own(self, what: str) -> None:
        """``UsageError`` where ``what`` cannot be called."""

    def phase(self, name: str) -> _PhaseBlock:
        """``with run.phase("forward")``: what is done in it belongs to this phase; phases may be nested.

        Names are those of ``levelbench.Phase``: data, forward, backward, communicate, update, evaluate, ...
        """
        found = self._phases.get(name)
        if found is None:
            raise UnknownNameError("phase", name, list(self._phases))
        return found

    def autophase(self, model: object, optimizer: object = None) -> None:
        """Let the hooks of a PyTorch module and its optimizer, or a list of several, tell the phases of this run.

        A forward pass is ``forward``, what follows it ``backward`` until an optimizer steps, which is ``update``. A
        forward pass without gradients is ``evaluate``, unless the module is in training mode while a batch of the
        loader is worked on (without a loader, while a forward pass with gradients waits for its step): then it is
        ``forward``, as of a teacher or for pseudo-labels. One with gradients in evaluation mode is ``evaluate``, too,
        until a backward pass or a step follows such a one. What ``torch.compile`` compiles in them is ``compile``. One
        hook before and one after each, and none in the backward pass. Raises ``UsageError`` for what has no such hooks.
        """
        from levelbench.experiments.hooks import hook_phases

        self._need_own("autophase")
        for each in optimizer if isinstance(optimizer, list | tuple) and optimizer else [optimizer]:
            self._hooks += hook_phases(self, model, each)
        self._follow_compiler()

    def callback(self, trainer: str, *, metric: str | None = None, examples: int | None = None) -> Any:
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

    def tell_missing(self, part: object) -> None:
        """A part that was given to :meth:`autophase` has not been seen at work."""
        self.missing.add(part)

    def tell_found(self, part: object) -> None:
        """Now it has."""
        self.missing.discard(part)

    def _begin_work(self) -> None:
        if self._phase == Phase.PREPARE and not self._open:
            self._follow_device()
            self._switch(Phase.OTHER)

    def _set_apart(self, *, begins: bool) -> None:  # noqa: B027
        """What is no part of a step begins, or ends."""

    def _enclosing(self) -> int:
        """The phase to come back to after a batch: that of a block, but not what a step before has left."""
        return Phase.OTHER if self._phase in (Phase.FORWARD, Phase.BACKWARD) else self._phase

    def _follow_device(self) -> None:
        """Let the phases be those of the current CUDA device, as soon as the program has begun to use it."""
        # Another thread may be about to import it.
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if self._follows or self._state != "open" or cuda is None or not cuda.is_initialized():
            return
        self._timeline.follow(CudaEvents(cuda))
        self._follows = True

    def _follow_compiler(self) -> None:
        """Let what PyTorch compiles be a phase; its first optimizer loads its compiler, and so does torch.compile."""
        if "torch._dynamo.callback" in sys.modules:
            from levelbench.experiments.hooks import hook_compiler

            self._hooks += hook_compiler(self)

    def _switch(self, phase: int) -> None:
        if self._state == "open":
            self._timeline.switch(phase)
            self._phase = phase

    def _release(self) -> None:
        """The parts of the program tell no more."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self.hooked.clear()


@final
class _PhaseBlock:
    """What is done in this block belongs to one phase. One object a phase, which may be nested in itself."""

    __slots__ = ("_phase", "_run")

    def __init__(self, run: MarkedRun, phase: int) -> None:
        self._run, self._phase = run, phase

    def __enter__(self) -> None:
        run = self._run
        run._need_own("phase")  # one subject, in two classes
        run._begin_work()
        run._open.append((self._phase, run._phase))
        run._switch(self._phase)
        if self._phase in _NO_STEP:
            run._set_apart(begins=True)

    def __exit__(self, *_: object) -> None:
        run = self._run
        phase, outer = run._open.pop()
        if phase != self._phase:
            run.disordered = True
        run._switch(outer)
        if self._phase in _NO_STEP:
            run._set_apart(begins=False)


@final
class _TimedRun(MarkedRun):
    """A program under ``levelbench time``, which measures it from outside and wants to know its phases alone."""

    only: ClassVar[_TimedRun | None] = None
    looked: ClassVar[bool] = False

    def __init__(self, page: Page | None) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        self._page, self.channel = page, -1
        if page is not None:
            self._timeline, self._state = TellingTimeline(page), "open"

    @classmethod
    def find(cls) -> _TimedRun | None:
        """That of this process; ``None`` if nobody asks for its phases, or another process already tells them."""
        path = os.environ.get("LEVELBENCH_PHASES")
        if not cls.looked and path:
            cls.looked = True
            # Programs of several processes have one page: that of the first rank, or of whoever comes first.
            with suppress(OSError):
                if place_of_rank()[0] == 0:
                    page = Page(Path(path))
                    os.close(os.open(f"{path}.taken", os.O_CREAT | os.O_EXCL))
                    cls.only = cls(page)
                    with suppress(OSError):
                        # Held open as long as this process lives.
                        cls.only.channel = open_channel(Path(path))
                    # What comes after it in a script is no part of its last phase.
                    atexit.register(cls.only._end)
        return cls.only

    @property
    def metric(self) -> str:
        """The program's quality is what it prints, or what its predictions score."""
        return ""

    def data(self, batches: Iterable[T]) -> Iterator[T]:
        """As in a tracked run."""
        if threading.get_ident() != self._thread or self._state != "open" or self._phase == Phase.EVALUATE:
            yield from batches
            return
        self._begin_work()
        self._follow_device()
        back, outer = self._enclosing(), bool(self.in_batch)
        self._switch(Phase.DATA)
        try:
            source = iter(batches)
        finally:
            self._switch(back)
        while True:
            self._switch(Phase.DATA)
            try:
                batch = next(source)
            except StopIteration:
                break
            finally:
                self._switch(back)
            self.in_batch = True
            try:
                yield batch
            finally:
                self.in_batch = outer
        if self._follows and self._state == "open":
            # An evaluation is likely to come, which waits for the device in any case.
            self._timeline.totals_ns()

    def _switch(self, phase: int) -> None:
        if self._state == "open":
            if self._follows and phase == Phase.EVALUATE:
                self._timeline.totals_ns()
            self._timeline.switch(phase)
            self._phase = phase

    def tell_missing(self, part: object) -> None:
        """On the page, too."""
        super().tell_missing(part)
        self._tell_count()

    def tell_found(self, part: object) -> None:
        """On the page, too."""
        if part in self.missing:
            super().tell_found(part)
            self._tell_count()

    def _tell_count(self) -> None:
        if self._page is not None and self._state == "open":
            self._page.missing(len(self.missing))

    def step(self, examples: int = 1) -> None:
        """Steps are not counted here."""

    def callback(self, trainer: str, *, metric: str | None = None, examples: int | None = None) -> Any:
        """As in a tracked run; it says from the start that it prints ``metric``, which the trainer may print itself."""
        made = super().callback(trainer, metric=metric, examples=examples)
        if metric is not None:
            self._print(told_quality({"prints": metric}))
        return made

    def _logged(self, metric: str, quality: float, epoch: float) -> None:
        self._print(told_quality({metric: quality, "epoch": epoch}))

    def _print(self, line: str) -> None:
        # On a line of its own, after a progress bar, too.
        if self._state == "open":
            sys.stdout.write(f"\n{line}\n")
            sys.stdout.flush()

    def _stops(self) -> bool:
        # Whoever measures the program ends it.
        return False

    def _need_own(self, what: str) -> None:
        pass

    def _end(self) -> None:
        if self._page is not None and self._state == "open":
            self._switch(Phase.OTHER)
            self._page.leave()
        self._release()
        self._state = "closed"


def _leave_to_parent() -> None:
    # In a forked child: the page and the run are the parent's.
    if (told := _TimedRun.only) is not None:
        told._state = "closed"
        if told.channel >= 0:
            os.close(told.channel)
            told.channel = -1
    if MarkedRun.current is not None:
        _TimedRun.looked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def _here() -> MarkedRun | None:
    return MarkedRun.current or _TimedRun.find()


_noted: list[str] = []


def _note(what: str) -> None:
    """Say once that nothing is measured."""
    if not _noted and "LEVELBENCH_PHASES" not in os.environ:
        _noted.append(what)
        said = f"levelbench: {what} measures nothing here: start the program with levelbench time --target"
        with suppress(AttributeError, OSError, ValueError):
            # A program may have closed it.
            sys.stderr.write(f"{said}, or call it in a block of levelbench.track\n")


def autophase(model: object, optimizer: object = None, loader: Iterable[T] | None = None) -> _Data[T]:
    """Let a PyTorch module, its optimizer and its loader tell the phases of this program.

    In a block of ``levelbench.track`` they go into its record, and under ``levelbench time --target`` into that of the
    program; otherwise nothing is measured. Returns the loader to go through instead, as often as wanted. See
    :meth:`TrackedRun.autophase`.
    """
    run = _here()
    if run is None:
        _note("autophase")
    else:
        run.autophase(model, optimizer)
    return _loader(loader if loader is not None else ())


def callback(trainer: str, *, metric: str | None = None, examples: int | None = None) -> Any:
    """A callback with which ``trainer`` tells the phases of this program, where :func:`autophase` would.

    In a block of ``levelbench.track`` it is :meth:`TrackedRun.callback`. Under ``levelbench time`` it prints the
    quality that the trainer logs as ``metric``, if that is given, for ``--target``.
    """
    run = _here()
    if run is None:
        _note("callback")
        run = _TimedRun(None)
    return run.callback(trainer, metric=metric, examples=examples)


def phases(**functions: Any) -> Any:
    """``step, score = levelbench.phases(train=step, evaluate=score)``: calls of a function belong to its phase.

    Returns the functions to call instead, in the same order; of one alone just that. What a generator does between its
    values belongs to the phase of the function that made it. ``data`` may also be a loader or an iterator, whose
    batches are waited for in that phase. What JAX computes is waited for within the phase. Names are those of
    ``levelbench.Phase``. Measured where :func:`autophase` is. Raises ``UsageError`` for what cannot be called.
    """
    found = tuple(_in_phase(name, function) for name, function in functions.items())
    return found[0] if len(found) == 1 else found


def _in_phase(name: str, function: Any) -> Any:
    if name not in {phase.label for phase in Phase}:
        raise UnknownNameError("phase", name, [phase.label for phase in Phase])
    is_data = name == Phase.DATA.label
    if is_data and not callable(function) and isinstance(function, Iterable):
        return _loader(function)
    asked = f"phases({name}=...)"
    if not callable(function):
        do = "give the function that does it" + ("" if is_data else "; only data may be what is gone through")
        raise UsageError(asked, f"{function!r} is no function"[:200], do)
    own = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    if any(kind(each) for kind in _ASYNCHRONOUS for each in (function, own)):
        raise UsageError(asked, f"{function!r} is asynchronous"[:200], "give a function that is not async")

    return _InPhase(name, function)


@final
class _InPhase:
    """A function whose calls belong to a phase.

    As an attribute of a model it goes along with a copy: that of a deep copy calls the copy's own method, and of a
    pickled model only the method stays.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._name, self._function = name, function

    def __call__(self, *given: Any, **named: Any) -> Any:
        with _block(self._name):
            found = self._function(*given, **named)
            if "jax" in sys.modules and not isinstance(found, Iterator):
                found = sys.modules["jax"].block_until_ready(found)
        if self._name == Phase.DATA.label:
            # It may be a batch: arrays can be gone through, too.
            return _loader(found) if isinstance(found, Iterable) and _is_loader(found) else found
        return _Stepwise(self._name, found) if isinstance(found, GeneratorType) else found

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        # In a class it is a method, as the function was.
        return self if instance is None else MethodType(self, instance)

    def __deepcopy__(self, memo: dict[int, Any]) -> _InPhase:
        return _InPhase(self._name, copy.deepcopy(self._function, memo))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if isinstance(self._function, MethodType):
            return getattr, (self._function.__self__, self._function.__name__)
        return functools.partial, (self._function,)


_ASYNCHRONOUS = inspect.iscoroutinefunction, inspect.isasyncgenfunction


def _is_loader(found: object) -> bool:
    return isinstance(found, Iterator) or not hasattr(type(found), "__getitem__")


def _block(name: str) -> AbstractContextManager[None]:
    """The phase of the run that goes on, if this is its thread."""
    run = _here()
    return nullcontext() if run is None or run._thread != threading.get_ident() else run.phase(name)


@final
class _Stepwise(Generator[Any, Any, Any]):
    """A generator that does its work in a phase."""

    def __init__(self, name: str, generator: GeneratorType[Any, Any, Any]) -> None:
        self._name, self._generator = name, generator

    def send(self, value: Any) -> Any:
        with _block(self._name):
            return self._generator.send(value)

    def throw(self, *given: Any) -> Any:
        with _block(self._name):
            return self._generator.throw(*given)


def predict(function: Callable[[Any], Any]) -> bool:
    """Give ``levelbench time --held-out`` the predictions of ``function`` for its inputs; without it, do nothing.

    ``function`` gets the inputs as a NumPy array (n, ...) and returns a class for each (n,), or scores (n, classes).
    Training has ended where this is called. Whether there was anything to predict.
    """
    asked, answer = os.environ.get("LEVELBENCH_INPUTS"), os.environ.get("LEVELBENCH_PREDICTIONS")
    if not asked or not answer:
        return False
    import numpy as np

    if (run := _TimedRun.only) is not None:
        run._switch(Phase.EVALUATE)
        run._release()
    with suppress(AttributeError, OSError, ValueError):
        # A program may have closed it, or sent it elsewhere.
        sys.stdout.write(f"{TRAINED}\n")
        sys.stdout.flush()
    page, inputs, waited = os.environ.get("LEVELBENCH_PHASES"), Path(asked), 0
    while not inputs.exists():
        if page and waited % _ASKS_AGAIN == 0:
            _tell(Path(page), TRAINED)
        waited += 1
        time.sleep(0.001)
    found = np.asarray(function(np.load(inputs, allow_pickle=False)))
    with Path(answer).open("wb") as file:
        np.save(file, found, allow_pickle=False)
    return True


def _tell(page: Path, line: str) -> None:
    """Tell it beside what is printed; ``UsageError`` where nobody listens any more."""
    if not channel_of(page).exists() and page.exists():
        return
    try:
        channel = open_channel(page)
    except OSError as error:
        found, do = "levelbench time has ended, and gives no inputs", "start the program with it again"
        raise UsageError("levelbench.predict", found, do) from error
    try:
        os.write(channel, f"{line}\n".encode())
    finally:
        os.close(channel)


def _loader(batches: Iterable[T]) -> _Data[T]:
    return _Batches(batches) if isinstance(batches, Iterator) else _Data(batches)


class _Data(Generic[T]):
    """A loader whose batches are those of the run that goes on."""

    def __init__(self, loader: Iterable[T]) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[T]:
        run = _here()
        return iter(self._loader) if run is None else run.data(self._loader)

    def __len__(self) -> int:
        return len(cast(Sized, self._loader))

    def __getattr__(self, name: str) -> object:
        # A copy that is being made has no loader yet.
        if name == "_loader":
            raise AttributeError(name)
        return getattr(self._loader, name)


class _Batches(_Data[T]):
    """An iterator whose batches are those of the run that goes on, also one by one, as by ``next``."""

    def __next__(self) -> T:
        with _block(Phase.DATA.label):
            return next(cast(Iterator[T], self._loader))


def place_of_rank() -> tuple[int, int]:
    """The rank of this process among those of one launch, and how many they are."""
    for rank, size in _RANKS:
        if os.environ.get(rank, "").isdecimal() and os.environ.get(size, "").isdecimal():
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1


def examples_of(batch: object) -> int:
    """The length of a batch, or of its first part; 0 where it has none."""
    if isinstance(batch, Mapping):
        batch = next(iter(batch.values()), ())
    elif isinstance(batch, list | tuple) and batch and not isinstance(batch[0], int | float | str):
        batch = batch[0]
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else 0
    return 0 if isinstance(batch, str | bytes) else length_of(batch)


def length_of(found: object) -> int:
    """Its length; 0 where it has none, as a loader of a stream, whose ``__len__`` raises."""
    try:
        return len(cast(Sized, found))
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return 0
