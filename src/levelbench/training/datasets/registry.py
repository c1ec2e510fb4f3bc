"""The datasets by name, each imported when it is asked for.

The one idea: a name is known without importing what it names.
"""

from __future__ import annotations

from importlib import import_module

from levelbench.errors import UnknownNameError
from levelbench.training.datasets.base import DatasetSource

__all__ = ["names", "source"]

_HERE = "levelbench.training.datasets"
# Name: module, and what in it makes the source.
_SOURCES = {
    "digits": ("handwritten", "Digits"),
    "fashion-mnist": ("fashion", "FashionMnist"),
    "cifar10": ("cifar", "cifar10"),
    "cifar100": ("cifar", "cifar100"),
    "imagenet": ("ilsvrc", "Imagenet"),
    "verses-en-es": ("texts.verses", "VersePairs"),
    "web-characters": ("texts.characters", "Characters"),
    "spam": ("texts.mails", "Mails"),
    "squad": ("texts.squad", "Squad"),
    "synthetic": ("made", "Synthetic"),
}


def names() -> list[str]:
    """All datasets' names."""
    return list(_SOURCES)


def source(name: str) -> DatasetSource:
    """The dataset of that name, with its usual settings; nothing is read.

    :raises UnknownNameError: when there is none.
    """
    if name not in _SOURCES:
        raise UnknownNameError("dataset", name, _SOURCES, "see what there is: levelbench data list")
    module, maker = _SOURCES[name]
    made: DatasetSource = getattr(import_module(f"{_HERE}.{module}"), maker)()
    return made
