"""Which software runs: versions, numeric libraries with their threads and settings, and the state of the source.

Versions come from package metadata and threads from libraries that are already in this process: nothing is loaded.

Settings are environment variables that change how fast numeric code runs. Of a value, only numbers and words that are
known to be harmless are kept, so that no secret gets into a record; any other part (a folder, the serial number of an
accelerator) becomes a short digest, which shows that two environments differ but not how.

A commit alone names the wrong code whenever something was edited, so the edit has a digest too. Git is queried
read-only, with its hooks and helpers off, and with a time limit; if no answer comes, the reason is recorded.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import os
import platform
import re
import subprocess
import sys

# PYTHONTRACEMALLOC starts tracing without the module tracemalloc, which takes longer to import.
from _tracemalloc import is_tracing
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from levelbench.measure.environment.machine import HERE, Facts, Roots, text

# fmt: off
_ALLOCATORS = (
    r"(TC)?MALLOC_\w+|MIMALLOC_\w+|GLIBC_TUNABLES|LD_PRELOAD|PYTHONMALLOC|PYTORCH_(CUDA_|HIP_)?ALLOC_CONF"
)
MALLOC_NAMES = re.compile(_ALLOCATORS)
"""Variables that configure an allocator."""
THREAD_NAMES = re.compile(
    rf"(?!{_ALLOCATORS}|TORCHELASTIC_|TORCH_(NCCL|DISTRIBUTED)_"
    # What libraries set themselves while they work, and secrets.
    r"|\w*_(LOGS?|LOG_\w+|VERBOSE|DIR|FILE|PATH|HOME|ROOT|DUPLICATE_LIB_OK|INIT_AT_FORK|TOKEN|KEY|SECRET|PASSWORD)$)"
    # Threads, kernels and numeric libraries.
    r"((G?OMP|KMP|MKL|OPENBLAS|GOTO|BLIS|VECLIB|NUMEXPR|ONEDNN|DNNL|NPY|NUMBA|ATEN|ORT|KERAS|XLA|JAX)_\w+"
    r"|TF_(NUM|ENABLE|DISABLE|XLA|GPU|FORCE|USE|DETERMINISTIC|CUDNN)_\w+"
    r"|(TORCH|TORCHINDUCTOR|TORCHDYNAMO|PYTORCH|TRITON)_\w+"
    # Accelerators.
    r"|(CUDA|CUBLAS|CUDNN|NVIDIA|HIP|HSA|ROCR|MIOPEN)_\w+|NCCL_(ALGO|PROTO|P2P_DISABLE|IB_DISABLE|NTHREADS)"
    # The interpreter.
    r"|PYTHON(HASHSEED|OPTIMIZE|DEVMODE|_GIL|_JIT|TRACEMALLOC|PROFILEIMPORTTIME|ASYNCIODEBUG|MALLOCSTATS|PERFSUPPORT))"
)
"""Variables that affect speed, except those of allocators, of logging and of one launch, and secrets."""
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
    # A digest from an earlier pass.
    r"|#[0-9a-f]{4}"
    # A range of cores, as in a hardware subset.
    r"|\d{1,4}-\d{1,4}"
    # The name of a compiler flag is harmless; its value is checked separately.
    r"|--xla_[a-z0-9_]{1,60}"
    r"|lib(jemalloc|tcmalloc\w{0,20}|mimalloc|snmalloc|hugetlbfs|iomp5|gomp|omp|faketime\w{0,5})\.so[.\d]{0,12}",
    re.IGNORECASE,
)


def settings(environment: Mapping[str, str], names: re.Pattern[str]) -> dict[str, str]:
    """The variables that are set and whose names match, sorted, with the harmless parts of their values."""
    return {name: harmless(environment[name]) for name in sorted(environment) if names.fullmatch(name)}


def harmless(value: str) -> str:
    """``value`` with its numbers and known words; ``#`` and four hexadecimal digits replace every other part.

    Four digits are too few to recover the part by trying: they mostly show that two values differ, and nothing more.
    """
    parts = _PARTS.split(_FOLDERS.sub("", value))
    return "".join(part if at % 2 or _known(part) else _shortened(part) for at, part in enumerate(parts))


def _known(part: str) -> bool:
    return not part or part.lower() in _WORDS or _HARMLESS.fullmatch(part) is not None


def _shortened(part: str) -> str:
    return f"#{hashlib.sha256(part.encode(errors='surrogateescape')).hexdigest()[:4]}"


# A repository's own settings may name programs to run; measuring must neither run them nor take the index lock.
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-optional-locks")


def git(folder: Path, timeout_s: float = 2.0, apart: Path | None = None) -> Facts:
    """``commit``, ``dirty`` and ``changes`` (SHA-256 of the edit) around ``folder``, or a ``reason`` why not.

    What git does not know in the folder ``apart``, into which results are written, is no change.
    """
    try:
        lines = _status(folder, timeout_s)
        if apart is not None and any(line.startswith("? ") for line in lines):
            top = Path(os.fsdecode(_ask(folder, timeout_s, "rev-parse", "--show-toplevel")).rstrip("\n"))
            place = apart.resolve()
            if place != top and place.is_relative_to(top):
                others = _status(folder, timeout_s, "--", ":/", f":(top,exclude,literal){place.relative_to(top)}")
                lines = [line for line in lines if not line.startswith("? ")]
                lines += [line for line in others if line.startswith("? ")]
        oid = next((line.removeprefix("# branch.oid ") for line in lines if line.startswith("# branch.oid ")), "")
        entries = [line for line in lines if not line.startswith("#")]
        commit = oid if oid and oid != "(initial)" else None
        edit = b"" if commit is None else _ask(folder, timeout_s, "diff", "--no-ext-diff", "--no-textconv", "HEAD")
    except FileNotFoundError:
        return _unknown("git is not installed, or the folder does not exist")
    except subprocess.TimeoutExpired:
        return _unknown(f"git did not answer within {timeout_s:g} s")
    except subprocess.CalledProcessError:
        return _unknown("not in a git repository")
    changes = hashlib.sha256("\n".join(entries).encode() + edit).hexdigest() if entries else None
    return {
        "commit": commit,
        "dirty": bool(entries),
        "changes": changes,
        "reason": None if commit else "the repository has no commit yet",
    }


def _status(folder: Path, timeout_s: float, *places: str) -> list[str]:
    words = ("status", "--porcelain=v2", "--branch", "--untracked-files=normal")
    return _ask(folder, timeout_s, *words, *places).decode(errors="replace").splitlines()


def commit_order(folder: Path, commits: Collection[str], timeout_s: float = 20.0) -> dict[str, int]:
    """The place of each commit in the history of the repository around ``folder``, parents first.

    Without those that it does not know; empty without a repository.
    """
    wanted = {each for each in commits if re.fullmatch(r"[0-9a-f]{40,64}", each)}
    try:
        found = _ask(folder, timeout_s, "rev-list", "--topo-order", "--reverse", "--ignore-missing", *sorted(wanted))
    except (OSError, subprocess.SubprocessError):
        return {}
    return {each: at for at, each in enumerate(found.decode().split()) if each in wanted}


def is_shallow(folder: Path, timeout_s: float = 20.0) -> bool:
    """Whether the repository around ``folder`` is a clone without the older commits."""
    try:
        return _ask(folder, timeout_s, "rev-parse", "--is-shallow-repository").strip() == b"true"
    except (OSError, subprocess.SubprocessError):
        return False


def _ask(folder: Path, timeout_s: float, *words: str) -> bytes:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(
        [*_GIT, "-C", str(folder), *words],
        env=inherited,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout_s,
        check=True,
    ).stdout


def _unknown(reason: str) -> Facts:
    return {"commit": None, "dirty": None, "changes": None, "reason": reason}


# fmt: off
_PACKAGES = (
    "levelbench", "numpy", "torch", "triton", "jax", "jaxlib", "tensorflow", "onnx", "onnxruntime", "scipy", "numba",
    "mkl", "intel-openmp", "nvidia-cudnn-cu12", "nvidia-cublas-cu12", "nvidia-nccl-cu12", "cupy-cuda12x",
    "nvidia-cudnn-cu13", "nvidia-cublas", "nvidia-nccl-cu13", "cupy-cuda13x",
)
# fmt: on

# Symbols that return a loaded library's threads: OpenBLAS as numpy and scipy build it, plain OpenBLAS, MKL, BLIS, and
# the OpenMP runtimes.
_THREAD_SYMBOLS = {
    "openblas": ("scipy_openblas_get_num_threads64_", "scipy_openblas_get_num_threads", "openblas_get_num_threads64_",
                 "openblas_get_num_threads"),
    "mkl_rt": ("MKL_Get_Max_Threads",),
    "libblis": ("bli_thread_get_num_threads",),
    "libgomp": ("omp_get_max_threads",),
    "libiomp": ("omp_get_max_threads",),
    "libomp": ("omp_get_max_threads",),
}  # fmt: skip
_CORE_SYMBOLS = ("scipy_openblas_get_corename64_", "scipy_openblas_get_corename", "openblas_get_corename")


def libraries() -> Facts:
    """Versions by name: Python with its build, installed packages without an import, and numpy's BLAS."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    # The numpy that runs may not be the one that is installed.
    versions["numpy"] = np.__version__
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "compiler": platform.python_compiler(),
            "debug_build": hasattr(sys, "gettotalrefcount"),
            "traced": sys.gettrace() is not None or sys.getprofile() is not None or is_tracing(),
        },
        **versions,
        "blas": {"name": blas.get("name"), "version": blas.get("version")},
    }


