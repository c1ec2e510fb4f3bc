"""Losses over classes: negative log-likelihood and cross-entropy of the softmax, with weights and ignored labels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.torch.operators.registry import Function, maker
from levelbench.operators.node import OperatorNode

__all__: list[str] = []

# No label has it, for labels are classes.
_NONE_IGNORED = -100


def _ignored(node: OperatorNode) -> int:
    given = node.get("ignore_index")
    return _NONE_IGNORED if given is None else int(given)


@maker("NegativeLogLikelihoodLoss")
def _negative_log_likelihood(node: OperatorNode) -> Function:
    ignored, reduction = _ignored(node), node["reduction"]

    return lambda x, labels, weight=None: _likelihood(x, labels.long(), weight, ignored, reduction)


def _likelihood(logarithms: Tensor, labels: Tensor, weight: Tensor | None, ignored: int, reduction: str) -> Tensor:
    """Logarithms of shape (batch, classes, ...), labels of shape (batch, ...)."""
    if weight is None or not weight.requires_grad:
        return functional.nll_loss(logarithms, labels, weight, ignore_index=ignored, reduction=reduction)
    # PyTorch's kernel has no gradient for the weights of classes.
    kept = labels != ignored
    classes = torch.where(kept, labels, 0)
    shares = torch.where(kept, weight[classes], 0)
    losses = -logarithms.gather(1, classes.unsqueeze(1)).squeeze(1) * shares
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / shares.sum()


@maker("SoftmaxCrossEntropyLoss")
def _softmax_cross_entropy(node: OperatorNode) -> Function:
    ignored, reduction, logarithms = _ignored(node), node["reduction"], len(node.outputs) > 1

    def loss(scores: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
        if weight is not None and weight.requires_grad:
            return both(scores, labels, weight)[0]
        return functional.cross_entropy(scores, labels.long(), weight, ignore_index=ignored, reduction=reduction)

    def both(scores: Tensor, labels: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        log = torch.log_softmax(scores, 1)
        return _likelihood(log, labels.long(), weight, ignored, reduction), log

    return both if logarithms else loss
