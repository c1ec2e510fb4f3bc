"""The table of hardware as Markdown, for ``docs/hardware.md``.

The one idea: every figure stands beside its source, and what nobody looked up says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from levelbench.claims.hardware.table import Device, Instance, Table, table

__all__ = ["BEGIN", "END", "tables", "with_tables"]

BEGIN, END = "<!-- tables: written from claims/hardware/data -->", "<!-- end of tables -->"
_PRECISIONS = ("float64", "float32", "tf32", "bfloat16", "float16", "float8", "int8")


def with_tables(page: str) -> str:
    """``page`` with the tables between its two marks; ``ValueError`` where it has no marks."""
    before, mark, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise ValueError(f"no {BEGIN} before {END}")
    return f"{before}{BEGIN}\n\n{tables()}\n{END}{after}"


def tables() -> str:
    """All of the table: accelerators, processors, instances, sources, and notes."""
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


def _notes(entries: Sequence[Device | Instance]) -> str:
    return "".join(f"- {each.name}: {each.note}.\n" for each in entries if each.note)


def _devices(devices: Sequence[Device], precisions: Sequence[str]) -> str:
    head = ("Name", "Released", *(f"{each}, TFLOP/s" for each in precisions), "GB/s", "W", "Source")
    rows = []
    for each in devices:
        peaks = [_figure(each.tflops.get(precision)) for precision in precisions]
        rows.append((each.name, each.released, *peaks, _figure(each.gb_per_s), _figure(each.watts), _cited(each)))
    return _table(head, rows)


def _instances(instances: Sequence[Instance]) -> str:
    head = ("Name", "Vendor", "Devices", "Processor", "vCPUs", "USD an hour", "Where and when", "Source")
    rows = []
    for each in instances:
        devices = f"{each.count} x {each.device}" if each.device else ""
        price = _figure(each.usd_per_hour)
        threads = "" if each.vcpus is None else str(each.vcpus)
        cells = (each.name, each.vendor, devices, each.processor, threads, price, each.priced)
        rows.append((*cells, _cited(each)))
    return _table(head, rows)


def _sources(all_of_it: Table) -> str:
    rows = []
    for each in all_of_it.sources.values():
        title = f"[{each.title}]({each.url})" if each.url else each.title
        rows.append((each.id, each.publisher, title, each.date))
    return _table(("Id", "Publisher", "Title", "Date"), rows)


def _cited(entry: Device | Instance) -> str:
    return ", ".join([entry.source, *entry.also]) if entry.checked else "from memory"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:g}" if value < 1e5 else f"{value:.0f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"
