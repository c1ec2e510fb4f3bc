"""Muon: the momentum of a matrix, made orthogonal before it is a step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from levelbench.errors import DefinitionError, UnsupportedError
from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import add_scaled, maximum, mix, namespace, norm, zeros_like
from levelbench.training.optimizers.base import State, UpdateRule

__all__ = ["Muon", "orthogonalised"]

_SCALES = ("original", "rms")
_A, _B, _C = 3.4445, -4.7750, 2.0315


def orthogonalised(matrix: Array, iterations: int = 5, epsilon: float = 1e-7) -> Array:
    """U S' Vᵀ for a matrix U S Vᵀ, with all of S' near 1 (about 0.7 to 1.2), by Newton and Schulz's iteration.

    X := a X + (b X Xᵀ + c (X Xᵀ)²) X from X / ‖X‖, with the (a, b, c) of Jordan et al. 2024, which rise steeply at zero
    and do not converge to 1. Products are taken on the shorter side.
    """
    tall = matrix.shape[0] > matrix.shape[1]
    current = matrix.T if tall else matrix
    current = current / maximum(norm(current), epsilon)
    for _ in range(iterations):
        gram = current @ current.T
        current = _A * current + (_B * gram + _C * (gram @ gram)) @ current
    return current.T if tall else current


@dataclass(frozen=True)
class Muon(UpdateRule):
    """B := momentum B + (1 - momentum) g; w := (1 - lr weight_decay) w - lr s O(B) (Jordan et al. 2024).

    O makes a matrix orthogonal (:func:`orthogonalised`); with ``nesterov`` it takes (1 - momentum) g + momentum B. The
    factor s is √max(1, rows / columns) where ``scale`` is ``original``, and 0.2 √max(rows, columns) where it is
    ``rms``, so that rates are those of AdamW (Liu et al. 2025). Rows are the first axis and columns all others, so that
    the kernel of a convolution is a matrix. ``bfloat16`` computes O in that type, as PyTorch does.

    For hidden layers: it refuses an array of fewer than two axes. Give biases, norms, embeddings and the last layer
    another optimizer by ``Groups``.
    """

    elementwise: ClassVar[bool] = False
    momentum: float = 0.95
    nesterov: bool = True
    weight_decay: float = 0.0
    iterations: int = 5
    scale: str = "original"
    epsilon: float = 1e-7
    bfloat16: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.share(self, "momentum")
        checks.not_negative(self, "weight_decay")
        checks.positive(self, "epsilon")
        checks.at_least(self, 1, "iterations")
        checks.one_of(self, _SCALES, "scale")

    def init(self, parameter: Array) -> State:
        """The momentum, zero. Raises ``DefinitionError`` for what is no matrix."""
        if len(parameter.shape) < 2:
            raise DefinitionError(
                f"Muon on a parameter of shape {tuple(parameter.shape)}",
                "it steps along orthogonal matrices, and this is none",
                "give such parameters another optimizer: Groups(Muon(...), {'*bias*': AdamW(...)})",
            )
        return zeros_like(parameter)

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        """One step."""
        momentum = mix(state, gradient, 1 - self.momentum)
        direction = mix(gradient, momentum, self.momentum) if self.nesterov else momentum
        rows, columns = parameter.shape[0], math.prod(parameter.shape[1:])
        xp = namespace(parameter)
        matrix = xp.reshape(direction, (rows, columns))
        if self.bfloat16:
            matrix = xp.astype(matrix, _bfloat16(xp))
        change = orthogonalised(matrix, self.iterations, self.epsilon)
        change = xp.reshape(xp.astype(change, parameter.dtype), parameter.shape)
        if self.weight_decay:
            parameter *= 1 - lr * self.weight_decay
        return add_scaled(parameter, change, -lr * self._scale(rows, columns)), momentum

    def _scale(self, rows: int, columns: int) -> float:
        if self.scale == "rms":
            return 0.2 * math.sqrt(max(rows, columns))
        return math.sqrt(max(1.0, rows / max(1, columns)))


def _bfloat16(xp: object) -> object:
    if not hasattr(xp, "bfloat16"):
        raise UnsupportedError("Muon in bfloat16", "these arrays have no such type", "choose bfloat16=False")
    return xp.bfloat16
