"""Reads claims from every source: a written claim, records, a submission, other systems' logs, a folder.

A file is recognised by its content; anything else is a selection of runs. Each reader is imported when it is needed. A
folder is read one file at a time, so it may have any size; an unreadable file is reported with the reason, and the
others are still read.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Protocol, cast

from levelbench import plugins
from levelbench.errors import LevelbenchError, UnknownNameError, UsageError, nearest

if TYPE_CHECKING:
    from levelbench.claims.view import Claim
    from levelbench.records import Store

__all__ = [
    "MOST_FILES",
    "PAGES",
    "Kind",
    "NothingStatedError",
    "kind_of",
    "read",
    "read_folder",
    "stream_folder",
    "write_down",
]

Kind = str
"""``"claim"``, ``"record"``, ``"submission"``, ``"mlperf"``, ``"inference"``, ``"timings"`` (of hyperfine or pyperf),
``"page"``, ``"records"`` (a store), or ``"folder"``."""

MOST_FILES = 100_000
"""A folder with more files is not a collection of claims."""

_TRACKED = re.compile(r"\.tfevents\.|\.wandb$|^meta\.yaml$|^mlflow\.db$")
_LOG = re.compile(r"result_\d{1,6}\.txt")
_SIDES = re.compile(rb"^[ \t]*\[\[[ \t]*sides[ \t]*\]\]", re.MULTILINE)
_LOOKED_AT = 1 << 20
_TRIED = 20
_MLPERF = re.compile(rb":::MLL(?:OG)? |:::MLPv0\.5\.0 ")
_DAWNBENCH = re.compile(rb"(?:\xef\xbb\xbf)?\s*epoch\s+hours\b", re.IGNORECASE)
_RECORD = re.compile(rb'\s*\{[^\n]*"specification"\s*:')
PAGES = (".md", ".markdown", ".html", ".htm", ".csv", ".tsv")
"""What has tables that people publish; only a page that is named is read, not those of a folder."""
_TIMINGS = re.compile(rb'\s*\{\s*"(?:results"\s*:\s*\[\s*\{\s*"command"|benchmarks"\s*:\s*\[)')
_FILES = {
    ".toml",
    ".json",
    ".jsonl",
    ".jsonlines",
    ".log",
    ".txt",
    ".out",
    ".result",
    ".tar",
    ".gz",
    ".tgz",
    ".tsv",
    *PAGES,
}
_ARCHIVES = (".tar", ".tar.gz", ".tgz")
_INFERENCE = ".jsonlines"


class NothingStatedError(UsageError):
    """A page that can be read, and has no table of figures: it claims nothing that the linter knows."""


class EntryReader(Protocol):
    """Makes claims from leaderboard entries and other systems' logs: the entry point ``entries``."""

    def entry_kind(self, path: Path) -> str | None:
        """The kind of entry in the JSON file at ``path``; ``None`` for anything else."""

    def folder_rulesets(self, folder: Path) -> Mapping[str, object]:
        """The rulesets that entries in a folder may name, by id."""

    def read_submission_file(self, path: Path, rules: Mapping[str, object] | None = None) -> list[Claim]:
        """The claims in the file of one entry."""

    def read_mlperf(self, path: Path, problems: list[LevelbenchError] | None = None) -> list[Claim]:
        """The claims in MLPerf logs; ``problems`` collects what cannot be read."""


def _entries() -> EntryReader:
    """The package that owns the format of entries turns them into claims; the linter knows only claims."""
    return cast(EntryReader, plugins.load("claim_reader", "entries"))


