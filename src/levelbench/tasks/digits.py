"""digits: 96 % of held-out 8x8 handwritten digits.

The target is set by the knee rule from 30 seeds of `mlp`, all of which reach it, confirmed, after 6 epochs (median;
they vary by 23 %). docs/evidence/targets.md has the table and the commands.
"""

from __future__ import annotations

from levelbench.networks import zoo
from levelbench.training import Constant, Momentum, Recipe, Shuffled, Task, Top1, datasets
from levelbench.training.schedules import WarmupCosine

task = Task(
    "digits",
    data=datasets.digits,
    quality=Top1(target=0.96),
    evaluate_every="1 epoch",
    clock="wall",
    description="1,797 handwritten digits of 8x8 pixels, bundled: seconds on a laptop",
)


@task.recipe
def mlp(hidden: int = 128, batch: int = 64, lr: float = 0.05, momentum: float = 0.9, epochs: int = 60) -> Recipe:
    """Two layers, SGD with momentum at a constant rate; stops once the target is confirmed."""
    return Recipe(
        network=zoo.mlp(64, hidden, 10),
        sampler=Shuffled(batch),
        optimizer=Momentum(lr, momentum),
        schedule=Constant(),
        epochs=epochs,
    )


@task.recipe
def onecycle(hidden: int = 128, batch: int = 64, lr: float = 0.1, momentum: float = 0.9, epochs: int = 10) -> Recipe:
    """The same network with a one-cycle rate of fixed length; the target is tested at its end."""
    return Recipe(
        network=zoo.mlp(64, hidden, 10),
        sampler=Shuffled(batch),
        optimizer=Momentum(lr, momentum),
        schedule=WarmupCosine(),
        epochs=epochs,
    )
