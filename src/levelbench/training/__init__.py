"""Level 2, training: datasets, samplers, optimizers, schedules, tasks and the trainer that runs them."""

from levelbench.training import optimizers
from levelbench.training.augmentation import (
    Augmentation,
    ColourJitter,
    CutMix,
    Cutout,
    Flip,
    Mixing,
    Mixup,
    ProgressiveResize,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    Translate,
)
from levelbench.training.observers import Observer
from levelbench.training.optimizers import *  # noqa: F403  # the names of its __all__
from levelbench.training.quality import AUROC, MAE, RMSE, BalancedAccuracy, Quality, Top1, Top5, TopK
from levelbench.training.samplers import (
    Bucketed,
    Partitioned,
    Repeated,
    Sampler,
    Sequential,
    Shuffled,
    Stratified,
    Subset,
    Weighted,
)
from levelbench.training.schedules import (
    Constant,
    Cosine,
    InverseSquareRoot,
    OneCycle,
    PiecewiseLinear,
    Polynomial,
    Schedule,
    Step,
    Trapezoid,
    Warmup,
    WarmupCosine,
)
from levelbench.training.task import Recipe, Task
from levelbench.training.trainer import Trainer

__all__ = [
    "AUROC",
    "MAE",
    "RMSE",
    "Augmentation",
    "BalancedAccuracy",
    "Bucketed",
    "ColourJitter",
    "Constant",
    "Cosine",
    "CutMix",
    "Cutout",
    "Flip",
    "InverseSquareRoot",
    "Mixing",
    "Mixup",
    "Observer",
    "OneCycle",
    "Partitioned",
    "PiecewiseLinear",
    "Polynomial",
    "ProgressiveResize",
    "Quality",
    "RandomCrop",
    "RandomResizedCrop",
    "Recipe",
    "Repeated",
    "Resize",
    "Sampler",
    "Schedule",
    "Sequential",
    "Shuffled",
    "Step",
    "Stratified",
    "Subset",
    "Task",
    "Top1",
    "Top5",
    "TopK",
    "Trainer",
    "Translate",
    "Trapezoid",
    "Warmup",
    "WarmupCosine",
    "Weighted",
]
__all__ += optimizers.__all__
