"""The hardware table: what a device or an instance can do at most, since when, for how many watts and dollars.

The one idea: every figure has a source with a date, and ``checked`` says whether somebody looked it up there or wrote
it from memory; what no source gives is absent, and never zero.
"""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

__all__ = ["Device", "Instance", "Source", "Table", "table"]

_FILES = ("sources", "accelerators", "processors", "instances")


class Source(Struct, frozen=True, forbid_unknown_fields=True):
    """Where figures were published: by whom, under which title, when (as on the page, or when it was read), where."""

    id: str
    publisher: str
    title: str
    date: str
    url: str = ""


class Device(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An accelerator (one chip with its memory) or a processor (one socket), at its nominal clock.

    ``tflops`` is the dense peak in 1e12 operations a second by precision, a multiply-add being two, products summed in
    float32 (int8: in int32); ``gb_per_s`` its memory's bandwidth in 1e9 bytes a second; ``watts`` its design power.
    ``names`` are ways to write its ``family``; ``weak`` ones count only beside a number or a word such as GPU.
    ``marks`` ("pcie", "80gb") tell the variants of a family apart; the first in the table is taken where none is given.
    """

    name: str
    kind: Literal["accelerator", "processor"]
    vendor: str
    family: str
    released: str
    source: str
    checked: bool
    names: list[str] = field(default_factory=list)
    weak: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    tflops: dict[str, float] = field(default_factory=dict)
    gb_per_s: float | None = None
    watts: float | None = None
    cores: int | None = None
    cores_in_names: int = 1
    """Into how many cores a name such as "v3-32" divides one chip."""
    also: list[str] = field(default_factory=list)
    """Further sources, for what the first does not have."""
    note: str = ""

    @property
    def release_year(self) -> int:
        """The year of ``released``."""
        return int(self.released[:4])

    def peak_flops(self, precision: str) -> float | None:
        """FLOP/s at most in that precision; ``None`` where it has no figure."""
        tflops = self.tflops.get(precision)
        return None if tflops is None else tflops * 1e12


class Instance(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A machine to rent or buy whole: which device it holds how often, and its price on demand in USD an hour.

    ``vcpus`` are hardware threads as the cloud counts them, ``cores`` the physical ones of ``processor`` that they are.
    """

    name: str
    vendor: str
    source: str
    checked: bool
    names: list[str] = field(default_factory=list)
    device: str = ""
    count: int = 0
    processor: str = ""
    vcpus: int | None = None
    cores: int | None = None
    usd_per_hour: float | None = None
    priced: str = ""
    """Region and date of the price."""
    also: list[str] = field(default_factory=list)
    note: str = ""


class Table(Struct, frozen=True, forbid_unknown_fields=True):
    """All of it, by name."""

    sources: dict[str, Source]
    devices: dict[str, Device]
    instances: dict[str, Instance]


@cache
def table() -> Table:
    """The table that ships. A name that stands twice, or a source or device that is not there, is a ``ValueError``."""
    read: dict[str, list[dict[str, Any]]] = {"source": [], "device": [], "instance": []}
    for name in _FILES:
        text = resources.files(__package__).joinpath("data", f"{name}.toml").read_text(encoding="utf-8")
        for kind, entries in tomllib.loads(text).items():
            read[kind] += entries
    sources = [msgspec.convert(each, Source) for each in read["source"]]
    devices = [msgspec.convert(each, Device) for each in read["device"]]
    instances = [msgspec.convert(each, Instance) for each in read["instance"]]
    made = Table(
        {each.id: each for each in sources},
        {each.name: each for each in devices},
        {each.name: each for each in instances},
    )
    _check(made, (len(sources), len(devices), len(instances)))
    return made


def _check(made: Table, counts: tuple[int, int, int]) -> None:
    if counts != (len(made.sources), len(made.devices), len(made.instances)):
        raise ValueError("a name stands twice in the hardware table")
    entries: list[Device | Instance] = [*made.devices.values(), *made.instances.values()]
    for entry in entries:
        for source in (entry.source, *entry.also):
            if source not in made.sources:
                raise ValueError(f"the hardware table has no source '{source}', which '{entry.name}' cites")
    for instance in made.instances.values():
        for name in (instance.device, instance.processor):
            if name and name not in made.devices:
                raise ValueError(f"the hardware table has no device '{name}', which '{instance.name}' holds")
