"""The description of a system, as MLPerf's ``systems/<name>.json`` gives it, as hardware.

The one idea: its figures are text that people typed ("2x 64", "512 GB"), so what is not a plain number is left to the
description and never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from levelbench.records.submissions.schema import Hardware

__all__ = ["hardware_of", "text_of"]

_BYTES = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def text_of(value: Any) -> str | None:
    """The value as text of at most 200 characters, ``None`` for none."""
    return value.strip()[:200] or None if isinstance(value, str) else None


def hardware_of(system: Mapping[str, Any], otherwise: str) -> Hardware:
    """The hardware of a description, or ``otherwise`` in words where there is none. Counts are of the whole system."""
    nodes = _count(system.get("number_of_nodes"))
    each = _count(system.get("accelerators_per_node"))
    sockets, cores = _count(system.get("host_processors_per_node")), _count(system.get("host_processor_core_count"))
    memory = _memory(system.get("host_memory_capacity"))
    return Hardware(
        description=text_of(system.get("system_name")) or otherwise,
        nodes=nodes,
        accelerators=None if nodes is None or each is None else nodes * each,
        accelerator=text_of(system.get("accelerator_model_name")),
        processor=text_of(system.get("host_processor_model_name")),
        cores=None if nodes is None or sockets is None or cores is None else nodes * sockets * cores,
        memory_bytes=None if nodes is None or memory is None else nodes * memory,
    )


def _count(value: Any) -> int | None:
    """A whole number below a million, also as text."""
    if isinstance(value, str) and re.fullmatch(r"\s*\d{1,6}\s*", value, re.ASCII):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**6 else None


def _memory(value: Any) -> int | None:
    """Bytes of one node ("1.5 TB"); ``None`` for any other words."""
    match = (
        re.fullmatch(r"\s*(\d{1,7}(?:\.\d{1,3})?)\s*([KMGT]i?B)\s*", value, re.ASCII)
        if isinstance(value, str)
        else None
    )
    return None if match is None else round(float(match[1]) * _BYTES[match[2].upper()])
