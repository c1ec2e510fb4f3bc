"""Whether what was recorded before still counts: made by this levelbench, on this machine, in the same settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from levelbench import __version__

__all__ = ["disagreement"]

_MUST_AGREE = {
    "machine.id": "recorded on another machine",
    "machine.cores_allowed": "recorded with another number of cores allowed",
    "machine.cgroup_cores": "recorded with another limit of cores",
    "accelerators": "recorded with other accelerators",
    "threads.settings": "recorded with other settings of threads (OMP_NUM_THREADS and the like)",
    "malloc": "recorded with other MALLOC_* settings",
}


def disagreement(
    version: str,
    then: Mapping[str, Any],
    now: Mapping[str, Any],
    libraries: Sequence[str],
    threads: Mapping[str, str] = MappingProxyType({}),
    *,
    elsewhere: bool = False,
) -> str:
    """Why a record of levelbench ``version`` in the environment ``then`` does not count now; empty where it does.

    ``threads`` are settings that a run would be given where nobody has set them. ``elsewhere`` says that runs are made
    on other machines than this, whose kind and cores are then not compared.
    """
    if version != __version__:
        return f"recorded by levelbench {version}, and this is {__version__}"
    for path, words in _MUST_AGREE.items():
        if elsewhere and (path.startswith("machine.") or path == "accelerators"):
            continue
        wanted = _at(now, path)
        if path == "threads.settings" and threads:
            wanted = {**threads, **(wanted or {})}
        if _at(then, path) != wanted:
            return words
    for library in dict.fromkeys(libraries):
        before, after = _at(then, f"libraries.{library}"), _at(now, f"libraries.{library}")
        if before != after:
            return f"recorded with {library} {before}, and this is {after}"
    return ""


def _at(tree: Any, path: str) -> Any:
    """What lies at ``path`` in a tree of unknown shape; ``None`` where it ends before."""
    for name in path.split("."):
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree
