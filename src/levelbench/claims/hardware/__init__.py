"""Peak figures of hardware: a table with sources, and a lookup that finds the entry for a description."""

from __future__ import annotations

from levelbench.claims.hardware.matching import Identification, accelerators_in, lookup
from levelbench.claims.hardware.table import Chip, HardwareTable, Instance, Publication, table

__all__ = ["Chip", "HardwareTable", "Identification", "Instance", "Publication", "accelerators_in", "lookup", "table"]
