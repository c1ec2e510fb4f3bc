"""How two environments differ, the most telling first, and whether they are the same machine.

The one idea: not every difference matters for time. Each path of an environment belongs to one rule, which says why
it matters; the rules are in order of weight, and what changes by itself (time, counters) belongs to none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Difference", "difference", "same_machine"]

# (prefix of the path, why it matters); the first that fits counts, and the order is the order of weight.
_RULES: tuple[tuple[str, str], ...] = (
    ("machine.id", "another kind of machine: times do not compare"),
    ("accelerators.names", "other accelerators: times do not compare"),
    ("machine.cpu", "another processor"),
    ("machine.cores", "another number of cores"),
    ("machine.cgroup", "another limit on the container"),
    ("threads", "numeric libraries use other threads or kernels"),
    ("malloc", "memory allocators behave otherwise: steps can differ by a third"),
    ("machine.governor", "the processor chooses its frequency otherwise"),
    ("machine.turbo", "the processor's highest frequency differs"),
    ("machine.frequency", "the processor's frequencies differ"),
    ("machine.kernel", "another kernel"),
    ("machine.libc", "another C library, and with it another allocator"),
    ("machine", "another machine or setting of it"),
    ("accelerators", "another driver"),
    ("libraries", "other software"),
    ("load.one_minute", "the machine was busier"),
    ("git", "other source"),
)
_BUSIER_PER_CORE = 0.5
_ABSENT = None


@dataclass(frozen=True)
class Difference:
    """One fact that differs: where, its two values (``None``: not there), and why it matters for time."""

    path: str
    a: Any
    b: Any
    matters: str

    def __str__(self) -> str:
        return f"{self.path}: {_shown(self.a)} against {_shown(self.b)} ({self.matters})"


def difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """What differs between two captured environments, ordered by how much it matters for time."""
    first, second = dict(_flat(a)), dict(_flat(b))
    found = []
    for path in sorted(first.keys() | second.keys()):
        rank = _rank(path)
        values = first.get(path, _ABSENT), second.get(path, _ABSENT)
        if rank is None or values[0] == values[1] or (path.startswith("load.") and not _busier(*values, first, second)):
            continue
        found.append((rank, Difference(path, *values, _RULES[rank][1])))
    return [each for _, each in sorted(found, key=lambda pair: (pair[0], pair[1].path))]


def same_machine(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether both ran on hardware of one kind, accelerators included; two unknown machines are not the same."""
    ids = [each.get("machine", {}).get("id") for each in (a, b)]
    boards = [each.get("accelerators", {}).get("names") for each in (a, b)]
    return ids[0] is not None and ids[0] == ids[1] and boards[0] == boards[1]


def _rank(path: str) -> int | None:
    for rank, (prefix, _) in enumerate(_RULES):
        if path == prefix or (path.startswith(prefix) and path[len(prefix)] in "._"):
            return rank
    return None


def _busier(a: Any, b: Any, first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    cores = min(each.get("machine.cores_logical") or 1 for each in (first, second))
    known = isinstance(a, int | float) and isinstance(b, int | float)
    return known and abs(a - b) > _BUSIER_PER_CORE * cores


def _flat(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        here = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping):
            yield from _flat(value, here)
        else:
            yield here, value


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)
