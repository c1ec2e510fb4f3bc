"""detection: clothes on made canvases by COCO's mean average precision.

Canvases of 64x64 pixels with 0 to 5 of Fashion-MNIST's objects, composed by levelbench since no free set of photographs
with boxes comes in a package. Boxes around connected pixels with the class of the nearest mean get 0.32. The target is
set by the knee rule (docs/evidence/targets.md); docs/evidence/small-tasks.md has the times.
"""

from __future__ import annotations

from levelbench.networks.detection import with_detection_loss
from levelbench.networks.network import Network
from levelbench.networks.zoo.images import SMALL_DEFAULTS, small_ssd
from levelbench.training import Adam, Recipe, Shuffled, Task, datasets
from levelbench.training.datasets.scenes import MOST
from levelbench.training.precision import MeanAveragePrecision
from levelbench.training.schedules import WarmupCosine

task = Task(
    "detection",
    data=datasets.fashion_scenes,
    quality=MeanAveragePrecision(target=0.47),
    evaluate_every="1 epoch",
    clock="wall",
    description="5,000 made canvases with clothes to find, boxes and classes by mAP: minutes on a laptop",
)


@task.recipe
def ssd(width: int = 8, batch: int = 16, lr: float = 0.002, epochs: int = 20) -> Recipe:
    """A small SSD with batch normalisation, Adam at a constant rate; stops once the target is confirmed."""
    return Recipe(network=_network(width), sampler=Shuffled(batch), optimizer=Adam(lr), epochs=epochs)


@task.recipe
def onecycle(width: int = 8, batch: int = 16, lr: float = 0.006, epochs: int = 4) -> Recipe:
    """The same with a one-cycle rate of fixed length; the target is tested at its end."""
    return Recipe(
        network=_network(width),
        sampler=Shuffled(batch),
        optimizer=Adam(lr),
        schedule=WarmupCosine(),
        epochs=epochs,
    )


def _network(width: int) -> Network:
    """Boxes and scores for each default box, with SSD's loss."""
    return with_detection_loss(small_ssd(width=width), SMALL_DEFAULTS, most=MOST)