def threads(environment: Mapping[str, str] = os.environ, roots: Roots = HERE) -> Facts:
    """Threads and kernel family of each numeric library in this process, and the settings in force."""
    found: Facts = {"settings": settings(environment, THREAD_NAMES), "loaded": {}}
    for path in _loaded(roots.proc / "self" / "maps"):
        family = next((each for each in _THREAD_SYMBOLS if each in path.name), None)
        if family is None:
            continue
        count, core = _ask_library(path, _THREAD_SYMBOLS[family])
        if count is not None:
            found["loaded"][path.name.split(".so")[0]] = {"threads": count, "kernels": core}
    if niceness := os.nice(0):
        found["niceness"] = niceness
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_num_threads"):
        found["torch"] = {"threads": torch.get_num_threads(), "interop": torch.get_num_interop_threads()}
    return found


def malloc(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The settings of memory allocators; a training step can take a third longer without them."""
    return settings(environment, MALLOC_NAMES)


def _loaded(maps: Path) -> list[Path]:
    """The shared libraries mapped into this process, each once."""
    paths = {line.split(None, 5)[5] for line in (text(maps) or "").splitlines() if ".so" in line}
    return [Path(path) for path in sorted(paths)]


def _ask_library(path: Path, symbols: tuple[str, ...]) -> tuple[int | None, str | None]:
    """What a loaded library reports: its threads, and the processor family of its kernels."""
    try:
        library = ctypes.CDLL(str(path), mode=getattr(os, "RTLD_NOLOAD", 0))
    except OSError:
        return None, None
    count = next((int(getattr(library, each)()) for each in symbols if hasattr(library, each)), None)
    for symbol in _CORE_SYMBOLS:
        if hasattr(library, symbol):
            function = getattr(library, symbol)
            function.restype = ctypes.c_char_p
            return count, function().decode(errors="replace")
    return count, None
