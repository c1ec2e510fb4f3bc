"""How two environments differ, the most important difference first, and whether they are the same machine.

Not every difference matters for time. Each path of an environment belongs to one rule, which says why it matters; the
rules are in order of importance, and what changes by itself (time, counters) belongs to none. Records may come from
other programs, so an environment may have any shape: what does not have the expected form is unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

# (prefix of the path, why it matters): the first match counts, and the most important come first.
_RULES: tuple[tuple[str, str], ...] = (
    ("machine.id", "another kind of machine: times are not comparable"),
    ("accelerators.names", "other accelerators: times are not comparable"),
    ("framework.device", "the work ran on another device: times are not comparable"),
    ("machine.cpu", "another processor"),
    ("machine.cores", "another number of cores"),
    ("machine.cgroup", "another limit on the container"),
    ("framework.threads", "the framework uses another number of threads"),
    ("framework.deterministic", "deterministic kernels are slower, and others may give other bits"),
    ("threads", "numeric libraries use other threads or kernels"),
    ("malloc", "memory allocators behave differently: step times can differ by a third"),
    ("machine.governor", "the processor chooses its frequency differently"),
    ("machine.turbo", "the processor's highest frequency differs"),
    ("machine.frequency", "the processor's frequencies differ"),
    ("machine.kernel", "another kernel"),
    ("machine.libc", "another C library, and with it another allocator"),
    ("machine", "another machine or another setting of it"),
    ("accelerators", "another driver"),
    ("libraries", "other software"),
    ("load.one_minute", "the machine was busier"),
    ("git", "other source"),
)
_BUSIER_PER_CORE = 0.5
_ABSENT = None


@dataclass(frozen=True)
class Difference:
    """One fact that differs: its path, its two values (``None``: absent), and why it matters for time."""

    path: str
    a: object
    b: object
    matters: str

    def __str__(self) -> str:
        return f"{self.path}: {_shown(self.a)} against {_shown(self.b)} ({self.matters})"


def difference(a: object, b: object) -> list[Difference]:
    """What differs between two captured environments, ordered by how much it matters for time."""
    return _compared(dict(_flat(a)), dict(_flat(b)))


def differences(environments: Sequence[object]) -> list[Difference]:
    """Every distinct difference of any environment from the first, ordered as by :func:`difference`.

    The load is never the same twice, so only its first difference is reported.
    """
    flat = [dict(_flat(each)) for each in environments]
    found: dict[str, Difference] = {}
    for other in flat[1:]:
        for each in _compared(flat[0], other):
            moves = each.path.startswith("load.")
            found.setdefault(each.path if moves else f"{each.path} {_text(each.b)}", each)
    return sorted(found.values(), key=lambda each: (_rank(each.path) or 0, each.path))


def same_machine(a: object, b: object) -> bool:
    """Whether both ran on hardware of the same kind, accelerators included; two unknown machines are not the same.

    If both sides say on which device they ran, two different accelerators of one machine are not the same either, but a
    machine's processor and its accelerator are.
    """
    ids, boards, devices = (
        [_fact(each, *path) for each in (a, b)]
        for path in (("machine", "id"), ("accelerators", "names"), ("framework", "device"))
    )
    same_device = None in devices or "cpu" in devices or devices[0] == devices[1]
    return ids[0] is not None and ids[0] == ids[1] and boards[0] == boards[1] and same_device


def states_machine(environment: object) -> bool:
    """Whether it says on which machine it was: that of an imported log does not."""
    return _fact(environment, "machine", "id") is not None


def _fact(tree: object, part: str, name: str) -> object:
    facts = tree.get(part) if isinstance(tree, Mapping) else None
    return facts.get(name) if isinstance(facts, Mapping) else None


def _compared(first: Mapping[str, object], second: Mapping[str, object]) -> list[Difference]:
    found = []
    for path in sorted(first.keys() | second.keys()):
        rank = _rank(path)
        a, b = first.get(path, _ABSENT), second.get(path, _ABSENT)
        same = a == b or _text(a) == _text(b)
        if rank is None or same or (path.startswith("load.") and not _busier(a, b, first, second)):
            continue
        # A framework that does not report its threads does not have a different number of them.
        if path.startswith("framework.") and None in (a, b):
            continue
        found.append((rank, Difference(path, a, b, _RULES[rank][1])))
    return [each for _, each in sorted(found, key=lambda pair: (pair[0], pair[1].path))]


def _text(value: object) -> str:
    """A value as text, in which NaN equals itself."""
    return json.dumps(value, sort_keys=True, default=str)


def _rank(path: str) -> int | None:
    for rank, (prefix, _) in enumerate(_RULES):
        if path == prefix or (path.startswith(prefix) and path[len(prefix)] in "._"):
            return rank
    return None


def _busier(a: object, b: object, first: Mapping[str, object], second: Mapping[str, object]) -> bool:
    cores = min(_number(each.get("machine.cores_logical")) or 1.0 for each in (first, second))
    loads = _number(a), _number(b)
    return loads[0] is not None and loads[1] is not None and abs(loads[0] - loads[1]) > _BUSIER_PER_CORE * cores


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _flat(tree: object, path: str = "") -> Iterator[tuple[str, object]]:
    if not isinstance(tree, Mapping):
        return
    for key, value in tree.items():
        here = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping):
            yield from _flat(value, here)
        else:
            yield here, value


def _shown(value: object) -> str:
    return "not set" if value is None else str(value)


def part_of(environment: Mapping[str, object], name: str) -> Mapping[str, object]:
    """The facts of an environment under this name; empty if there is something else."""
    found = environment.get(name)
    return found if isinstance(found, Mapping) else {}


def machine_of(environment: Mapping[str, object]) -> str:
    """What distinguishes machines: the machine's id with the names of its accelerators."""
    return " ".join([str(part_of(environment, "machine").get("id", "")), *_accelerators(environment)])


def _accelerators(environment: Mapping[str, object]) -> list[str]:
    names = part_of(environment, "accelerators").get("names")
    return [str(name) for name in names] if isinstance(names, list | tuple) else []


class System(NamedTuple):
    """The parts of a machine that a run used, as people write them; ``description`` is empty if none is known."""

    description: str
    accelerators: int
    accelerator: str | None
    processor: str | None
    cores: int | None
    memory_bytes: int | None


def system_of(environment: Mapping[str, object], device: str) -> System:
    """The system of a run on ``device``, described by its accelerators or else by its cores and processor."""
    machine = part_of(environment, "machine")
    names = _accelerators(environment)
    used = names if device.partition(":")[0] not in ("cpu", "") else []
    cpu = machine.get("cpu")
    processor = str(cpu.get("model") or "") if isinstance(cpu, dict) else str(cpu or "")
    cores = machine.get("cores_allowed") or machine.get("cores_logical")
    words = " and ".join(dict.fromkeys(f"{used.count(name)} x {name}" for name in used))
    words = words or (f"{cores} core{'s' if cores != 1 else ''} of {processor}" if cores and processor else processor)
    memory = machine.get("memory_bytes")
    return System(
        words[:200],
        len(used),
        used[0] if used else None,
        processor or None,
        cores if isinstance(cores, int) else None,
        memory if isinstance(memory, int) else None,
    )
