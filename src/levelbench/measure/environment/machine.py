"""What machine this is: processor, caches, memory, limits, accelerators, and the settings that decide its speed.

``id`` is a digest of the hardware alone (model, cores, caches, memory to two digits), never of a host name, so two
machines of the same kind compare as the same machine and nothing in a record says whose it is. The NVIDIA driver lists
its boards and its version as text under ``/proc``; reading that loads no framework and touches no device.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Roots:
    """Where the kernel's two folders are."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")


HERE = Roots()

Facts = dict[str, Any]
"""Facts by name that a machine or program reports, JSON-serialisable; ``None`` if it does not report one."""


def text(path: Path) -> str | None:
    """The stripped text of ``path``, or ``None``."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def integer(path: Path) -> int | None:
    """The integer in ``path``, or ``None``."""
    found = text(path)
    try:
        return None if found is None else int(found)
    except ValueError:
        return None


def fields(path: Path, separator: str | None = ":") -> dict[str, str]:
    """The lines ``key: value`` of ``path`` (the first of each key); empty if there is no such file."""
    found: dict[str, str] = {}
    for line in (text(path) or "").splitlines():
        key, *rest = line.split(separator, 1)
        if rest:
            found.setdefault(key.strip(), rest[0].strip())
    return found


def count_cpus(listed: str) -> int:
    """How many processors a kernel list such as ``0-3,8`` names; 0 for one that cannot be read."""
    total = 0
    for part in listed.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or not (last or first).isdigit():
            return 0
        total += int(last or first) - int(first) + 1
    return total


# Instruction sets that decide which kernels a numeric library picks.
_INSTRUCTIONS = (
    "avx2",
    "fma",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_bf16",
    "amx_tile",
    "sve",
    "asimd",
)
_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3}


def cores_allowed() -> int | None:
    """How many cores this process may use now; ``None`` where the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def machine(roots: Roots = HERE) -> Facts:
    """The facts about the machine, JSON-serialisable; what it does not report is ``None``."""
    cpu = roots.sys / "devices" / "system" / "cpu"
    hardware = {**_processor(roots), **_topology(cpu), "caches": _caches(cpu), "memory_bytes": _memory_bytes(roots)}
    return {
        "id": _digest(hardware),
        **hardware,
        "cores_allowed": cores_allowed(),
        **_cgroup_limits(roots.sys),
        "virtualisation": _virtualisation(roots),
        "numa_nodes": _numa_nodes(roots.sys),
        **_speed_settings(cpu),
        "transparent_hugepages": _chosen(text(roots.sys / "kernel" / "mm" / "transparent_hugepage" / "enabled")),
        "clocksource": text(roots.sys / "devices/system/clocksource/clocksource0/current_clocksource"),
        "os": _distribution(),
        "kernel": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()).strip() or None,
    }


def _digest(hardware: Facts) -> str:
    memory = hardware["memory_bytes"]
    stable = {**hardware, "memory_bytes": f"{memory / 2**30:.2g} GiB" if memory else None}
    return hashlib.sha256(json.dumps(stable, sort_keys=True).encode()).hexdigest()[:16]


def _processor(roots: Roots) -> Facts:
    info = fields(roots.proc / "cpuinfo")
    flags = set((info.get("flags") or info.get("Features") or "").split())
    return {
        "architecture": platform.machine(),
        "cpu": info.get("model name") or info.get("Model") or platform.processor() or None,
        "cpu_family": info.get("cpu family"),
        "cpu_model": info.get("model"),
        "instructions": [each for each in _INSTRUCTIONS if each in flags],
    }


def _topology(cpu: Path) -> Facts:
    cores, sockets = set(), set()
    for folder in cpu.glob("cpu[0-9]*/topology"):
        socket = text(folder / "physical_package_id")
        sockets.add(socket)
        cores.add((socket, text(folder / "core_id")))
    logical = count_cpus(text(cpu / "online") or "") or os.cpu_count()
    return {"cores_logical": logical, "cores_physical": len(cores) or None, "sockets": len(sockets) or None}


def _caches(cpu: Path) -> list[Facts]:
    """One entry for each level and kind: the size of one instance, and how many instances the machine has."""
    instances: dict[tuple[int, str, int], set[str]] = {}
    for folder in cpu.glob("cpu[0-9]*/cache/index[0-9]*"):
        size, level = text(folder / "size"), integer(folder / "level")
        if not size or level is None:
            continue
        digits, unit = size.rstrip("KMG"), size[-1]
        if digits.isdigit():
            key = (level, text(folder / "type") or "", int(digits) * _UNITS.get(unit, 1))
            instances.setdefault(key, set()).add(text(folder / "shared_cpu_list") or folder.parent.parent.name)
    return [
        {"level": level, "kind": kind, "bytes": size, "instances": len(shared)}
        for (level, kind, size), shared in sorted(instances.items())
    ]


def _memory_bytes(roots: Roots) -> int | None:
    total = fields(roots.proc / "meminfo").get("MemTotal", "").split()
    return int(total[0]) * 1024 if total and total[0].isdigit() else None


