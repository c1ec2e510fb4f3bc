"""A last layer: multinomial logistic regression on features, fitted to the optimum in NumPy.

The mean cross-entropy plus half the penalty times the squared weights (not the biases) is convex, so its only minimum
is found by L-BFGS (Liu & Nocedal 1989) whatever the start: no learning rate, no seed, no early stopping that could
favour one network's features. With ``penalty = 1 / (n C)`` it is the objective of scikit-learn's LogisticRegression.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DataError

__all__ = ["LinearClassifier", "fit_linear"]

_MEMORY = 10
_MOST_STEPS = 300
_SMALL_GRADIENT = 1e-5
_ENOUGH, _SHORTEST = 1e-4, 1e-10
"""Armijo's share of the promised decrease, and the shortest step tried for it."""


@dataclass(frozen=True, eq=False)
class LinearClassifier:
    """Scores are ``(features - mean) / deviation @ weights + biases``, (n, classes)."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    weights: NDArray[np.float64]
    biases: NDArray[np.float64]

    def predict(self, features: NDArray[Any]) -> NDArray[np.int64]:
        """The class of the highest score of each row, (n,)."""
        scores = (features - self.mean) / self.deviation @ self.weights + self.biases
        return np.asarray(scores.argmax(axis=1), np.int64)


def fit_linear(features: NDArray[Any], labels: NDArray[np.int64], classes: int, penalty: float) -> LinearClassifier:
    """Fit to ``features`` (n, d), standardised first, and ``labels`` (n,) from 0 to ``classes`` - 1.

    Features that never vary get no weight. Raises ``DataError`` for features that are not finite.
    """
    if not len(features) or not np.isfinite(features).all():
        raise DataError("fitting a last layer", "features are not finite, or there are none", "check the network")
    mean, deviation = features.mean(axis=0, dtype=np.float64), features.std(axis=0, dtype=np.float64)
    deviation[deviation < 1e-12] = np.inf
    scaled = (features - mean) / deviation
    hot = np.zeros((len(labels), classes))
    hot[np.arange(len(labels)), labels] = 1.0
    size = scaled.shape[1] * classes

    def objective(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        weights, biases = point[:size].reshape(-1, classes), point[size:]
        scores = scaled @ weights + biases
        scores -= scores.max(axis=1, keepdims=True)
        normaliser = np.log(np.exp(scores).sum(axis=1, keepdims=True))
        value = float((normaliser[:, 0] - (scores * hot).sum(axis=1)).mean()) + 0.5 * penalty * float(
            (weights**2).sum()
        )
        wrong = (np.exp(scores - normaliser) - hot) / len(labels)
        return value, np.concatenate([(scaled.T @ wrong + penalty * weights).ravel(), wrong.sum(axis=0)])

    found = _minimum(objective, np.zeros(size + classes))
    return LinearClassifier(mean, deviation, found[:size].reshape(-1, classes), found[size:])


def _minimum(objective: Any, point: NDArray[np.float64]) -> NDArray[np.float64]:
    """L-BFGS with backtracking, until no component of the gradient is above 1e-5."""
    pairs: deque[tuple[NDArray[np.float64], NDArray[np.float64]]] = deque(maxlen=_MEMORY)
    value, gradient = objective(point)
    for _ in range(_MOST_STEPS):
        if np.abs(gradient).max() < _SMALL_GRADIENT:
            break
        direction = -_times_inverse(pairs, gradient)
        slope = float(gradient @ direction)
        length = 1.0
        while (new := objective(point + length * direction))[0] > value + _ENOUGH * length * slope:
            length *= 0.5
            if length < _SHORTEST:
                # Rounding hides any further decrease.
                return point
        step, change = length * direction, new[1] - gradient
        if step @ change > 1e-12:
            pairs.append((step, change))
        point, (value, gradient) = point + step, new
    return point


def _times_inverse(
    pairs: deque[tuple[NDArray[np.float64], NDArray[np.float64]]], gradient: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The gradient times the approximate inverse Hessian: the two-loop recursion (Nocedal 1980)."""
    found, shares = gradient.copy(), []
    for step, change in reversed(pairs):
        share = float(step @ found) / float(step @ change)
        shares.append(share)
        found -= share * change
    if pairs:
        step, change = pairs[-1]
        found *= float(step @ change) / float(change @ change)
    else:
        found /= max(1.0, float(np.abs(gradient).sum()))
    for (step, change), share in zip(pairs, reversed(shares), strict=True):
        found += (share - float(change @ found) / float(step @ change)) * step
    return found
