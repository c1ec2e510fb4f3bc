"""Tensors by name that stay where they are: putting another one in the place of one copies its values there."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["Live"]


class Live(dict[str, Any]):
    """Detached tensors that share the storage of a network's own."""

    def __setitem__(self, name: str, value: Tensor) -> None:
        live = self[name]
        if value is not live:
            with torch.no_grad():
                live.copy_(value)
