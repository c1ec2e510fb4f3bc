"""What most schemes share: a common start, arrays packed for messages, phases, the mean of all models, kept state.

A scheme's stepper holds the optimizer's own stepper (``inner``) and adds what is said between ranks, so a concrete one
is little more than its :meth:`step`. For checkpoints its state is arrays on the host by flat names, ``NAME`` and
``NAME/PLACE``.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from math import prod

import numpy as np

from levelbench.distributed.communicator import Communicator
from levelbench.distributed.packing import HostArray, Packed
from levelbench.distributed.scheme import SchemeStepper, Worker
from levelbench.errors import DataError
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Array, Backend
from levelbench.training.optimizers.arrays import norm
from levelbench.training.optimizers.base import Stepper

State = Mapping[str, HostArray]


def elements(parameters: Mapping[str, tuple[int, ...]]) -> int:
    """The number of elements of all parameters of these shapes."""
    return sum(prod(shape) for shape in parameters.values())


def under(name: str, arrays: Mapping[str, HostArray]) -> dict[str, HostArray]:
    """The arrays under ``name/``."""
    return {f"{name}/{each}": value for each, value in arrays.items()}


def those_under(name: str, state: State) -> dict[str, HostArray]:
    """What :meth:`under` put there, by its own names."""
    prefix = f"{name}/"
    return {each.removeprefix(prefix): value for each, value in state.items() if each.startswith(prefix)}


def kept_arrays(name: str, backend: Backend, arrays: Mapping[str, Array] | Sequence[Array]) -> dict[str, HostArray]:
    """Native arrays by name, or in order, as arrays of their own on the host. ``None`` among them is left out."""
    named = arrays if isinstance(arrays, Mapping) else {str(at): each for at, each in enumerate(arrays)}
    return under(name, {each: np.array(backend.host(value)) for each, value in named.items() if value is not None})


def arrays_of(name: str, backend: Backend, state: State) -> dict[str, Array]:
    """What :func:`kept_arrays` kept, native again, by name or place."""
    return {each: backend.array(np.array(value)) for each, value in those_under(name, state).items()}


def numbers(**given: float | Sequence[float]) -> dict[str, HostArray]:
    """Numbers, or lists of them, by name."""
    return {name: np.array(value) for name, value in given.items()}


def number(name: str, state: State) -> int:
    """A whole number that :func:`numbers` kept; ``DataError`` where it is not there."""
    if name not in state or state[name].shape:
        raise DataError("the state of a scheme", f"{name!r} is not in it", "it was kept by another scheme")
    return int(state[name])


_OPTIMIZER = "optimizer"


def share_from(communicator: Communicator, backend: Backend, arrays: MutableMapping[str, Array], root: int = 0) -> None:
    """Give all ranks the root's values of these live arrays: one broadcast a dtype. Collective."""
    if not arrays or communicator.size == 1:
        return
    packed = Packed(backend, arrays)
    flats = [communicator.broadcast(flat, root) for flat in packed.pack(arrays)]
    if communicator.rank != root:
        packed.write(flats, arrays)


def begin_as_rank_zero(worker: Worker) -> None:
    """Give all ranks rank 0's parameters and buffers, so that no seed or file makes them differ. Collective."""
    worker.switch(Phase.COMMUNICATE)
    share_from(worker.communicator, worker.backend, worker.executor.parameters)
    share_from(worker.communicator, worker.backend, worker.executor.buffers)


class BaseStepper(SchemeStepper):
    """Begins with rank 0's parameters and buffers on all ranks; then the worker's optimizer goes to work on them."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.executor = worker.executor
        self.communicator = worker.communicator
        begin_as_rank_zero(worker)
        self.parameters = worker.executor.parameters
        # After the broadcast: an averaging optimizer copies the values that it starts from.
        self.inner: Stepper = worker.optimizer.start(worker.backend, self.parameters)

    def update(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        """The optimizer's own step, in phase ``update``."""
        self.worker.switch(Phase.UPDATE)
        self.inner.step(gradients, step, factor)

    def state(self) -> dict[str, HostArray]:
        return under(_OPTIMIZER, self.inner.state())

    def restore(self, state: Mapping[str, HostArray]) -> None:
        self.inner.restore(those_under(_OPTIMIZER, state))

    def averaged(self) -> Mapping[str, Array] | None:
        """Those of the optimizer: the same on all ranks where all hold the same parameters."""
        return self.inner.averaged()

    def packed(self) -> Packed:
        """A packer of all parameters, or of gradients, which have their names, shapes and dtypes."""
        return Packed(self.worker.backend, self.parameters)

    def mean_of_ranks(self, arrays: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """The mean over all ranks of these arrays (``None``: of the parameters), as arrays of their own. Collective."""
        given = self.parameters if arrays is None else arrays
        packed = Packed(self.worker.backend, given)
        return packed.unpack([self.communicator.all_reduce(flat, "mean") for flat in packed.pack(given)])

    def note_divergence(self) -> None:
        """Note ``divergence``: ‖x − x̄‖ / ‖x̄‖ of this rank's parameters x and their mean x̄ over ranks. Collective."""
        mean = self.mean_of_ranks()
        apart = sum(float(norm(self.parameters[name] - each)) ** 2 for name, each in mean.items())
        whole = sum(float(norm(each)) ** 2 for each in mean.values())
        self.worker.ledger.note("divergence", (apart / whole) ** 0.5 if whole else 0.0, "1")


class OwnModelStepper(BaseStepper):
    """A worker with a model of its own. Evaluated is the mean of all workers' models, which stay as they are."""

    def own_step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        """The optimizer's step with this worker's gradient times share · workers.

        That weight is 1 where all have equally many examples, and such that over workers the mean of the weighted
        gradients is the gradient of the global batch; it is 0 where a worker has no example.
        """
        weight = self.share * self.communicator.size
        if weight != 1:
            weighted = {}
            for name, gradient in gradients.items():
                gradient *= weight
                weighted[name] = gradient
            gradients = weighted
        self.update(gradients, step, factor)

    def meet(self) -> None:
        self.worker.switch(Phase.COMMUNICATE)
        self.note_divergence()

    def averaged(self) -> Mapping[str, Array]:
        """The mean over workers of what each one's optimizer would have evaluated."""
        return self.mean_of_ranks(self.inner.averaged())
