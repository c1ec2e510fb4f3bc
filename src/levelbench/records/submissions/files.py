"""Writes a file of a leaderboard: whole, or not at all.

The one idea: it is written beside and renamed, so a reader, or a commit, never meets half an entry.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from levelbench.errors import UsageError
from levelbench.records.faults import store_fault
from levelbench.records.writer import path_part, publish

__all__ = ["cut_at_word", "stem_of", "write_new", "write_whole"]


_LONGEST_PART = 40


def write_whole(path: Path, raw: bytes, *, replace: bool = True) -> Path:
    """Write ``raw`` to ``path`` in one step, making its folder; ``StoreError`` where that fails.

    Without ``replace`` a file that is there already is left as it is, and ``UsageError`` says so.
    """
    asked = f"writing {path}"
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("xb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            beside.replace(path)
        else:
            publish(beside, path)
    except FileExistsError as error:
        do = "give --replace to write over it"
        raise UsageError(asked, "it is there already and says something else", do) from error
    except OSError as error:
        raise store_fault(asked, path, error) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
    return path


def write_new(path: Path, raw: bytes) -> bool:
    """Write a file that is not there yet; ``False`` if it is there and is the same, ``UsageError`` if it differs."""
    try:
        if path.read_bytes() == raw:
            return False
    except OSError:
        pass
    write_whole(path, raw, replace=False)
    return True


def stem_of(*parts: str) -> str:
    """A file's stem of the parts of a submission that tell it from others, as ``author_model_hardware_framework``."""
    words = (cut_at_word(path_part(part.replace(" ", "-").replace("_", "-")), _LONGEST_PART) for part in parts)
    return "_".join(word or "unnamed" for word in words)


def cut_at_word(text: str, most: int) -> str:
    """A file's name of at most ``most`` characters, cut at the end of a word where one ends in its second half."""
    if len(text) > most:
        end = max(text.rfind("-", 0, most + 1), text.rfind("_", 0, most + 1))
        text = text[: end if end > most // 2 else most]
    return text.strip(".-_")
