"""What a scheme is: how the ranks of one training keep their parameters together.

A scheme is to several processes what an optimizer is to one. It wraps any optimizer, is described by a
frozen value, and goes to work as a ``Stepper``, so the trainer's loop is the same whatever the scheme.
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
    """What a rank observes while it trains, by name: ``staleness`` in updates, ``divergence`` as a ratio, ..."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[str, list[float]]] = {}
        self._rows: dict[Columns, list[tuple[float, ...]]] = {}

    def note(self, name: str, value: float, unit: str = "1") -> None:
        """One more value of a quantity, in order."""
        self._values.setdefault(name, (unit, []))[1].append(value)

    def note_row(self, columns: Columns, values: tuple[float, ...]) -> None:
        """One more value of each of several quantities, which are noted in no other way."""
        rows = self._rows.get(columns)
        if rows is None:
            rows = self._rows[columns] = []
        rows.append(values)

    def begin_with(self, values: Mapping[str, tuple[str, list[float]]]) -> None:
        """Hold these values by name, with their units, and nothing else."""
        self._values, self._rows = {name: (unit, list(each)) for name, (unit, each) in values.items()}, {}

    def take(self) -> dict[str, tuple[str, list[float]]]:
        """Unit and values by name since the last call."""
        values, self._values = self._values, {}
        rows, self._rows = self._rows, {}
        for columns, each in rows.items():
            for (name, unit), column in zip(columns, zip(*each, strict=True), strict=True):
                values.setdefault(name, (unit, []))[1].extend(column)
        return values


@dataclass(frozen=True)
class Worker:
    """What a scheme gets to work with on one rank: its part of the team, and the live network.

    ``switch`` moves the run's timeline: a scheme calls it with ``Phase.COMMUNICATE`` before it talks and with
    ``Phase.UPDATE`` before it updates. ``seed`` is the run's, the same on all ranks. ``clock`` is what a scheme times
    its own messages with.
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

    Its first act, in ``Scheme.start``, is to make all ranks' parameters those of rank 0.

    The trainer sets ``share`` before each :meth:`step`.
    """

    executor: Executor
    """What the trainer calls ``forward`` and ``backward`` of: the worker's own, unless the scheme wraps it."""
    kept: ClassVar[bool] = False
    """Whether :meth:`state` holds all that must be kept: to be said by each class with a :meth:`step` of its own."""
    share: float = 1.0
    """This rank's share of the step's global batch: its gradient counts with it, and all shares add up to 1."""

    @abstractmethod
    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        """Communicate and update, in phase ``update`` when it returns; ``step`` counts from 1, the same on all workers.

        ``gradients`` are of the mean loss over this rank's examples; zeros where it has none this time. They may be
        overwritten.
        """

    def serve(self, first: int, last: int, factor: Callable[[int], float]) -> None:
        """What a rank that does not train does while the workers make steps ``first`` to ``last`` (inclusive, from 1).

        ``factor`` gives the factor of the learning rate of a step.
        """
        raise NotImplementedError(f"{type(self).__name__} has no servers")

    def meet(self) -> None:
        """Bring everything under way to its end: all ranks, servers included, call this before an evaluation."""

    def averaged(self) -> Mapping[str, Array] | None:
        """The weights to evaluate with, where they are not those that are trained. Collective: all workers call it."""
        return None

    def close(self) -> None:
        """Let go of whatever is under way; collective, after the last :meth:`meet`."""

    @property
    def unkept(self) -> str | None:
        """Why a run of this cannot go on from a checkpoint; ``None`` where it can.

        A stepper with a :meth:`step` of its own may hold more than its base class knows of: its class must say
        ``kept`` itself.
        """
        if self.kept and _place(type(self), "kept") <= _place(type(self), "step"):
            return None
        return f"{type(self).__name__} does not say that its state holds all that it keeps from step to step"

    def state(self) -> dict[str, HostArray]:
        """All that this rank needs to go on from here, apart from its parameters: arrays on the host by a flat name.

        Collective: all ranks, servers included, between the same two steps, and none goes on before all have it. What
        is under way is brought to its end, or :meth:`restore` sets it going again.
        """
        raise NotImplementedError(f"{type(self).__name__} keeps no state")

    def restore(self, state: Mapping[str, HostArray]) -> None:
        """Go on from what :meth:`state` gave; the parameters are restored already. Collective."""
        raise NotImplementedError(f"{type(self).__name__} keeps no state")


def _place(kind: type, name: str) -> int:
    """How far up among the classes of ``kind`` the one is that defines ``name``; the base class does not count."""
    for at, each in enumerate(kind.__mro__):
        if each is SchemeStepper:
            break
        if name in vars(each):
            return at
    return len(kind.__mro__)


class Scheme(ABC):
    """A way to keep ranks together.

    Concrete ones are frozen dataclasses; their fields (int, float, str, bool, all with defaults) are the settings that
    a user may give: ``top-k[ratio=0.01]``.
    """

    name: ClassVar[str]
    """As in ``levelbench list schemes``."""
    aliases: ClassVar[tuple[str, ...]] = ()
    source: ClassVar[str]
    """The paper that describes it."""
    consistent: ClassVar[bool]
    """Whether p ranks compute what one process does on the same global batch, to rounding."""
    replicated: ClassVar[bool]
    """Whether all workers hold the same bits after every step."""
    lockstep: ClassVar[bool] = True
    """Whether no worker begins a step before all have ended the one before (or may do so without harm)."""
    frameworks: ClassVar[tuple[str, ...]] = ()
    """Those that it runs on; empty: all."""
    communicators: ClassVar[tuple[str, ...]] = ()
    """Those that it talks through; empty: all."""
    counted: ClassVar[bool] = True
    """Whether all that it sends goes through the communicator; a framework's own scheme sends by itself."""

    def lacks(self) -> str | None:
        """What is missing here to use it; ``None`` where nothing is. Imports nothing."""
        return None

    def workers(self, size: int) -> int:
        """How many of ``size`` ranks train: ranks 0 to this. The others serve. ``UsageError`` for too few ranks."""
        return size

    def load(self) -> None:  # noqa: B027  # most need nothing that is not there already
        """Import what :meth:`start` will need; called before any clock starts."""

    @abstractmethod
    def start(self, worker: Worker) -> SchemeStepper:
        """Go to work. Collective: all ranks, servers included."""

    @abstractmethod
    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        """What ``rank`` sends in a step, on average over steps: the closed form for these parameters' shapes.

        In the terms of :mod:`levelbench.distributed.traffic`: what the counting communicator counts equals it exactly,
        unless :meth:`traffic_within` says that it is an expectation.
        """

    def traffic_within(self) -> float:
        """By what factor the mean over steps of what is sent may differ from :meth:`traffic`: 1 where that is exact.

        Above 1 it is an expectation, as sizes depend on the gradients.
        """
        return 1.0


class Preset(Scheme):
    """A scheme that is another one with some of its settings: its users, records and plots know it by its own name."""

    def __post_init__(self) -> None:
        # Settings that cannot be meant are refused when the preset is made, as those of the scheme itself are.
        _ = self.meant

    @property
    @abstractmethod
    def meant(self) -> Scheme:
        """The scheme that goes to work; ``DefinitionError`` for settings that cannot be meant."""

    def workers(self, size: int) -> int:
        return self.meant.workers(size)

    def start(self, worker: Worker) -> SchemeStepper:
        return self.meant.start(worker)

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        return self.meant.traffic(parameters, itemsize, size, rank)

    def traffic_within(self) -> float:
        return self.meant.traffic_within()
