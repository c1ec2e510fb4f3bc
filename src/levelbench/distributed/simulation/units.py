"""Times and bandwidths as people write them: ``2us``, ``25GB/s``, ``100Gbit/s``."""

from __future__ import annotations

import re

from levelbench.errors import UsageError

__all__ = ["bandwidth", "duration_s"]

_NUMBER = re.compile(r"\s*(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)\s*([A-Za-z/]*)\s*")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30}
_BYTES = {f"{prefix}B/s": factor for prefix, factor in _PREFIXES.items()}
_BITS = {f"{prefix}{bit}": factor / 8 for prefix, factor in _PREFIXES.items() for bit in ("bit/s", "bit", "bps", "b/s")}


def duration_s(text: str, asked: str) -> float:
    """Seconds: ``2us``, ``0.5 ms``. Decimal numbers, no sign. ``UsageError`` names ``asked``."""
    return _read(text, asked, _SECONDS, "a time with a unit, such as 2us (ns, us, ms, s)")


def bandwidth(text: str, asked: str) -> float:
    """Bytes a second: ``25GB/s``, ``100Gbit/s``; k, M, G are decimal, Ki, Mi, Gi binary, B bytes and b or bit bits."""
    value = _read(text, asked, _BYTES | _BITS, "a bandwidth with a unit, such as 25GB/s or 100Gbit/s")
    if value <= 0:
        raise UsageError(f"{asked}={text}", "nothing would ever arrive", "give a bandwidth above zero")
    return value


def _read(text: str, asked: str, units: dict[str, float], wanted: str) -> float:
    found = _NUMBER.fullmatch(text)
    if found is None or found[2] not in units:
        raise UsageError(f"{asked}={text}", f"{text!r} is not {wanted}", f"write {wanted}")
    return float(found[1]) * units[found[2]]
