from pathlib import Path

import pytest

from levelbench.measure.environment.machine import (
    Roots,
    accelerators,
    cache_bytes,
    count_cpus,
    fields,
    integer,
    machine,
    text,
)

CPUINFO = """processor\t: 0
model name\t: Fast Processor 9000
cpu family\t: 25
model\t\t: 17
flags\t\t: fpu fma avx2 avx512f hypervisor

processor\t: 1
model name\t: Other
"""


def write(root: Path, path: str, content: object) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"{content}\n")


@pytest.fixture
def roots(tmp_path):
    """Two cores with two threads each, 32 MiB of shared cache, 23.5 GiB of memory."""
    proc, sys = tmp_path / "proc", tmp_path / "sys"
    write(proc, "cpuinfo", CPUINFO)
    write(proc, "meminfo", "MemTotal:       24684096 kB\nMemFree: 1 kB")
    cpu = "devices/system/cpu"
    write(sys, f"{cpu}/online", "0-3")
    for index in range(4):
        here = f"{cpu}/cpu{index}"
        write(sys, f"{here}/topology/core_id", index // 2)
        write(sys, f"{here}/topology/physical_package_id", 0)
        for level, size, shared in ((1, "32K", f"{index // 2 * 2}-{index // 2 * 2 + 1}"), (3, "32768K", "0-3")):
            write(sys, f"{here}/cache/index{level}/level", level)
            write(sys, f"{here}/cache/index{level}/type", "Unified")
            write(sys, f"{here}/cache/index{level}/size", size)
            write(sys, f"{here}/cache/index{level}/shared_cpu_list", shared)
        write(sys, f"{here}/cpufreq/scaling_governor", "powersave" if index else "performance")
    write(sys, f"{cpu}/cpu0/cpufreq/cpuinfo_max_freq", 3_700_000)
    write(sys, f"{cpu}/cpufreq/boost", 1)
    write(sys, "kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
    write(sys, "class/dmi/id/product_name", "Cloud Box")
    return Roots(proc, sys)


def test_the_processor_is_the_first_that_is_listed(roots):
    facts = machine(roots)
    assert (facts["cpu"], facts["cpu_family"], facts["cpu_model"]) == ("Fast Processor 9000", "25", "17")
    assert facts["instructions"] == ["avx2", "fma", "avx512f"]


def test_cores_are_counted_by_thread_and_by_core(roots):
    facts = machine(roots)
    assert (facts["cores_logical"], facts["cores_physical"], facts["sockets"]) == (4, 2, 1)


def test_a_cache_that_processors_share_counts_once(roots):
    assert machine(roots)["caches"] == [
        {"level": 1, "kind": "Unified", "bytes": 32 * 1024, "instances": 2},
        {"level": 3, "kind": "Unified", "bytes": 32 * 2**20, "instances": 1},
    ]
    assert cache_bytes(roots) == 32 * 2**20


def test_settings_that_decide_the_speed_are_there(roots):
    facts = machine(roots)
    assert facts["governor"] == "performance,powersave"
    assert (facts["frequency_max_mhz"], facts["frequency_min_mhz"], facts["turbo"]) == (3700.0, None, True)
    assert facts["transparent_hugepages"] == "madvise"
    assert facts["virtualisation"] == "virtual machine (Cloud Box)"


@pytest.mark.parametrize(("no_turbo", "turbo"), [(0, True), (1, False)])
def test_intels_switch_for_turbo_says_the_opposite(roots, no_turbo, turbo):
    write(roots.sys, "devices/system/cpu/intel_pstate/no_turbo", no_turbo)
    assert machine(roots)["turbo"] is turbo


def test_a_machine_that_tells_nothing_has_nulls_and_still_an_id(tmp_path):
    facts = machine(Roots(tmp_path, tmp_path))
    assert facts["memory_bytes"] is None
    assert facts["caches"] == []
    assert facts["governor"] is None
    assert facts["turbo"] is None
    assert facts["virtualisation"] is None
    assert len(facts["id"]) == 16
    assert cache_bytes(Roots(tmp_path, tmp_path)) == 0


def test_the_id_is_stable_under_settings_limits_and_a_little_memory(roots):
    before = machine(roots)["id"]
    write(roots.sys, "devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave")
    write(roots.sys, "fs/cgroup/cpu.max", "50000 100000")
    write(roots.proc, "meminfo", "MemTotal:       24683000 kB")
    assert machine(roots)["id"] == before


@pytest.mark.parametrize(
    ("path", "content"),
    [("meminfo", "MemTotal: 49368192 kB"), ("cpuinfo", "model name : Slow Processor")],
)
def test_the_id_changes_with_the_hardware(roots, path, content):
    before = machine(roots)["id"]
    write(roots.proc, path, content)
    assert machine(roots)["id"] != before


@pytest.mark.parametrize(
    ("files", "cores", "memory"),
    [
        ({"cpu.max": "150000 100000", "memory.max": 2**31}, 1.5, 2**31),
        ({"cpu.max": "max 100000", "memory.max": "max"}, None, None),
        ({"cpu/cpu.cfs_quota_us": 200_000, "cpu/cpu.cfs_period_us": 100_000}, 2.0, None),
        ({"cpu/cpu.cfs_quota_us": -1, "memory/memory.limit_in_bytes": 9223372036854771712}, None, None),
        ({}, None, None),
    ],
)
def test_a_containers_limits_are_read_in_both_versions(roots, files, cores, memory):
    for path, content in files.items():
        write(roots.sys, f"fs/cgroup/{path}", content)
    facts = machine(roots)
    assert (facts["cgroup_cores"], facts["cgroup_memory_bytes"]) == (cores, memory)


def test_accelerators_are_read_from_the_drivers_text(roots):
    write(roots.proc, "driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar 5")
    for index in range(2):
        write(roots.proc, f"driver/nvidia/gpus/0000:0{index}:00.0/information", "Model: \t NVIDIA H200\nIRQ: 5")
    assert accelerators(roots) == {"nvidia_driver": "550.54.15", "names": ["NVIDIA H200", "NVIDIA H200"]}


def test_no_driver_is_no_accelerator(roots):
    assert accelerators(roots) == {"nvidia_driver": None, "names": []}


@pytest.mark.parametrize(("listed", "count"), [("0", 1), ("0-3", 4), ("0-1,4,6-7", 5), ("", 0), ("x", 0), ("0-y", 0)])
def test_a_list_of_processors_is_counted(listed, count):
    assert count_cpus(listed) == count


def test_a_file_that_is_missing_or_strange_reads_as_nothing(tmp_path):
    write(tmp_path, "word", "word")
    assert text(tmp_path / "gone") is None
    assert integer(tmp_path / "gone") is None
    assert integer(tmp_path / "word") is None
    assert fields(tmp_path / "gone") == {}
