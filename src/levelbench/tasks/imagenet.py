"""imagenet: 93 % top-5 of the 50,000 validation images of ImageNet's 1,000 classes: DAWNBench's second task.

Claim: none. Nothing here was trained on ImageNet, which was not available where this was written and is not downloaded:
``levelbench run imagenet --data FOLDER`` uses your own copy of the images. Settings are those of the sources named by
each recipe; tests check their parts and rates, and that each recipe memorises a small generated batch.

Both recipes are for one device, whose memory holds part of a batch: ``accumulate`` parts make one update.
"""

from __future__ import annotations

from levelbench.networks.zoo import build
from levelbench.training import Momentum, Recipe, Shuffled, Task, datasets
from levelbench.training.augmentation import Flip, ProgressiveResize
from levelbench.training.optimizers import Groups
from levelbench.training.quality import Top1, Top5
from levelbench.training.schedules import PiecewiseLinear, Step, Warmup

task = Task(
    "imagenet",
    data=datasets.imagenet,
    quality=Top5(target=0.93),
    also=(Top1(target=0.76),),
    evaluate_every="1 epoch",
    clock="wall",
    description="1.28 million photographs of 1,000 classes (bring your own copy): DAWNBench's task; hours on a GPU",
)


def _momentum(lr: float, weight_decay: float, *, nesterov: bool) -> Groups:
    """Momentum 0.9, with weight decay except for the scales and shifts of batch normalisation."""
    free = Momentum(lr, 0.9, nesterov=nesterov)
    decayed = Momentum(lr, 0.9, nesterov=nesterov, weight_decay=weight_decay)
    return Groups(decayed, {"*bn?.*": free, "*downsample.1.*": free})


@task.recipe
def plain(
    epochs: int = 90,
    batch: int = 256,
    accumulate: int = 1,
    lr: float = 0.1,
    weight_decay: float = 1e-4,
    precision: str = "float32",
    channels_last: bool = False,
    workers: int = 8,
) -> Recipe:
    """ResNet-50 in 90 epochs: Goyal et al. 2017 (arXiv:1706.02677), section 5.1, their baseline of batch 256.

    The rate is 0.1 for 256 images per update; scale ``lr`` in proportion to ``batch`` times ``accumulate``. It is
    warmed up over 5 epochs, as theirs is for large batches, and divided by 10 at epochs 30, 60 and 80. Differences: the
    last scale of each residual block starts at 1 instead of 0, and colours are not augmented.
    """
    return Recipe(
        network=build("resnet50"),
        sampler=Shuffled(batch),
        optimizer=_momentum(lr, weight_decay, nesterov=True),
        epochs=epochs,
        # The milestones are shares of what follows the warm-up.
        schedule=Warmup(Step((25 / 85, 55 / 85, 75 / 85), 0.1), share=5 / 90, start=0.1),
        augment=(Flip(),),
        precision=precision,
        channels_last=channels_last,
        accumulate=accumulate,
        workers=workers,
    )


@task.recipe(factors={"smoothing": 0.0, "precision": "float32", "channels_last": False, "progressive": False})
def progressive(
    epochs: int = 35,
    batch: int = 512,
    accumulate: int = 8,
    lr: float = 1.0,
    weight_decay: float = 1e-4,
    smoothing: float = 0.0,
    progressive: bool = True,
    precision: str = "bfloat16",
    channels_last: bool = True,
    workers: int = 8,
) -> Recipe:
    """Fast: ResNet-50 in 35 epochs, the first 14 on images of 128 pixels, after DAWNBench's entry of fast.ai and DIUx.

    cybertronai/imagenet18, train.py, phases of one machine: they report 109 minutes to 93.00 % on 8 V100. The rate
    rises from 1 to 2 in 5 epochs, is 1 from there, and falls to a tenth at 16, 27 and 33. Differences: their last three
    epochs had images of 288 pixels; with larger images they reduced batches and rate, which stay constant here; they
    used float16; the last scale of each residual block started at 0; and they evaluated on uncropped rectangles.
    """
    # A sudden drop of the rate is a line that falls over a millionth of an epoch.
    drop = 1e-6
    phases: list[tuple[float, float]] = [(0, 1.0), (5, 2.0), (5 + drop, 1.0), (16, 1.0), (16 + drop, 0.1), (27, 0.1)]
    phases += [(27 + drop, 0.01), (33, 0.01), (33 + drop, 0.001)]
    return Recipe(
        network=build("resnet50"),
        sampler=Shuffled(batch),
        optimizer=_momentum(lr, weight_decay, nesterov=False),
        epochs=epochs,
        schedule=PiecewiseLinear(tuple((epoch / 35, factor) for epoch, factor in phases)),
        augment=(*([ProgressiveResize(128, 224, begins=13 / 35, ends=14 / 35)] if progressive else []), Flip()),
        label_smoothing=smoothing,
        precision=precision,
        channels_last=channels_last,
        accumulate=accumulate,
        workers=workers,
    )
