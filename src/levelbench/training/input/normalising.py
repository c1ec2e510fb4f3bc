"""Normalises raw pixels where they are: a batch travels and is gathered as bytes, and becomes float32 at the end.

The one idea: subtract first, multiply then, each rounded once. No compiler may fuse that into other roundings, so all
frameworks see the same bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from levelbench.errors import DataError
from levelbench.networks.executor import Array, Backend
from levelbench.training.datasets.base import Dataset, Split

__all__ = ["Normalise", "normaliser"]

Normalise = Callable[[Array], Array]
"""From a native first column to the one that the network gets."""


def normaliser(backend: Backend, dataset: Dataset, split: Split) -> Normalise | None:
    """(x / highest - mean) / std of the first column by channel, or ``None`` where there is nothing to do.

    Only uint8 is normalised: a float32 column has been already. Raises ``DataError`` where the constants are of another
    number of channels.
    """
    constants, column = dataset.normalisation, split.inputs
    if constants is None or column.dtype != np.uint8:
        return None
    channels, shape = len(constants.mean), tuple(column.shape)
    if channels != len(constants.std) or (channels > 1 and (len(shape) < 2 or shape[1] != channels)):
        raise DataError(
            f"the normalisation of {dataset.name}",
            f"it has {channels} means and {len(constants.std)} standard deviations for rows of shape {shape[1:]}",
            "give one of each a channel (axis 1)",
        )
    by_channel = (1, channels, *(1,) * (len(shape) - 2)) if channels > 1 else (1,) * len(shape)
    mean, std = (np.array(each, np.float64).reshape(by_channel) for each in (constants.mean, constants.std))
    shift = backend.array((mean * constants.highest).astype(np.float32))
    scale = backend.array((1 / (std * constants.highest)).astype(np.float32))
    normalise = backend.normalise
    return lambda array: normalise(array, shift, scale)
