"""Schemes that are right in unusual ways, and ones that are wrong only beyond small arrays, few ranks and few steps."""

from collections.abc import MutableMapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from math import prod
from typing import ClassVar

import numpy as np

from levelbench.distributed import traffic
from levelbench.distributed.packing import pieces
from levelbench.distributed.scheme import Scheme, Traffic
from levelbench.distributed.schemes.base import (
    BaseStepper,
    OwnModelStepper,
    arrays_of,
    begin_as_rank_zero,
    kept_arrays,
    those_under,
    under,
)
from levelbench.measure.timeline import Phase
from levelbench.training.optimizers.arrays import zeros_like


@dataclass(frozen=True)
class Each(Scheme):
    """An all-reduce for each parameter."""

    name: ClassVar[str] = "each"
    source: ClassVar[str] = "an example"
    consistent: ClassVar[bool] = True
    replicated: ClassVar[bool] = True
    frameworks: ClassVar[tuple[str, ...]] = ("numpy",)
    at_work: ClassVar[type] = BaseStepper

    def start(self, worker):
        return self.at_work(worker)

    def one(self, n, itemsize, size, rank, at):
        return traffic.all_reduce(n, itemsize, size, rank)

    def traffic(self, parameters, itemsize, size, rank):
        sent = (self.one(prod(shape), itemsize, size, rank, at) for at, shape in enumerate(parameters.values()))
        return reduce(Traffic.__add__, sent, Traffic(0, 0))


def scheme(stepper, *, base=Each, **claims):
    """A scheme with this stepper."""
    return dataclass(frozen=True)(type(stepper.__name__, (base,), {"at_work": stepper, **claims}))()


class Sums(BaseStepper):
    kept = True

    def step(self, gradients, step, factor):
        self.now = step
        self.worker.switch(Phase.COMMUNICATE)
        self.update({name: self.total(name, each * self.share) for name, each in gradients.items()}, step, factor)

    def total(self, name, gradient):
        return self.communicator.all_reduce(gradient)


class Some(MutableMapping):
    """A live view of some parameters."""

    def __init__(self, whole, names):
        self.whole, self.names = whole, names

    def __getitem__(self, name):
        return self.whole[name]

    def __setitem__(self, name, value):
        self.whole[name] = value

    def __delitem__(self, name):
        raise TypeError(name)

    def __iter__(self):
        return iter(self.names)

    def __len__(self):
        return len(self.names)


class ShardsByName(Sums):
    """ZeRO-1: each parameter has one owner, whose optimizer alone has its state and which sends it to the others."""

    def __init__(self, worker):
        super().__init__(worker)
        self.owners = {name: at % self.communicator.size for at, name in enumerate(self.parameters)}
        own = [name for name, owner in self.owners.items() if owner == self.communicator.rank]
        self.inner = worker.optimizer.start(worker.backend, Some(self.parameters, own))

    def step(self, gradients, step, factor):
        self.worker.switch(Phase.COMMUNICATE)
        sums = {name: self.total(name, each * self.share) for name, each in gradients.items()}
        self.update({name: sums[name] for name in sums if self.owners[name] == self.communicator.rank}, step, factor)
        self.worker.switch(Phase.COMMUNICATE)
        for name, owner in self.owners.items():
            self.parameters[name] = self.communicator.broadcast(self.parameters[name], owner)
        self.worker.switch(Phase.UPDATE)


class ByName(Each):
    def one(self, n, itemsize, size, rank, at):
        return super().one(n, itemsize, size, rank, at) + traffic.broadcast(n, itemsize, size, rank, at % size)


