"""Communication schemes, right ones and ones with a single planted fault. Each has its class's name in small letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any, ClassVar

import numpy as np

from levelbench.checks.self_test import Planted
from levelbench.distributed import traffic
from levelbench.distributed.compression.compressors import Key, RandomKCompressor, TopKCompressor
from levelbench.distributed.compression.exchange import Exchange, Gathered, Reduced
from levelbench.distributed.scheme import Scheme, SchemeStepper, Traffic, Worker
from levelbench.distributed.schemes.base import BaseStepper, OwnModelStepper, arrays_of, kept_arrays, share_from
from levelbench.distributed.schemes.compressed import Compressed
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Array
from levelbench.planted.case import cases
from levelbench.training.optimizers.arrays import copy, zeros_like

Gradients = Mapping[str, Array]
Shapes = Mapping[str, tuple[int, ...]]


class Named(Scheme):
    """Named after its class."""

    name: ClassVar[str] = "named"
    source: ClassVar[str] = "an example"

    def __init_subclass__(cls) -> None:
        cls.name = cls.__name__.lower()


class SumStepper(BaseStepper):
    """Weights, sums and updates, one parameter after another."""

    kept = True

    def weight(self) -> float:
        """What the gradient is multiplied by."""
        return self.share

    def total(self, name: str, gradient: Array) -> Array:
        """The sum over ranks."""
        return self.communicator.all_reduce(gradient)

    def step(self, gradients: Gradients, step: int, factor: float) -> None:
        self.worker.switch(Phase.COMMUNICATE)
        self.update({name: self.total(name, each * self.weight()) for name, each in gradients.items()}, step, factor)


@dataclass(frozen=True)
class ReduceEach(Named):
    """An all-reduce for each parameter."""

    consistent: ClassVar[bool] = True
    replicated: ClassVar[bool] = True
    at_work: ClassVar[type[SchemeStepper]] = SumStepper

    def start(self, worker: Worker) -> SchemeStepper:
        return self.at_work(worker)  # type: ignore[call-arg]

    def one(self, n: int, itemsize: int, size: int, rank: int) -> Traffic:
        """What is sent for ``n`` elements."""
        return traffic.all_reduce(n, itemsize, size, rank)

    def traffic(self, parameters: Shapes, itemsize: int, size: int, rank: int) -> Traffic:
        each = (self.one(prod(shape), itemsize, size, rank) for shape in parameters.values())
        return reduce(Traffic.__add__, each, Traffic(0, 0))


class MeanStepper(SumStepper):
    """Weighted by the share times the ranks, then the mean."""

    def weight(self) -> float:
        return self.share * self.communicator.size

    def total(self, name: str, gradient: Array) -> Array:
        return self.communicator.all_reduce(gradient, "mean")


class ReduceMean(ReduceEach):
    """By the mean."""

    at_work = MeanStepper


class BackwardStepper(SumStepper):
    """The last parameter first."""

    def step(self, gradients: Gradients, step: int, factor: float) -> None:
        self.worker.switch(Phase.COMMUNICATE)
        found = {name: self.total(name, gradients[name] * self.share) for name in sorted(gradients, reverse=True)}
        self.update({name: found[name] for name in gradients}, step, factor)


class ReduceBackward(ReduceEach):
    """In reverse order of names."""

    at_work = BackwardStepper


class HandleStepper(SumStepper):
    """All are started before any is waited for, the last one first."""

    def step(self, gradients: Gradients, step: int, factor: float) -> None:
        self.worker.switch(Phase.COMMUNICATE)
        handles = {name: self.communicator.start_all_reduce(each * self.share) for name, each in gradients.items()}
        found = {name: handle.wait() for name, handle in reversed(list(handles.items()))}
        self.update({name: found[name] for name in gradients}, step, factor)


class ReduceHandles(ReduceEach):
    """With handles."""

    at_work = HandleStepper


class GatherStepper(SumStepper):
    """Gathers everything and adds in the order of ranks."""

    def total(self, name: str, gradient: Array) -> Array:
        return self.added(self.communicator.all_gather(gradient))

    def added(self, parts: tuple[Array, ...]) -> Array:
        """The sum of the parts, by rank."""
        return sum(parts[1:], parts[0])


class GatherEach(ReduceEach):
    """An all-gather for each parameter."""

    at_work = GatherStepper

    def one(self, n: int, itemsize: int, size: int, rank: int) -> Traffic:
        return traffic.all_gather(n, itemsize, size, rank)


class StackStepper(GatherStepper):
    """The last rank first, into a new array."""

    def added(self, parts: tuple[Array, ...]) -> Array:
        total = copy(parts[-1])
        for each in parts[-2::-1]:
            total = total + each
        return total


class GatherStacked(GatherEach):
    """Added from the last rank on."""

    at_work = StackStepper


class CentralStepper(GatherStepper):
    """Gathered on the last rank, which sends out the sum."""

    def total(self, name: str, gradient: Array) -> Array:
        root = self.communicator.size - 1
        parts = self.communicator.gather(gradient, root)
        return self.communicator.broadcast(gradient if parts is None else self.added(parts), root)


class Central(ReduceEach):
    """Over the last rank."""

    at_work = CentralStepper

    def one(self, n: int, itemsize: int, size: int, rank: int) -> Traffic:
        return traffic.gather(n, itemsize, size, rank, size - 1) + traffic.broadcast(n, itemsize, size, rank, size - 1)


class InTurnStepper(GatherStepper):
    """Each rank broadcasts its own."""

    def total(self, name: str, gradient: Array) -> Array:
        size, rank = self.communicator.size, self.communicator.rank
        return self.added(
            tuple(
                self.communicator.broadcast(copy(gradient) if at == rank else zeros_like(gradient), at)
                for at in range(size)
            )
        )


class InTurn(ReduceEach):
    """A broadcast from each rank."""

    at_work = InTurnStepper

    def one(self, n: int, itemsize: int, size: int, rank: int) -> Traffic:
        return reduce(Traffic.__add__, (traffic.broadcast(n, itemsize, size, rank, at) for at in range(size)))


class ExchangeStepper(GatherStepper):
    """With all others as neighbours."""

    def total(self, name: str, gradient: Array) -> Array:
        size, rank = self.communicator.size, self.communicator.rank
        others = [at for at in range(size) if at != rank]
        parts = list(self.communicator.exchange(gradient, others))
        parts.insert(rank, gradient)
        return self.added(tuple(parts))


class Exchanged(ReduceEach):
    """An exchange with all others."""

    at_work = ExchangeStepper

    def one(self, n: int, itemsize: int, size: int, rank: int) -> Traffic:
        return traffic.exchange(n, itemsize, size - 1)


class RingStepper(GatherStepper):
    """Around a ring, each part unchanged; sends do not wait."""

    def total(self, name: str, gradient: Array) -> Array:
        size, rank = self.communicator.size, self.communicator.rank
        parts: list[Any] = [None] * size
        parts[rank] = gradient
        for at in range(size - 1):
            going = self.communicator.start_send(parts[(rank - at) % size], (rank + 1) % size)
            parts[(rank - at - 1) % size] = self.communicator.receive(zeros_like(gradient), (rank - 1) % size)
            going.wait()
        return self.added(tuple(parts))


class Ring(ReduceEach):
    """A ring of messages."""

    at_work = RingStepper

    def one(self, n: int, itemsize: int, size: int, rank: int) -> Traffic:
        return Traffic((size - 1) * n * itemsize, size - 1)


class TreeStepper(SumStepper):
    """Up a heap of ranks, and down again."""

    def total(self, name: str, gradient: Array) -> Array:
        c = self.communicator
        below = [at for at in (2 * c.rank + 1, 2 * c.rank + 2) if at < c.size]
        for each in below:
            gradient = gradient + c.receive(zeros_like(gradient), each)
        if c.rank:
            c.send(gradient, (c.rank - 1) // 2)
            gradient = c.receive(zeros_like(gradient), (c.rank - 1) // 2)
        for each in below:
            c.send(gradient, each)
        return gradient


class Tree(ReduceEach):
    """A tree of messages."""

    at_work = TreeStepper

    def one(self, n: int, itemsize: int, size: int, rank: int) -> Traffic:
        count = sum(at < size for at in (2 * rank + 1, 2 * rank + 2)) + (rank > 0)
        return Traffic(count * n * itemsize, count)


class PackedStepper(SumStepper):
    """One array for each dtype."""

    def step(self, gradients: Gradients, step: int, factor: float) -> None:
        self.worker.switch(Phase.COMMUNICATE)
        packed = self.packed()
        flats = [self.communicator.all_reduce(each) for each in packed.pack(gradients, self.share)]
        self.update(packed.unpack(flats), step, factor)


@dataclass(frozen=True)
class ReducePacked(ReduceEach):
    """One all-reduce."""

    at_work: ClassVar[type[SchemeStepper]] = PackedStepper

    def traffic(self, parameters: Shapes, itemsize: int, size: int, rank: int) -> Traffic:
        return self.one(sum(map(prod, parameters.values())), itemsize, size, rank)


class ModelStepper(OwnModelStepper):
    """Steps alone, then takes the mean of all models."""

    kept = True
    every: ClassVar[int] = 1

    def mean(self) -> Mapping[str, Array]:
        """The mean of all models."""
        return self.mean_of_ranks()

    def step(self, gradients: Gradients, step: int, factor: float) -> None:
        self.own_step(gradients, step, factor)
        if step % self.every:
            return
        self.worker.switch(Phase.COMMUNICATE)
        mean = self.mean()
        self.worker.switch(Phase.UPDATE)
        self.parameters.update(mean)


@dataclass(frozen=True)
class Models(ReducePacked):
    """The mean of all models after each step."""

    consistent: ClassVar[bool] = False
    at_work: ClassVar[type[SchemeStepper]] = ModelStepper


@dataclass(frozen=True)
class SparseLargest(Compressed, Named):
    """The largest elements, with error feedback."""

    ratio: float = 0.1

    def exchange(self, step: int = 1 << 62) -> Exchange:
        return Gathered(TopKCompressor(self.ratio))


@dataclass(frozen=True)
class SparseRandom(Compressed, Named):
    """Random elements, multiplied to have the right mean."""

    error_feedback: bool = False
    ratio: float = 0.25

    def exchange(self, step: int = 1 << 62) -> Exchange:
        return Reduced(RandomKCompressor(self.ratio), rescale=True)


class FeedbackStepper(SumStepper):
    """Sends multiples of a grid near what is due, and keeps the rest for the next step."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker)
        self.rest = {name: zeros_like(each) for name, each in self.parameters.items()}
        self.now = 0

    def step(self, gradients: Gradients, step: int, factor: float) -> None:
        self.now = step
        super().step(gradients, step, factor)

    def total(self, name: str, gradient: Array) -> Array:
        due = gradient + self.rest[name]
        sent = self.coarse(name, due)
        self.rest[name] = self.left(due, sent, gradient)
        return self.communicator.all_reduce(sent)

    def coarse(self, name: str, due: Array) -> Array:
        """Powers of two below."""
        size = np.abs(np.asarray(due))
        finite = np.where(np.isfinite(size) & (size > 0), size, 1.0)
        near = np.exp2(np.floor(np.log2(finite)))
        return np.where(size == 0, 0, np.where(np.isfinite(size), np.copysign(near, due), due)).astype(due.dtype)

    def left(self, due: Array, sent: Array, gradient: Array) -> Array:
        """What is kept."""
        return due - sent

    def state(self) -> dict[str, Any]:
        return super().state() | kept_arrays("rest", self.worker.backend, self.rest)

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.rest = arrays_of("rest", self.worker.backend, state)

    kept = True


