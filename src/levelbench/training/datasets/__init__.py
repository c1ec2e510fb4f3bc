"""The data that tasks train on: read strictly, checked by checksum, split by a fixed rule.

A name stands for exact bytes in an exact split. ``datasets.digits.load()`` returns the same arrays on every machine, or
raises an error that says what to do; the origin of the files never changes their content. A dataset's module is
imported on demand: ``datasets.cifar10``, or ``datasets.source("cifar10")``.
"""

from __future__ import annotations

import importlib

from levelbench.errors import UnknownNameError
from levelbench.training.datasets.base import Column, Dataset, DatasetSource, Normalisation, Split, from_arrays

__all__ = ["Column", "Dataset", "DatasetSource", "Normalisation", "Split", "from_arrays", "names", "source"]

_HERE = "levelbench.training.datasets"
# By name: the module and the object in it that creates the source. No module may have a source's name and hide it.
_SOURCES = {
    "digits": ("idx", "Digits"),
    "fashion-mnist": ("idx", "FashionMnist"),
    "fashion-mnist-images": ("idx", "FashionImages"),
    "cifar10": ("cifar", "cifar10"),
    "cifar100": ("cifar", "cifar100"),
    "imagenet": ("images", "Imagenet"),
    "verses-en-es": ("bibles", "VersePairs"),
    "web-characters": ("bibles", "Characters"),
    "python-sources": ("programs", "PythonSources"),
    "spam": ("mails", "Mails"),
    "squad": ("questions", "Squad"),
    "diabetes": ("tables", "Diabetes"),
    "movielens": ("ratings", "MovieLens"),
    "voices": ("sounds", "Voices"),
    "spoken-numbers": ("sounds", "SpokenNumbers"),
    "cartpole": ("episodes", "CartPoleStarts"),
    "acrobot": ("episodes", "AcrobotStarts"),
    "fashion-scenes": ("scenes", "Scenes"),
    "fashion-masks": ("scenes", "Masks"),
    "synthetic": ("generated", "Synthetic"),
}


def names() -> list[str]:
    """The names of all datasets."""
    return list(_SOURCES)


def source(name: str) -> DatasetSource:
    """The dataset of that name, with its default settings; nothing is read.

    :raises UnknownNameError: for an unknown name.
    """
    if name not in _SOURCES:
        raise UnknownNameError("dataset", name, _SOURCES, "list the datasets with levelbench data list")
    module, maker = _SOURCES[name]
    made: DatasetSource = getattr(importlib.import_module(f"{_HERE}.{module}"), maker)()
    return made


def __getattr__(name: str) -> DatasetSource:
    """The source of that name, with ``_`` for ``-``, created at the first use."""
    wanted = name.replace("_", "-")
    if wanted not in _SOURCES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made: DatasetSource = globals().setdefault(name, source(wanted))
    return made
