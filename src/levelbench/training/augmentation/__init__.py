"""Augmentations: what is done to training images, the same bits in every framework."""

from levelbench.training.augmentation.base import Augmentation, InPlace, Mixing, example_seeds, random, uniform
from levelbench.training.augmentation.images import (
    ColourJitter,
    CutMix,
    Cutout,
    Flip,
    Mixup,
    ProgressiveResize,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    Translate,
)

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