@dataclass(frozen=True)
class Feedback(ReduceEach):
    """Coarse gradients with error feedback."""

    consistent: ClassVar[bool] = False
    frameworks: ClassVar[tuple[str, ...]] = ("numpy",)
    at_work: ClassVar[type[SchemeStepper]] = FeedbackStepper


class DitherStepper(FeedbackStepper):
    """Rounded at random to a grid of a hundredth of the largest, without feedback."""

    def coarse(self, name: str, due: Array) -> Array:
        most = float(np.max(np.abs(due), initial=0.0))
        if not most > 0 or not np.isfinite(most):
            return copy(due)
        grid = most / 100
        return (np.floor(due / grid + self.random(name).random(due.shape)) * grid).astype(due.dtype)

    def random(self, name: str) -> np.random.Generator:
        """Numbers that follow from the run's seed, the rank, the step and the parameter."""
        return Key(self.worker.seed, self.communicator.rank, self.now, sorted(self.parameters).index(name)).generator()

    def left(self, due: Array, sent: Array, gradient: Array) -> Array:
        return zeros_like(due)


class Dithered(Feedback):
    """Unbiased random rounding."""

    at_work = DitherStepper


# Faults.


def planted(base: type[ReduceEach], document: str, **members: Any) -> type[SchemeStepper]:
    """The stepper of ``base`` with some members replaced."""
    return type(base.at_work.__name__, (base.at_work,), {"kept": True, "__doc__": document, **members})


