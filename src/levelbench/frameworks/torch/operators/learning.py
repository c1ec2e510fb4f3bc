"""TfIdfVectorizer, and the update rules of ``ai.onnx.preview.training``."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from levelbench.frameworks.torch.operators.registry import Function, device_maker, maker, refuse
from levelbench.operators.node import OperatorNode

_DOMAIN = "ai.onnx.preview.training"


def _each(states: int, update: Function) -> Function:
    """``update`` for each parameter: values, gradients and ``states`` kinds of state come one kind after the other."""

    def call(rate: Tensor, step: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        count = len(tensors) // (2 + states)
        kinds = [tensors[at : at + count] for at in range(0, len(tensors), count)]
        found: Sequence[tuple[Tensor, ...]] = [update(rate, step, *each) for each in zip(*kinds, strict=True)]
        return tuple(each for kind in zip(*found, strict=True) for each in kind)

    return call


@maker("Adagrad", domain=_DOMAIN)
def _adagrad(node: OperatorNode) -> Function:
    """Duchi et al. 2011, with ONNX's decay of the rate and regularisation."""
    decay, epsilon, norm = node["decay_factor"], node["epsilon"], node["norm_coefficient"]

    def update(rate: Tensor, step: Tensor, x: Tensor, gradient: Tensor, squares: Tensor) -> tuple[Tensor, ...]:
        whole = norm * x + gradient
        squares = squares + whole * whole
        return x - rate / (1 + step * decay) * whole / (torch.sqrt(squares) + epsilon), squares

    return _each(1, update)


@maker("Adam", domain=_DOMAIN)
def _adam(node: OperatorNode) -> Function:
    """Kingma and Ba 2015, with ONNX's regularisation before and after."""
    alpha, beta, epsilon = node["alpha"], node["beta"], node["epsilon"]
    norm, after = node["norm_coefficient"], node["norm_coefficient_post"]

    def update(
        rate: Tensor, step: Tensor, x: Tensor, gradient: Tensor, mean: Tensor, square: Tensor
    ) -> tuple[Tensor, ...]:
        whole = norm * x + gradient
        mean = alpha * mean + (1 - alpha) * whole
        square = beta * square + (1 - beta) * whole * whole
        # The first call has step 0, for which nothing is corrected.
        corrected = rate * torch.sqrt(1 - beta**step) / (1 - alpha**step)
        rate = torch.where(step > 0, corrected, rate)
        return (1 - after) * (x - rate * mean / (torch.sqrt(square) + epsilon)), mean, square

    return _each(2, update)


@maker("Momentum", domain=_DOMAIN)
def _momentum(node: OperatorNode) -> Function:
    alpha, beta, norm = node["alpha"], node["beta"], node["norm_coefficient"]
    nesterov = node["mode"] == "nesterov"

    def update(rate: Tensor, step: Tensor, x: Tensor, gradient: Tensor, momentum: Tensor) -> tuple[Tensor, ...]:
        whole = norm * x + gradient
        momentum = alpha * momentum + torch.where(step > 0, beta, 1.0) * whole
        return x - rate * (whole + alpha * momentum if nesterov else momentum), momentum

    return _each(1, update)


# Counting n-grams of numbers: TF, IDF and TF-IDF.


@device_maker("TfIdfVectorizer")
def _tfidf_vectorizer(node: OperatorNode, device: torch.device) -> Function:
    if node.get("pool_strings"):
        raise refuse(node, "PyTorch has no strings")
    indexes = torch.tensor(node["ngram_indexes"], device=device)
    columns = int(indexes.max()) + 1
    given = node.get("weights")
    weights = None if given is None else torch.tensor(given, device=device)
    mode, skips = node["mode"], node["max_skip_count"]
    grams = _grams(node["pool_int64s"], node["ngram_counts"], device)
    wanted = range(node["min_gram_length"], node["max_gram_length"] + 1)

    def vectorise(x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        counts = torch.zeros((len(rows), columns), dtype=torch.float32, device=x.device)
        first = 0
        for length, pool in enumerate(grams, 1):
            places = indexes[first : first + len(pool)]
            first += len(pool)
            if length in wanted and len(pool):
                # One number has no gaps, so it is counted once whatever may be skipped.
                for step in range(1, 2 if length == 1 else skips + 2):
                    counts = counts.index_add(1, places, _occurrences(rows, pool, step))
        if mode == "IDF":
            counts = (counts > 0).to(torch.float32)
        if mode != "TF" and weights is not None:
            counts = counts * weights
        return counts.reshape(*x.shape[:-1], columns)

    return vectorise


def _grams(pool: Sequence[int], starts: Sequence[int], device: torch.device) -> list[Tensor]:
    """The n-grams of the pool, (count, n), for n = 1, 2, ..."""
    stops = [*starts[1:], len(pool)]
    parts = [pool[start:stop] for start, stop in zip(starts, stops, strict=True)]
    return [torch.tensor(part, device=device).reshape(-1, length) for length, part in enumerate(parts, 1)]


def _occurrences(rows: Tensor, grams: Tensor, step: int) -> Tensor:
    """How often each n-gram occurs in each row with ``step`` from one number to the next: (rows, grams)."""
    length = grams.shape[1]
    windows = rows.shape[1] - (length - 1) * step
    if windows < 1:
        return torch.zeros((len(rows), len(grams)), device=rows.device)
    parts = torch.stack([rows[:, at * step : at * step + windows] for at in range(length)], -1)
    return (parts.unsqueeze(2) == grams).all(-1).sum(1).to(torch.float32)
