"""Schemes that do not claim to equal one process, with one fault each."""

from tests.distributed.probes.plain import PlainStepper

from levelbench.measure.timeline import Phase


class Lopsided(PlainStepper):
    """Neighbours on a line instead of a ring: rank 0 and the last one mix with a single neighbour."""

    def step(self, gradients, step, factor):
        self.worker.switch(Phase.UPDATE)
        self.inner.step(gradients, step, factor)
        self.worker.switch(Phase.COMMUNICATE)
        others = [each for each in (self.rank - 1, self.rank + 1) if 0 <= each < self.size]
        live = self.executor.parameters
        for name in live:
            received = self.communicator.exchange(live[name], others)
            live[name] = (live[name] + sum(received)) / (1 + len(others))
        self.worker.switch(Phase.UPDATE)

    def averaged(self):
        live = self.executor.parameters
        return {name: self.communicator.all_reduce(live[name] / self.size) for name in live}


class EvaluatesItsOwn(Lopsided):
    def averaged(self):
        return None


class AveragesAlike(PlainStepper):
    def reduced(self, name, gradient, step):
        return self.communicator.all_reduce(gradient, "mean")


class LosesARank(PlainStepper):
    """Sends only large elements, keeps the rest for later, and leaves out what rank 1 sends."""

    def __init__(self, worker):
        super().__init__(worker)
        self.rest = {}

    def reduced(self, name, gradient, step):
        whole = gradient * self.share + self.rest.get(name, gradient * 0.0)
        sent = whole * (abs(whole) > 0.5)
        self.rest[name] = whole - sent
        return self.communicator.all_reduce(sent * (self.rank != 1))


class Climbs(Lopsided):
    def step(self, gradients, step, factor):
        super().step({name: -each for name, each in gradients.items()}, step, factor)


class OffByOneNeighbour(Lopsided):
    """Mixes with the next two ranks instead of the previous and next one, which do not expect it."""

    def step(self, gradients, step, factor):
        self.worker.switch(Phase.UPDATE)
        self.inner.step(gradients, step, factor)
        self.worker.switch(Phase.COMMUNICATE)
        others = [(self.rank + 1) % self.size, (self.rank + 2) % self.size]
        live = self.executor.parameters
        for name in live:
            live[name] = (live[name] + sum(self.communicator.exchange(live[name], others))) / 3
        self.worker.switch(Phase.UPDATE)
