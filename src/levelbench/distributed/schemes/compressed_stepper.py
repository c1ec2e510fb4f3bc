"""A compressed scheme at work on one rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import NDArray

from levelbench.distributed.compression.arrays import typed
from levelbench.distributed.compression.draws import Key
from levelbench.distributed.compression.exchange import Exchange
from levelbench.distributed.compression.feedback import ErrorFeedback
from levelbench.distributed.scheme import Worker
from levelbench.distributed.schemes.base_stepper import BaseStepper
from levelbench.distributed.schemes.keeping import arrays_of, kept_arrays, number, numbers
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import copy, namespace, norm, zeros_like

__all__ = ["CompressedStepper", "all_of", "note_compression"]

_NARROW = 4


def all_of(gradients: Mapping[str, Array], parameters: Mapping[str, Array]) -> Mapping[str, Array]:
    """A gradient for each parameter: zeros where there is none."""
    if len(gradients) == len(parameters):
        return gradients
    return {
        name: gradients[name] if name in gradients else zeros_like(parameter) for name, parameter in parameters.items()
    }


def note_compression(worker: Worker, ratio: float | None, residuals: list[Array], gradients: list[Array]) -> None:
    """Note ``compression_ratio`` (bytes of gradients / bytes of what stands for them) and ``residual_norm``.

    The first is not noted where it varies (``None``): what was sent is counted in any case. The second is the norm of
    this rank's residuals over the norm of its gradients, which are given as scalar arrays.
    """
    if ratio is not None:
        worker.ledger.note("compression_ratio", ratio, "1")
    whole = sum(float(each) ** 2 for each in gradients)
    if residuals and whole:
        worker.ledger.note("residual_norm", (sum(float(norm(each)) ** 2 for each in residuals) / whole) ** 0.5, "1")


class CompressedStepper(BaseStepper):
    """Packs, compensates, exchanges, unpacks, updates.

    All but the update is phase ``communicate``: what of it the communicator did not take is the time of compression.
    """

    kept = True

    def __init__(
        self, worker: Worker, exchange: Callable[[int], Exchange], error_feedback: bool, momentum: float = 0.0
    ) -> None:
        super().__init__(worker)
        self._exchange, self._momentum, self._steps = exchange, momentum, 1
        self._packed = self.packed()
        self._feedback = [ErrorFeedback(error_feedback) for _ in self._packed.packers]
        self._velocities: list[Array] = []
        self._norms: list[Array] = []

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        """One exchange a dtype."""
        worker = self.worker
        worker.switch(Phase.COMMUNICATE)
        exchange, self._steps = self._exchange(step), step
        flats = [_wide(flat) for flat in self._packed.pack(all_of(gradients, self.parameters), self.share)]
        if not self._norms:
            self._norms = [norm(flat) for flat in flats]
        if self._momentum:
            flats = self._accelerated(flats)
        totals = []
        for at, (flat, feedback, packer) in enumerate(zip(flats, self._feedback, self._packed.packers, strict=True)):
            total = feedback.total(
                self.communicator, exchange, flat, Key(worker.seed, self.communicator.rank, step, at)
            )
            totals.append(total if total.dtype == packer.dtype else namespace(total).astype(total, packer.dtype))
        if self._momentum:
            self._mask()
        combined = self._packed.unpack(totals)
        self.update({name: combined[name] for name in gradients}, step, factor)

    def meet(self) -> None:
        """Note how much was saved, and the residual now over the gradient of the first step since the last time."""
        residuals = [each.residual for each in self._feedback if each.residual is not None]
        note_compression(self.worker, self._ratio(), residuals, self._norms)
        self._norms = []

    def state(self) -> dict[str, NDArray[Any]]:
        """The optimizer's, what was left out of each gradient, and the momentum before compression."""
        backend, residuals = self.worker.backend, [each.residual for each in self._feedback]
        return (
            super().state()
            | kept_arrays("residual", backend, residuals)
            | kept_arrays("velocity", backend, self._velocities)
            | kept_arrays("norm", backend, self._norms)
            | numbers(steps=self._steps)
        )

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """All of that."""
        super().restore(state)
        backend, self._steps = self.worker.backend, number("steps", state)
        residuals = arrays_of("residual", backend, state)
        for at, each in enumerate(self._feedback):
            each.residual = residuals.get(str(at))
        self._velocities = list(arrays_of("velocity", backend, state).values())
        self._norms = list(arrays_of("norm", backend, state).values())

    def _ratio(self) -> float | None:
        """Bytes of the gradients over bytes of the last step's payloads."""
        exchange, whole, sent = self._exchange(self._steps), 0, 0
        for each in self._packed.packers:
            itemsize = each.dtype.itemsize
            payload = exchange.payload_bytes(each.size, max(_NARROW, itemsize))
            if payload is None:
                return None
            whole, sent = whole + each.size * itemsize, sent + payload
        return whole / sent if sent else None

    def _accelerated(self, flats: list[Array]) -> list[Array]:
        """Momentum before compression: u := momentum u + g (Lin et al. 2018, equation 6)."""
        if not self._velocities:
            self._velocities = [copy(flat) for flat in flats]
            return self._velocities
        updated = []
        for velocity, flat in zip(self._velocities, flats, strict=True):
            velocity *= self._momentum
            velocity += flat
            updated.append(velocity)
        self._velocities = updated
        return updated

    def _mask(self) -> None:
        """Forget the momentum of what was sent, of which nothing is left (Lin et al. 2018, equation 8)."""
        self._velocities = [
            velocity * namespace(velocity).astype(each.residual != 0, velocity.dtype)
            for velocity, each in zip(self._velocities, self._feedback, strict=True)
        ]


def _wide(flat: Array) -> Array:
    """In 32 bits where it has fewer."""
    return typed(flat, "float32") if flat.dtype.itemsize < _NARROW else flat
