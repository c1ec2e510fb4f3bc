"""The scheme interface: how the ranks of one training keep their parameters together.

A scheme is to several processes what an optimizer is to one. It works with any optimizer, is described by a frozen
value, and runs as a ``Stepper``, so the trainer's loop is the same for every scheme.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from levelbench.distributed.communicator import Communicator
from levelbench.distributed.packing import HostArray
from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Array, Backend, Executor
from levelbench.training.optimizers.base import Optimizer, Stepper


@dataclass(frozen=True)
class Traffic:
    """What a rank sends: bytes and messages."""

    sent_bytes: float
    messages: float

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.sent_bytes + other.sent_bytes, self.messages + other.messages)

    def __mul__(self, times: float) -> Traffic:
        return Traffic(self.sent_bytes * times, self.messages * times)


Columns = tuple[tuple[str, str], ...]
"""Names and units of quantities that are noted together."""


class Observations:
    """What a rank observes while training, by name: ``staleness`` in updates, ``divergence`` as a ratio, ..."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[str, list[float]]] = {}
        self._rows: dict[Columns, list[tuple[float, ...]]] = {}

    def note(self, name: str, value: float, unit: str = "1") -> None:
        """Append a value of a quantity."""
        self._values.setdefault(name, (unit, []))[1].append(value)

    def note_row(self, columns: Columns, values: tuple[float, ...]) -> None:
        """Append a value of each of several quantities, which must not be noted in any other way."""
        rows = self._rows.get(columns)
        if rows is None:
            rows = self._rows[columns] = []
        rows.append(values)

    def begin_with(self, values: Mapping[str, tuple[str, list[float]]]) -> None:
        """Replace all values by these, given by name with their units."""
        self._values, self._rows = {name: (unit, list(each)) for name, (unit, each) in values.items()}, {}

    def take(self) -> dict[str, tuple[str, list[float]]]:
        """The units and values since the last call, by name."""
        values, self._values = self._values, {}
        rows, self._rows = self._rows, {}
        for columns, each in rows.items():
            for (name, unit), column in zip(columns, zip(*each, strict=True), strict=True):
                values.setdefault(name, (unit, []))[1].extend(column)
        return values


@dataclass(frozen=True)
class Worker:
    """What a scheme works with on one rank: the communicator and the live network.

    ``switch`` moves the run's timeline: a scheme calls it with ``Phase.COMMUNICATE`` before it communicates and with
    ``Phase.UPDATE`` before it updates. ``seed`` is the run's, equal on all ranks. A scheme times its own messages with
    ``clock``.
    """

    communicator: Communicator
    backend: Backend
    executor: Executor
    optimizer: Optimizer
    seed: int = 0
    switch: Callable[[Phase], None] = lambda phase: None
    ledger: Observations = field(default_factory=Observations)
    clock: Clock = HOST


class SchemeStepper(Stepper):
    """A scheme at work on one rank.

    Its first action, in ``Scheme.start``, is to give all ranks the parameters of rank 0. The trainer sets ``share``
    before each :meth:`step`.
    """

    executor: Executor
    """The executor that the trainer runs: the worker's own, unless the scheme wraps it."""
    kept: ClassVar[bool] = False
    """Whether :meth:`state` is complete; each class with its own :meth:`step` must declare it."""
    share: float = 1.0
    """This rank's share of the step's global batch, the weight of its gradient; all shares sum to 1."""

    @abstractmethod
    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        """Communicate and update; returns in phase ``update``. ``step`` counts from 1, equally on all workers.

        ``gradients`` are of the mean loss over this rank's examples, zeros if it has none this time. They may be
        overwritten.
        """

    def serve(self, first: int, last: int, factor: Callable[[int], float]) -> None:
        """Serve, on a rank that does not train, the workers' steps ``first`` to ``last`` (inclusive, from 1).

        ``factor`` gives the factor of the learning rate of a step.
        """
        raise NotImplementedError(f"{type(self).__name__} has no servers")

    def meet(self) -> None:
        """Finish everything in progress; all ranks, servers included, call this before an evaluation."""

    def averaged(self) -> Mapping[str, Array] | None:
        """The weights to evaluate, if they are not the trained ones. Collective: all workers call it."""
        return None

    def close(self) -> None:
        """Release everything in progress; collective, after the last :meth:`meet`."""

    @property
    def unkept(self) -> str | None:
        """Why a run with this stepper cannot resume from a checkpoint; ``None`` if it can.

        A stepper with its own :meth:`step` may hold more than its base class knows, so its class must declare ``kept``
        itself.
        """
        if self.kept and _place(type(self), "kept") <= _place(type(self), "step"):
            return None
        return f"{type(self).__name__} does not declare that its state is complete (kept = True)"

    def state(self) -> dict[str, HostArray]:
        """Everything this rank needs to resume, except its parameters: host arrays by flat names.

        Collective: all ranks, servers included, call it between the same two steps, and none continues before all have
        it. What is in progress is finished, or :meth:`restore` starts it again.
        """
        raise NotImplementedError(f"{type(self).__name__} keeps no state")

    def restore(self, state: Mapping[str, HostArray]) -> None:
        """Resume from the result of :meth:`state`; the parameters are already restored. Collective."""
        raise NotImplementedError(f"{type(self).__name__} keeps no state")


