"""What most schemes share: a common start, packing for messages, phases, the mean of all models, state.

A scheme's stepper holds the optimizer's own stepper (``inner``) and adds the communication, so a concrete one is little
more than its :meth:`step`. Its state for checkpoints is arrays on the host by flat names, ``NAME`` and ``NAME/PLACE``.
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
    """The total number of elements of parameters with these shapes."""
    return sum(prod(shape) for shape in parameters.values())


def under(name: str, arrays: Mapping[str, HostArray]) -> dict[str, HostArray]:
    """The arrays with ``name/`` in front of their names."""
    return {f"{name}/{each}": value for each, value in arrays.items()}


def those_under(name: str, state: State) -> dict[str, HostArray]:
    """The arrays that :func:`under` put below ``name/``, by their own names."""
    prefix = f"{name}/"
    return {each.removeprefix(prefix): value for each, value in state.items() if each.startswith(prefix)}


def kept_arrays(name: str, backend: Backend, arrays: Mapping[str, Array] | Sequence[Array]) -> dict[str, HostArray]:
    """Host copies of native arrays, by name or position; ``None`` entries are left out."""
    named = arrays if isinstance(arrays, Mapping) else {str(at): each for at, each in enumerate(arrays)}
    return under(name, {each: np.array(backend.host(value)) for each, value in named.items() if value is not None})


def arrays_of(name: str, backend: Backend, state: State) -> dict[str, Array]:
    """The native arrays that :func:`kept_arrays` saved, by name or position."""
    return {each: backend.array(np.array(value)) for each, value in those_under(name, state).items()}


def numbers(**given: float | Sequence[float]) -> dict[str, HostArray]:
    """Numbers, or lists of numbers, as arrays by name."""
    return {name: np.array(value) for name, value in given.items()}


def number(name: str, state: State) -> int:
    """An integer that :func:`numbers` saved; ``DataError`` if it is missing."""
    if name not in state or state[name].shape:
        raise DataError("the state of a scheme", f"it has no {name!r}", "it was saved by another scheme")
    return int(state[name])


_OPTIMIZER = "optimizer"


def share_from(communicator: Communicator, backend: Backend, arrays: MutableMapping[str, Array]) -> None:
    """Give all ranks rank 0's values of these live arrays, with one broadcast per dtype. Collective."""
    if not arrays or communicator.size == 1:
        return
    packed = Packed(backend, arrays)
    flats = [communicator.broadcast(flat) for flat in packed.pack(arrays)]
    if communicator.rank:
        packed.write(flats, arrays)


def begin_as_rank_zero(worker: Worker) -> None:
    """Give all ranks rank 0's parameters and buffers, so that no seed or file makes them differ. Collective."""
    worker.switch(Phase.COMMUNICATE)
    share_from(worker.communicator, worker.backend, worker.executor.parameters)
    share_from(worker.communicator, worker.backend, worker.executor.buffers)


class BaseStepper(SchemeStepper):
    """Starts with rank 0's parameters and buffers on all ranks, and the worker's optimizer on them."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.executor = worker.executor
        self.communicator = worker.communicator
        begin_as_rank_zero(worker)
        self.parameters = worker.executor.parameters
        # After the broadcast, because an averaging optimizer copies its initial values.
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
        """The optimizer's: the same on all ranks if all hold the same parameters."""
        return self.inner.averaged()

    def packed(self) -> Packed:
        """A packer of all parameters, or of gradients, which have the same names, shapes and dtypes."""
        return Packed(self.worker.backend, self.parameters)

    def mean_of_ranks(self, arrays: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """The mean over all ranks of these arrays (default: the parameters), in new arrays. Collective."""
        given = self.parameters if arrays is None else arrays
        packed = Packed(self.worker.backend, given)
        return packed.unpack([self.communicator.all_reduce(flat, "mean") for flat in packed.pack(given)])


def note_divergence(worker: Worker, common: Mapping[str, Array]) -> None:
    """Note ``divergence``: ‖x − y‖ / ‖y‖ of this rank's parameters x and the common ones y."""
    parameters = worker.executor.parameters
    apart = sum(float(norm(parameters[name] - each)) ** 2 for name, each in common.items())
    whole = sum(float(norm(each)) ** 2 for each in common.values())
    worker.ledger.note("divergence", (apart / whole) ** 0.5 if whole else 0.0, "1")


class OwnModelStepper(BaseStepper):
    """A worker with its own model. The mean of all workers' models is evaluated; they stay as they are."""

    def own_step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        """The optimizer's step with this worker's gradient times share · workers.

        The weight is 1 if all workers have equally many examples, and 0 if this one has none. The mean over workers of
        the weighted gradients is the gradient of the global batch.
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
        note_divergence(self.worker, self.mean_of_ranks())

    def averaged(self) -> Mapping[str, Array]:
        """The mean over workers of what each one's optimizer would have evaluated."""
        return self.mean_of_ranks(self.inner.averaged())
