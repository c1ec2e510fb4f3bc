"""autoencoder: images of clothing from 32 numbers each, to an RMSE of 27.2 grey levels of 255.

No label is read. The 32 principal components give 31.4, always answering the mean 75.1. The target is set by the knee
rule from 10 seeds of `dense`. docs/evidence/small-tasks.md has the table, the commands and the measurements.
"""

from __future__ import annotations

from levelbench.networks.builder import Builder
from levelbench.networks.network import Network
from levelbench.training import Adam, Recipe, Shuffled, Task
from levelbench.training.datasets.idx import FashionImages
from levelbench.training.quality import Reconstruction
from levelbench.training.schedules import WarmupCosine

CODE = 32
"""How many numbers stand for an image: part of the task, and therefore no setting."""

task = Task(
    "autoencoder",
    data=FashionImages(),
    quality=Reconstruction(target=27.2, code=CODE),
    evaluate_every="1 epoch",
    clock="wall",
    description=f"70,000 images of clothing from {CODE} numbers each, without labels: a minute on a laptop",
)


@task.recipe
def dense(hidden: int = 128, batch: int = 128, lr: float = 0.002, epochs: int = 20) -> Recipe:
    """A layer with ReLU on each side of the code, Adam at a constant rate; stops once the target is confirmed."""
    return Recipe(network=_network(hidden), sampler=Shuffled(batch), optimizer=Adam(lr), epochs=epochs)


@task.recipe
def onecycle(hidden: int = 128, batch: int = 128, lr: float = 0.006, epochs: int = 4) -> Recipe:
    """The same with a one-cycle rate of fixed length; the target is tested at its end."""
    return Recipe(
        network=_network(hidden),
        sampler=Shuffled(batch),
        optimizer=Adam(lr),
        schedule=WarmupCosine(),
        epochs=epochs,
    )


def _network(hidden: int) -> Network:
    """An image to its code and back, with the mean squared error in grey levels from 0 to 255."""
    encoder = Builder("autoencoder", (1, 28, 28)).flatten().gemm(hidden).relu().gemm(CODE, gain=1.0)
    decoder = encoder.gemm(hidden, gain=1.0).relu().gemm(784, gain=1.0).operator("Sigmoid").affine(255.0)
    return decoder.reshape((1, 28, 28)).build().with_loss("mse", targets="uint8")
