"""Synchronous schemes with compressed gradients: sparse, quantised, as signs, in 16 bits.

Each is all-reduce with another way of summing (:mod:`levelbench.distributed.compression.exchange`) and error feedback
around it. All ranks add the same payloads in the same order, or one rank adds and sends the sum, so all apply the same
bits although their gradients differ.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from levelbench.distributed.compression.compressors import (
    CastCompressor,
    Key,
    QSGDCompressor,
    RandomKCompressor,
    SignCompressor,
    ThresholdCompressor,
    TopKCompressor,
    typed,
)
from levelbench.distributed.compression.exchange import (
    Doubled,
    ErrorFeedback,
    Exchange,
    Gathered,
    GatheredAnyLength,
    InPieces,
    Reduced,
    Voted,
)
from levelbench.distributed.packing import HostArray
from levelbench.distributed.scheme import Preset, Scheme, SchemeStepper, Traffic, Worker
from levelbench.distributed.schemes.base import BaseStepper, arrays_of, elements, kept_arrays, number, numbers
from levelbench.errors import DefinitionError
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import copy, namespace, norm, zeros_like

_NARROW = 4


def all_of(gradients: Mapping[str, Array], parameters: Mapping[str, Array]) -> Mapping[str, Array]:
    """A gradient for each parameter, with zeros for those without one."""
    if len(gradients) == len(parameters):
        return gradients
    return {
        name: gradients[name] if name in gradients else zeros_like(parameter) for name, parameter in parameters.items()
    }


def note_compression(worker: Worker, ratio: float | None, residuals: list[Array], gradients: list[Array]) -> None:
    """Note ``compression_ratio`` (bytes of gradients / bytes of payloads) and ``residual_norm``.

    A ratio that varies (``None``) is not noted, as sent bytes are counted anyway. ``residual_norm`` is the norm of this
    rank's residuals over the norm of its gradients, whose norms are given as scalar arrays.
    """
    if ratio is not None:
        worker.ledger.note("compression_ratio", ratio, "1")
    whole = sum(float(each) ** 2 for each in gradients)
    if residuals and whole:
        worker.ledger.note("residual_norm", (sum(float(norm(each)) ** 2 for each in residuals) / whole) ** 0.5, "1")


def _marked(flat: Array) -> Array:
    """The array, all NaN if any element is not finite: compressors send some elements, or bounds of them.

    So every rank's parameters show it, as after an all-reduce.
    """
    if flat.shape[0]:
        xp = namespace(flat)
        flat += xp.max(flat) * 0 + xp.min(flat) * 0
    return flat


class _CompressedStepper(BaseStepper):
    """Packs, compensates, exchanges, unpacks, updates.

    Everything but the update is phase ``communicate``; its time outside the communicator is spent on compression.
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
        worker = self.worker
        worker.switch(Phase.COMMUNICATE)
        exchange, self._steps = self._exchange(step), step
        packed = self._packed.pack(all_of(gradients, self.parameters), self.share)
        wide = [typed(flat, "float32") if flat.dtype.itemsize < _NARROW else flat for flat in packed]
        flats = [_marked(flat) for flat in wide]
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
        residuals = [each.residual for each in self._feedback if each.residual is not None]
        note_compression(self.worker, self._ratio(), residuals, self._norms)
        self._norms = []

    def state(self) -> dict[str, HostArray]:
        backend, residuals = self.worker.backend, [each.residual for each in self._feedback]
        return (
            super().state()
            | kept_arrays("residual", backend, residuals)
            | kept_arrays("velocity", backend, self._velocities)
            | kept_arrays("norm", backend, self._norms)
            | numbers(steps=self._steps)
        )

    def restore(self, state: Mapping[str, HostArray]) -> None:
        super().restore(state)
        backend, self._steps = self.worker.backend, number("steps", state)
        residuals = arrays_of("residual", backend, state)
        for at, each in enumerate(self._feedback):
            each.residual = residuals.get(str(at))
        self._velocities = list(arrays_of("velocity", backend, state).values())
        self._norms = list(arrays_of("norm", backend, state).values())

    def _ratio(self) -> float | None:
        """The bytes of the gradients over those of the last step's payloads."""
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
        """Reset the momentum of what was sent completely (Lin et al. 2018, equation 8)."""
        self._velocities = [
            velocity * namespace(velocity).astype(each.residual != 0, velocity.dtype)
            for velocity, each in zip(self._velocities, self._feedback, strict=True)
        ]


@dataclass(frozen=True)
class Compressed(Scheme):
    """Synchronous data parallelism with compressed gradients; what is left out is added to the next gradient.

    Gradients are compressed after the backward pass, as one flat array per dtype.
    """

    error_feedback: bool = True
    consistent: ClassVar[bool] = False
    replicated: ClassVar[bool] = True

    @abstractmethod
    def exchange(self, step: int = 1 << 62) -> Exchange:
        """How gradients are summed in a step (from 1); by default that after any warm-up."""

    def start(self, worker: Worker) -> SchemeStepper:
        return _CompressedStepper(worker, self.exchange, self.error_feedback)

    def traffic_within(self) -> float:
        return self.exchange().traffic_within

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        """That of the exchange after any warm-up; 16-bit gradients are widened to 32 bits first."""
        return self.exchange().traffic(elements(parameters), max(4, itemsize), size, rank)


