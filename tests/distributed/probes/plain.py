"""A correct scheme, written so that each fault overrides one method."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from levelbench.distributed import traffic
from levelbench.distributed.scheme import Scheme, SchemeStepper, Traffic
from levelbench.measure.timeline import Phase


class PlainStepper(SchemeStepper):
    def __init__(self, worker):
        self.worker, self.executor, self.communicator = worker, worker.executor, worker.communicator
        self.rank, self.size = self.communicator.rank, self.communicator.size
        self.begin()
        self.inner = worker.optimizer.start(worker.backend, worker.executor.parameters)

    def begin(self):
        self.worker.switch(Phase.COMMUNICATE)
        self.share_out(self.executor.parameters)
        self.share_out(self.executor.buffers)

    def share_out(self, live):
        for name in live:
            live[name] = self.communicator.broadcast(live[name])

    def step(self, gradients, step, factor):
        self.worker.switch(Phase.COMMUNICATE)
        total = {name: self.reduced(name, gradients[name], step) for name in self.order(gradients)}
        self.worker.switch(Phase.UPDATE)
        self.update(total, step, factor)

    def order(self, gradients):
        return list(gradients)

    def reduced(self, name, gradient, step):
        return self.communicator.all_reduce(gradient * self.share)

    def update(self, total, step, factor):
        self.inner.step(total, step, factor)


@dataclass(frozen=True)
class Plain(Scheme):
    """One all-reduce per parameter."""

    name: ClassVar[str] = "plain"
    source: ClassVar[str] = "Li et al. 2020"
    consistent: ClassVar[bool] = True
    replicated: ClassVar[bool] = True
    stepper: ClassVar[type[SchemeStepper]] = PlainStepper

    def start(self, worker):
        return self.stepper(worker)

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize, size, rank):
        return sum(
            (traffic.all_reduce(prod(shape), itemsize, size, rank) for shape in parameters.values()), Traffic(0, 0)
        )


def scheme_of(kind, **claims):
    """A scheme with this stepper."""
    return dataclass(frozen=True)(type(kind.__name__, (Plain,), {"stepper": kind, **claims}))()
