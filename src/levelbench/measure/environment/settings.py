"""Which environment variables are recorded: those that change how fast numeric code runs, by exact name.

A list of names, never a pattern, so that no secret can fall into a record. Of a value only numbers and words that are
known to be harmless are kept; any other part of it becomes a short digest, so that two environments are seen to differ
and nobody learns in what: a folder, the serial number of an accelerator, whatever somebody put there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

# fmt: off
THREAD_NAMES = frozenset((
    "OMP_NUM_THREADS", "OMP_DYNAMIC", "OMP_PROC_BIND", "OMP_PLACES", "OMP_SCHEDULE", "OMP_WAIT_POLICY",
    "OMP_THREAD_LIMIT", "OMP_MAX_ACTIVE_LEVELS", "GOMP_CPU_AFFINITY", "GOMP_SPINCOUNT",
    "KMP_AFFINITY", "KMP_BLOCKTIME", "KMP_HW_SUBSET",
    "MKL_NUM_THREADS", "MKL_DYNAMIC", "MKL_THREADING_LAYER", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR",
    "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "OPENBLAS_THREAD_TIMEOUT", "GOTO_NUM_THREADS", "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS",
    "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE", "TF_ENABLE_ONEDNN_OPTS", "XLA_FLAGS",
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE", "NCCL_ALGO", "NCCL_PROTO", "NCCL_P2P_DISABLE", "NCCL_IB_DISABLE", "NCCL_NTHREADS",
    "PYTHONHASHSEED", "PYTHONOPTIMIZE", "PYTHONDEVMODE", "PYTHON_GIL",
))
MALLOC_NAMES = frozenset((
    "MALLOC_ARENA_MAX", "MALLOC_ARENA_TEST", "MALLOC_CONF", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TOP_PAD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TCACHE_COUNT", "MALLOC_PERTURB_", "GLIBC_TUNABLES",
    "LD_PRELOAD", "PYTHONMALLOC", "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES",
    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF",
))
_WORDS = frozenset((
    "true", "false", "yes", "no", "on", "off", "none", "auto", "default", "enabled", "disabled", "strict", "any",
    # OpenMP and its implementations
    "static", "dynamic", "guided", "monotonic", "nonmonotonic", "close", "spread", "master", "primary", "threads",
    "cores", "sockets", "ll_caches", "numa_domains", "active", "passive", "infinity", "infinite", "granularity",
    "fine", "thread", "core", "tile", "socket", "compact", "scatter", "balanced", "explicit", "proclist", "verbose",
    "noverbose", "warnings", "nowarnings", "respect", "norespect", "reset", "noreset", "1s", "2s", "1t", "2t",
    # kernels of numeric libraries
    "intel", "gnu", "tbb", "sequential", "sse4_1", "sse41", "sse4_2", "avx", "avx2", "avx2_vnni", "avx2_vnni_2",
    "avx512", "avx512_e1", "avx512_e2", "avx512_e3", "avx512_e4", "avx512_mic", "avx512_mic_e1", "avx512_core",
    "avx512_core_vnni", "avx512_core_bf16", "avx512_core_fp16", "avx512_core_amx", "avx512_core_amx_fp16", "avx10",
    "compatible", "all", "bf16", "f16", "fp16", "tf32", "fp32", "haswell", "skylakex", "cooperlake", "sapphirerapids",
    "sandybridge", "nehalem", "zen", "excavator", "prescott", "core2", "barcelona", "bulldozer", "generic", "armv8",
    "neoversen1", "neoversev1", "neoversen2", "cortexa57", "cortexa72", "thunderx2t99", "power8", "power9", "power10",
    # accelerators
    "fastest_first", "pci_bus_id", "nodevfiles", "ring", "tree", "collnet", "collnetdirect", "collnetchain", "nvls",
    "nvlstree", "pat", "ll", "ll128", "simple", "random",
    # allocators
    "malloc", "pymalloc", "debug", "malloc_debug", "pymalloc_debug", "mimalloc", "native", "cudamallocasync",
    "backend", "max_split_size_mb", "roundup_power2_divisions", "garbage_collection_threshold", "expandable_segments",
    "pinned_use_cuda_host_register", "pinned_num_register_threads", "pinned_use_background_threads",
    "background_thread", "max_background_threads", "dirty_decay_ms", "muzzy_decay_ms", "narenas", "percpu_arena",
    "metadata_thp", "thp", "always", "never", "percpu", "phycpu", "oversize_threshold", "tcache", "tcache_max",
    "lg_tcache_max", "retain", "dss", "secondary", "abort_conf", "prof", "stats_print", "zero", "junk", "xmalloc",
    "huge_arena_pac_thp", "confirm_conf", "hpa", "lg_extent_max_active_fit",
    "glibc.malloc.arena_max", "glibc.malloc.arena_test", "glibc.malloc.mmap_max", "glibc.malloc.mmap_threshold",
    "glibc.malloc.top_pad", "glibc.malloc.trim_threshold", "glibc.malloc.tcache_count", "glibc.malloc.tcache_max",
    "glibc.malloc.tcache_unsorted_limit", "glibc.malloc.mxfast", "glibc.malloc.hugetlb", "glibc.malloc.perturb",
    "glibc.malloc.check", "glibc.pthread.rseq", "glibc.pthread.mutex_spin_count", "glibc.cpu.hwcaps",
    "glibc.cpu.x86_non_temporal_threshold", "glibc.cpu.x86_rep_movsb_threshold", "glibc.mem.tagging",
))
# fmt: on

_FOLDERS = re.compile(r"[^\s:=,;]*/")
_PARTS = re.compile(r"([\s:=,;|{}()\[\]^]+)")
_HARMLESS = re.compile(
    r"[-+]?(0x[0-9a-f]{1,8}|\d{1,12}(\.\d{1,6})?)([kmgt]i?b?|b|s|ms)?"
    # What was made of something else before.
    r"|#[0-9a-f]{4}"
    # A range of cores, and how two are told apart in a hardware subset.
    r"|\d{1,4}-\d{1,4}"
    # The name of a compiler's flag says what is set; its value is looked at by itself.
    r"|--xla_[a-z0-9_]{1,60}"
    r"|lib(jemalloc|tcmalloc\w{0,20}|mimalloc|snmalloc|hugetlbfs|iomp5|gomp|omp|faketime\w{0,5})\.so[.\d]{0,12}",
    re.IGNORECASE,
)


def settings(environment: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    """The variables of ``names`` that are set, sorted, with what is harmless in their values."""
    return {name: harmless(environment[name]) for name in sorted(names & set(environment))}


def harmless(value: str) -> str:
    """``value`` with its numbers and known words; four hexadecimal digits after a ``#`` in the place of other parts.

    So few that nobody finds the part by trying: they say that two values differ, mostly, and no more.
    """
    parts = _PARTS.split(_FOLDERS.sub("", value))
    return "".join(part if at % 2 or _known(part) else _digest(part) for at, part in enumerate(parts))


def _known(part: str) -> bool:
    return not part or part.lower() in _WORDS or _HARMLESS.fullmatch(part) is not None


def _digest(part: str) -> str:
    return f"#{hashlib.sha256(part.encode(errors='surrogateescape')).hexdigest()[:4]}"
