"""Rules that use each parameter array as a whole: LARS, LAMB, Adafactor, Shampoo, Muon."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from levelbench.errors import DefinitionError, UnsupportedError
from levelbench.networks.executor import Array
from levelbench.training.optimizers import checks
from levelbench.training.optimizers.arrays import (
    add_scaled,
    decayed,
    maximum,
    minimum,
    mix,
    namespace,
    norm,
    sqrt,
    where,
    zeros_like,
)
from levelbench.training.optimizers.base import State
from levelbench.training.optimizers.rules import CheckedRule, root, squared


def _trust(parameter: Array, change: Array, coefficient: float = 1.0, epsilon: float = 0.0) -> Array:
    """The ratio coefficient · ‖parameter‖ / (‖change‖ + epsilon), or 1 if either norm is zero."""
    size, length = norm(parameter), norm(change)
    # The quotient is computed everywhere, even where it is not used, and must not divide by zero there.
    either_is_zero = (size == 0) | (length == 0)
    return where(either_is_zero, 1.0, coefficient * size / where(either_is_zero, 1.0, length + epsilon))


@dataclass(frozen=True)
class LARS(CheckedRule):
    """v := momentum v + lr t (g + weight_decay w); w := w - v, with t = trust ‖w‖ / (‖g + weight_decay w‖ + epsilon).

    Layer-wise adaptive rate scaling (You, Gitman & Ginsburg 2017, algorithm 1, with the rate inside the velocity). The
    denominator is the norm of the decayed gradient, as in optax; the paper has ‖g‖ + weight_decay ‖w‖.
    """

    elementwise: ClassVar[bool] = False
    momentum: float = 0.9
    trust: float = 0.001
    weight_decay: float = 0.0
    nesterov: bool = False
    epsilon: float = 0.0

    def init(self, parameter: Array) -> State:
        return zeros_like(parameter)

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        velocity = state
        gradient = decayed(gradient, parameter, self.weight_decay)
        gradient *= lr * _trust(parameter, gradient, self.trust, self.epsilon)
        velocity *= self.momentum
        velocity += gradient
        if self.nesterov:
            parameter -= add_scaled(gradient, velocity, self.momentum)
        else:
            parameter -= velocity
        return parameter, velocity


@dataclass(frozen=True)
class LAMB(CheckedRule):
    """w := w - lr ‖w‖ / ‖r‖ r, with r Adam's step plus weight_decay w (You et al. 2020, algorithm 2, φ(z) = z)."""

    elementwise: ClassVar[bool] = False
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-6
    weight_decay: float = 0.0

    def init(self, parameter: Array) -> State:
        """The first and second moments, zero."""
        return zeros_like(parameter), zeros_like(parameter)

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        first, second = state
        first = mix(first, gradient, 1 - self.beta1)
        second = squared(second, gradient, self.beta2)
        denominator, correction = root(second, self.beta2, step, self.epsilon)
        change = first / denominator
        change *= correction / (1 - self.beta1**step)
        change = decayed(change, parameter, self.weight_decay)
        change *= lr * _trust(parameter, change)
        parameter -= change
        return parameter, (first, second)