def read(what: str | Path, store: Store | None = None, problems: list[LevelbenchError] | None = None) -> list[Claim]:
    """The claims in the file or folder ``what``, or from the runs that it selects in ``store``.

    ``problems`` collects why files of a folder or selection cannot be read; without it, the first such file is an
    error. Raises a ``LevelbenchError`` if there is nothing or it cannot be read.
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
            raise UsageError(f"levelbench lint {path}", "the measurement did not finish", "measure it again")
        return claims
    if kind == "claim":
        from levelbench.claims.reading.claim_file import read_claim

        return [read_claim(path)]
    if kind == "timings":
        from levelbench.claims.reading.command_records import read_timings_file

        return read_timings_file(path)
    if kind == "page":
        from levelbench.claims.reading.published import read_published

        return read_published(path)
    if kind == "submission":
        return _entries().read_submission_file(path)
    if kind == "mlperf":
        return _entries().read_mlperf(path, problems)
    return list(read_folder(path, problems))


def _measured(paths: list[Path], problems: list[LevelbenchError] | None) -> list[Claim]:
    """The claims in records of inference and of commands, which a store may have in addition to its runs.

    Records of operators, networks and communicators state figures of parts, which are no claims.
    """
    kinds: dict[str, list[Path]] = {}
    for path in paths:
        kinds.setdefault(_kind_of_process(path), []).append(path)
    found: list[Claim] = []
    if inference := kinds.get("inference"):
        from levelbench.claims.reading.inference_records import read_inference_files

        found += read_inference_files(inference, problems)
    if commands := kinds.get("command"):
        from levelbench.claims.reading.command_records import read_command_files

        found += read_command_files(commands, problems)
    return found


_PROCESS = re.compile(rb'\{"kind":\s*"([a-z]+)"')


def _kind_of_process(path: Path) -> str:
    """What a file of a measured process says that it is; inference where that is damaged, whose reader says so."""
    with path.open("rb") as file:
        match = _PROCESS.match(file.read(100))
    return match[1].decode() if match else "inference"


def kind_of(path: Path) -> Kind:
    """The kind of the file or folder at ``path``, by its content."""
    if path.is_dir():
        return "records" if _has_records(path) else "folder"
    if path.suffix == ".toml":
        return "claim"
    if not path.is_file():
        raise UsageError(f"levelbench lint {path}", "it is neither a file nor a folder", "give a regular file")
    if path.suffix == _INFERENCE:
        return "inference"
    with path.open("rb") as file:
        head = file.read(_LOOKED_AT)
    if path.suffix == ".tsv" and _DAWNBENCH.match(head):
        entry = path.with_suffix(".json")
        do = f"give {entry}" if entry.is_file() else "give the entry's .json, with the curve next to it"
        raise UsageError(f"levelbench lint {path}", "it is the curve of a DAWNBench entry, without the entry", do)
    if path.suffix.lower() in PAGES:
        return "page"
    if path.name.endswith(_ARCHIVES):
        return "mlperf"
    if _RECORD.match(head):
        return "record"
    if _MLPERF.search(head):
        return "mlperf"
    if path.suffix == ".jsonl":
        return "record"
    if path.name.endswith(".json.gz") or _TIMINGS.match(head):
        return "timings"
    if head.lstrip()[:1] == b"{" or path.suffix == ".json":
        return "submission"
    if head.startswith(b"%PDF"):
        do = "give its tables as text, CSV or HTML (pdftotext -layout), or levelbench lint --template for a claim.toml"
        raise UsageError(f"levelbench lint {path}", "it is a PDF, which is not read", do)
    if _TRACKED.search(path.name):
        raise _untold(path)
    found = "it is not a claim.toml, a record, a submission or an MLPerf log"
    raise UsageError(
        f"levelbench lint {path}", found, write_down("" if b"\0" in head else head.decode("utf-8", "replace"))
    )


_SHORT = """\
title = {title}

[[sides]]
name = "ours"
time_s = 100.0
runs_made = 5
reported = "mean"  # of these runs: mean, median, best, or single

[[sides]]
name = "theirs"
time_s = 300.0
runs_made = 5
reported = "mean"

[[comparisons]]
new = "ours"
base = "theirs"
ratio = 3.0
"""


def write_down(text: str) -> str:
    """How to write down a claim that was given in words, in a few lines."""
    sentences = [line.strip() for line in text.splitlines() if line.strip() and line.isprintable()]
    title = json.dumps([*sentences, "What is claimed, in one sentence"][0][:100], ensure_ascii=False)
    lines = indent(_SHORT.format(title=title), "       ")
    return f"""write the claim down in claim.toml, with its own figures:

