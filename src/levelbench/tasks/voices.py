"""voices: which of five recorded voice sets a second of a telephone prompt is from, to a top-1 of 0.956.

It is mostly the speaker and the recording, neither a keyword nor a language; one speaker recorded two of the sets. No
prompt is in two splits, in whatever set. The nearest mean energy gives 0.294, a linear model of mean spectra 0.927. The
target is set by the knee rule from 12 seeds of `conv1d`. docs/evidence/small-tasks.md has the table, the commands and
the measurements.
"""

from __future__ import annotations

import math

from levelbench.networks.builder import Builder
from levelbench.networks.network import Network
from levelbench.training import Adam, Recipe, Shuffled, Task, Top1, datasets
from levelbench.training.schedules import WarmupCosine

task = Task(
    "voices",
    data=datasets.voices,
    quality=Top1(target=0.956),
    evaluate_every="1 epoch",
    clock="wall",
    description="5,966 seconds of speech, which of five voice sets: seconds on a laptop",
)


@task.recipe
def conv1d(width: int = 64, batch: int = 64, lr: float = 0.001, epochs: int = 30) -> Recipe:
    """Two convolutions over time and their mean, Adam at a constant rate; stops once the target is confirmed."""
    return Recipe(network=_network(width), sampler=Shuffled(batch), optimizer=Adam(lr), epochs=epochs)


@task.recipe
def onecycle(width: int = 64, batch: int = 64, lr: float = 0.02, epochs: int = 6) -> Recipe:
    """The same with a one-cycle rate of fixed length; the target is tested at its end."""
    return Recipe(
        network=_network(width), sampler=Shuffled(batch), optimizer=Adam(lr), schedule=WarmupCosine(), epochs=epochs
    )


def _network(width: int) -> Network:
    """From a spectrogram of 40 bands and 61 frames to a logit for each set, wherever in the second a sound is."""
    return (
        Builder("conv1d", (1, 40, 61))
        .operator("Conv", _kernels(width, (1, 40, 3)), shape=(width, 1, 61), pads=[0, 1, 0, 1])
        .relu()
        .operator("MaxPool", shape=(width, 1, 30), kernel_shape=[1, 2], strides=[1, 2])
        .operator("Conv", _kernels(width, (width, 1, 3)), shape=(width, 1, 30), pads=[0, 1, 0, 1])
        .relu()
        .operator("GlobalAveragePool", shape=(width, 1, 1))
        .flatten()
        .gemm(5, gain=1.0)
        .build()
    )


def _kernels(width: int, shape: tuple[int, int, int]) -> list[tuple[tuple[int, ...], float]]:
    """Kernels drawn as by He et al. 2015, and biases of zero."""
    return [((width, *shape), math.sqrt(2 / math.prod(shape))), ((width,), 0.0)]
