"""NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss, with class weights and an index to ignore."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from levelbench.frameworks.jax.operators.registry import Function, maker
from levelbench.operators.node import OperatorNode

__all__: list[str] = []


def _loss(node: OperatorNode, log_probability: Any, target: Any, weight: Any) -> Any:
    """Logarithms of shape (N, C, d...) and targets of shape (N, d...): a loss each, or one for all."""
    ignored = node.get("ignore_index")
    kept = jnp.ones(target.shape, bool) if ignored is None else target != ignored
    # An index to be ignored may be none of the classes.
    index = jnp.where(kept, target, 0)
    chosen = jnp.take_along_axis(log_probability, jnp.expand_dims(index, 1), 1)[:, 0]
    weights = jnp.ones(target.shape, chosen.dtype) if weight is None else weight[index]
    weights = jnp.where(kept, weights, 0)
    losses = -chosen * weights
    match node["reduction"]:
        case "none":
            return losses
        case "sum":
            return jnp.sum(losses)
    if weight is None and ignored is None:
        return jnp.mean(losses)
    return jnp.sum(losses) / jnp.sum(weights)


@maker("NegativeLogLikelihoodLoss")
def _negative_log_likelihood(node: OperatorNode) -> Function:
    return lambda x, target, weight=None: _loss(node, x, target, weight)


@maker("SoftmaxCrossEntropyLoss")
def _softmax_cross_entropy(node: OperatorNode) -> Function:
    def softmax_cross_entropy(scores: Any, labels: Any, weight: Any = None) -> Any:
        log_probability = jax.nn.log_softmax(scores, 1)
        return _loss(node, log_probability, labels, weight), log_probability

    return softmax_cross_entropy
