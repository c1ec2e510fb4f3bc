"""The benchmark's networks written by hand in TensorFlow: pure functions of parameters, under ``tf.function``.

Parameters come as a flat list in the zoo's order, and each layer takes the next ones, as in the JAX programs. Images
have their channels last from the first layer on, as TensorFlow's kernels for the CPU want them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from levelbench.frameworks.tensorflow.arrays import TensorArray

__all__ = ["FORWARDS", "inference", "step"]

Arrays = Iterator[Any]


def _linear(p: Arrays, x: Any) -> Any:
    weight, bias = next(p), next(p)
    return tf.matmul(x, weight, transpose_b=True) + bias


def _padded(x: Any, padding: int, fill: float = 0.0) -> Any:
    return tf.pad(x, [[0, 0], [padding, padding], [padding, padding], [0, 0]], constant_values=fill) if padding else x


def _conv(x: Any, weight: Any, stride: int, padding: int) -> Any:
    return tf.nn.conv2d(_padded(x, padding), tf.transpose(weight, [2, 3, 1, 0]), stride, "VALID")


def _biased_conv(p: Arrays, x: Any) -> Any:
    weight, bias = next(p), next(p)
    return _conv(x, weight, 1, 1) + bias


def _pool(x: Any, kernel: int, stride: int, padding: int) -> Any:
    return tf.nn.max_pool2d(_padded(x, padding, float("-inf")), kernel, stride, "VALID")


def _norm(p: Arrays, x: Any, updates: list[Any] | None) -> Any:
    """Batch normalisation: by running statistics, or by the batch's own, with new running ones in ``updates``."""
    scale, bias, mean, variance = (next(p) for _ in range(4))
    if updates is not None:
        here, there = tf.nn.moments(x, [0, 1, 2])
        updates += [0.9 * mean + 0.1 * here, 0.9 * variance + 0.1 * there]
        mean, variance = here, there
    return tf.nn.batch_normalization(x, mean, variance, bias, scale, 1e-5)


def mlp(p: Arrays, x: Any, _: list[Any] | None) -> Any:
    """One hidden layer with ReLU."""
    return _linear(p, tf.nn.relu(_linear(p, x)))


def cnn(p: Arrays, x: Any, _: list[Any] | None) -> Any:
    """Two convolutions, each with ReLU and pooling, and two layers."""
    x = _pool(tf.nn.relu(_biased_conv(p, tf.transpose(x, [0, 2, 3, 1]))), 2, 2, 0)
    x = _pool(tf.nn.relu(_biased_conv(p, x)), 2, 2, 0)
    flat = tf.reshape(tf.transpose(x, [0, 3, 1, 2]), [x.shape[0], -1])
    return _linear(p, tf.nn.relu(_linear(p, flat)))


def _block(p: Arrays, x: Any, updates: list[Any] | None, stride: int, widens: bool) -> Any:
    shortcut = _norm(p, _conv(x, next(p), stride, 0), updates) if widens else x
    y = tf.nn.relu(_norm(p, _conv(x, next(p), stride, 1), updates))
    return tf.nn.relu(_norm(p, _conv(y, next(p), 1, 1), updates) + shortcut)


def resnet18(p: Arrays, x: Any, updates: list[Any] | None) -> Any:
    """He et al. 2015, table 1."""
    x = tf.transpose(x, [0, 2, 3, 1])
    x = _pool(tf.nn.relu(_norm(p, _conv(x, next(p), 2, 3), updates)), 3, 2, 1)
    for stage in range(4):
        for at in range(2):
            first = at == 0 and stage > 0
            x = _block(p, x, updates, 2 if first else 1, first)
    return _linear(p, tf.reduce_mean(x, [1, 2]))


FORWARDS: Mapping[str, Callable[[Arrays, Any, list[Any] | None], Any]] = {"mlp": mlp, "cnn": cnn, "resnet18": resnet18}


def inference(name: str, arrays: Mapping[str, Any], inputs: Sequence[Any]) -> Callable[[], Any]:
    """Logits."""
    x, values = inputs[0].tensor, [each.tensor for each in arrays.values()]
    forward = tf.function(lambda x, *values: FORWARDS[name](iter(values), x, None), autograph=False)
    return lambda: TensorArray(forward(x, *values))


def step(
    name: str, arrays: Mapping[str, Any], inputs: Sequence[Any], trained: Sequence[str]
) -> Callable[[], tuple[Any, Any]]:
    """Loss and gradients of the parameters named ``trained``, with new running statistics."""
    (x, labels), values = [each.tensor for each in inputs], [each.tensor for each in arrays.values()]
    places = [at for at, key in enumerate(arrays) if key in set(trained)]

    @tf.function(autograph=False)
    def both(x: Any, labels: Any, *values: Any) -> Any:
        updates: list[Any] = []
        chosen = [values[at] for at in places]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(chosen)
            logits = FORWARDS[name](iter(values), x, updates)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        return loss, tape.gradient(loss, chosen), updates

    def call() -> tuple[Any, Any]:
        loss, gradients, _ = both(x, labels, *values)
        return TensorArray(loss), [TensorArray(each) for each in gradients]

    return call
