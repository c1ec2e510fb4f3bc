"""What a sampler promises: each example's share of the visits, and whether chance decides when it comes.

The one idea: a sampler that says nothing promises what most do, equal shares in random order. One that means something
else has a method ``expected_shares`` or an attribute ``random_order``, and is held to that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from levelbench.training.datasets.base import Split
from levelbench.training.samplers.base import Sampler

__all__ = ["promised_shares", "promises_random_order"]


def promised_shares(sampler: Sampler, split: Split) -> NDArray[np.float64] | None:
    """Each example's expected share of the visits, shape (n,); ``None`` where the sampler has no formula for it."""
    own: Any = getattr(sampler, "expected_shares", None)
    if own is None:
        return np.full(len(split), 1.0 / len(split))
    found: NDArray[np.float64] | None = own(split)
    return found


def promises_random_order(sampler: Sampler) -> bool:
    """Whether every example is as likely to come early in an epoch as late."""
    return bool(getattr(sampler, "random_order", True))
