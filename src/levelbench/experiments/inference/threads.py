"""How many threads an arm of inference gets: by the variables that its framework reads, or by the cores left to it.

A number of threads that is in a record's name was asked for by a way that works, and is held against what
the framework says; nothing heavy is imported here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from levelbench.errors import CheckFailedError, UsageError
from levelbench.records.inference import InferenceArm

__all__ = ["check_cores", "check_threads", "told_by_environment", "with_threads", "with_variables"]

_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_READ_THEM = ("numpy", "torch", "onnxruntime")


def told_by_environment(framework: str) -> bool:
    """Whether it reads how many threads to start; XLA, under JAX, starts one for each core that it may use."""
    return framework in _READ_THEM


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_cores(arm: InferenceArm) -> None:
    """``UsageError`` for a number of threads that its framework cannot be given here."""
    if arm.threads is None or told_by_environment(arm.framework):
        return
    asked = f"--threads {arm.threads} on {arm.framework}"
    if not hasattr(os, "sched_setaffinity"):
        raise UsageError(asked, "it takes a thread a core, and cores cannot be taken away here", "leave --threads out")
    if arm.threads > _cores():
        found = f"it takes a thread a core, and {_cores()} may be used here"
        raise UsageError(asked, found, f"ask for {_cores()} at most")


def check_threads(arm: InferenceArm, described: Mapping[str, Any]) -> None:
    """``CheckFailedError`` where the framework says that it has another number of threads than was asked for."""
    has = described.get("threads")
    if arm.threads is not None and isinstance(has, int) and has != arm.threads:
        found = f"it has {has} instead of {arm.threads}"
        raise CheckFailedError(f"the threads of {arm.framework}", found, "leave --threads out")


def with_threads(environment: Mapping[str, Any], arm: InferenceArm) -> Mapping[str, Any]:
    """The environment as a process sees it that is given the threads of ``arm``."""
    if arm.threads is None:
        return environment
    known, machine = environment.get("threads", {}), environment.get("machine", {})
    settings = {**(known.get("settings") or {}), **dict.fromkeys(_VARIABLES, str(arm.threads))}
    if not told_by_environment(arm.framework) and machine.get("cores_allowed") is not None:
        machine = {**machine, "cores_allowed": min(arm.threads, machine["cores_allowed"])}
    return {**environment, "threads": {**known, "settings": settings}, "machine": machine}


@contextmanager
def with_variables(count: int | None) -> Iterator[None]:
    """What a process that is started inside inherits: so many threads for whatever reads these variables."""
    before = {name: os.environ.get(name) for name in _VARIABLES}
    if count is not None:
        os.environ.update(dict.fromkeys(_VARIABLES, str(count)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
