"""Which software runs: versions, numeric libraries and how many threads they use, and the settings that they obey.

Look, never load. Versions come from package metadata, threads from libraries that are already in this
process, and settings from a fixed list of variables (``settings``).
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from levelbench.measure.environment.files import HERE, Facts, Roots, text
from levelbench.measure.environment.settings import MALLOC_NAMES, THREAD_NAMES, settings

# fmt: off
_PACKAGES = (
    "levelbench", "numpy", "torch", "triton", "jax", "jaxlib", "tensorflow", "onnx", "onnxruntime", "scipy", "numba",
    "mkl", "intel-openmp", "nvidia-cudnn-cu12", "nvidia-cublas-cu12", "nvidia-nccl-cu12", "cupy-cuda12x",
)
# fmt: on

# Symbols by which a loaded library tells its threads: OpenBLAS as numpy and scipy build it, plain OpenBLAS, MKL, BLIS,
# and the OpenMP runtimes.
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
    # The numpy that runs, which need not be the one that is installed.
    versions["numpy"] = np.__version__
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "compiler": platform.python_compiler(),
            "debug_build": hasattr(sys, "gettotalrefcount"),
            "traced": sys.gettrace() is not None or sys.getprofile() is not None,
        },
        **versions,
        "blas": {"name": blas.get("name"), "version": blas.get("version")},
    }


def threads(environment: Mapping[str, str] = os.environ, roots: Roots = HERE) -> Facts:
    """Threads of each numeric library in this process, the kernel family that it chose, and the settings in force."""
    found: Facts = {"settings": settings(environment, THREAD_NAMES), "loaded": {}}
    for path in _loaded(roots.proc / "self" / "maps"):
        family = next((each for each in _THREAD_SYMBOLS if each in path.name), None)
        if family is None:
            continue
        count, core = _ask(path, _THREAD_SYMBOLS[family])
        if count is not None:
            found["loaded"][path.name.split(".so")[0]] = {"threads": count, "kernels": core}
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_num_threads"):
        found["torch"] = {"threads": torch.get_num_threads(), "interop": torch.get_num_interop_threads()}
    return found


def malloc(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The settings of memory allocators: a step of training can take a third longer without them."""
    return settings(environment, MALLOC_NAMES)


def _loaded(maps: Path) -> list[Path]:
    """The shared libraries mapped into this process, each once."""
    paths = {line.split(None, 5)[5] for line in (text(maps) or "").splitlines() if ".so" in line}
    return [Path(path) for path in sorted(paths)]


def _ask(path: Path, symbols: tuple[str, ...]) -> tuple[int | None, str | None]:
    """What a library that is loaded already says: its threads, and the processor family of its kernels."""
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