class FlatShards(Sums):
    """ZeRO-1 on one flat array: each rank's optimizer has its piece only, under a name of its own."""

    def __init__(self, worker):
        self.worker, self.executor, self.communicator = worker, worker.executor, worker.communicator
        begin_as_rank_zero(worker)
        self.parameters = worker.executor.parameters
        self.bounds = pieces(sum(each.size for each in self.parameters.values()), self.communicator.size)
        self.shard = {"shard": self.piece()}
        self.inner = worker.optimizer.start(worker.backend, self.shard)

    def piece(self):
        flat = np.concatenate([each.reshape(-1) for each in self.parameters.values()])
        rank = self.communicator.rank
        return flat[self.bounds[rank] : self.bounds[rank + 1]].copy()

    def step(self, gradients, step, factor):
        self.worker.switch(Phase.COMMUNICATE)
        flat = np.concatenate([gradients[name].reshape(-1) for name in self.parameters]) * self.share
        own = self.communicator.reduce_scatter(flat)
        self.update({"shard": own}, step, factor)
        self.worker.switch(Phase.COMMUNICATE)
        parts = [
            self.communicator.broadcast(
                self.shard["shard"].copy() if at == self.communicator.rank else flat[: b - a].copy(), at
            )
            for at, (a, b) in enumerate(pairwise(self.bounds))
        ]
        self.worker.switch(Phase.UPDATE)
        whole, begun = np.concatenate(parts), 0
        for name, each in self.parameters.items():
            self.parameters[name] = whole[begun : begun + each.size].reshape(each.shape).copy()
            begun += each.size

    def restore(self, state):
        self.shard["shard"] = self.piece()
        super().restore(state)


class Flat(Each):
    def traffic(self, parameters, itemsize, size, rank):
        bounds = pieces(sum(map(prod, parameters.values())), size)
        lengths = [b - a for a, b in pairwise(bounds)]
        sent = [traffic.broadcast(n, itemsize, size, rank, at) for at, n in enumerate(lengths)]
        return reduce(Traffic.__add__, sent, traffic.reduce_scatter(bounds[-1], itemsize, size, rank))


