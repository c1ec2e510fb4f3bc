"""Two of the benchmark's networks in Keras, on TensorFlow, as a user writes them: layers in one ``tf.function``.

Weights are held as Keras holds them, channels last, so that a call transposes none of them; ``arranged`` gives an
answer's gradients the zoo's layout, to compare them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from levelbench.frameworks.tensorflow.arrays import TensorArray

__all__ = ["Program", "inference", "step"]


def mlp() -> keras.Model:
    """One hidden layer with ReLU."""
    return keras.Sequential([keras.Input((64,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)])


def cnn() -> keras.Model:
    """Two convolutions, each with ReLU and pooling, and two layers. Flattened as the zoo's, channels first."""
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((1, 28, 28)),
            layers.Permute((2, 3, 1)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Permute((3, 1, 2)),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )


MODELS: Mapping[str, Callable[[], keras.Model]] = {"mlp": mlp, "cnn": cnn}


class Program:
    """A call, and what brings the gradients of its answer into the zoo's layout."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call

    def __call__(self) -> Any:
        """The call."""
        return self._call()

    @staticmethod
    def arranged(found: Any) -> Any:
        """Loss and gradients, or logits, as the zoo has them: kernels with their output channels first."""
        if not isinstance(found, tuple):
            return found
        loss, gradients = found
        return loss, [TensorArray(_zoo_layout(each.tensor)) for each in gradients]


def _zoo_layout(kernel: Any) -> Any:
    """(height, width, in, out) to (out, in, height, width), and (in, out) to (out, in)."""
    return tf.transpose(kernel, {4: (3, 2, 0, 1), 2: (1, 0)}.get(kernel.ndim, range(kernel.ndim)))


def _model(name: str, arrays: Mapping[str, Any]) -> keras.Model:
    model = MODELS[name]()
    values = [np.asarray(each.tensor) for each in arrays.values()]
    model.set_weights([each.transpose({4: (2, 3, 1, 0), 2: (1, 0)}.get(each.ndim, (0,))) for each in values])
    return model


def inference(name: str, arrays: Mapping[str, Any], inputs: Sequence[Any]) -> Program:
    """Logits."""
    model, x = _model(name, arrays), inputs[0].tensor
    forward = tf.function(lambda x: model(x, training=False))
    return Program(lambda: TensorArray(forward(x)))


def step(name: str, arrays: Mapping[str, Any], inputs: Sequence[Any], trained: Sequence[str]) -> Program:
    """Loss and gradients, as Keras's guide to a training loop of one's own has them."""
    model, (x, labels) = _model(name, arrays), (each.tensor for each in inputs)
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    assert list(trained) == list(arrays), "these networks have no running statistics"

    @tf.function
    def both(x: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(x, training=True))
        return loss, tape.gradient(loss, model.trainable_weights)

    def call() -> tuple[Any, Any]:
        loss, gradients = both(x, labels)
        return TensorArray(loss), [TensorArray(each) for each in gradients]

    return Program(call)
