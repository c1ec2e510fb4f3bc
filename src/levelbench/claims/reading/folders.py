"""A folder as claims: a leaderboard, a clone of DAWNBench's entries, logs of MLPerf's, claims written down, or all.

The one idea: files are told by their content, one at a time, so a folder of any size is read in a stream; a file that
cannot be read is said with its reason and hides no other.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from levelbench.claims.reading.claim_file import read_claim
from levelbench.claims.reading.entries import entry_kind, read_mlperf, read_submission_file
from levelbench.claims.reading.inference_records import ENDING, read_inference_files
from levelbench.claims.view import Claim
from levelbench.errors import LevelbenchError, UsageError
from levelbench.records.rulesets.registry import folder_rulesets
from levelbench.records.rulesets.schema import Ruleset

__all__ = ["MOST_FILES", "read_folder", "stream_folder"]

MOST_FILES = 100_000
"""A folder with more files is not a collection of claims."""

_LOG = re.compile(r"result_\d{1,6}\.txt")
_SIDES = re.compile(rb"^[ \t]*\[\[[ \t]*sides[ \t]*\]\]", re.MULTILINE)
_LOOKED_AT = 1 << 20


def read_folder(path: str | Path, problems: list[LevelbenchError] | None = None) -> list[Claim]:
    """All claims in the folder and the folders in it, by name.

    ``problems`` takes what cannot be read; without it the first such file is an error. A folder without a claim is a
    ``UsageError``.
    """
    found = list(stream_folder(path, problems))
    if not found and not problems:
        do = "give a leaderboard, entries of DAWNBench's, logs of MLPerf's, records or claim files"
        raise UsageError(f"levelbench lint {path}", "the folder holds no claim", do)
    return found


def stream_folder(path: str | Path, problems: list[LevelbenchError] | None = None) -> Iterator[Claim]:
    """The same, claim by claim."""
    root = Path(path)
    rules = folder_rulesets(root)
    if any(_LOG.fullmatch(name) for _, names in _walk(root) for name in names):
        # From the root, where the systems that the logs ran on are described.
        yield from _guarded(lambda: read_mlperf(root, problems), problems)
    measured = [folder / name for folder, names in _walk(root) for name in names if name.endswith(ENDING)]
    yield from read_inference_files(measured, problems)
    for folder, names in _walk(root):
        for name in names:
            if folder.name != "systems" and folder.name != "rulesets":
                yield from _guarded(partial(_claims_in, folder / name, rules), problems)


def _walk(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Folders with their files in order of their names; hidden ones and links are left alone."""
    count = 0
    for place, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        kept = sorted(name for name in names if not name.startswith(".") and not (Path(place) / name).is_symlink())
        count += len(kept)
        if count > MOST_FILES:
            found = f"it has more than {MOST_FILES:,} files"
            raise UsageError(f"levelbench lint {root}", found, "give one of the folders in it")
        yield Path(place), kept


def _claims_in(path: Path, rules: Mapping[str, Ruleset]) -> list[Claim]:
    """The claims of one file; none for a file that is of another kind."""
    if path.suffix == ".json" and entry_kind(path) is not None:
        return read_submission_file(path, rules)
    if path.suffix == ".toml" and _is_claim(path):
        return [read_claim(path)]
    return []


def _is_claim(path: Path) -> bool:
    """Whether a TOML file has sides, as every claim must."""
    with path.open("rb") as file:
        return _SIDES.search(file.read(_LOOKED_AT)) is not None


def _guarded(read: Callable[[], list[Claim]], problems: list[LevelbenchError] | None) -> list[Claim]:
    try:
        return read()
    except LevelbenchError as error:
        if problems is None:
            raise
        problems.append(error)
        return []
