"""Gossip: in each step, a worker pushes its model to one other worker; it only waits for messages that are very late.

A model travels with a weight (push-sum). A message takes half of the weight, so however late or out of order messages
are, the sum of weight times model over all workers and messages in flight is preserved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import frexp, ldexp
from typing import ClassVar, final

from numpy.random import PCG64, Generator

from levelbench.distributed.communicator import Handle
from levelbench.distributed.packing import FlatLayout, HostArray, by_dtype
from levelbench.distributed.scheme import Scheme, SchemeStepper, Traffic, Worker
from levelbench.distributed.schemes.base import OwnModelStepper, elements, number, numbers
from levelbench.distributed.schemes.neighbours import make_graph
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import copy, namespace

_WEIGHT = ""
"""The name of the weight among the arrays of a message; no parameter has it."""
_LEAST = 0.25
"""The weight that a worker keeps at least, so that its rate is at most four times that of the others."""
_TINY = -6
"""The exponent of weights that are too small to be halved."""


def half(weight: float) -> float:
    """Half of a weight, rounded to 8 significant bits, which any floating-point dtype represents exactly.

    Zero for weights below 2⁻⁶, whose bits half precision would lose.
    """
    mantissa, exponent = frexp(weight)
    if exponent <= _TINY:
        return 0.0
    return ldexp(round(mantissa * 256), exponent - 9)


@final
class _GossipStepper(OwnModelStepper):
    """The live parameters z are the model itself; in push-sum, with the weight w, they stand for w z."""

    kept = True

    def __init__(self, worker: Worker, scheme: Gossip) -> None:
        super().__init__(worker)
        self._ahead, self._step = scheme.ahead, 0
        self.weight = 1.0
        """The weight w of this worker's model; all weights, with those in flight, sum to p."""
        self._peers = peers_of(scheme.peers, self.communicator.size, worker.seed)
        self._names = list(by_dtype(self.parameters).values())
        self._layouts = [FlatLayout(each) for each in self._arrays(1.0)]
        self._sent: deque[Handle] = deque()
        self._coming: list[tuple[int, list[Handle]]] = []
        """The messages in flight to this rank, by step."""

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        self._step = step
        # At 1 / w of the rate, w z moves as far as on any worker, and late messages do not reduce a gradient's weight.
        self.own_step(gradients, step, factor / self.weight)
        if self.communicator.size == 1:
            return
        self.worker.switch(Phase.COMMUNICATE)
        source, target = self._peers(self.communicator.rank, step)
        self._coming.append((step, [self._receive(source, at) for at in range(len(self._layouts))]))
        self._push(target)
        self._take(step - self._ahead)
        self.worker.switch(Phase.UPDATE)

    def meet(self) -> None:
        self.worker.switch(Phase.COMMUNICATE)
        self._settle()
        super().meet()

    def _settle(self) -> None:
        self._take(self._step)
        while self._sent:
            self._sent.popleft().wait()

    def state(self) -> dict[str, HostArray]:
        self._settle()
        return super().state() | numbers(weight=self.weight, step=self._step)

    def restore(self, state: Mapping[str, HostArray]) -> None:
        super().restore(state)
        self._step, self.weight = number("step", state), float(state["weight"])

    def averaged(self) -> Mapping[str, Array]:
        given = self.inner.averaged() or self.parameters
        return self.mean_of_ranks({name: each * self.weight for name, each in given.items()})

    def _arrays(self, weight: float) -> list[dict[str, Array]]:
        """The arrays of a message, one mapping per dtype; the weight is the last of the first."""
        result = [{name: self.parameters[name] for name in names} for names in self._names]
        first = self.parameters[self._names[0][0]]
        result[0][_WEIGHT] = namespace(first).full((1,), weight, dtype=first.dtype, device=first.device)
        return result

    def _receive(self, source: int, at: int) -> Handle:
        like = self.parameters[self._names[at][0]]
        size = self._layouts[at].size
        buffer = namespace(like).empty(size, dtype=like.dtype, device=like.device)
        return self.communicator.start_receive(buffer, source, at)

    def _push(self, target: int) -> None:
        """Send a copy of the model with half of its weight."""
        leaves = half(max(0.0, min(self.weight, 2 * (self.weight - _LEAST))))
        self.weight -= leaves
        for at, (layout, arrays) in enumerate(zip(self._layouts, self._arrays(leaves), strict=True)):
            flat = layout.pack(arrays)
            # Packing a single array may return that array.
            self._sent.append(self.communicator.start_send(copy(flat) if len(arrays) == 1 else flat, target, at))
        while self._sent and self._sent[0].done():
            self._sent.popleft().wait()

    def _take(self, last: int) -> None:
        """Merge the messages that have arrived, and wait for those of steps up to ``last``."""
        later = []
        for step, handles in self._coming:
            if step <= last or all(handle.done() for handle in handles):
                self._merge(step, handles)
            else:
                later.append((step, handles))
        self._coming = later

    def _merge(self, step: int, handles: list[Handle]) -> None:
        """Merge a message (z', w'): z := (w z + w' z') / (w + w') and w := w + w'."""
        flats = [handle.wait() for handle in handles]
        came = float(flats[0][-1])
        self.weight += came
        part, parameters = came / self.weight, self.parameters
        for layout, flat in zip(self._layouts, flats, strict=True):
            flat *= part
            for name, array in layout.unpack(flat).items():
                if name != _WEIGHT:
                    parameter = parameters[name]
                    parameter *= 1 - part
                    parameter += array
                    parameters[name] = parameter
        self.worker.ledger.note("staleness", self._step - step, "steps")


