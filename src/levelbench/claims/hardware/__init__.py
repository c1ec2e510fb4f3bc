"""What hardware can do at most: a table with sources, and a lookup that finds a description's entry in it.

The one idea: a description is somebody's free text. What it says is matched by names and counts, the match says how;
what is not recognised is ``None``, which means "not stated" and never "slow".
"""

from __future__ import annotations

from levelbench.claims.hardware.match import Match
from levelbench.claims.hardware.matching import lookup
from levelbench.claims.hardware.table import Device, Instance, Source, Table, table

__all__ = ["Device", "Instance", "Match", "Source", "Table", "lookup", "table"]
