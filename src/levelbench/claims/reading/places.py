"""Where a finding is to be shown: the file, and in a claim that was written down the line.

The one idea: ``where`` of a finding may be a file, a file with a line, or words ("table 2"); a reader of annotations
needs a file that exists.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from levelbench.claims.lint import Linted
from levelbench.claims.reading.lines import lines_of, nearest_line
from levelbench.claims.rule import Finding

__all__ = ["Place", "below_here", "place_of"]

_LINE = re.compile(r"(?P<file>.+?):(?P<line>[1-9]\d{0,8})")


class Place(NamedTuple):
    """A file and a line of it, each where it is known."""

    file: str | None
    line: int | None = None

    def __str__(self) -> str:
        """``file:line``, ``file``, or nothing."""
        return f"{self.file or ''}:{self.line}" if self.line else self.file or ""


def place_of(finding: Finding, linted: Linted) -> Place:
    """Where ``finding`` was seen: its own place, or the claim's, or what the user named."""
    claim = linted.claim
    if claim.read_from == "claim" and _is_file(claim.where):
        # Only the file that was read: what an author calls a place may be any other one.
        changed = Path(claim.where).stat().st_mtime_ns
        return Place(claim.where, nearest_line(finding.field, _lines(str(Path(claim.where).absolute()), changed)))
    here = str(Path.cwd())
    for where in (finding.where, claim.where, linted.source):
        for folder in ("", claim.where):
            place = _file(where, folder, here)
            if place.file is not None:
                return place
    return Place(None)


def below_here(file: str) -> Path | None:
    """``file`` relative to the current folder, as code hosts want it; ``None`` where it does not lie in it."""
    try:
        return Path(file).resolve().relative_to(Path.cwd())
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=4096)
def _file(where: str, folder: str, here: str) -> Place:
    """The file, or file and line, that ``where`` is in ``folder``, seen from ``here``."""
    match = _LINE.fullmatch(where)
    for name, line in ((where, None), (match["file"], int(match["line"])) if match else ("", None)):
        path = str(Path(folder, name)) if name else ""
        if _is_file(path):
            return Place(path, line)
    return Place(None)


def _is_file(text: str) -> bool:
    try:
        return bool(text) and Path(text).is_file()
    except (OSError, ValueError):
        return False


@lru_cache(maxsize=64)
def _lines(file: str, changed: int) -> dict[str, int]:
    """The lines of a file as it was at ``changed``."""
    return lines_of(Path(file).read_text(encoding="utf-8", errors="replace"))
