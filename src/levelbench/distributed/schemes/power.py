"""PowerSGD: gradients as products of two thin matrices, with one step of power iteration per training step.

P = M Q and Q = Mᵀ P are linear in M, so two all-reduces of thin matrices replace one of the gradient, and no rank needs
the sum of the matrices themselves. The iteration starts from the last step's factor, so it converges over many steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from levelbench.distributed import traffic
from levelbench.distributed.compression.compressors import Key
from levelbench.distributed.packing import FlatLayout, HostArray, by_dtype
from levelbench.distributed.scheme import Scheme, SchemeStepper, Traffic, Worker
from levelbench.distributed.schemes.base import BaseStepper, arrays_of, elements, kept_arrays
from levelbench.distributed.schemes.compressed import all_of, note_compression
from levelbench.errors import DefinitionError
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import namespace, norm


@dataclass(frozen=True)
class Factors:
    """A gradient as a matrix (its first axis, and all others), and the rank of its factors."""

    rows: int
    columns: int
    rank: int

    @classmethod
    def of(cls, shape: tuple[int, ...], rank: int, least_ratio: float) -> Factors | None:
        """The factors for an array of this shape; ``None`` if it is not compressed.

        These are arrays with fewer than two axes, and matrices whose factors are not ``least_ratio`` times smaller.
        """
        if len(shape) < 2 or not prod(shape):
            return None
        rows, columns = shape[0], prod(shape[1:])
        rank = min(rank, rows, columns)
        return cls(rows, columns, rank) if (rows + columns) * rank * least_ratio < rows * columns else None


def orthonormal(matrix: Array) -> Array:
    """An orthonormal basis of the columns, shape (rows, rank), by QR; arbitrary if they are dependent."""
    return namespace(matrix).linalg.qr(matrix, mode="reduced")[0]


def start(factors: Factors, like: Array, key: Key) -> Array:
    """An initial Q, shape (columns, rank): orthonormalised normal draws, the same on all ranks."""
    drawn = key.everywhere().generator().standard_normal((factors.columns, factors.rank))
    basis = np.ascontiguousarray(np.linalg.qr(drawn)[0])
    xp = namespace(like)
    return xp.astype(xp.asarray(basis, device=like.device), like.dtype)


@dataclass(frozen=True)
class PowerSGD(Scheme):
    """Matrices (the first axis, and all others) as P Qᵀ of rank ``rank``; the rest is sent uncompressed.

    M := g + e on each worker; P := Σ M Q, orthonormalised; Q := Σ Mᵀ P; the update is P Qᵀ, and e := M − P (Mᵀ P)ᵀ with
    the worker's own M (algorithms 1 and 2 of the paper). ``warm_start`` begins with the last step's Q. Matrices whose
    factors are not smaller by more than ``least_ratio`` times are sent uncompressed, and in the first ``dense_steps``
    everything is. All workers apply the same bits, computed from sums that are bitwise identical.
    """

    name: ClassVar[str] = "power-sgd"
    source: ClassVar[str] = "Vogels, Karimireddy & Jaggi 2019"
    consistent: ClassVar[bool] = False
    replicated: ClassVar[bool] = True
    rank: int = 2
    warm_start: bool = True
    error_feedback: bool = True
    least_ratio: float = 1.0
    dense_steps: int = 0

    def __post_init__(self) -> None:
        checks.at_least(self, 1, "rank")
        checks.at_least(self, 0, "dense_steps")
        checks.not_negative(self, "least_ratio")

    def factors(self, parameters: Mapping[str, tuple[int, ...]]) -> dict[str, Factors]:
        """The compressed ones among parameters of these shapes, with their factors."""
        found = {name: Factors.of(shape, self.rank, self.least_ratio) for name, shape in parameters.items()}
        return {name: each for name, each in found.items() if each is not None}

    def start(self, worker: Worker) -> SchemeStepper:
        """Start to work; ``DefinitionError`` for 16-bit gradients."""
        return _PowerStepper(worker, self)

    def traffic(self, parameters: Mapping[str, tuple[int, ...]], itemsize: int, size: int, rank: int) -> Traffic:
        """Two all-reduces, one of P and everything uncompressed, one of Q, as after ``dense_steps``."""
        first, second = self._elements(parameters)
        sent = traffic.all_reduce(first, itemsize, size, rank)
        return sent + traffic.all_reduce(second, itemsize, size, rank) if second else sent

    def _elements(self, parameters: Mapping[str, tuple[int, ...]]) -> tuple[int, int]:
        compressed = self.factors(parameters)
        rest = sum(prod(shape) for name, shape in parameters.items() if name not in compressed)
        left = sum(each.rows * each.rank for each in compressed.values())
        return rest + left, sum(each.columns * each.rank for each in compressed.values())

    def ratio(self, parameters: Mapping[str, tuple[int, ...]]) -> float:
        """The elements of all gradients over those sent in their place."""
        sent = sum(self._elements(parameters))
        return elements(parameters) / sent if sent else 1.0


class _PowerStepper(BaseStepper):
    kept = True

    def __init__(self, worker: Worker, scheme: PowerSGD) -> None:
        super().__init__(worker)
        self._scheme = scheme
        self._shapes = {name: tuple(each.shape) for name, each in self.parameters.items()}
        self._factors = scheme.factors(self._shapes)
        self._groups = list(by_dtype(self.parameters).values())
        for name in self._factors:
            if self.parameters[name].dtype.itemsize < 4:
                raise DefinitionError(
                    f"PowerSGD on {name!r} of {self.parameters[name].dtype}",
                    "it orthonormalises in the gradient's own type, and 16 bits are too few",
                    "keep the parameters in float32",
                )
        self.right: dict[str, Array] = {}
        """The last step's Q of each matrix, shape (columns, rank)."""
        self.residuals: dict[str, Array] = {}
        """What is left of each matrix on this rank."""
        self._norms: list[Array] = []

    def step(self, gradients: Mapping[str, Array], step: int, factor: float) -> None:
        self.worker.switch(Phase.COMMUNICATE)
        given = all_of(gradients, self.parameters)
        weighted = {name: gradient * self.share for name, gradient in given.items()}
        if not self._norms:
            self._norms = [norm(weighted[name]) for name in self._factors]
        totals: dict[str, Array] = {}
        for names in self._groups:
            here = {name: weighted[name] for name in names}
            totals |= self._summed(here) if step <= self._scheme.dense_steps else self._approximated(here, step)
        self.update({name: totals[name] for name in gradients}, step, factor)

    def meet(self) -> None:
        residuals = list(self.residuals.values())
        note_compression(self.worker, self._scheme.ratio(self._shapes), residuals, self._norms)
        self._norms = []

    def state(self) -> dict[str, HostArray]:
        backend = self.worker.backend
        return (
            super().state()
            | kept_arrays("right", backend, self.right)
            | kept_arrays("residual", backend, self.residuals)
            | kept_arrays("norm", backend, self._norms)
        )

    def restore(self, state: Mapping[str, HostArray]) -> None:
        super().restore(state)
        backend = self.worker.backend
        self.right, self.residuals = arrays_of("right", backend, state), arrays_of("residual", backend, state)
        self._norms = list(arrays_of("norm", backend, state).values())

    def _summed(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The sums over all ranks, by one all-reduce."""
        layout = FlatLayout(arrays)
        return layout.unpack(self.communicator.all_reduce(layout.pack(arrays)))

    def _approximated(self, gradients: dict[str, Array], step: int) -> dict[str, Array]:
        """The sums over all ranks, with P Qᵀ for the compressed matrices."""
        matrices = {name: self._matrix(name, gradients.pop(name)) for name in self._factors if name in gradients}
        bases = {name: self._basis(name, matrix, step) for name, matrix in matrices.items()}
        sums = self._summed(gradients | {name: matrix @ bases[name] for name, matrix in matrices.items()})
        if not matrices:
            return sums
        left = {name: orthonormal(sums.pop(name)) for name in matrices}
        mine = {name: matrix.T @ left[name] for name, matrix in matrices.items()}
        if self._scheme.error_feedback:
            for name, matrix in matrices.items():
                self.residuals[name] = matrix - left[name] @ mine[name].T
        self.right |= self._summed(mine)
        return sums | {name: (left[name] @ self.right[name].T).reshape(self._shapes[name]) for name in matrices}

    def _matrix(self, name: str, gradient: Array) -> Array:
        """The gradient as a matrix, plus its residual."""
        factors = self._factors[name]
        matrix = gradient.reshape((factors.rows, factors.columns))
        return matrix + self.residuals[name] if name in self.residuals else matrix

    def _basis(self, name: str, matrix: Array, step: int) -> Array:
        """The initial Q, orthonormal so that its columns do not shrink with the gradients."""
        if name in self.right and self._scheme.warm_start:
            return orthonormal(self.right[name])
        place = list(self._factors).index(name)
        return start(self._factors[name], matrix, Key(self.worker.seed, 0, step, place))