@dataclass(frozen=True)
class Adafactor(CheckedRule):
    """Adaptive rates with sublinear memory (Shazeer & Stern 2018, algorithm 4), in PyTorch's form.

    For an array of two or more axes, mean squares are kept by row and by column of the last two, R and C, and their
    product R C / mean(R) replaces the second moment V; an array of fewer axes keeps V itself. The decay of step t is 1
    - t^beta2_decay. The update U = g / √V is scaled down to a root mean square of at most ``clip``, and multiplied by
    max(scale, RMS(w)) min(lr, 1/√t). ``epsilon`` is a lower bound of √V (0: the rounding unit of the array's dtype);
    the paper adds it to g² instead. The weight decay, lr weight_decay w, is decoupled.
    """

    elementwise: ClassVar[bool] = False
    lr: float = 0.01
    beta2_decay: float = -0.8
    epsilon: float = 0.0
    scale: float = 1e-3
    clip: float = 1.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.not_negative(self, "scale")

    def init(self, parameter: Array) -> State:
        """Mean squares by row (..., n, 1) and by column (..., 1, m), or of all elements; zero."""
        xp = namespace(parameter)
        if parameter.ndim < 2:
            return xp.zeros_like(parameter)
        return xp.zeros_like(parameter[..., :, :1]), xp.zeros_like(parameter[..., :1, :])

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        xp = namespace(parameter)
        new = step**self.beta2_decay
        epsilon = self.epsilon or float(xp.finfo(parameter.dtype).eps)
        rate = minimum(lr, step**-0.5) * maximum(_rms(parameter), self.scale)
        if self.weight_decay:
            parameter *= 1 - lr * self.weight_decay
        squares = gradient * gradient
        if parameter.ndim < 2:
            state = mix(state, squares, new)
            second = state
        else:
            rows = mix(state[0], _mean(squares, -1), new)
            columns = mix(state[1], _mean(squares, -2), new)
            second = rows / maximum(_mean(rows, -2), epsilon) * columns
            state = (rows, columns)
        change = gradient / sqrt(maximum(second, epsilon * epsilon))
        return add_scaled(parameter, change, -rate / maximum(_rms(change) / self.clip, 1.0)), state


def _mean(array: Array, axis: int) -> Array:
    """The mean along an axis, which is kept with length 1; 0 if it is empty."""
    return namespace(array).sum(array, axis=axis, keepdims=True) / max(1, array.shape[axis])


def _rms(array: Array) -> Array:
    """The root mean square of all elements; 0 if there are none."""
    return norm(array) / max(1, math.prod(array.shape)) ** 0.5


@dataclass(frozen=True)
class Shampoo(CheckedRule):
    """For a matrix L := L + g gᵀ, R := R + gᵀ g, w := w - lr L^(-1/4) g R^(-1/4) (Gupta, Koren & Singer 2018).

    Algorithm 2 for an array of k axes: the statistic of an axis is the sum of g gᵀ with g unfolded along that axis,
    starting from ``epsilon`` times the identity, and is raised to the power -1/(2k). An axis longer than ``largest``
    keeps only the diagonal of its statistic. With ``momentum`` the moving average of the gradients is preconditioned
    instead of the gradient. ``every`` is the number of steps for which roots are reused: they are most of the cost.
    """

    elementwise: ClassVar[bool] = False
    epsilon: float = 1e-4
    momentum: float = 0.0
    weight_decay: float = 0.0
    every: int = 1
    largest: int = 1200

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive(self, "epsilon")

    def init(self, parameter: Array) -> State:
        """The statistics by axis, their roots if they are reused, and the average gradient if there is momentum."""
        sizes = tuple(parameter.shape) or (1,)
        statistics = tuple(self._identity(parameter, size) * self.epsilon for size in sizes)
        roots = tuple(self._identity(parameter, size) for size in sizes) if self.every > 1 else None
        return statistics, roots, zeros_like(parameter) if self.momentum else None

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
        xp = namespace(parameter)
        statistics, roots, average = state
        gradient = decayed(gradient, parameter, self.weight_decay)
        # A parameter without axes is treated as a vector of one element.
        change = xp.reshape(gradient, tuple(gradient.shape) or (1,))
        statistics = tuple(_add_statistic(each, change, axis) for axis, each in enumerate(statistics))
        if self.every == 1:
            used = self._roots(statistics)
        else:
            used = roots = self._roots(statistics) if (step - 1) % self.every == 0 else roots
        if self.momentum:
            average = mix(average, gradient, 1 - self.momentum)
            change = xp.reshape(average, change.shape)
        for axis, each in enumerate(used):
            change = _apply_root(each, change, axis)
        return add_scaled(parameter, xp.reshape(change, parameter.shape), -lr), (statistics, roots, average)

    def _identity(self, parameter: Array, size: int) -> Array:
        xp = namespace(parameter)
        # Made from the parameter, as a new array would need its device.
        zero = xp.zeros_like(xp.sum(parameter))
        ones = xp.zeros_like(xp.broadcast_to(zero, (size,))) + 1
        if size > self.largest:
            return ones
        positions = xp.cumulative_sum(ones)
        return xp.where(positions[:, None] == positions[None, :], zero + 1, zero)

    def _roots(self, statistics: tuple[Array, ...]) -> tuple[Array, ...]:
        power = -1 / (2 * len(statistics))
        return tuple(self._root(each, power) for each in statistics)

    def _root(self, statistic: Array, power: float) -> Array:
        if len(statistic.shape) == 1:
            return statistic**power
        values, vectors = namespace(statistic).linalg.eigh(statistic)
        # Only rounding can make an eigenvalue smaller than epsilon.
        return (vectors * maximum(values, self.epsilon) ** power) @ vectors.T


