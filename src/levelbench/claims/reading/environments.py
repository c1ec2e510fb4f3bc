"""The environment of a run, of which a record holds whatever was captured: parts of another type are left out.

The one idea: an environment has no schema, so whoever reads one may meet anything; here it gets the types that the
readers count on, once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from levelbench.measure.environment import machine_of

__all__ = ["digest_of", "tidied"]

_NUMBERS = ("cores_allowed", "cores_logical", "memory_bytes")


def tidied(environment: Mapping[str, Any], device: str, ranks: int) -> dict[str, Any]:
    """``machine``, ``accelerators`` (those that ``ranks`` used), ``git``, ``framework``: each a table, maybe empty."""
    machine = _table(environment, "machine")
    kept = {name: value for name, value in machine.items() if name not in _NUMBERS or _is_count(value)}
    cpu = kept.pop("cpu", None)
    model = cpu.get("model") if isinstance(cpu, dict) else cpu
    if isinstance(model, str) and model:
        kept["cpu"] = model
    names = _table(environment, "accelerators").get("names")
    used = [str(name) for name in names][:ranks] if isinstance(names, list) else []
    return {
        "machine": kept,
        "accelerators": {"names": [] if device.partition(":")[0] == "cpu" else used},
        "git": _table(environment, "git"),
        "framework": _table(environment, "framework"),
    }


def _table(environment: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = environment.get(name)
    return dict(value) if isinstance(value, dict) else {}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def digest_of(environment: Mapping[str, Any]) -> str:
    """What tells environments apart that a figure may depend on: machine, accelerators, libraries, threads."""
    names = _table(environment, "accelerators").get("names")
    safe = {"machine": _table(environment, "machine"), "accelerators": {"names": names}}
    machine = machine_of(safe) if isinstance(names, list) else str(safe["machine"].get("id", ""))
    parts = [machine, environment.get("libraries"), environment.get("threads")]
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:16]
