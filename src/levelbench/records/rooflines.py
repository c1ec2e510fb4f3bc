"""What one process finds out about operators, passes and steps under the roofs of its machine.

It is made on demand and not kept in a store: roofs are those of the moment, and are measured again with the work.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Direction", "Kind", "RooflineProfile", "RooflineRow"]

Kind = Literal["operator", "pass", "network", "training step"]
Direction = Literal["forward", "backward", "both"]


class RooflineRow(msgspec.Struct, frozen=True):
    """A place under the roofs. ``count`` nodes together take ``time_s`` (median over the rounds).

    ``flops`` and ``bytes`` are theirs, ``None`` if unknown. ``share`` is the least time that the roofs allow over
    ``time_s``, ``bound`` and ``roof`` what binds. Without a share, ``reason`` says why.
    """

    kind: Kind
    name: str
    direction: Direction
    count: int
    flops: float | None
    bytes: float | None
    dtype: str
    time_s: float
    share: float | None = None
    bound: str = ""
    roof: str = ""
    reason: str = ""


class RooflineProfile(msgspec.Struct, frozen=True):
    """One process: the best roofs over ``rounds``, their spread (interquartile range over median), and rows.

    ``levels`` are the names of the levels of the memory with what they hold in bytes; ``None`` for main memory.
    """

    rounds: int
    flop_s: dict[str, float]
    bytes_s: dict[str, float]
    spread: dict[str, float]
    levels: list[tuple[str, float | None]]
    rows: list[RooflineRow]
    no_operators: str = ""