def _add_statistic(statistic: Array, gradient: Array, axis: int) -> Array:
    """The statistic of an axis after adding this gradient."""
    unfolded = _unfold(gradient, axis)
    if len(statistic.shape) == 1:
        statistic += namespace(unfolded).sum(unfolded * unfolded, axis=1)
    else:
        statistic += unfolded @ unfolded.T
    return statistic


def _apply_root(root: Array, array: Array, axis: int) -> Array:
    """The array multiplied by a root along an axis."""
    xp, flat = namespace(array), _unfold(array, axis)
    product = root[:, None] * flat if len(root.shape) == 1 else root @ flat
    others = array.shape[:axis] + array.shape[axis + 1 :]
    return xp.moveaxis(xp.reshape(product, (array.shape[axis], *others)), 0, axis)


def _unfold(array: Array, axis: int) -> Array:
    """A matrix whose rows are those of an axis, the other axes flattened in order."""
    xp, rows = namespace(array), array.shape[axis]
    others = array.shape[:axis] + array.shape[axis + 1 :]
    return xp.reshape(xp.moveaxis(array, axis, 0), (rows, math.prod(others)))


_SCALES = ("original", "rms")
_A, _B, _C = 3.4445, -4.7750, 2.0315


def orthogonalised(matrix: Array, iterations: int = 5, epsilon: float = 1e-7) -> Array:
    """U S' Vᵀ for a matrix U S Vᵀ, with all of S' near 1 (about 0.7 to 1.2), by Newton and Schulz's iteration.

    X := a X + (b X Xᵀ + c (X Xᵀ)²) X from X / ‖X‖, with the (a, b, c) of Jordan et al. 2024, which rises steeply at
    zero and does not converge to 1. Products are formed along the shorter side.
    """
    tall = matrix.shape[0] > matrix.shape[1]
    current = matrix.T if tall else matrix
    current = current / maximum(norm(current), epsilon)
    for _ in range(iterations):
        gram = current @ current.T
        current = _A * current + (_B * gram + _C * (gram @ gram)) @ current
    return current.T if tall else current


@dataclass(frozen=True)
class Muon(CheckedRule):
    """B := momentum B + (1 - momentum) g; w := (1 - lr weight_decay) w - lr s O(B) (Jordan et al. 2024).

    O makes a matrix orthogonal (:func:`orthogonalised`); with ``nesterov`` its input is (1 - momentum) g + momentum B.
    The factor s is √max(1, rows / columns) if ``scale`` is ``original``, and 0.2 √max(rows, columns) if it is ``rms``,
    so that rates are those of AdamW (Liu et al. 2025). Rows are the first axis and columns all others, so that a
    convolution's kernel is a matrix. ``bfloat16`` computes O in that type, as PyTorch does.

    For hidden layers: it refuses an array of fewer than two axes. Give biases, norms, embeddings and the last layer
    another optimizer with ``Groups``.
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
        checks.positive(self, "epsilon")
        checks.one_of(self, _SCALES, "scale")

    def init(self, parameter: Array) -> State:
        """The momentum, zero. Raises ``DefinitionError`` for a parameter that is not a matrix."""
        if len(parameter.shape) < 2:
            raise DefinitionError(
                f"Muon on a parameter of shape {tuple(parameter.shape)}",
                "it needs a matrix",
                "give such parameters another optimizer: Groups(Muon(...), {'*bias*': AdamW(...)})",
            )
        return zeros_like(parameter)

    def update(self, parameter: Array, gradient: Array, state: State, step: int, lr: float) -> tuple[Array, State]:
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
        raise UnsupportedError("Muon in bfloat16", "these arrays have no bfloat16", "choose bfloat16=False")
    return xp.bfloat16
