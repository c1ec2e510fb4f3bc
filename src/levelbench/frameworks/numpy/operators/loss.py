"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss, forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np

from levelbench.frameworks.numpy.operators.activations import log_softmax, rows
from levelbench.frameworks.numpy.operators.kernel import (
    Array,
    Arrays,
    Differentiated,
    Inputs,
    Kernel,
    is_real,
    lift,
    lower,
    quiet,
    register,
    within,
)
from levelbench.operators.contract import Pullback
from levelbench.operators.node import OperatorNode

__all__ = ["is_plain", "mean_cross_entropy"]


_WORKING = (np.dtype(np.float32), np.dtype(np.float64))


def is_plain(scores: Array, target: Array) -> bool:
    """Whether these are rows of scores in a working dtype with a label each, as :func:`mean_cross_entropy` takes."""
    return scores.ndim == 2 and target.ndim == 1 and scores.size > 0 and scores.dtype in _WORKING


def mean_cross_entropy(scores: Array, target: Array) -> tuple[Array, Pullback]:
    """The mean of -log softmax(scores)[target], and its pullback; scores (batch, classes), target (batch,)."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    rows = np.arange(len(target))
    chosen = shifted[rows, target]
    np.exp(shifted, out=shifted)
    sums = shifted.sum(axis=1, keepdims=True)
    loss = np.asarray((np.log(sums[:, 0]) - chosen).mean(dtype=scores.dtype))

    def pullback(*gradients: Array | None) -> tuple[Array | None, ...]:
        if gradients[0] is None:
            return None, None
        share = scores.dtype.type(gradients[0]) / scores.dtype.type(len(target))
        gradient = shifted * (share / sums)
        gradient[rows, target] -= share
        return gradient, None

    return loss, pullback


# Both pick one element a position along the class axis and weigh it; a target that is ignored has weight 0, and the
# mean divides by the sum of weights, as PyTorch's does.


class _Likelihood:
    """The weighted choice of a class: ``log_prob`` (N, C, d1, ...), ``target`` (N, d1, ...), ``weight`` (C)."""

    def __init__(self, node: OperatorNode) -> None:
        self._ignored = node.get("ignore_index")
        self._reduction = node["reduction"]

    def _places(self, log_prob: Array, target: Array, weight: Array | None) -> tuple[Array, Array | None]:
        """The class of each position, with an axis for it, and its weight (``None``: all 1)."""
        kept = None if self._ignored is None else target != self._ignored
        place = target if kept is None else np.where(kept, target, 0)
        scale = None if weight is None else lift(weight)[place]
        if kept is not None:
            scale = kept.astype(log_prob.dtype) if scale is None else np.where(kept, scale, scale.dtype.type(0))
        return np.expand_dims(place, 1), scale

    def forward(self, log_prob: Array, target: Array, weight: Array | None) -> Array:
        """The loss, in a working dtype."""
        place, scale = self._places(log_prob, target, weight)
        loss = np.take_along_axis(log_prob, place, 1).squeeze(1)
        np.negative(loss, out=loss)
        if scale is not None:
            # What is ignored counts nothing, be it infinite.
            loss = np.where(scale == 0, scale, loss * scale)
        if self._reduction == "none":
            return loss
        total = np.asarray(loss.sum())
        if self._reduction == "sum":
            return total
        return np.asarray(total / (loss.dtype.type(loss.size) if scale is None else scale.sum()))

    def coefficients(
        self, gradient: Array, log_prob: Array, target: Array, weight: Array | None
    ) -> tuple[Array, Array]:
        """The class of each position, with an axis for it, and the negative gradient of its logarithm, likewise."""
        place, scale = self._places(log_prob, target, weight)
        if self._reduction == "mean":
            gradient = gradient / (gradient.dtype.type(target.size) if scale is None else scale.sum())
        share = np.broadcast_to(gradient, target.shape) if scale is None else gradient * scale
        return place, np.expand_dims(share, 1)

    def weight_gradient(self, gradient: Array, log_prob: Array, target: Array, weight: Array) -> Array:
        """The gradient of ``weight``: a mean depends on it twice, by its terms and by its divisor."""
        place, scale = self._places(log_prob, target, weight)
        terms = -np.take_along_axis(log_prob, place, 1).squeeze(1)
        share: Any = gradient
        if self._reduction == "mean":
            total = scale.sum() if scale is not None else 1
            share = gradient / total
            terms = terms - self.forward(log_prob, target, weight)
        kept = True if self._ignored is None else target != self._ignored
        found = np.where(kept, terms * share, 0).reshape(-1)
        return np.bincount(place.reshape(-1), found, minlength=weight.size).astype(gradient.dtype)


@register("NegativeLogLikelihoodLoss")
def _negative_log_likelihood(node: OperatorNode) -> Kernel:
    loss = _Likelihood(node)

    def forward(log_prob: Array, target: Array, weight: Array | None = None) -> Array:
        with quiet():
            return lower(loss.forward(lift(log_prob), target, weight), log_prob.dtype)

    def backward(gradients: Inputs, inputs: Inputs, outputs: Inputs) -> Arrays:
        log_prob, target, weight = (*inputs, None)[:3]
        if gradients[0] is None:
            return (None,) * len(inputs)
        wide, gradient = lift(log_prob), lift(gradients[0])
        with quiet():
            place, share = loss.coefficients(gradient, wide, target, weight)
            result = np.zeros_like(wide)
            np.put_along_axis(result, place, -share, 1)
            found: list[Any] = [within(result, log_prob), None]
            if len(inputs) > 2:
                by_weight = is_real(weight)
                found.append(loss.weight_gradient(gradient, wide, target, lift(weight)) if by_weight else None)
        return (*found[:2], *(lower(each, weight.dtype) if each is not None else None for each in found[2:]))

    return Kernel(forward, backward)


@register("SoftmaxCrossEntropyLoss")
def _softmax_cross_entropy(node: OperatorNode) -> Kernel:
    """The loss and, where it is named, the logarithms of the probabilities."""
    general = _general(node)
    if len(node.outputs) > 1 or len(node.inputs) > 2 or node["reduction"] != "mean" or "ignore_index" in node:
        return general

    def forward(scores: Array, target: Array) -> tuple[Array, ...]:
        return vjp(scores, target)[0]

    def backward(gradients: Inputs, inputs: Inputs, outputs: Inputs) -> Arrays:
        return vjp(*inputs)[1](*gradients)

    def vjp(scores: Array, target: Array) -> Differentiated:
        if not is_plain(scores, target):
            return general.differentiate((scores, target))
        with quiet():
            value, pullback = mean_cross_entropy(scores, target)
        return (value,), pullback

    return Kernel(forward, backward, vjp)


def _general(node: OperatorNode) -> Kernel:
    loss, both = _Likelihood(node), len(node.outputs) > 1

    def compute(scores: Array, target: Array, weight: Array | None) -> tuple[Array, Array]:
        with quiet():
            log_prob = rows(log_softmax, 1, lift(scores))
            return loss.forward(log_prob, target, weight), log_prob

    def answer(scores: Array, value: Array, log_prob: Array) -> tuple[Array, ...]:
        first = lower(value, scores.dtype)
        return (first, lower(log_prob, scores.dtype)) if both else (first,)

    def pull(gradients: Inputs, inputs: Inputs, log_prob: Array) -> Arrays:
        scores, target, weight = (*inputs, None)[:3]
        by_loss = gradients[0]
        by_log = lift(gradients[1]) if len(gradients) > 1 and gradients[1] is not None else None
        rest: tuple[Any, ...] = (None,) * (len(inputs) - 1)
        if by_loss is None and by_log is None:
            return None, *rest
        with quiet():
            result = np.exp(log_prob)
            total: Any = 0
            if by_loss is not None:
                place, share = loss.coefficients(lift(by_loss), log_prob, target, weight)
                total = share
            if by_log is not None:
                total = total - by_log.sum(axis=1, keepdims=True)
            result *= total
            if by_log is not None:
                result += by_log
            if by_loss is not None:
                np.put_along_axis(result, place, np.take_along_axis(result, place, 1) - share, 1)
            if is_real(weight) and by_loss is not None:
                found = loss.weight_gradient(lift(by_loss), log_prob, target, lift(weight))
                rest = (None, lower(found, weight.dtype))
        return within(result, scores), *rest

    def forward(scores: Array, target: Array, weight: Array | None = None) -> tuple[Array, ...]:
        return answer(scores, *compute(scores, target, weight))

    def backward(gradients: Inputs, inputs: Inputs, outputs: Inputs) -> Arrays:
        # The logarithms are computed again, up to five times the time of PyTorch's backward; vjp keeps them.
        return pull(gradients, inputs, rows(log_softmax, 1, lift(inputs[0])))

    def vjp(*inputs: Any) -> Differentiated:
        value, log_prob = compute(*(*inputs, None)[:3])
        return answer(inputs[0], value, log_prob), lambda *gradients: pull(gradients, inputs, log_prob)

    return Kernel(forward, backward, vjp)
