"""Meters: what a run used besides time (memory, energy, processors, network), or why that is not known.

Start, stop, a reading. A factory gives the best meter that this machine allows, or a null twin whose
reading carries the reason; whoever uses a meter never asks which of the two it has.
"""

from __future__ import annotations

from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.meters.base import Meter, NullMeter, Reading
from levelbench.measure.meters.energy import energy_meter
from levelbench.measure.meters.memory import memory_meter
from levelbench.measure.meters.utilisation import (
    busy_meter,
    loopback_meter,
    network_meter,
    other_load_meter,
    steal_meter,
    utilisation_meter,
)

__all__ = [
    "Meter",
    "NullMeter",
    "Reading",
    "busy_meter",
    "energy_meter",
    "loopback_meter",
    "memory_meter",
    "meters",
    "network_meter",
    "other_load_meter",
    "steal_meter",
    "utilisation_meter",
]


def meters(clock: Clock = HOST) -> list[Meter]:
    """One meter of each kind, in the order in which reports show them; every name differs."""
    return [
        memory_meter(),
        energy_meter(clock),
        utilisation_meter(clock),
        other_load_meter(clock),
        busy_meter(),
        steal_meter(),
        network_meter(),
        loopback_meter(),
    ]
