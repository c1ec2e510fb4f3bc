"""Error feedback: what compression leaves out is added to the next gradient.

The one idea: an exchange says what of this rank's share of the sum was not applied, so that of anything that is put in
nothing gets lost, whatever the compressor: Σ gradients = Σ what was applied + Σ over ranks of what is left.
"""

from __future__ import annotations

from typing import final

from levelbench.distributed.communicator import Communicator
from levelbench.distributed.compression.draws import Key
from levelbench.distributed.compression.exchange import Exchange
from levelbench.networks.executor import Array
from levelbench.training.optimizers.arrays import copy

__all__ = ["ErrorFeedback"]


@final
class ErrorFeedback:
    """e := e + g; the exchange of e; e := what it left (Seide et al. 2014; Stich et al. 2018; Karimireddy et al. 2019).

    ``enabled=False`` forgets what is left.
    """

    def __init__(self, enabled: bool = True) -> None:
        self._enabled = enabled
        self.residual: Array = None
        """What is left of this rank's, shape (n,); ``None`` before the first exchange, and where it is forgotten."""

    def total(self, communicator: Communicator, exchange: Exchange, flat: Array, key: Key) -> Array:
        """What all ranks are to apply, the same bits on each; ``flat`` is left as it is. Collective."""
        if self.residual is None:
            corrected = copy(flat)
        else:
            corrected = self.residual
            corrected += flat
        total, left = exchange(communicator, corrected, key)
        self.residual = left if self._enabled else None
        return total
