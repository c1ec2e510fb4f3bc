"""Decentralised training: each worker mixes its model with those of its neighbours on a graph; there is no centre."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from numpy.typing import NDArray

from levelbench.distributed.communicator import Handle
from levelbench.distributed.scheme import Scheme, SchemeStepper, Traffic, Worker
from levelbench.distributed.schemes.averaging import OwnModelStepper, elements
from levelbench.distributed.schemes.graphs import GRAPHS, make_graph
from levelbench.distributed.schemes.keeping import number, numbers
from levelbench.errors import UnknownNameError
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import namespace

__all__ = ["Neighbours"]


@final
class _NeighboursStepper(OwnModelStepper):
    """Between two steps the messages of the next one may be under way: all workers are in the same place then."""

    kept = True

    def __init__(self, worker: Worker, scheme: Neighbours) -> None:
        super().__init__(worker)
        self._after = scheme.mix == "after"
        self._ahead = scheme.overlap and not self._after
        self._graph = make_graph(scheme.graph, self.communicator.size, degree=scheme.degree, seed=worker.seed)
        self._packed = self.packed()
        self._flats: list[Array] = []
        self._sent: list[Handle] = []
        self._coming: list[tuple[int, float, Handle]] = []
        self._buffers: dict[tuple[int, int], Array] = {}
        self._began_ns = self._inside_ns = 0
        self._step = 0
        if self._ahead:
            self._begin(1)

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        self._step = step
        if self._after:
            self.own_step(gradients, step, factor)
            self._begin(step)
            self._mix(step)
            self.worker.switch(Phase.UPDATE)
            return
        if not self._ahead:
            self._begin(step)
        self._mix(step)
        self.own_step(gradients, step, factor)
        if self._ahead:
            self._begin(step + 1)
            self.worker.switch(Phase.UPDATE)

    def state(self) -> dict[str, NDArray[Any]]:
        """The optimizer's. What is under way is the parameters as they are."""
        return super().state() | numbers(step=self._step)

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """The optimizer's; the messages of the next step are sent again."""
        super().restore(state)
        self._step = number("step", state)
        if self._ahead:
            self._wait()
            self._begin(self._step + 1)

    def close(self) -> None:
        """Receive what was sent for a step that is not made."""
        self._wait()

    def _begin(self, step: int) -> None:
        """Let the models of this moment travel; receives come first, so that nobody waits for a place to send to."""
        self.worker.switch(Phase.COMMUNICATE)
        communicator, graph = self.communicator, self._graph
        self._flats = self._packed.pack(self.parameters)
        self._began_ns = self.worker.clock.now_ns()
        for source, weight in graph.sources(communicator.rank, step - 1).items():
            for at, flat in enumerate(self._flats):
                if (source, at) not in self._buffers:
                    self._buffers[source, at] = namespace(flat).empty_like(flat)
                handle = communicator.start_receive(self._buffers[source, at], source, at)
                self._coming.append((at, weight, handle))
        self._sent = [
            communicator.start_send(flat, target, at)
            for target in graph.targets(communicator.rank, step - 1)
            for at, flat in enumerate(self._flats)
        ]
        self._inside_ns = self.worker.clock.now_ns() - self._began_ns

    def _wait(self) -> list[tuple[int, float, Array]]:
        arrived = [(at, weight, handle.wait()) for at, weight, handle in self._coming]
        for handle in self._sent:
            handle.wait()
        self._coming, self._sent = [], []
        return arrived

    def _mix(self, step: int) -> None:
        """The weighted mean of the neighbours' models and this one, as they were when they were sent."""
        self.worker.switch(Phase.COMMUNICATE)
        waits_ns = self.worker.clock.now_ns()
        arrived = self._wait()
        ended_ns = self.worker.clock.now_ns()
        # The first messages waited for the training to begin.
        if self._ahead and step > 1 and arrived:
            inside_ns = self._inside_ns + ended_ns - waits_ns
            self.worker.ledger.note("overlap", 1 - inside_ns / max(1, ended_ns - self._began_ns))
        self.worker.switch(Phase.UPDATE)
        own, flats = self._graph.own(self.communicator.rank, step - 1), self._flats
        for at in range(len(flats)):
            flats[at] *= own
        for at, weight, array in arrived:
            array *= weight
            flats[at] += array
        self._packed.write(flats, self.parameters)


@final
@dataclass(frozen=True)
class Neighbours(Scheme):
    """x_i := Σ_j W_ij x_j - update_i(g_i(x_i)): D-PSGD, with any optimizer in the place of lr g.

    ``graph`` is ring, torus, exponential, one-peer, random or complete; ``degree`` the number of neighbours of random.

    - ``mix="before"``: models are mixed as they were before the update, so messages travel while gradients are
      computed (``overlap``: sent as soon as a step is over). This is the paper's order.
    - ``mix="after"``: x_i := Σ_j W_ij (x_j - update_j(g_j)), adapt-then-combine (Ying et al. 2021); on the complete
      graph it is model averaging.

    Evaluated is the mean of all workers' models. With ``overlap`` it notes ``overlap`` a step: 1 - (time inside the
    communicator's calls) / (time from the first send to the last arrival).
    """

    graph: str = "ring"
    degree: int = 4
    mix: str = "before"
    overlap: bool = True

    name: ClassVar[str] = "neighbours"
    aliases: ClassVar[tuple[str, ...]] = ("dpsgd",)
    source: ClassVar[str] = "Lian et al. 2017, Can Decentralized Algorithms Outperform Centralized Algorithms?"
    consistent: ClassVar[bool] = False
    replicated: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.graph not in GRAPHS:
            raise UnknownNameError("graph", self.graph, GRAPHS)
        checks.one_of(self, ("before", "after"), "mix")
        checks.at_least(self, 1, "degree")

    def start(self, worker: Worker) -> SchemeStepper:
        """Go to work; collective."""
        return _NeighboursStepper(worker, self)

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        """The model to each neighbour in each step; with ``overlap`` once more at the start, for the first step."""
        # A random graph has the same number of neighbours whatever its seed.
        targets = len(make_graph(self.graph, size, degree=self.degree).targets(rank))
        return Traffic(float(targets * elements(parameters) * itemsize), float(targets))
