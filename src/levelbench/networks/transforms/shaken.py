"""Parameters to check a transform with: no fault hides behind a weight that is zero or one.

The one idea: at initial values a batch normalisation is nearly the identity, so a fault in folding it would not show.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from levelbench.networks.network import Network

__all__ = ["shaken_parameters"]


def shaken_parameters(network: Network, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Parameters with nothing that is zero, one or the same everywhere: drawn ones, and noise on constant ones.

    Variances of batch normalisations are between 0.5 and 2.
    """
    nodes = network.model.graph.node
    variances = {each.input[4] for each in nodes if each.op_type == "BatchNormalization" and len(each.input) > 4}
    found = network.initialise(seed)
    for role in network.parameters:
        generator = Generator(PCG64([seed, zlib.crc32(role.name.encode()), 1]))
        value = found[role.name]
        if value.dtype.kind in "iub":
            continue
        if role.name in variances:
            found[role.name] = generator.uniform(0.5, 2.0, role.shape).astype(value.dtype)
        elif value.size and (role.draw is None or role.draw.kind == "constant"):
            noise = 0.2 * generator.standard_normal(role.shape)
            found[role.name] = (np.asarray(value, np.float64) + noise).astype(value.dtype)
    return found
