"""Augmentations: what is done to training images, the same bits in every framework."""

from levelbench.training.augmentation.base import Augmentation, Mixing
from levelbench.training.augmentation.colour import ColourJitter
from levelbench.training.augmentation.cutting import Cutout
from levelbench.training.augmentation.draws import example_seeds, random, uniform
from levelbench.training.augmentation.inplace import InPlace
from levelbench.training.augmentation.mixing import CutMix, Mixup
from levelbench.training.augmentation.moving import Flip, RandomCrop, Translate
from levelbench.training.augmentation.resizing import ProgressiveResize, RandomResizedCrop, Resize

__all__ = [
    "Augmentation",
    "ColourJitter",
    "CutMix",
    "Cutout",
    "Flip",
    "InPlace",
    "Mixing",
    "Mixup",
    "ProgressiveResize",
    "RandomCrop",
    "RandomResizedCrop",
    "Resize",
    "Translate",
    "example_seeds",
    "random",
    "uniform",
]