def _place(kind: type, name: str) -> int:
    """The position in the method resolution order of the class that defines ``name``, not counting the base class."""
    for at, each in enumerate(kind.__mro__):
        if each is SchemeStepper:
            break
        if name in vars(each):
            return at
    return len(kind.__mro__)


class Scheme(ABC):
    """A way to keep ranks together.

    Concrete schemes are frozen dataclasses; their fields (int, float, str, bool, all with defaults) are the settings
    that a user may give: ``top-k[ratio=0.01]``.
    """

    name: ClassVar[str]
    """As in ``levelbench list schemes``."""
    aliases: ClassVar[tuple[str, ...]] = ()
    source: ClassVar[str]
    """The paper that describes it."""
    consistent: ClassVar[bool]
    """Whether p ranks compute the same as one process on the same global batch, to rounding."""
    replicated: ClassVar[bool]
    """Whether all workers hold the same bits after every step."""
    lockstep: ClassVar[bool] = True
    """Whether no worker begins a step before all have ended the previous one, or may do so without harm."""
    frameworks: ClassVar[tuple[str, ...]] = ()
    """The frameworks that it runs on; empty: all."""
    communicators: ClassVar[tuple[str, ...]] = ()
    """The communicators that it supports; empty: all."""
    messages: ClassVar[bool] = False
    """Whether messages between two ranks are on their way in both directions at once, which NCCL cannot do."""
    counted: ClassVar[bool] = True
    """Whether everything it sends goes through the communicator; a framework's own scheme may send by itself."""

    def lacks(self) -> str | None:
        """What is missing here to use it; ``None`` if nothing is. Imports nothing."""
        return None

    def workers(self, size: int) -> int:
        """How many of ``size`` ranks train, the first ones; the others serve. ``UsageError`` for too few ranks."""
        return size

    def load(self) -> None:  # noqa: B027  # most need nothing
        """Import what :meth:`start` will need; called before any clock starts."""

    @abstractmethod
    def start(self, worker: Worker) -> SchemeStepper:
        """Start to work. Collective: all ranks, servers included."""

    @abstractmethod
    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        """What ``rank`` sends per step, on average: the closed form for parameters of these shapes.

        In the terms of :mod:`levelbench.distributed.traffic`. The counting communicator counts exactly this, unless
        :meth:`traffic_within` makes it an expectation.
        """

    def traffic_over(
        self, communicator: str, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int
    ) -> Traffic:
        """:meth:`traffic` over the communicator of that name, for schemes that send by themselves."""
        return self.traffic(parameters, itemsize, size, rank)

    def simulated(self) -> Scheme:
        """The scheme that a simulation runs in its place: one that sends as expected, whatever the gradients are."""
        return self

    def traffic_within(self) -> float:
        """The factor by which the mean sent per step may differ from :meth:`traffic`: 1 if that is exact.

        Above 1 it is an expectation, because sizes depend on the gradients; infinite if they depend on anything else.
        """
        return 1.0

    def most_weight(self) -> float:
        """The most that a gradient weighs in all updates together: above 1 with a momentum of the scheme's own.

        Infinite if updates are no sums of gradients, such as majority votes.
        """
        return 1.0


class Preset(Scheme):
    """A scheme that is another one with certain settings, known to users, records and plots by its own name."""

    consistent: ClassVar[bool] = False
    replicated: ClassVar[bool] = False

    def __post_init__(self) -> None:
        # Refuse impossible settings when the preset is made, as the scheme itself does.
        _ = self.meant

    @property
    @abstractmethod
    def meant(self) -> Scheme:
        """The scheme that does the work; ``DefinitionError`` for impossible settings."""

    def workers(self, size: int) -> int:
        return self.meant.workers(size)

    def start(self, worker: Worker) -> SchemeStepper:
        return self.meant.start(worker)

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        return self.meant.traffic(parameters, itemsize, size, rank)

    def traffic_within(self) -> float:
        return self.meant.traffic_within()

    def most_weight(self) -> float:
        return self.meant.most_weight()