{lines}
       then levelbench lint claim.toml; levelbench lint --template has every field that a rule asks for"""


def _has_records(folder: Path) -> bool:
    """Whether the folder is a store of runs: one of its first JSON Lines files is a record."""
    return any(kind_of(path) == "record" for path in islice(folder.rglob("*.jsonl"), _TRIED) if path.is_file())


def _selected(what: str | Path, path: Path, store: Store | None, problems: list[LevelbenchError] | None) -> list[Claim]:
    text = str(what)
    if "[" not in text and (path.suffix in _FILES or isinstance(what, Path)):
        close = nearest(path.name, _names(path.parent))
        do = "check the path" + (f"; did you mean {path.parent / close[0]}?" if close else "")
        raise UsageError(f"levelbench lint {text}", "there is no such file", do)
    from levelbench.claims.reading.records import read_runs
    from levelbench.records import Store as _Store

    store = store or _Store("levelbench-results")
    try:
        return list(read_runs(text, store, problems))
    except LevelbenchError as error:
        if measured := _processes(text, store, problems):
            return measured
        if len(text.split()) > 3 and "[" not in text:
            found = "it reads claims in files, and this is a sentence"
            raise UsageError("levelbench lint", found, write_down(text)) from error
        if isinstance(error, UnknownNameError):
            found = f"there is no such file or folder, and {error.found}"
            raise UsageError(f"levelbench lint {text}", found, error.do) from error
        raise


def _processes(text: str, store: Store, problems: list[LevelbenchError] | None) -> list[Claim]:
    """What ``infer`` or ``time`` measured and ``text`` selects."""
    from levelbench.records.commands import CommandRecord, latest_measurement
    from levelbench.records.inference import InferenceRecord
    from levelbench.records.process_selection import named_processes

    found = [each.path for each in named_processes(InferenceRecord, store.path, [text])]
    if not found and text == "latest":
        found = [each.path for each in latest_measurement(store.path)]
    return _measured(found or [each.path for each in named_processes(CommandRecord, store.path, [text])], problems)


def _store_of(place: Path, store: Store | None) -> Store:
    """The store that contains the record or folder at ``place``: the given one only if it does."""
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


def read_folder(path: str | Path, problems: list[LevelbenchError] | None = None) -> list[Claim]:
    """All claims in the folder and the folders in it, by name.

    ``problems`` collects what cannot be read; without it, the first such file is an error. A folder without claims is a
    ``UsageError``.
    """
    found = list(stream_folder(path, problems))
    if not found and not problems:
        do = "give a leaderboard, DAWNBench entries, MLPerf logs, records or claim files"
        said = "the folder has no claims"
        if any(_TRACKED.search(name) for _, names in _walk(Path(path)) for name in names):
            raise _untold(path)
        raise UsageError(f"levelbench lint {path}", said, do)
    return found


def _untold(path: str | Path) -> UsageError:
    """The refusal of a file or folder of logs whose claim only its author knows."""
    said = "it has logs of TensorBoard, MLflow or W&B, which do not say what is claimed"
    do = f"make records of them, levelbench import {path} --target METRIC=VALUE --task NAME, and lint NAME"
    return UsageError(f"levelbench lint {path}", said, do)


def stream_folder(path: str | Path, problems: list[LevelbenchError] | None = None) -> Iterator[Claim]:
    """The same, claim by claim."""
    root = Path(path)
    rules = _entries().folder_rulesets(root)
    if any(_LOG.fullmatch(name) for _, names in _walk(root) for name in names):
        # From the root, where the systems of the logs are described.
        yield from _guarded(lambda: _entries().read_mlperf(root, problems), problems)
    measured = [folder / name for folder, names in _walk(root) for name in names if name.endswith(_INFERENCE)]
    yield from _measured(measured, problems)
    for folder, names in _walk(root):
        for name in names:
            if folder.name != "systems" and folder.name != "rulesets":
                yield from _guarded(partial(_claims_in, folder / name, rules), problems)


def _walk(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Folders with their files, sorted by name; hidden ones and links are skipped."""
    count = 0
    for place, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        kept = sorted(name for name in names if not name.startswith(".") and not (Path(place) / name).is_symlink())
        count += len(kept)
        if count > MOST_FILES:
            found = f"it has more than {MOST_FILES:,} files"
            raise UsageError(f"levelbench lint {root}", found, "give one of the folders in it")
        yield Path(place), kept


def _claims_in(path: Path, rules: Mapping[str, object]) -> list[Claim]:
    """The claims in one file; none for a file of another kind."""
    from levelbench.claims.reading.claim_file import read_claim

    if path.suffix == ".json" and _entries().entry_kind(path) is not None:
        return _entries().read_submission_file(path, rules)
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