def _cgroup_limits(sys: Path) -> Facts:
    """Processors and bytes that a container grants (cgroup v2, then v1); ``None`` is no limit."""
    root = sys / "fs" / "cgroup"
    quota, _, period = (text(root / "cpu.max") or "").partition(" ")
    if not quota:
        quota, period = text(root / "cpu/cpu.cfs_quota_us") or "", text(root / "cpu/cpu.cfs_period_us") or ""
    cores = int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None
    return {"cgroup_cores": cores, "cgroup_memory_bytes": _cgroup_memory_bytes(root)}


def _cgroup_memory_bytes(root: Path) -> int | None:
    limit = integer(root / "memory.max")
    if limit is None:
        limit = integer(root / "memory" / "memory.limit_in_bytes")
    # Version 1 expresses "no limit" as a number near 2**63.
    return limit if limit and limit < 2**60 else None


def memory_left_bytes(roots: Roots = HERE) -> int | None:
    """Bytes that can still be allocated: the smaller of what the machine has and what a container grants; or ``None``.

    Files that the kernel caches in memory do not count as used, since it drops them when needed.
    """
    root = roots.sys / "fs" / "cgroup"
    available = fields(roots.proc / "meminfo").get("MemAvailable", "").split()
    left = [int(available[0]) * 1024] if available and available[0].isdigit() else []
    limit = _cgroup_memory_bytes(root)
    if limit is not None:
        version_2 = integer(root / "memory.max") is not None
        used = integer(root / "memory.current" if version_2 else root / "memory" / "memory.usage_in_bytes") or 0
        kept = fields(root / "memory.stat" if version_2 else root / "memory" / "memory.stat", None).get("inactive_file")
        left.append(max(0, limit - used + (int(kept) if kept and kept.isdigit() else 0)))
    return min(left, default=None)


def _virtualisation(roots: Roots) -> str | None:
    flags = fields(roots.proc / "cpuinfo").get("flags", "").split()
    product = text(roots.sys / "class" / "dmi" / "id" / "product_name")
    if "hypervisor" in flags:
        return f"virtual machine ({product})" if product else "virtual machine"
    return "none seen" if flags else None


def _numa_nodes(sys: Path) -> int | None:
    return len(list((sys / "devices" / "system" / "node").glob("node[0-9]*"))) or None


def _speed_settings(cpu: Path) -> Facts:
    governors = {text(each) for each in cpu.glob("cpu[0-9]*/cpufreq/scaling_governor")} - {None}
    limits = cpu / "cpu0" / "cpufreq"
    no_turbo, boost = integer(cpu / "intel_pstate" / "no_turbo"), integer(cpu / "cpufreq" / "boost")
    turbo = (no_turbo == 0) if no_turbo is not None else (boost == 1) if boost is not None else None
    return {
        "governor": ",".join(sorted(each for each in governors if each)) or None,
        "frequency_min_mhz": _mhz(integer(limits / "cpuinfo_min_freq")),
        "frequency_max_mhz": _mhz(integer(limits / "cpuinfo_max_freq")),
        "turbo": turbo,
        "smt": text(cpu / "smt" / "control"),
    }


def _mhz(khz: int | None) -> float | None:
    return None if khz is None else khz / 1000


def _chosen(options: str | None) -> str | None:
    """The bracketed one of ``always [madvise] never``."""
    return options.partition("[")[2].partition("]")[0] or None if options else None


def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return platform.platform(terse=True) or None


def cache_bytes(roots: Roots = HERE) -> int:
    """Bytes of all last-level caches of the machine together; 0 if they are not listed."""
    return sum(each["bytes"] * each["instances"] for each in _last_level(roots))


def last_level_cache_bytes(roots: Roots = HERE) -> int:
    """Bytes of one last-level cache, the largest of them: what one core can fill; 0 if they are not listed."""
    return max((each["bytes"] for each in _last_level(roots)), default=0)


def cache_levels(roots: Roots = HERE) -> list[tuple[int, int, int]]:
    """(level, bytes of one instance, instances) of the caches that hold data, innermost first."""
    caches = _caches(roots.sys / "devices" / "system" / "cpu")
    return [(each["level"], each["bytes"], each["instances"]) for each in caches if each["kind"] != "Instruction"]


def _last_level(roots: Roots) -> list[Facts]:
    caches = _caches(roots.sys / "devices" / "system" / "cpu")
    last = max((each["level"] for each in caches), default=0)
    return [each for each in caches if each["level"] == last]


def accelerators(roots: Roots = HERE) -> Facts:
    """``nvidia_driver`` (a version or ``None``) and ``names`` (one a board, in PCI order)."""
    nvidia = roots.proc / "driver" / "nvidia"
    boards = [fields(each).get("Model", "unknown") for each in sorted(nvidia.glob("gpus/*/information"))]
    return {"nvidia_driver": _driver(text(nvidia / "version")), "names": boards}


def _driver(version: str | None) -> str | None:
    """The version number in a line such as ``NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  ...``."""
    for word in (version or "").split():
        if word[0].isdigit() and word.replace(".", "").isdigit() and "." in word:
            return word
    return None