def peers_of(name: str, size: int, seed: int) -> Callable[[int, int], tuple[int, int]]:
    """A function from rank and step (from 1) to the ranks that it receives from and sends to, one message each."""
    if name == "exponential":
        graph = make_graph("one-peer", size)
        return lambda rank, step: (next(iter(graph.sources(rank, step - 1))), graph.targets(rank, step - 1)[0])

    def drawn(rank: int, step: int) -> tuple[int, int]:
        ring = Generator(PCG64([seed, step, 0x605519])).permutation(size).tolist()
        place = ring.index(rank)
        return ring[place - 1], ring[(place + 1) % size]

    return drawn


@final
@dataclass(frozen=True)
class Gossip(Scheme):
    """Stochastic gradient push: each worker i has a model z_i and a weight w_i, initially 1.

    In each step it moves z_i by its gradient, at 1 / w_i of the learning rate, so that w_i z_i moves as far as on any
    worker; pushes (z_i, w_i / 2) to one other and keeps the other half of the weight (at least 1/4); then merges what
    has arrived: z_i := (w_i z_i + w' z') / (w_i + w'), w_i := w_i + w'. ``peers``: exponential (to i + 1, i + 2, i + 4,
    ... in turn) or random (a new ring each step, drawn from the run's seed). A worker waits for a message only if it
    was due ``ahead`` steps ago; with ``ahead=0`` all are in lockstep. Σ w z / Σ w is evaluated.
    """

    peers: str = "exponential"
    ahead: int = 8

    name: ClassVar[str] = "gossip"
    aliases: ClassVar[tuple[str, ...]] = ("sgp",)
    source: ClassVar[str] = "Assran et al. 2019, Stochastic Gradient Push for Distributed Deep Learning"
    consistent: ClassVar[bool] = False
    replicated: ClassVar[bool] = False
    lockstep: ClassVar[bool] = False
    messages: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.one_of(self, ("exponential", "random"), "peers")
        checks.at_least(self, 0, "ahead")

    def start(self, worker: Worker) -> SchemeStepper:
        return _GossipStepper(worker, self)

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        return Traffic(float((elements(parameters) + 1) * itemsize), 1.0) if size > 1 else Traffic(0.0, 0.0)
