"""Meters: what a run used besides time (memory, energy, processors, network), or why that is not known.

Start, stop, a reading. A factory gives the best meter that this machine allows, or a null meter whose reading carries
the reason; callers need not know which of the two they have.
"""

from __future__ import annotations

from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.meters.base import Meter, NullMeter, Reading
from levelbench.measure.meters.energy import energy_meter
from levelbench.measure.meters.resources import (
    busy_meter,
    loopback_meter,
    memory_meter,
    network_meter,
    other_load_meter,
    read_meter,
    steal_meter,
    utilisation_meter,
)

__all__ = ["Meter", "NullMeter", "Reading", "energy_meter", "meters"]


def meters(clock: Clock = HOST) -> list[Meter]:
    """One meter of each kind, in the order of reports; all names differ."""
    return [
        memory_meter(),
        energy_meter(clock),
        utilisation_meter(clock),
        other_load_meter(clock),
        busy_meter(),
        steal_meter(),
        network_meter(),
        loopback_meter(),
        read_meter("disk"),
        read_meter("cache"),
    ]
