"""Reads whatever a claim can come from: a claim written down, records, a submission, other systems' logs, a folder.

The one idea: a file is told by its content, and what is no file is a selection of runs; each reader is imported when
it is wanted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from levelbench.errors import UnknownNameError, UsageError, nearest

if TYPE_CHECKING:
    from levelbench.claims.view import Claim
    from levelbench.errors import LevelbenchError
    from levelbench.records import Store

__all__ = ["Kind", "kind_of", "read"]

Kind = str
"""``"claim"``, ``"record"``, ``"submission"``, ``"mlperf"``, ``"inference"``, ``"records"`` (a store), ``"folder"``."""

_LOOKED_AT = 1 << 20
_TRIED = 20
_MLPERF = re.compile(rb":::MLL(?:OG)? |:::MLPv0\.5\.0 ")
_RECORD = re.compile(rb'\s*\{[^\n]*"specification"\s*:')
_FILES = {".toml", ".json", ".jsonl", ".jsonlines", ".log", ".txt", ".out", ".result", ".tar", ".gz", ".tgz", ".tsv"}
_ARCHIVES = (".tar", ".tar.gz", ".tgz")
_INFERENCE = ".jsonlines"


def read(what: str | Path, store: Store | None = None, problems: list[LevelbenchError] | None = None) -> list[Claim]:
    """The claims in the file or folder ``what``, or of the runs that it selects in ``store``.

    ``problems`` takes why files of a folder or selection cannot be read; without it the first of them is an error.
    Raises a ``LevelbenchError`` where nothing is there or it cannot be read.
    """
    path = Path(what).expanduser()
    if not _exists(path):
        return _selected(what, path, store, problems)
    kind = kind_of(path)
    if kind in ("record", "records"):
        from levelbench.claims.reading.records import read_runs

        found = read_runs(str(path.resolve()), _store_of(path.resolve(), store), problems)
        return found + (_measured(sorted(path.rglob(f"*{_INFERENCE}")), problems) if path.is_dir() else [])
    if kind == "inference":
        claims = _measured([path], problems)
        if not claims and not problems:
            raise UsageError(f"levelbench lint {path}", "the measurement did not come to its end", "measure it again")
        return claims
    if kind == "claim":
        from levelbench.claims.reading.claim_file import read_claim

        return [read_claim(path)]
    if kind == "submission":
        from levelbench.claims.reading.entries import read_submission_file

        return list(read_submission_file(path))
    if kind == "mlperf":
        from levelbench.claims.reading.entries import read_mlperf

        return list(read_mlperf(path, problems))
    from levelbench.claims.reading.folders import read_folder

    return list(read_folder(path, problems))


def _measured(paths: list[Path], problems: list[LevelbenchError] | None) -> list[Claim]:
    """The claims of files of inference, which a store may have beside its runs."""
    if not paths:
        return []
    from levelbench.claims.reading.inference_records import read_inference_files

    return read_inference_files(paths, problems)


def kind_of(path: Path) -> Kind:
    """What the file or folder at ``path`` is, told by its content."""
    if path.is_dir():
        return "records" if _has_records(path) else "folder"
    if path.suffix == ".toml":
        return "claim"
    if not path.is_file():
        raise UsageError(f"levelbench lint {path}", "it is neither a file nor a folder", "give a regular file")
    if path.suffix == _INFERENCE:
        return "inference"
    if path.suffix == ".tsv":
        entry = path.with_suffix(".json")
        do = f"give {entry}" if entry.is_file() else "give the entry's .json, with the curve beside it"
        raise UsageError(f"levelbench lint {path}", "it is the curve of an entry of DAWNBench's, without the entry", do)
    with path.open("rb") as file:
        head = file.read(_LOOKED_AT)
    if path.name.endswith(_ARCHIVES):
        return "mlperf"
    if _RECORD.match(head):
        return "record"
    if _MLPERF.search(head):
        return "mlperf"
    if path.suffix == ".jsonl":
        return "record"
    if head.lstrip()[:1] == b"{" or path.suffix == ".json":
        return "submission"
    found = "it is no claim.toml, record, submission or MLPerf log"
    raise UsageError(f"levelbench lint {path}", found, "write the claim down: levelbench lint --template > claim.toml")


def _has_records(folder: Path) -> bool:
    """Whether the folder is a store of runs: one of the first such files in it is a record."""
    return any(kind_of(path) == "record" for path in islice(folder.rglob("*.jsonl"), _TRIED) if path.is_file())


def _selected(what: str | Path, path: Path, store: Store | None, problems: list[LevelbenchError] | None) -> list[Claim]:
    text = str(what)
    if "[" not in text and (path.suffix in _FILES or isinstance(what, Path)):
        close = nearest(path.name, _names(path.parent))
        do = f"give {path.parent / close[0]}" if close else "check the path"
        raise UsageError(f"levelbench lint {text}", "there is no such file", do)
    from levelbench.claims.reading.records import read_runs
    from levelbench.records import Store as _Store

    try:
        return list(read_runs(text, store or _Store("levelbench-results"), problems))
    except UnknownNameError as error:
        found = f"there is no such file or folder, and {error.found}"
        raise UsageError(f"levelbench lint {text}", found, error.do) from error


def _store_of(place: Path, store: Store | None) -> Store:
    """The store that holds the record or folder at ``place``: the given one only if it does."""
    from levelbench.records import Store as _Store

    if store is not None and place.is_relative_to(store.path.resolve()):
        return store
    return _Store(place if place.is_dir() else place.parent)


def _names(folder: Path) -> Iterator[str]:
    try:
        yield from sorted(each.name for each in folder.iterdir())
    except OSError:
        return


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
