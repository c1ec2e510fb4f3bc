"""The benchmark's networks written by hand in JAX: pure functions of the zoo's parameters, under ``jax.jit``.

Parameters come as a flat list in the zoo's order, and each layer takes the next ones, so the function
reads like the network and its arguments are those of the executor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["FORWARDS", "inference", "step"]

Arrays = Iterator[Any]


def _linear(p: Arrays, x: Any) -> Any:
    weight, bias = next(p), next(p)
    return x @ weight.T + bias


def _conv(x: Any, weight: Any, stride: int, padding: int) -> Any:
    return lax.conv_general_dilated(x, weight, (stride, stride), [(padding, padding)] * 2)


def _biased_conv(p: Arrays, x: Any) -> Any:
    weight, bias = next(p), next(p)
    return _conv(x, weight, 1, 1) + bias.reshape(-1, 1, 1)


def _pool(x: Any, kernel: int, stride: int, padding: int) -> Any:
    window, strides = (1, 1, kernel, kernel), (1, 1, stride, stride)
    return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, ((0, 0), (0, 0), *[(padding, padding)] * 2))


def _norm(p: Arrays, x: Any, updates: list[Any] | None) -> Any:
    """Batch normalisation: by running statistics, or by the batch's own, with new running ones in ``updates``."""
    scale, bias, mean, variance = (next(p) for _ in range(4))
    if updates is not None:
        here, there = x.mean((0, 2, 3)), x.var((0, 2, 3))
        updates += [0.9 * mean + 0.1 * here, 0.9 * variance + 0.1 * there]
        mean, variance = here, there
    factor = scale * lax.rsqrt(variance + 1e-5)
    return x * factor.reshape(-1, 1, 1) + (bias - mean * factor).reshape(-1, 1, 1)


def mlp(p: Arrays, x: Any, _: list[Any] | None) -> Any:
    """One hidden layer with ReLU."""
    return _linear(p, jax.nn.relu(_linear(p, x)))


def cnn(p: Arrays, x: Any, _: list[Any] | None) -> Any:
    """Two convolutions, each with ReLU and pooling, and two layers."""
    x = _pool(jax.nn.relu(_biased_conv(p, x)), 2, 2, 0)
    x = _pool(jax.nn.relu(_biased_conv(p, x)), 2, 2, 0)
    return _linear(p, jax.nn.relu(_linear(p, x.reshape(x.shape[0], -1))))


def _block(p: Arrays, x: Any, updates: list[Any] | None, stride: int, widens: bool) -> Any:
    shortcut = _norm(p, _conv(x, next(p), stride, 0), updates) if widens else x
    y = jax.nn.relu(_norm(p, _conv(x, next(p), stride, 1), updates))
    return jax.nn.relu(_norm(p, _conv(y, next(p), 1, 1), updates) + shortcut)


def resnet18(p: Arrays, x: Any, updates: list[Any] | None) -> Any:
    """He et al. 2015, table 1."""
    x = _pool(jax.nn.relu(_norm(p, _conv(x, next(p), 2, 3), updates)), 3, 2, 1)
    for stage in range(4):
        for at in range(2):
            first = at == 0 and stage > 0
            x = _block(p, x, updates, 2 if first else 1, first)
    return _linear(p, x.mean((2, 3)))


FORWARDS: Mapping[str, Callable[[Arrays, Any, list[Any] | None], Any]] = {"mlp": mlp, "cnn": cnn, "resnet18": resnet18}


def inference(name: str, arrays: Mapping[str, Any], inputs: Sequence[Any]) -> Callable[[], Any]:
    """Logits."""
    (x,), values = inputs, list(arrays.values())
    forward = jax.jit(lambda x, *values: FORWARDS[name](iter(values), x, None))
    return lambda: forward(x, *values)


def step(
    name: str, arrays: Mapping[str, Any], inputs: Sequence[Any], trained: Sequence[str]
) -> Callable[[], tuple[Any, Any]]:
    """Loss and gradients of the parameters named ``trained``, with new running statistics as auxiliary values."""
    (x, labels), values = inputs, list(arrays.values())
    places = [at for at, key in enumerate(arrays) if key in set(trained)]

    def loss(x: Any, labels: Any, *values: Any) -> tuple[Any, list[Any]]:
        updates: list[Any] = []
        logits = FORWARDS[name](iter(values), x, updates)
        log = jax.nn.log_softmax(logits)
        return -jnp.take_along_axis(log, labels[:, None], 1).mean(), updates

    both = jax.jit(jax.value_and_grad(loss, [2 + at for at in places], has_aux=True))

    def call() -> tuple[Any, Any]:
        (found, _), gradients = both(x, labels, *values)
        return found, gradients

    return call