def _check_ratio(scheme: SparseTopK | RandomK) -> None:
    if not 0 < scheme.ratio <= 1:
        raise DefinitionError(
            f"{type(scheme).__name__} with ratio={scheme.ratio}", "it is not a share", "choose 0 < ratio <= 1"
        )


@dataclass(frozen=True)
class SparseTopK(Compressed):
    """The share ``ratio`` of the elements with the largest magnitudes, as values and places.

    ``exchange_by`` is ``gather`` (every rank gets all payloads) or ``doubling`` (SparCML's: partners merge their
    streams, doubling their contents, and switch to dense arrays once a stream would be larger; the traffic depends on
    how places coincide, so :meth:`traffic` is an expectation for randomly chosen places).

    In the first ``warmup_steps``, the share falls exponentially from 1 to ``ratio``. ``momentum`` is the momentum
    correction with factor masking of Deep Gradient Compression (Lin et al. 2018, sections 3.1 and 3.3), which replaces
    the optimizer's own: use SGD without momentum.
    """

    name: ClassVar[str] = "top-k"
    aliases: ClassVar[tuple[str, ...]] = ("sparcml",)
    source: ClassVar[str] = "Aji & Heafield 2017; Stich et al. 2018; Renggli et al. 2019 (SparCML)"
    ratio: float = 0.01
    exchange_by: str = "gather"
    warmup_steps: int = 0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        _check_ratio(self)
        checks.one_of(self, ("gather", "doubling"), "exchange_by")
        object.__setattr__(self, "messages", self.exchange_by == "doubling")
        checks.at_least(self, 0, "warmup_steps")
        checks.share(self, "momentum")
        if self.momentum and not self.error_feedback:
            raise DefinitionError(
                f"top-k with momentum={self.momentum} and error_feedback=False",
                "momentum correction needs the residuals that error feedback keeps",
                "choose error_feedback=True",
            )

    def start(self, worker: Worker) -> SchemeStepper:
        return _CompressedStepper(worker, self.exchange, self.error_feedback, self.momentum)

    def most_weight(self) -> float:
        return 1 / (1 - self.momentum)

    def exchange(self, step: int = 1 << 62) -> Exchange:
        ratio = self.ratio
        if step <= self.warmup_steps:
            ratio **= (step - 1) / self.warmup_steps
        compressor = TopKCompressor(ratio)
        return Gathered(compressor) if self.exchange_by == "gather" else Doubled(compressor)


@dataclass(frozen=True)
class RandomK(Compressed):
    """The share ``ratio`` of the elements, at places drawn for each step from the run's seed: an all-reduce of values.

    Without error feedback the result is multiplied by n / k, so that its expectation is the gradient (Wangni et al.
    2018). With it (Stich et al. 2018), an element waits for 1 / ratio steps on average and then moves by all of its
    gradients at once, so stable learning rates fall with the ratio, even more so with momentum.
    """

    name: ClassVar[str] = "random-k"
    source: ClassVar[str] = "Wangni et al. 2018; Stich et al. 2018"
    error_feedback: bool = False
    ratio: float = 0.25

    def __post_init__(self) -> None:
        _check_ratio(self)

    def exchange(self, step: int = 1 << 62) -> Exchange:
        return Reduced(RandomKCompressor(self.ratio), rescale=not self.error_feedback)


@dataclass(frozen=True)
class Threshold(Compressed):
    """All elements with a magnitude of ``threshold``, or (``relative``) of that many root mean squares of the gradient.

    Sizes vary between steps and ranks, so they are exchanged first, and the traffic is an expectation for the share
    ``expected`` of all elements. 0.05 is about what a normal distribution has beyond two root mean squares.
    """

    name: ClassVar[str] = "threshold"
    source: ClassVar[str] = "Strom 2015; Dryden et al. 2016"
    threshold: float = 2.0
    relative: bool = True
    expected: float = 0.05

    def __post_init__(self) -> None:
        checks.not_negative(self, "threshold", "expected")

    def exchange(self, step: int = 1 << 62) -> Exchange:
        return GatheredAnyLength(ThresholdCompressor(self.threshold, self.relative), self.expected)

    def simulated(self) -> Scheme:
        return _ThresholdAsExpected(self.error_feedback, self.threshold, self.relative, self.expected)


@final
@dataclass(frozen=True)
class _ThresholdAsExpected(Threshold):
    """Sends the share ``expected`` of all elements: simulated gradients say nothing about those of a training."""

    def exchange(self, step: int = 1 << 62) -> Exchange:
        return GatheredAnyLength(TopKCompressor(min(self.expected, 1.0)), 1.0)


