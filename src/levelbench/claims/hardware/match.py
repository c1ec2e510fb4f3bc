"""What a description was found to mean: which device how often, in which instance, and what had to be assumed.

The one idea: figures are of the whole system, and ``how`` and ``assumed`` say in words how they came about, so that a
reader can disagree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from levelbench.claims.hardware.table import Device, Instance

__all__ = ["Match"]


@dataclass(frozen=True)
class Match:
    """So many ``units`` of ``device``: accelerators, or sockets of a processor (a share where an instance has less).

    ``count_stated`` says whether the description or its instance gave the number; else one is taken. ``assumed`` lists
    in words what else was.
    """

    description: str
    device: Device | None
    units: float
    count_stated: bool
    how: str
    instance: Instance | None = None
    processor: Device | None = None
    assumed: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The device's name, or the instance's where it is not known what is inside."""
        if self.device is not None:
            return self.device.name
        return "" if self.instance is None else self.instance.name

    @property
    def is_accelerator(self) -> bool:
        """Whether the figures are of accelerators, and not of processors."""
        return self.device is not None and self.device.kind == "accelerator"

    @property
    def release_year(self) -> int | None:
        """When the device came out. A rented machine may be younger than its name, so that of an instance is none."""
        return None if self.device is None else self.device.release_year

    @property
    def peak_flops(self) -> dict[str, float]:
        """FLOP/s of the whole system by precision, dense; empty where the table has none."""
        tflops = {} if self.device is None else self.device.tflops
        return {precision: self.units * each * 1e12 for precision, each in tflops.items()}

    @property
    def bandwidth(self) -> float | None:
        """Bytes/s of memory of the whole system."""
        each = None if self.device is None else self.device.gb_per_s
        return None if each is None else self.units * each * 1e9

    @property
    def power_w(self) -> float | None:
        """Design power of the devices alone, in watts: neither host nor cooling."""
        each = None if self.device is None else self.device.watts
        return None if each is None else self.units * each

    @property
    def price_per_hour(self) -> float | None:
        """USD an hour on demand for as many instances as hold the devices; ``None`` where no instance is named."""
        if self.instance is None or self.instance.usd_per_hour is None:
            return None
        return self._instances() * self.instance.usd_per_hour

    @property
    def price_source(self) -> str | None:
        """What the price is of, and when and where it was so."""
        if self.instance is None or self.price_per_hour is None:
            return None
        return f"{self._instances()} x {self.instance.name}, {self.instance.priced}"

    def with_accelerators(self, count: int) -> Match:
        """The same with another number of accelerators: one that is stated apart from the description."""
        if not self.is_accelerator or count < 1:
            return self
        assumed = tuple(each for each in self.assumed if "how many" not in each)
        return replace(self, units=float(count), count_stated=True, assumed=assumed)

    def _instances(self) -> int:
        if self.instance is None or not self.instance.count or not self.is_accelerator:
            return 1
        return max(1, math.ceil(self.units / self.instance.count))