class Half(Sums):
    """Half of the ranks, drawn anew in each step, take part; the sum is divided by what they have of the batch."""

    def step(self, gradients, step, factor):
        self.worker.switch(Phase.COMMUNICATE)
        size = self.communicator.size
        drawn = np.random.default_rng((self.worker.seed, step)).permutation(size)[: -(-size // 2)]
        weight = self.share if self.communicator.rank in drawn else 0.0
        whole = float(self.communicator.all_reduce(np.array([weight]))[0])
        sums = {name: self.communicator.all_reduce(each * weight) for name, each in gradients.items()}
        self.update({name: each / (whole or 1.0) for name, each in sums.items()}, step, factor)


class Partial(Each):
    consistent: ClassVar[bool] = False

    def traffic(self, parameters, itemsize, size, rank):
        return super().traffic(parameters, itemsize, size, rank) + traffic.all_reduce(1, itemsize, size, rank)


class OfTheStepBefore(BaseStepper):
    """Updates by the sum that was started in the step before and is on its way meanwhile."""

    kept = True

    def __init__(self, worker):
        super().__init__(worker)
        self.packed_all, self.coming, self.came = self.packed(), None, None

    def step(self, gradients, step, factor):
        self.worker.switch(Phase.COMMUNICATE)
        self.meet()
        came, (flat,) = self.came, self.packed_all.pack(gradients, self.share)
        self.coming = self.communicator.start_all_reduce(flat.copy())
        self.update(self.packed_all.unpack([flat * 0 if came is None else came]), step, factor)

    def meet(self):
        if self.coming is not None:
            self.came, self.coming = self.coming.wait(), None

    def state(self):
        self.meet()
        return under("inner", super().state()) | ({} if self.came is None else {"came": self.came})

    def restore(self, state):
        super().restore(those_under("inner", state))
        self.came = np.array(state["came"]) if "came" in state else None


class AddsUp(Sums):
    """The sum of four steps' gradients makes one update."""

    def __init__(self, worker):
        super().__init__(worker)
        self.sums = {name: zeros_like(each) for name, each in self.parameters.items()}
        self.added = np.array(0)

    def step(self, gradients, step, factor):
        self.sums = {name: each + gradients[name] * self.share for name, each in self.sums.items()}
        self.added += 1
        self.worker.switch(Phase.UPDATE)
        if self.added % 4 == 0:
            self.worker.switch(Phase.COMMUNICATE)
            sums = {name: self.total(name, each) for name, each in self.sums.items()}
            self.update(sums, step, factor)
            self.sums = {name: zeros_like(each) for name, each in sums.items()}

    def state(self):
        sums = kept_arrays("sum", self.worker.backend, self.sums)
        return under("inner", super().state()) | sums | {"added": self.added}

    def restore(self, state):
        super().restore(those_under("inner", state))
        self.sums, self.added = arrays_of("sum", self.worker.backend, state), np.array(state["added"])


class Whole(Each):
    consistent: ClassVar[bool] = False

    def traffic(self, parameters, itemsize, size, rank):
        return traffic.all_reduce(sum(map(prod, parameters.values())), itemsize, size, rank)


class DrawsForRounds(OwnModelStepper):
    """For each round of four steps a third of the workers, at least one, is drawn; their mean goes to all."""

    kept = True

    def step(self, gradients, step, factor):
        self.own_step(gradients, step, factor)
        if step % 4:
            return
        drawn = self.drawn(step, max(1, self.communicator.size // 3))
        self.worker.switch(Phase.COMMUNICATE)
        weight = float(self.communicator.rank in drawn) / len(drawn)
        sums = {name: self.communicator.all_reduce(each * weight) for name, each in self.parameters.items()}
        self.worker.switch(Phase.UPDATE)
        self.parameters.update(sums)

    def drawn(self, step, count):
        draws = np.random.default_rng((self.worker.seed, step))
        return draws.choice(self.communicator.size, count, replace=False).tolist()


class Rounded(Each):
    consistent: ClassVar[bool] = False
    replicated: ClassVar[bool] = False

    def traffic(self, parameters, itemsize, size, rank):
        return super().traffic(parameters, itemsize, size, rank) * 0.25


RIGHT = [
    scheme(Sums),
    scheme(ShardsByName, base=ByName),
    scheme(FlatShards, base=Flat),
    scheme(Half, base=Partial),
    scheme(OfTheStepBefore, base=Whole),
    scheme(DrawsForRounds, base=Rounded),
    scheme(AddsUp, base=Rounded, replicated=True),
]


class WrongOnSeven(Sums):
    """On seven ranks, the last one is forgotten."""

    def total(self, name, gradient):
        lost = self.communicator.size == 7 and self.communicator.rank == 6
        return super().total(name, zeros_like(gradient) if lost else gradient)


class WrongFromStep128(Sums):
    """From step 128 on the sum is halved."""

    def total(self, name, gradient):
        return super().total(name, gradient) * (0.5 if self.now >= 128 else 1.0)


class CutAtTwoToTheTwenty(Sums):
    """What lies beyond 2^20 elements is not summed."""

    def total(self, name, gradient):
        found = super().total(name, gradient)
        found.reshape(-1)[1 << 20 :] = 0
        return found


class OneOfEachShape(Sums):
    """Parameters of one shape share a buffer, so that the last one's sum is in all of them."""

    def __init__(self, worker):
        super().__init__(worker)
        self.buffers = {}

    def total(self, name, gradient):
        buffer = self.buffers.setdefault(gradient.shape, zeros_like(gradient))
        buffer[...] = super().total(name, gradient)
        return buffer


class FirstFifty(Sums):
    """Only the first fifty parameters are summed."""

    def total(self, name, gradient):
        summed = list(self.parameters).index(name) < 50
        return super().total(name, gradient) if summed else gradient * self.communicator.size


class RestartsAtMeetings(Sums):
    """An evaluation makes the optimizer forget its state."""

    def meet(self):
        self.inner = self.worker.optimizer.start(self.worker.backend, self.parameters)


class Overflows(Sums):
    """Sent in half precision without regard to its range."""

    def total(self, name, gradient):
        with np.errstate(all="ignore"):
            return super().total(name, gradient.astype(np.float16).astype(gradient.dtype))


class MixesUpFilters(Sums):
    """An array of four axes is sent in another order than it is read."""

    def total(self, name, gradient):
        order = "F" if gradient.ndim == 4 else "C"
        return super().total(name, np.ravel(gradient, order)).reshape(gradient.shape)


class Averages(OwnModelStepper):
    """Each rank steps alone; every second step, models are averaged."""

    kept = True

    def step(self, gradients, step, factor):
        self.own_step(gradients, step, factor)
        if step % 2 == 0:
            self.worker.switch(Phase.COMMUNICATE)
            mean = self.mean_of_ranks()
            self.worker.switch(Phase.UPDATE)
            self.parameters.update({name: mean[name] for name in self.together(step // 2)})

    def together(self, round_):
        return list(self.parameters)


class AveragesInTurn(Averages):
    """Every second step, one parameter is averaged."""

    def together(self, round_):
        names = list(self.parameters)
        return [names[round_ % len(names)]]


class LeavesOneApart(Averages):
    """The gain is never averaged."""

    def together(self, round_):
        return [name for name in self.parameters if name != "gain"]


class IgnoresTheSchedule(Averages):
    """Local steps are made at the full rate."""

    def own_step(self, gradients, step, factor):
        super().own_step(gradients, step, 1.0)


class SlowMomentum(Averages):
    """The steps of each round, divided by the rate, go into a momentum of all ranks, as in SlowMo."""

    power: ClassVar[int] = 1

    def step(self, gradients, step, factor):
        if step == 1:
            self.slow = {name: (np.array(each), zeros_like(each)) for name, each in self.parameters.items()}
        super().step(gradients, step, factor)
        if step % 2 == 0:
            for name, (began, momentum) in self.slow.items():
                momentum = 0.5 * momentum + (began - self.parameters[name]) / factor
                self.parameters[name] = began - factor**self.power * momentum
                self.slow[name] = np.array(self.parameters[name]), momentum


class SlowMomentumTwice(SlowMomentum):
    """The rate's factor is in the slow step twice."""

    power: ClassVar[int] = 2


class ForgetsMomentum(Averages):
    """The optimizer is started anew whenever models are averaged."""

    def step(self, gradients, step, factor):
        super().step(gradients, step, factor)
        if step % 2 == 0:
            self.inner = self.worker.optimizer.start(self.worker.backend, self.parameters)


class Rounds(Sums):
    """Rounds each gradient to a grid of a fiftieth of its largest element, by random numbers."""

    def total(self, name, gradient):
        grid = float(np.abs(gradient).max(initial=0.0)) / 50
        if not 0 < grid < np.inf:
            return super().total(name, gradient)
        return super().total(name, np.floor(gradient / grid + self.draws(name, gradient.shape)) * grid)

    def draws(self, name, shape):
        number = sorted(self.parameters).index(name)
        return np.random.default_rng((self.worker.seed, self.communicator.rank, self.now, number)).random(shape)


class RoundsDown(Rounds):
    """Rounds down."""

    def draws(self, name, shape):
        return np.zeros(shape)


class TooSmall(Rounds):
    """Is decoded with a hundredth less."""

    def total(self, name, gradient):
        return super().total(name, gradient) * 0.99


class Remembers(Sums):
    """Sends every element rounded down to a power of two, and the remainder later."""

    keeps: ClassVar[float] = 1.0

    def __init__(self, worker):
        super().__init__(worker)
        self.rest = {name: zeros_like(each) for name, each in self.parameters.items()}

    def total(self, name, gradient):
        due = gradient + self.rest[name]
        sent = np.copysign(np.exp2(np.floor(np.log2(np.abs(due) + 1e-300))), due)
        self.rest[name] = (due - sent) * self.keeps
        return super().total(name, sent)

    def state(self):
        return under("inner", super().state()) | kept_arrays("rest", self.worker.backend, self.rest)

    def restore(self, state):
        super().restore(those_under("inner", state))
        self.rest = arrays_of("rest", self.worker.backend, state)


class DrawsAQuarter(Sums):
    """Sends a quarter of each parameter's elements, but at least one, times the inverse of that share."""

    def total(self, name, gradient):
        size, count = gradient.size, max(1, gradient.size // 4)
        drawn = np.zeros(size, bool)
        draws = np.random.default_rng([self.worker.seed, self.now, len(name)])
        drawn[draws.choice(size, count, replace=False)] = True
        return super().total(name, gradient * drawn.reshape(gradient.shape) * self.factor(size, count))

    def factor(self, size, count):
        return size / count


class DrawsTooMuchOfAScalar(DrawsAQuarter):
    """Multiplies by four, whatever the share is."""

    def factor(self, size, count):
        return 4


class ShortPlaces(Remembers):
    """Sends the quarter of all elements that is largest, at places of 16 bits."""

    def total(self, name, gradient):
        due = gradient + self.rest[name]
        places = np.argpartition(-np.abs(due).reshape(-1), gradient.size // 4)[: max(1, gradient.size // 4)]
        sent = np.zeros(gradient.size)
        places = places.astype(np.int16).astype(int) % gradient.size
        sent[places] = due.reshape(-1)[places]
        sent = sent.reshape(gradient.shape)
        self.rest[name] = due - sent
        return Sums.total(self, name, sent)


class LosesATenth(Remembers):
    """A tenth of the remainder is lost in each step."""

    keeps = 0.9


class SendsNoneOfSmallOnes(Remembers):
    """Of each parameter the tenth that is largest is sent, which of less than ten elements is none."""

    def total(self, name, gradient):
        due = gradient + self.rest[name]
        places = np.argsort(-np.abs(due).reshape(-1))[: int(gradient.size / 10)]
        sent = np.zeros(gradient.size)
        sent[places] = due.reshape(-1)[places]
        sent = sent.reshape(gradient.shape)
        self.rest[name] = due - sent
        return Sums.total(self, name, sent)


class ForgetsWithoutExamples(ShortPlaces):
    """A rank without examples forgets what it holds back."""

    def step(self, gradients, step, factor):
        if not self.share:
            self.rest = {name: zeros_like(each) for name, each in self.parameters.items()}
        super().step(gradients, step, factor)


class SendsDifferences(Sums):
    """The difference from the last gradient is sent, if it is large."""

    def __init__(self, worker):
        super().__init__(worker)
        self.last = {name: zeros_like(each) for name, each in self.parameters.items()}
        self.sums = {name: zeros_like(each) for name, each in self.parameters.items()}

    def total(self, name, gradient):
        new = gradient - self.last[name]
        self.last[name] = gradient.copy()
        small = np.linalg.norm(new) < 0.1 * np.linalg.norm(gradient)
        self.sums[name] = self.sums[name] + super().total(name, zeros_like(new) if small else new)
        return self.sums[name].copy()


class PullsBack(Averages):
    """The mean has a part of the weights that it started with."""

    def __init__(self, worker):
        super().__init__(worker)
        self.first = {name: each.copy() for name, each in self.parameters.items()}

    def step(self, gradients, step, factor):
        super().step(gradients, step, factor)
        self.parameters.update({name: 0.7 * each + 0.3 * self.first[name] for name, each in self.parameters.items()})


class DrawsSomeTwice(DrawsForRounds):
    """A worker that is drawn twice counts once, and the mean is that of as many as were drawn."""

    def drawn(self, step, count):
        draws = np.random.default_rng((self.worker.seed, step))
        return draws.integers(0, self.communicator.size, self.communicator.size - 1).tolist()


class SamePairs(OwnModelStepper):
    """Each rank averages its model with that of the same other one all the time."""

    def step(self, gradients, step, factor):
        self.own_step(gradients, step, factor)
        other = self.communicator.rank ^ 1
        if other < self.communicator.size:
            self.worker.switch(Phase.COMMUNICATE)
            theirs = {name: self.communicator.exchange(each, [other])[0] for name, each in self.parameters.items()}
            self.worker.switch(Phase.UPDATE)
            self.parameters.update({name: (each + theirs[name]) / 2 for name, each in self.parameters.items()})


class EvaluatesTheFirst(Averages):
    """The model of rank 0 is evaluated."""

    def averaged(self):
        return {name: self.communicator.broadcast(each.copy()) for name, each in self.parameters.items()}


class SkipsSteps(Sums):
    """No rank makes a step in which a sum is not finite."""

    def update(self, gradients, step, factor):
        if all(np.isfinite(each).all() for each in gradients.values()):
            super().update(gradients, step, factor)
        self.worker.switch(Phase.UPDATE)


class PlainServer(BaseStepper):
    """The last rank applies each gradient as it arrives, without the optimizer."""

    def step(self, gradients, step, factor):
        self.worker.switch(Phase.COMMUNICATE)
        communicator = self.communicator
        for name, each in gradients.items():
            communicator.send(each * self.share, communicator.size - 1)
            self.parameters[name] = communicator.receive(each, communicator.size - 1)
        self.worker.switch(Phase.UPDATE)

    def serve(self, first, last, factor):
        for _ in range(first, last + 1):
            for name, each in self.parameters.items():
                for rank in range(self.communicator.size - 1):
                    self.parameters[name] = self.parameters[name] - self.worker.optimizer.lr * (
                        self.communicator.receive(each.copy(), rank)
                    )
                    self.communicator.send(self.parameters[name].copy(), rank)


class Served(Each):
    consistent: ClassVar[bool] = False
    replicated: ClassVar[bool] = False
    lockstep: ClassVar[bool] = False

    def workers(self, size):
        return size - 1
