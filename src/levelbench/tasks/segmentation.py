"""segmentation: the class of each pixel of made canvases by mean intersection over union.

The canvases are those of ``detection``, composed by levelbench. Which pixels are of an object can be told from their
grey level alone; what has to be learnt is of which class. The target is set by the knee rule
(docs/evidence/targets.md).
"""

from __future__ import annotations

from levelbench.networks.network import Network
from levelbench.networks.zoo import images
from levelbench.training import Adam, Recipe, Shuffled, Task, datasets
from levelbench.training.quality import MeanIoU
from levelbench.training.schedules import WarmupCosine

task = Task(
    "segmentation",
    data=datasets.fashion_masks,
    quality=MeanIoU(target=0.46),
    evaluate_every="1 epoch",
    clock="wall",
    description="5,000 made canvases with clothes, the class of each pixel by mean IoU: minutes on a laptop",
)


@task.recipe
def unet(width: int = 8, batch: int = 16, lr: float = 0.002, epochs: int = 20) -> Recipe:
    """A small U-Net with batch normalisation, Adam at a constant rate; stops once the target is confirmed."""
    return Recipe(network=_network(width), sampler=Shuffled(batch), optimizer=Adam(lr), epochs=epochs)


@task.recipe
def onecycle(width: int = 8, batch: int = 16, lr: float = 0.006, epochs: int = 6) -> Recipe:
    """The same with a one-cycle rate of fixed length; the target is tested at its end."""
    return Recipe(
        network=_network(width),
        sampler=Shuffled(batch),
        optimizer=Adam(lr),
        schedule=WarmupCosine(),
        epochs=epochs,
    )


def _network(width: int) -> Network:
    """Logits (batch, 11, 64, 64), with the cross-entropy over all pixels."""
    network = images.unet(name="small-unet", classes=11, width=width, levels=4, size=64, dropout=0.0, padded=True)
    return network.with_loss()
