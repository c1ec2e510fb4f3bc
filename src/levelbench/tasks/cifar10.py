"""cifar10: 94 % of held-out 32x32 images of ten classes: DAWNBench's first task (Coleman et al. 2017).

Claim: none. Nothing here was trained on CIFAR-10's images, which were not available where this was written, so there is
no time to report. Settings are those of the sources named by each recipe, next to the results that they report. The
recipes were run on small generated data in CIFAR's format, which they learn (tests/tasks/test_vision_recipes.py).

Differences from all sources: the target is tested on a validation split (DAWNBench used the test set), so the training
split is smaller than their 50,000 images; test accuracy is measured once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable

from levelbench.networks.zoo import build, small
from levelbench.networks.zoo.convolutional import cifar_resnet
from levelbench.training import Momentum, Recipe, Shuffled, Task, Top1, datasets
from levelbench.training.augmentation import Cutout, Flip, RandomCrop
from levelbench.training.schedules import PiecewiseLinear, Step, Warmup

task = Task(
    "cifar10",
    data=datasets.cifar10,
    quality=Top1(target=0.94),
    evaluate_every="1 epoch",
    clock="wall",
    description="60,000 photographs of ten classes, 32x32: DAWNBench's task; minutes on a GPU",
)


@task.recipe(factors={"smoothing": 0.0, "cutout": 0, "precision": "float32", "channels_last": False})
def resnet9(
    width: int = 64,
    epochs: int = 24,
    batch: int = 512,
    lr: float = 0.4,
    momentum: float = 0.9,
    weight_decay: float = 5e-4,
    warmup: float = 5 / 24,
    smoothing: float = 0.0,
    cutout: int = 8,
    survival: float = 1.0,
    precision: str = "bfloat16",
    channels_last: bool = True,
    workers: int = 2,
) -> Recipe:
    """Fast: a nine-layer residual network, Nesterov momentum, a triangular rate, crops, flips and cut-outs.

    Page 2018 ("How to train your ResNet", davidcpage/cifar10-fast, dawn.py): 24 epochs, batch 512, the rate up to 0.4
    in 5 epochs and down to 0, weight decay 5e-4, crops of images padded by 4, flips, 8x8 cut-outs; he reports 94.08 %
    after 79 s on a V100. He trained in float16, without smoothing.
    """
    return Recipe(
        network=small.resnet9(width=width, survival=survival),
        sampler=Shuffled(batch),
        optimizer=Momentum(lr, momentum, nesterov=True, weight_decay=weight_decay),
        epochs=epochs,
        schedule=PiecewiseLinear(((0.0, 0.0), (warmup, 1.0), (1.0, 0.0))),
        augment=(RandomCrop(4, mode="reflect"), Flip(), *([Cutout(cutout, fill=121.0)] if cutout else [])),
        label_smoothing=smoothing,
        precision=precision,
        channels_last=channels_last,
        workers=workers,
    )


def _plain(depth: int, doc: str) -> Callable[..., Recipe]:
    """He et al. 2015, section 4.2; the rate falls to a tenth at 32,000 and again at 48,000 of its 64,000 steps."""

    def recipe(
        epochs: int = 182,
        batch: int = 128,
        lr: float = 0.1,
        weight_decay: float = 1e-4,
        survival: float = 1.0,
        workers: int = 2,
    ) -> Recipe:
        steps = Step((0.5, 0.75), 0.1)
        # "We use 0.01 to warm up the training until the training error is below 80% (about 400 iterations)."
        schedule = Warmup(steps, share=400 / 64_000, start=0.1) if depth >= 110 else steps
        return Recipe(
            network=cifar_resnet(depth, survival=survival),
            sampler=Shuffled(batch),
            optimizer=Momentum(lr, 0.9, weight_decay=weight_decay),
            epochs=epochs,
            schedule=schedule,
            augment=(RandomCrop(4), Flip()),
            workers=workers,
        )

    recipe.__name__ = f"resnet{depth}"
    recipe.__doc__ = f"Plain: {doc}"
    return recipe


# Even the paper's 110 layers miss the task's 94 %: set another target, as in ``cifar10[target=0.91]``.
for _depth, _doc in (
    (20, "He et al. 2015 (arXiv:1512.03385, 4.2), 20 layers, 64,000 steps; the paper's test error is 8.75 %."),
    (32, "as resnet20 with 32 layers; the paper's test error is 7.51 %."),
    (44, "as resnet20 with 44 layers; the paper's test error is 7.17 %."),
    (56, "as resnet20 with 56 layers; the paper's test error is 6.97 %."),
    (110, "as resnet20 with 110 layers, warmed up from a tenth of the rate; the paper's test error is 6.43 %."),
):
    task.recipe(_plain(_depth, _doc))


@task.recipe
def wideresnet(
    epochs: int = 200, batch: int = 128, lr: float = 0.1, weight_decay: float = 5e-4, workers: int = 2
) -> Recipe:
    """Plain, and able to pass 94 %: Zagoruyko & Komodakis 2016, 28 layers, ten times as wide; test error 4.00 %.

    arXiv:1605.07146, section 3: Nesterov momentum 0.9, rate 0.1, times 0.2 at epochs 60, 120 and 160 of 200.
    """
    return Recipe(
        network=build("wideresnet28-10"),
        sampler=Shuffled(batch),
        optimizer=Momentum(lr, 0.9, nesterov=True, weight_decay=weight_decay),
        epochs=epochs,
        schedule=Step((0.3, 0.6, 0.8), 0.2),
        augment=(RandomCrop(4, mode="reflect"), Flip()),
        workers=workers,
    )
