"""The hardware table: peak figures of devices and instances, with release date, power and price.

Every figure has a source with a date, and ``checked`` says whether it was looked up there or written from memory. What
no source gives is absent, never zero. ``tables`` writes everything as Markdown for ``docs/reference/hardware.md``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

__all__ = ["BEGIN", "END", "Chip", "HardwareTable", "Instance", "Publication", "table", "tables", "with_tables"]

_FILES = ("sources", "accelerators", "processors", "instances")


class Publication(Struct, frozen=True, forbid_unknown_fields=True):
    """The publication of figures: publisher, title, date (of the page, or of reading it) and address."""

    id: str
    publisher: str
    title: str
    date: str
    url: str = ""


class Chip(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An accelerator (one chip with its memory) or a processor (one socket), at its nominal clock.

    ``tflops`` is the dense peak in 1e12 operations per second by precision, a multiply-add counting as two, products
    summed in float32 (int8: in int32); ``gb_per_s`` is the memory bandwidth in 1e9 bytes per second; ``watts`` is the
    design power. ``names`` are spellings of its ``family``; ``weak`` ones count only next to a number or a word such as
    GPU. ``marks`` ("pcie", "80gb") distinguish the variants of a family; without one, the first variant in the table is
    taken.
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
    """Cores per chip in a name such as "v3-32"."""
    also: list[str] = field(default_factory=list)
    """Additional sources, for what the first one does not have."""
    note: str = ""

    @property
    def release_year(self) -> int:
        """The year of ``released``."""
        return int(self.released[:4])

    def peak_flops(self, precision: str) -> float | None:
        """Peak FLOP/s in that precision; ``None`` if there is no figure."""
        tflops = self.tflops.get(precision)
        return None if tflops is None else tflops * 1e12


class Instance(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A machine to rent or buy as a whole: its device, the number of devices, and its on-demand price in USD per hour.

    ``vcpus`` are hardware threads as the cloud counts them, ``cores`` the physical cores of ``processor``.
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


class HardwareTable(Struct, frozen=True, forbid_unknown_fields=True):
    """The whole table, by name."""

    sources: dict[str, Publication]
    devices: dict[str, Chip]
    instances: dict[str, Instance]


@cache
def table() -> HardwareTable:
    """The table in this package. A duplicate name, or a missing source or device, is a ``ValueError``."""
    read: dict[str, list[dict[str, Any]]] = {"source": [], "device": [], "instance": []}
    for name in _FILES:
        text = resources.files(__package__).joinpath("data", f"{name}.toml").read_text(encoding="utf-8")
        for kind, entries in tomllib.loads(text).items():
            read[kind] += entries
    sources = [msgspec.convert(each, Publication) for each in read["source"]]
    devices = [msgspec.convert(each, Chip) for each in read["device"]]
    instances = [msgspec.convert(each, Instance) for each in read["instance"]]
    made = HardwareTable(
        {each.id: each for each in sources},
        {each.name: each for each in devices},
        {each.name: each for each in instances},
    )
    _check(made, (len(sources), len(devices), len(instances)))
    return made


def _check(made: HardwareTable, counts: tuple[int, int, int]) -> None:
    if counts != (len(made.sources), len(made.devices), len(made.instances)):
        raise ValueError("the hardware table has a name twice")
    entries: list[Chip | Instance] = [*made.devices.values(), *made.instances.values()]
    for entry in entries:
        for source in (entry.source, *entry.also):
            if source not in made.sources:
                raise ValueError(f"the hardware table has no source '{source}', which '{entry.name}' cites")
    for instance in made.instances.values():
        for name in (instance.device, instance.processor):
            if name and name not in made.devices:
                raise ValueError(f"the hardware table has no device '{name}', which '{instance.name}' contains")


BEGIN, END = "<!-- tables: written from claims/hardware/data -->", "<!-- end of tables -->"
_PRECISIONS = ("float64", "float32", "tf32", "bfloat16", "float16", "float8", "int8")


def with_tables(page: str) -> str:
    """``page`` with the tables between its two marks; ``ValueError`` if it has no marks."""
    before, mark, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"no {BEGIN} before {END}")
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"


def tables() -> str:
    """The whole table: accelerators, processors, instances, sources and notes."""
    all_of_it = table()
    devices = list(all_of_it.devices.values())
    parts = [
        "## Accelerators\n",
        _devices([each for each in devices if each.kind == "accelerator"], _PRECISIONS),
        "\n## Processors\n",
        _devices([each for each in devices if each.kind == "processor"], ("float32",)),
        "\n## Instances\n",
        _instances(list(all_of_it.instances.values())),
        "\n## Sources\n",
        _sources(all_of_it),
        "\n## Notes\n",
        _notes([*devices, *all_of_it.instances.values()]),
    ]
    return "\n".join(parts)


def _notes(entries: Sequence[Chip | Instance]) -> str:
    return "".join(f"- {each.name}: {each.note}.\n" for each in entries if each.note)


def _devices(devices: Sequence[Chip], precisions: Sequence[str]) -> str:
    head = ("Name", "Released", *(f"{each}, TFLOP/s" for each in precisions), "GB/s", "W", "Source")
    rows = []
    for each in devices:
        peaks = [_figure(each.tflops.get(precision)) for precision in precisions]
        rows.append((each.name, each.released, *peaks, _figure(each.gb_per_s), _figure(each.watts), _cited(each)))
    return _markdown_table(head, rows)


def _instances(instances: Sequence[Instance]) -> str:
    head = ("Name", "Vendor", "Devices", "Processor", "vCPUs", "USD an hour", "Where and when", "Source")
    rows = []
    for each in instances:
        devices = f"{each.count} x {each.device}" if each.device else ""
        price = _figure(each.usd_per_hour)
        threads = "" if each.vcpus is None else str(each.vcpus)
        cells = (each.name, each.vendor, devices, each.processor, threads, price, each.priced)
        rows.append((*cells, _cited(each)))
    return _markdown_table(head, rows)


def _sources(all_of_it: HardwareTable) -> str:
    rows = []
    for each in all_of_it.sources.values():
        title = f"[{each.title}]({each.url})" if each.url else each.title
        rows.append((each.id, each.publisher, title, each.date))
    return _markdown_table(("Id", "Publisher", "Title", "Date"), rows)


def _cited(entry: Chip | Instance) -> str:
    return ", ".join([entry.source, *entry.also]) if entry.checked else "from memory"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:g}" if value < 1e5 else f"{value:.0f}"


def _markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
