"""The data that tasks train on: read strictly, checked by checksum, split by a fixed rule.

The one idea: a name stands for exact bytes in an exact split. ``datasets.digits.load()`` gives the same arrays on every
machine, or an error that says what to do; where the files came from never changes what is in them.

``datasets.fashion_mnist``, ``datasets.cifar10`` and so on are the sources of :mod:`.registry`, made at the first use.
"""

from __future__ import annotations

from levelbench.training.datasets import registry
from levelbench.training.datasets.base import Column, Dataset, DatasetSource, Normalisation, Split

__all__ = ["Column", "Dataset", "DatasetSource", "Normalisation", "Split", "names", "source"]

names = registry.names
source = registry.source


def __getattr__(name: str) -> DatasetSource:
    """The source of that name, with ``_`` for ``-``."""
    wanted = name.replace("_", "-")
    if wanted not in registry.names():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made: DatasetSource = globals().setdefault(name, registry.source(wanted))
    return made
