"""Reads the small text files of the kernel, where they are.

A fact that a machine does not give is ``None`` in the record, so every reader here answers ``None`` for a
file that is missing, forbidden or not in the form expected. Every root folder is a parameter, so tests bring their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

Facts = dict[str, Any]
"""What a machine or program says of itself, JSON-serialisable, by name; ``None`` where it does not say."""


@dataclass(frozen=True)
class Roots:
    """Where the kernel's two folders are."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")


HERE = Roots()


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
    """The lines ``key: value`` of ``path`` (the first of each key); empty where there is no such file."""
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
