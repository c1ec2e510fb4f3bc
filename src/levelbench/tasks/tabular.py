"""tabular: how far a disease has got a year later, from ten numbers about the patient, to an RMSE of 54.4.

442 patients with diabetes; always answering the mean of the training split gives 75.7. The target is set by the knee
rule from 12 seeds of `linear`. docs/evidence/small-tasks.md has the table, the commands and the measurements.
"""

from __future__ import annotations

from levelbench.networks.builder import Builder
from levelbench.networks.network import Network
from levelbench.training import RMSE, Adam, Recipe, Shuffled, Task, datasets
from levelbench.training.schedules import WarmupCosine

task = Task(
    "tabular",
    data=datasets.diabetes,
    quality=RMSE(target=54.4),
    evaluate_every="1 epoch",
    clock="wall",
    description="442 patients with diabetes, a number to predict from ten: seconds on a laptop",
)


@task.recipe
def linear(batch: int = 16, lr: float = 0.003, epochs: int = 100) -> Recipe:
    """A linear model from the mean, Adam at a constant rate; stops once the target is confirmed."""
    return Recipe(network=_regressor(0), sampler=Shuffled(batch), optimizer=Adam(lr), epochs=epochs)


@task.recipe
def onecycle(batch: int = 16, lr: float = 0.03, epochs: int = 4) -> Recipe:
    """The same with a one-cycle rate of fixed length; the target is tested at its end."""
    return Recipe(
        network=_regressor(0), sampler=Shuffled(batch), optimizer=Adam(lr), schedule=WarmupCosine(), epochs=epochs
    )


@task.recipe
def mlp(hidden: int = 64, batch: int = 16, lr: float = 0.0005, epochs: int = 100) -> Recipe:
    """A hidden layer with ReLU, which soon fits the 266 patients too closely."""
    return Recipe(network=_regressor(hidden), sampler=Shuffled(batch), optimizer=Adam(lr), epochs=epochs)


def _regressor(hidden: int) -> Network:
    """From ten numbers to one in the targets' unit, with the mean squared error; ``hidden`` 0 is a linear model.

    It starts near the mean of the training targets, as a last layer of usual weights would start anywhere.
    """
    layers = Builder("mlp" if hidden else "linear", (10,))
    if hidden:
        layers.gemm(hidden).relu()
    return layers.gemm(1, gain=0.01).affine(scale=75.0, shift=150.0).build().with_loss("mse")
