"""What hardware can do at most: a table with sources, and a lookup that finds a description's entry in it."""

from __future__ import annotations

from levelbench.claims.hardware.matching import Match, lookup
from levelbench.claims.hardware.table import Device, Instance, Source, Table, table

__all__ = ["Device", "Instance", "Match", "Source", "Table", "lookup", "table"]
