"""The hardware of a side: a stated figure takes precedence over the table's, and what neither has stays unknown."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple, TypeVar

from levelbench.claims.hardware import Identification, lookup
from levelbench.claims.view import HardwareView, Side

__all__ = ["ACCELERATOR", "ResolvedHardware", "machine_of", "precision_name", "precision_of"]

_ALIASES = {
    "fp64": "float64",
    "double": "float64",
    "fp32": "float32",
    "single": "float32",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp8": "float8",
}
_T = TypeVar("_T", int, float)
ACCELERATOR = re.compile(r"\b([gt]pus?|accelerators?|fpgas?|asics?)\b")
_PROCESSOR = re.compile(r"\b(cpus?|processors?|cores?|xeon|epyc|ryzen|opteron)\b")
_ONE_CORE = re.compile(r"\b(single|one|1)[- ]?((cpu|processor)[- ]?)?(core|thread(ed)?)\b")


class ResolvedHardware(NamedTuple):
    """A whole system: ``name`` is its printed name, ``part`` the normalised name of the device that it computes with.

    ``peaks`` are FLOP/s by precision; ``matched`` is the table entry whose figures are used. If the number of devices
    is unknown (``counted``), so are the figures of the whole system, and none is taken from the table.
    """

    name: str
    part: str
    accelerated: bool | None
    cores_used: int | None
    cores: int | None
    year: int | None
    peaks: dict[str, float]
    bandwidth: float | None
    power_w: float | None
    price_per_hour: float | None
    matched: str
    counted: bool

    @property
    def only_cores(self) -> bool:
        """Whether nothing but its cores is known, which no accelerator can be compared with."""
        figures = (self.year, self.bandwidth, self.power_w, self.price_per_hour)
        return self.known and not self.peaks and figures == (None,) * 4

    @property
    def known(self) -> bool:
        """Whether it can be compared at all."""
        figures = (self.year, self.bandwidth, self.power_w, self.price_per_hour, self.cores_used)
        return bool(self.peaks) or any(each is not None for each in figures)


def machine_of(hardware: HardwareView) -> ResolvedHardware:
    """The machine, with figures from the table where none are stated."""
    match = _match(hardware)
    called = hardware.description or hardware.accelerator or hardware.processor or ""
    part = match.name if match is not None and match.name else (hardware.accelerator or called).lower()
    counted = match is None or match.count_stated
    whole = match if counted else None
    return ResolvedHardware(
        name=called or "unnamed hardware",
        part=part,
        accelerated=_accelerated(hardware, match),
        cores_used=_cores_used(hardware),
        cores=hardware.cores,
        year=_first(hardware.release_year, None if match is None else match.release_year),
        peaks={**({} if whole is None else whole.peak_flops), **hardware.peak_flops},
        bandwidth=_first(hardware.bandwidth, None if whole is None else whole.bandwidth),
        power_w=_first(hardware.power_w, None if whole is None else whole.power_w),
        price_per_hour=_first(hardware.price_per_hour, None if whole is None else whole.price_per_hour),
        matched="" if match is None else match.name,
        counted=counted or bool(hardware.peak_flops),
    )


def precision_of(side: Side) -> str | None:
    """The precision of most of a side's operations, or that in its settings; ``None`` if neither is stated."""
    shares = side.operations.precisions
    stated = max(shares, key=lambda name: shares[name]) if shares else side.performance.options.get("precision")
    if not isinstance(stated, str) or not stated.strip():
        return None
    return precision_name(stated)


def precision_name(text: str) -> str:
    """The table's name for the precision that an author calls ``text``."""
    name = text.strip().lower()
    return _ALIASES.get(name, name)


def _first(stated: _T | None, looked_up: _T | None) -> _T | None:
    return looked_up if stated is None else stated


def _match(hardware: HardwareView) -> Identification | None:
    """The accelerator's entry, else the whole description's, or the processor's if there is no accelerator."""
    names = [hardware.accelerator, hardware.description]
    if not hardware.accelerators and hardware.accelerator is None:
        names.append(hardware.processor)
    for name in names:
        found = lookup(name) if name else None
        if found is None:
            continue
        # If the figures belong to different systems (a processor next to accelerators), they mean nothing.
        if hardware.accelerators and not found.is_accelerator:
            continue
        if hardware.accelerators:
            return found.with_accelerators(hardware.accelerators)
        return _with_cores(found, hardware.cores)
    return None


def _with_cores(match: Identification, cores: int | None) -> Identification:
    """The processor, as many times as the stated number of cores requires."""
    device = match.device
    if match.count_stated or device is None or device.kind != "processor" or not device.cores or not cores:
        return match
    return replace(match, units=cores / device.cores, count_stated=True)


def _accelerated(hardware: HardwareView, match: Identification | None) -> bool | None:
    if hardware.accelerators is not None:
        return hardware.accelerators > 0
    if hardware.accelerator is not None:
        return True
    if match is not None and match.device is not None:
        return match.is_accelerator
    text = (hardware.description or "").lower()
    if ACCELERATOR.search(text):
        return True
    return False if hardware.processor is not None or _PROCESSOR.search(text) or _ONE_CORE.search(text) else None


def _cores_used(hardware: HardwareView) -> int | None:
    if hardware.threads_used is not None:
        return hardware.threads_used
    if hardware.cores is not None:
        return hardware.cores
    return 1 if _ONE_CORE.search((hardware.description or "").lower()) else None