@dataclass(frozen=True)
class QSGD(Compressed):
    """Each element randomly rounded to one of ``levels`` levels either side of zero, relative to its bucket's ``norm``.

    ``norm`` is ``l2`` or ``max``. Unbiased, so error feedback is off by default; with it, the bound on the variance
    must be below 1, or residuals would grow. ``pieces``: each rank sums a piece and quantises the sum again, so that
    the bytes do not grow with the ranks.
    """

    name: ClassVar[str] = "qsgd"
    source: ClassVar[str] = "Alistarh et al. 2017"
    error_feedback: bool = False
    levels: int = 127
    bucket: int = 512
    norm: str = "l2"
    pieces: bool = False

    def __post_init__(self) -> None:
        checks.at_least(self, 1, "levels", "bucket")
        checks.one_of(self, ("l2", "max"), "norm")
        if self.levels > 1 << 15:
            raise DefinitionError(
                f"QSGD with levels={self.levels}", "codes have at most 17 bits", "choose 32768 or fewer"
            )
        variance = self._compressor().variance
        if self.error_feedback and variance >= 1:
            raise DefinitionError(
                f"QSGD with levels={self.levels}, bucket={self.bucket} and error_feedback=True",
                f"its error may be {variance:.2g} times the gradient, so residuals would grow",
                "choose more levels, a smaller bucket, or error_feedback=False",
            )

    def _compressor(self) -> QSGDCompressor:
        return QSGDCompressor(self.levels, self.bucket, self.norm)

    def exchange(self, step: int = 1 << 62) -> Exchange:
        return InPieces(self._compressor()) if self.pieces else Gathered(self._compressor())


@dataclass(frozen=True)
class Sign(Compressed):
    """One bit per element, and a scale per ``bucket``: see :class:`SignCompressor` for ``scale``.

    With ``vote``, the sign of the sum of signs is applied, and each rank has one vote whatever its share: steps have
    the size of the learning rate, and error feedback must be off. ``pieces`` as in :class:`QSGD`.
    """

    name: ClassVar[str] = "sign"
    aliases: ClassVar[tuple[str, ...]] = ("1-bit",)
    source: ClassVar[str] = "Seide et al. 2014; Bernstein et al. 2018; Karimireddy et al. 2019"
    bucket: int = 128
    scale: str = "mean"
    pieces: bool = False

    def __post_init__(self) -> None:
        checks.at_least(self, 1, "bucket")
        checks.one_of(self, ("mean", "means", "vote"), "scale")
        if self.scale == "vote" and (self.error_feedback or self.pieces):
            raise DefinitionError(
                "Sign with scale=vote",
                "a vote does not estimate the gradient, so it has no residual, and pieces cannot be summed",
                "choose error_feedback=False and pieces=False, or scale=mean",
            )

    def most_weight(self) -> float:
        return float("inf") if self.scale == "vote" else 1.0

    def exchange(self, step: int = 1 << 62) -> Exchange:
        compressor = SignCompressor(self.bucket, self.scale)
        if self.scale == "vote":
            return Voted(compressor)
        return InPieces(compressor) if self.pieces else Gathered(compressor)


@dataclass(frozen=True)
class Cast(Compressed):
    """Gradients in 16 bits, of type ``kind``: ``float16`` or ``bfloat16``.

    Half precision ends at 65504, and the excess follows in the next steps; bfloat16 has the range of float32 and 8 bits
    of precision. Each rank sums one piece in the gradient's own type and sends the sum in 16 bits. This takes the bytes
    and messages of a 16-bit ring all-reduce, with two roundings instead of one per addition, over any communicator.
    With ``narrow`` the communicator adds in 16 bits, like PyTorch's hook of that name; error feedback then covers the
    rounding of what was sent, not that of sums.
    """

    name: ClassVar[str] = "cast"
    source: ClassVar[str] = "Micikevicius et al. 2018; Kalamkar et al. 2019"
    kind: str = "float16"
    narrow: bool = False

    def __post_init__(self) -> None:
        checks.one_of(self, ("float16", "bfloat16"), "kind")

    def exchange(self, step: int = 1 << 62) -> Exchange:
        compressor = CastCompressor(self.kind, self.narrow)
        return Reduced(compressor) if self.narrow else InPieces(compressor)


@dataclass(frozen=True)
class _CastPreset(Preset):
    replicated: ClassVar[bool] = True
    kind: ClassVar[str]
    error_feedback: bool = True
    narrow: bool = False

    @property
    def meant(self) -> Cast:
        return Cast(self.error_feedback, self.kind, self.narrow)


@dataclass(frozen=True)
class FP16(_CastPreset):
    """``cast[kind=float16]``."""

    name: ClassVar[str] = "fp16"
    source: ClassVar[str] = "Micikevicius et al. 2018; PyTorch's fp16_compress_hook"
    kind: ClassVar[str] = "float16"


@dataclass(frozen=True)
class BF16(_CastPreset):
    """``cast[kind=bfloat16]``."""

    name: ClassVar[str] = "bf16"
    source: ClassVar[str] = "Kalamkar et al. 2019; PyTorch's bf16_compress_hook"
    kind: ClassVar[str] = "bfloat16"
