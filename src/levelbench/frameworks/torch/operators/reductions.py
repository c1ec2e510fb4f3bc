"""Reductions along axes, cumulative sums, TopK, matrix products, losses, Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from levelbench.frameworks.shared.operators import Host, reduction_axes
from levelbench.frameworks.torch.operators.elementwise import modular, ordered
from levelbench.frameworks.torch.operators.registry import maker, operator, table
from levelbench.operators.contract import Function
from levelbench.operators.node import OperatorNode

Reduce = Callable[[Tensor, Sequence[int], bool], Tensor]
"""Takes a tensor, some of its axes in ascending order, and whether to keep them."""


def _total(x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    # PyTorch would sum integers in 64 bits and return 64 bits.
    return x.sum(axes, keep, dtype=None if x.is_floating_point() else x.dtype)


def _mean(x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    return x.mean(axes, keep) if x.is_floating_point() else x.double().mean(axes, keep).to(x.dtype)


def _product(x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    for axis in reversed(axes):
        x = torch.prod(x, axis, keep, dtype=x.dtype)
    return x


def _of_nothing(x: Tensor, axes: Sequence[int], keep: bool, largest: bool) -> Tensor:
    """The result for an empty set: the neutral element of a minimum (``largest``) or maximum."""
    if x.dtype == torch.bool:
        value: Any = largest
    elif x.is_floating_point():
        value = torch.inf if largest else -torch.inf
    else:
        value = torch.iinfo(x.dtype).max if largest else torch.iinfo(x.dtype).min
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape) if keep or axis not in axes]
    return x.new_full(shape, value)


def _log_sum_exp(x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    if x.is_floating_point():
        return torch.logsumexp(x, axes, keep)
    return torch.logsumexp(x.double(), axes, keep).to(x.dtype)


def _norm(x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    if x.is_floating_point():
        return torch.linalg.vector_norm(x, 2, axes, keep)
    return torch.linalg.vector_norm(x.double(), 2, axes, keep).to(x.dtype)


_REDUCTIONS: dict[str, Reduce] = {
    "L1": lambda x, axes, keep: _total(x.abs(), axes, keep),
    "L2": _norm,
    "LogSum": lambda x, axes, keep: torch.log(_total(x, axes, keep)).to(x.dtype),
    "LogSumExp": _log_sum_exp,
    "Max": lambda x, axes, keep: torch.amax(x, axes, keep) if x.numel() else _of_nothing(x, axes, keep, False),
    "Mean": _mean,
    "Min": lambda x, axes, keep: torch.amin(x, axes, keep) if x.numel() else _of_nothing(x, axes, keep, True),
    "Prod": _product,
    "Sum": _total,
    "SumSquare": lambda x, axes, keep: _total(x * x, axes, keep),
}
# What an operator does to each element if no axis is reduced.
_ELEMENT: dict[str, Function] = {
    "L1": torch.abs,
    "L2": torch.abs,
    "LogSum": torch.log,
    "SumSquare": torch.square,
}


def _register(kind: str, reduce: Reduce) -> None:
    retry = ordered if kind in ("Max", "Min") else modular

    @maker(f"Reduce{kind}", unsigned=retry)
    def make(node: OperatorNode) -> Function:
        keep, fixed = bool(node["keepdims"]), node.get("axes")
        nothing = bool(node.get("noop_with_empty_axes", 0))
        element = _ELEMENT.get(kind)

        def call(x: Tensor, axes: Host | None = None) -> Tensor:
            chosen = reduction_axes(fixed if axes is None else axes.tolist(), x.dim(), nothing)
            if chosen:
                return reduce(x, chosen, keep)
            return element(x).to(x.dtype) if element is not None else x

        return call


for _kind, _reduce in _REDUCTIONS.items():
    _register(_kind, _reduce)


@operator("ArgMax", "ArgMin", unsigned=ordered)
def _arg(x: Tensor, *, node: OperatorNode, axis: int, keepdims: int, select_last_index: int) -> Tensor:
    function, keep = torch.argmax if node.op_type == "ArgMax" else torch.argmin, bool(keepdims)
    return x.shape[axis] - 1 - function(x.flip(axis), axis, keep) if select_last_index else function(x, axis, keep)


@operator("CumSum", "CumProd", unsigned=modular)
def _running(x: Tensor, axis: Host, *, node: OperatorNode, exclusive: int, reverse: int) -> Tensor:
    function, neutral = (torch.cumsum, 0) if node.op_type == "CumSum" else (torch.cumprod, 1)
    at = int(axis.item())
    source = x.flip(at) if reverse else x
    if exclusive:
        first = torch.full_like(source.narrow(at, 0, min(1, x.shape[at])), neutral)
        source = torch.cat([first, source.narrow(at, 0, max(0, x.shape[at] - 1))], at)
    found = function(source, at, dtype=x.dtype)
    return found.flip(at) if reverse else found


@operator("TopK", unsigned=ordered)
def _top_k(x: Tensor, count: Host, *, axis: int, largest: int) -> tuple[Tensor, Tensor]:
    # ONNX orders equal values by index, which torch.topk does not guarantee.
    values, indices = torch.sort(x, stable=True, dim=axis, descending=bool(largest))
    k = int(count.item())
    return values.narrow(axis, 0, k), indices.narrow(axis, 0, k)


# Matrix products: MatMul, Gemm and Einsum; determinants.


table(unsigned=modular, MatMul=torch.matmul)
table(Det=torch.linalg.det)


@maker("Gemm", unsigned=modular)
def _gemm(node: OperatorNode) -> Function:
    """Alpha A' B' + beta C (ONNX Gemm), in one BLAS call if C is a row or absent."""
    alpha, beta = node["alpha"], node["beta"]
    turn_a, turn_b = bool(node["transA"]), bool(node["transB"])
    if alpha == beta == 1.0 and not turn_a and turn_b:
        # It adds a bias of any shape that broadcasts to the product, as ONNX specifies.
        return functional.linear
    if alpha == beta == 1.0 and not turn_a and not turn_b:
        return lambda a, b, c=None: torch.mm(a, b) if c is None else torch.addmm(c, a, b)
    whole: Any = (int(alpha), int(beta)) if alpha == int(alpha) and beta == int(beta) else None

    def gemm(a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        a = a.t() if turn_a else a
        b = b.t() if turn_b else b
        if c is None:
            return torch.mm(a, b) if alpha == 1.0 else torch.mm(a, b) * alpha
        if a.is_floating_point():
            return torch.addmm(c, a, b, beta=beta, alpha=alpha)
        if whole is None:
            return (alpha * torch.mm(a, b) + beta * c).to(a.dtype)
        return torch.addmm(c, a, b, beta=whole[1], alpha=whole[0])

    return gemm


@maker("Einsum")
def _einsum(node: OperatorNode) -> Function:
    equation = node["equation"].replace(" ", "")
    return lambda *inputs: torch.einsum(equation, *inputs)


# Losses over classes: negative log-likelihood and softmax cross-entropy, with class weights and an ignored label.


# Not a valid label: labels are class indices.
_NONE_IGNORED = -100


def _ignored(node: OperatorNode) -> int:
    given = node.get("ignore_index")
    return _NONE_IGNORED if given is None else int(given)


@maker("NegativeLogLikelihoodLoss")
def _negative_log_likelihood(node: OperatorNode) -> Function:
    ignored, reduction = _ignored(node), node["reduction"]

    return lambda x, labels, weight=None: _likelihood(x, labels.long(), weight, ignored, reduction)


def _likelihood(logarithms: Tensor, labels: Tensor, weight: Tensor | None, ignored: int, reduction: str) -> Tensor:
    """Log-probabilities of shape (batch, classes, ...), labels of shape (batch, ...)."""
    if weight is None or not weight.requires_grad:
        return functional.nll_loss(logarithms, labels, weight, ignore_index=ignored, reduction=reduction)
    # PyTorch's kernel has no gradient for class weights.
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


# Discrete and short-time Fourier transforms.
# ONNX stores a complex number as two elements on the last axis, which PyTorch views as complex without a copy.


def _signal(x: Tensor) -> Tensor:
    """Real or complex numbers, without the last axis."""
    return x.squeeze(-1) if x.shape[-1] == 1 else torch.view_as_complex(x.contiguous())


def _transform(signal: Tensor, length: int, axis: int, onesided: bool) -> Tensor:
    if not onesided:
        return torch.view_as_real(torch.fft.fft(signal, length, axis))
    if not signal.is_complex():
        return torch.view_as_real(torch.fft.rfft(signal, length, axis))
    return torch.view_as_real(torch.fft.fft(signal, length, axis).narrow(axis, 0, length // 2 + 1))


@maker("DFT")
def _dft(node: OperatorNode) -> Function:
    given, inverse, onesided = node.get("axis"), bool(node["inverse"]), bool(node["onesided"])

    def dft(x: Tensor, length: Host | None = None, axis: Host | None = None) -> Tensor:
        at = (int(np.asarray(axis).item()) if axis is not None else -2 if given is None else given) % x.dim()
        signal = _signal(x)
        size = x.shape[at] if length is None else int(np.asarray(length).item())
        if not inverse:
            return _transform(signal, size, at, onesided)
        if not onesided:
            return torch.view_as_real(torch.fft.ifft(signal, size, at))
        # A one-sided spectrum: of an even number of real values, unless a length is given.
        size = 2 * (x.shape[at] - 1) if length is None else size
        return torch.fft.irfft(signal, size, at).unsqueeze(-1)

    return dft


@operator("STFT")
def _stft(
    x: Tensor,
    step: Host,
    window: Tensor | None = None,
    frame_length: Host | None = None,
    *,
    onesided: int,
) -> Tensor:
    if frame_length is not None:
        size = int(np.asarray(frame_length).item())
    else:
        size = x.shape[1] if window is None else window.shape[0]
    # (batch, frames, size), as a view. Exporters leave out the last axis of real signals.
    frames = (x if x.dim() == 2 else _signal(x)).unfold(1, size, int(np.asarray(step).item()))
    return _transform(frames if window is None else frames * window, size, 2, bool(onesided))
