"""Which environment variables are recorded: those that change how fast numeric code runs, by exact name.

The one idea: a list of names, never a pattern, so that no secret can fall into a record; and of every value that looks
like a path only the last part is kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["MALLOC_NAMES", "THREAD_NAMES", "settings"]

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
# fmt: on

_FOLDERS = re.compile(r"[^\s:=,;]*/")


def settings(environment: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    """The variables of ``names`` that are set, sorted, with folders cut from their values."""
    return {name: _FOLDERS.sub("", environment[name]) for name in sorted(names & set(environment))}