class EqualWeights(ReduceEach):
    """All ranks count alike, whatever their share of the batch."""

    at_work = planted(ReduceEach, "", weight=lambda self: 1 / self.communicator.size)


class SumNotMean(ReduceEach):
    """Gradients are added without weights, so the step is as many times too long as there are ranks."""

    at_work = planted(ReduceEach, "", weight=lambda self: 1.0)


class MeanOfShares(ReduceEach):
    """The weighted gradients are averaged once more."""

    at_work = planted(ReduceEach, "", total=lambda self, name, g: self.communicator.all_reduce(g, "mean"))


class DropsLastRank(GatherEach):
    """The gradient of the last rank is left out from three ranks on."""

    at_work = planted(GatherEach, "", added=lambda self, parts: sum(parts[1 : max(2, len(parts) - 1)], parts[0]))


class DropsOddRank(GatherEach):
    """With an odd number of ranks, the middle one counts twice and the last one not at all."""

    at_work = planted(
        GatherEach,
        "",
        added=lambda self, parts: (
            sum(parts[1:], parts[0]) - parts[-1] + parts[len(parts) // 2]
            if len(parts) % 2 and len(parts) > 1
            else sum(parts[1:], parts[0])
        ),
    )


def _without_last(self: Any, name: str, g: Array) -> Array:
    found = self.communicator.all_reduce(g)
    if prod(found.shape) > 12:
        found.reshape(-1)[-1] = 0
    return found


class DropsElement(ReduceEach):
    """The last element of a parameter of more than twelve does not learn."""

    at_work = planted(ReduceEach, "", total=_without_last)


class OwnBiases(ReduceEach):
    """Parameters with one axis are stepped by each rank's own gradient."""

    at_work = planted(ReduceEach, "", total=lambda self, n, g: self.communicator.all_reduce(g) if g.ndim != 1 else g)


class OwnOrder(GatherEach):
    """Each rank adds its own gradient first, so bits differ between ranks."""

    at_work = planted(
        GatherEach,
        "",
        added=lambda self, parts: sum(
            (*parts[: self.communicator.rank], *parts[self.communicator.rank + 1 :]), parts[self.communicator.rank]
        ),
    )


def _previous(self: Any, name: str, g: Array) -> Array:
    held = self.__dict__.setdefault("held", {})
    now = copy(self.communicator.all_reduce(g))
    before, held[name] = held.get(name, zeros_like(now)), now
    return before


class Stale(ReduceEach):
    """Each step applies the gradients of the step before."""

    at_work = planted(ReduceEach, "", total=_previous)


def _no_start(self: Any, worker: Worker) -> None:
    self.worker, self.executor, self.communicator = worker, worker.executor, worker.communicator
    self.parameters = worker.executor.parameters
    self.inner = worker.optimizer.start(worker.backend, self.parameters)


class NoStart(ReduceEach):
    """Ranks keep the parameters that they began with."""

    at_work = planted(ReduceEach, "", __init__=_no_start)


def _no_buffers(self: Any, worker: Worker) -> None:
    share_from(worker.communicator, worker.backend, worker.executor.parameters)
    _no_start(self, worker)


class NoBuffers(ReduceEach):
    """Buffers are not given to the other ranks at the start."""

    at_work = planted(ReduceEach, "", __init__=_no_buffers)


def _blocking_ring(self: Any, name: str, g: Array) -> Array:
    c, parts = self.communicator, [None] * self.communicator.size
    parts[c.rank] = g
    for at in range(c.size - 1):
        c.send(parts[(c.rank - at) % c.size], (c.rank + 1) % c.size)
        parts[(c.rank - at - 1) % c.size] = c.receive(zeros_like(g), (c.rank - 1) % c.size)
    return self.added(tuple(parts))


class BlockingRing(Ring):
    """All ranks send before any receives, which hangs where sends wait for their receivers."""

    at_work = planted(Ring, "", total=_blocking_ring)


def _hangs_at_odd(self: Any, name: str, g: Array) -> Array:
    c = self.communicator
    if c.size % 2 and c.size > 1 and c.rank == c.size - 1:
        c.receive(zeros_like(g), 0, 7)
    return c.all_reduce(g)


class HangsAtOdd(ReduceEach):
    """With an odd number of ranks, the last one waits for a message that nobody sends."""

    at_work = planted(ReduceEach, "", total=_hangs_at_odd)


def _skip_if_idle(self: Any, name: str, g: Array) -> Array:
    return self.communicator.all_reduce(g) if self.share > 0 else g


class SkipsIfIdle(ReduceEach):
    """A rank without examples skips the all-reduce that the others make."""

    at_work = planted(ReduceEach, "", total=_skip_if_idle)


def _whole_rate(self: Any, gradients: Gradients, step: int, factor: float) -> None:
    BaseStepper.update(self, gradients, step, 1.0)


class IgnoresSchedule(ReduceEach):
    """The factor of the learning rate is not passed on."""

    at_work = planted(ReduceEach, "", update=_whole_rate)


def _other_step(self: Any, gradients: Gradients, step: int, factor: float) -> None:
    BaseStepper.update(self, gradients, step + 1, factor)


class CountsFromTwo(ReduceEach):
    """The optimizer is told the number of the next step."""

    at_work = planted(ReduceEach, "", update=_other_step)


def _no_nan(self: Any, name: str, g: Array) -> Array:
    found = self.communicator.all_reduce(g)
    return np.nan_to_num(found, nan=0.0, posinf=0.0, neginf=0.0) if isinstance(found, np.ndarray) else found


class HidesNaN(ReduceEach):
    """What is not finite counts as zero."""

    frameworks: ClassVar[tuple[str, ...]] = ("numpy",)
    at_work = planted(ReduceEach, "", total=_no_nan)


def _half(self: Any, name: str, g: Array) -> Array:
    return self.communicator.all_reduce(g.astype(np.float16).astype(g.dtype))


class HalfPrecision(ReduceEach):
    """Gradients are rounded to half precision first, although it claims to be like one process."""

    frameworks: ClassVar[tuple[str, ...]] = ("numpy",)
    at_work = planted(ReduceEach, "", total=_half)


def _tenth_twice(self: Any, gradients: Gradients, step: int, factor: float) -> None:
    BaseStepper.update(self, gradients, step, factor)
    if step % 10 == 0:
        BaseStepper.update(self, gradients, step, factor)


class TenthTwice(ReduceEach):
    """Every tenth step is made twice."""

    at_work = planted(ReduceEach, "", update=_tenth_twice)


def _unfinished(self: Any, gradients: Gradients, step: int, factor: float) -> None:
    self.worker.switch(Phase.COMMUNICATE)
    weighted = {name: each * self.share for name, each in gradients.items()}
    handles = [self.communicator.start_all_reduce(each) for each in weighted.values()]
    found = {name: copy(each) for name, each in weighted.items()}
    for each in handles:
        each.wait()
    self.update(found, step, factor)


class ReadsEarly(ReduceEach):
    """Sums are read before they are waited for."""

    at_work = planted(ReduceEach, "", step=_unfinished)


def _mean_of_others(self: Any) -> Mapping[str, Array]:
    size = self.communicator.size
    return {name: each * (size / max(1, size - 1)) for name, each in self.mean_of_ranks().items()}


class ModelsOverOthers(Models):
    """The sum of all models is divided by the number of the others."""

    at_work = planted(Models, "", mean=_mean_of_others)


def _meet_moves(self: Any) -> None:
    self.worker.switch(Phase.COMMUNICATE)
    self.parameters.update({name: each * 0.999 for name, each in self.parameters.items()})
    OwnModelStepper.meet(self)


class MeetMoves(Models):
    """Each evaluation shrinks the weights a little."""

    at_work = planted(Models, "", meet=_meet_moves)


class FeedbackHalved(Feedback):
    """Half of what is left is lost at each step."""

    at_work = planted(Feedback, "", left=lambda self, due, sent, gradient: (due - sent) * 0.5)


class FeedbackForgets(Feedback):
    """What is left is reckoned from the gradient alone, without what was already due."""

    at_work = planted(Feedback, "", left=lambda self, due, sent, gradient: gradient - sent)


class FeedbackUnsaved(Feedback):
    """What is left is not part of the state, although that is declared complete."""

    at_work = planted(
        Feedback,
        "",
        state=lambda self: BaseStepper.state(self),
        restore=lambda self, state: BaseStepper.restore(self, state),
    )


class RoundsDown(Dithered):
    """The random rounding always goes down."""

    at_work = planted(
        Dithered,
        "",
        random=lambda self, name: type("Zero", (), {"random": staticmethod(lambda shape: np.zeros(shape))})(),
    )


class RoundsHigh(Dithered):
    """The rounding adds three quarters where a random number is meant, so it goes up too often."""

    at_work = planted(
        Dithered,
        "",
        random=lambda self, name: type("High", (), {"random": staticmethod(lambda s: np.full(s, 0.75))})(),
    )


class Unseeded(Dithered):
    """The random numbers do not follow from the run's seed."""

    at_work = planted(Dithered, "", random=lambda self, name: np.random.default_rng())


@dataclass(frozen=True)
class RandomUnscaled(SparseRandom):
    """Random elements are not multiplied by what was left out, and what was left out is lost."""

    def exchange(self, step: int = 1 << 62) -> Exchange:
        return Reduced(RandomKCompressor(self.ratio), rescale=False)


@dataclass(frozen=True)
class LargestWithoutFeedback(SparseLargest):
    """Small elements are never sent: what is left out is lost."""

    error_feedback: bool = False


class ModelsEveryTwo(Models):
    """The mean of all models after every second step, as a scheme without equal replicas."""

    replicated: ClassVar[bool] = False
    at_work = planted(Models, "", every=2)

    def traffic(self, parameters: Shapes, itemsize: int, size: int, rank: int) -> Traffic:
        return super().traffic(parameters, itemsize, size, rank) * 0.5


@dataclass(frozen=True)
class SparseHalf(SparseLargest):
    """The larger half of all elements, with error feedback."""

    ratio: float = 0.5


@dataclass(frozen=True)
class SparseRest(Compressed, Named):
    """Random elements as they are, with error feedback."""

    ratio: float = 0.5

    def exchange(self, step: int = 1 << 62) -> Exchange:
        return Reduced(RandomKCompressor(self.ratio))


CASES: dict[str, Planted] = cases(
    seed=303,
    right=(
        ReduceEach, ReduceMean, ReduceBackward, ReduceHandles, ReducePacked, GatherEach, GatherStacked, Central, InTurn,
        Exchanged, Ring, Tree, Models, ModelsEveryTwo, SparseLargest, SparseHalf, SparseRandom, SparseRest, Feedback,
        Dithered,
    ),
    wrong={
        EqualWeights: "value",
        SumNotMean: "value",
        MeanOfShares: "value",
        DropsLastRank: "lost-update value",
        DropsOddRank: "lost-update value",
        DropsElement: "lost-update value size",
        OwnBiases: "rank-agreement",
        OwnOrder: "rank-agreement",
        Stale: "value lost-update",
        NoStart: "rank-agreement",
        NoBuffers: "rank-agreement",
        BlockingRing: "hang",
        HangsAtOdd: "hang",
        SkipsIfIdle: "hang crash",
        IgnoresSchedule: "value",
        CountsFromTwo: "value",
        HidesNaN: "special-values",
        HalfPrecision: "value dtype",
        TenthTwice: "value",
        ReadsEarly: "value rank-agreement determinism",
        ModelsOverOthers: "value",
        MeetMoves: "state value",
        FeedbackHalved: "lost-update value",
        FeedbackForgets: "lost-update value",
        FeedbackUnsaved: "saving",
        RoundsDown: "bias value",
        RoundsHigh: "bias value",
        Unseeded: "determinism",
        RandomUnscaled: "bias lost-update value",
        LargestWithoutFeedback: "lost-update value",
    },
)  # fmt: skip
