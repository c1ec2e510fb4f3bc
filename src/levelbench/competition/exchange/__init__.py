"""Exchange with other systems: reading files under limits, placing entries in a leaderboard, and tables of entries.

Each format has a module that reads it into submissions and writes it from them.

The four tables (CSV or Parquet, written and read back) have the columns below and nothing computed, so that a
spreadsheet, pandas or DuckDB computes scores itself. An empty CSV cell means "not stated". Text that a spreadsheet
would run as a formula, or that begins with an apostrophe, gets an apostrophe in front; reading removes it again.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from levelbench.competition.entries import FILE_LIMIT, Submission, cut_at_word, encode, submission_digest, write_whole
from levelbench.errors import MissingError, RecordError, StoreError, UsageError


def read_bytes(path: Path, most: int, root: Path | None = None, asked: str = "") -> bytes:
    """The bytes of a regular file of at most ``most`` bytes; ``RecordError`` for a larger file or anything else."""
    asked = asked or f"reading {path}"
    try:
        if root is not None and not path.resolve().is_relative_to(root.resolve()):
            raise RecordError(asked, "it leads out of the folder", "put the file itself there, not a link")
        if not path.is_file():
            found = "it is not a regular file" if path.exists() else "there is no such file"
            raise RecordError(asked, found, "give the path of a file")
        with path.open("rb") as file:
            data = file.read(most + 1)
    except (OSError, RuntimeError) as error:
        found = getattr(error, "strerror", None) or str(error)
        raise StoreError(asked, found, "make the file readable") from error
    if len(data) > most:
        raise RecordError(asked, f"it is larger than {most:,} bytes", "give a smaller file")
    return data


def text_of(value: object, most: int = 200) -> str | None:
    """``value`` as text of at most ``most`` characters; ``None`` if it is not text, or blank."""
    return value.strip()[:most] or None if isinstance(value, str) else None


def value_at(entry: Submission, place: str) -> Any:
    """An entry's value at a dotted name such as ``author.email``; ``None`` if a part on the way is not stated."""
    found: Any = entry
    for part in place.split("."):
        found = getattr(found, part, None)
    return found


def unplaced(part: Struct | None, name: str, placed: Sequence[str] = ()) -> Iterator[str]:
    """The stated fields of a part of an entry that another format has no place for, each by its name below ``name``."""
    for each in part.__struct_fields__ if part is not None else ():
        if each not in placed and getattr(part, each) not in (None, [], {}):
            yield f"{name}.{each}"


_DAWNBENCH = ("CIFAR10", "ImageNet", "SQuAD")
_ARCHIVES = (".tar", ".tar.gz", ".tgz")
_LOG = re.compile(r"result_\d{1,6}\.txt")
SPEED_RUN_LOG = re.compile(r"(?:.{1,99}[-_])?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\.(?:txt|log)")
"""A speed run names its log by a UUID."""
_DEEPEST = 12


def systems_in(root: Path) -> list[tuple[str, Path]]:
    """What there is to read in ``root``, by its names alone: the system and where to read it, each place once.

    The systems are ``dawnbench`` (a clone of its entries), ``mlperf`` (logs of training, or an archive, which may hold
    them), ``algoperf`` (a folder of its logs), ``speedrun`` (logs named by a UUID) and ``levelbench`` (a leaderboard).
    Links are not followed.
    """
    if root.is_file():
        if root.suffix == ".json" and _is_mode(root.parent):
            return [("dawnbench", root)]
        if SPEED_RUN_LOG.fullmatch(root.name):
            return [("speedrun", root)]
        return [("mlperf", root)] if root.name.endswith(_ARCHIVES) or _LOG.fullmatch(root.name) else []
    found: dict[tuple[str, Path], None] = {}
    for place, inner, names in os.walk(root):
        folder = Path(place)
        depth = len(folder.relative_to(root).parts)
        inner[:] = sorted(each for each in inner if depth < _DEEPEST and not each.startswith("."))
        if _is_mode(folder):
            found["dawnbench", root if depth < 2 else folder.parents[1]] = None
        elif folder.name in ("training", "inference") and any(name.endswith(".json") for name in names):
            found["levelbench", folder.parents[1]] = None
        if "eval_measurements.csv" in names:
            found["algoperf", root] = None
        if any(map(SPEED_RUN_LOG.fullmatch, names)):
            found["speedrun", root] = None
        if any(map(_LOG.fullmatch, names)):
            found["mlperf", root] = None
        for name in sorted(each for each in names if each.endswith(_ARCHIVES)):
            found["mlperf", folder / name] = None
    return list(found)


def _is_mode(folder: Path) -> bool:
    """Whether a folder is one of entries in a clone of DAWNBench's, such as ``CIFAR10/train``."""
    return folder.name in ("train", "inference") and folder.parent.name in _DAWNBENCH


_LONGEST = 80
"""The longest file name."""


class Placed(NamedTuple):
    """The files that an import wrote, and the number of identical ones that already existed."""

    written: list[Path]
    unchanged: int


def places(submissions: Sequence[Submission]) -> list[str]:
    """The id of each entry: ``task/mode/stem``. Entries that would share an id also get a part of their digest."""

    def stem_of(entry: Submission) -> str:
        origin = entry.origin
        if origin is not None and origin.format == "dawnbench":
            return _slug(Path(origin.file).stem)
        if origin is not None and _slug(origin.file) != "unnamed":
            return _slug(origin.file.removesuffix(".txt"))
        return _slug(f"{entry.author.name}_{entry.model}_{entry.hardware.description}_{entry.framework}")

    stems = [f"{_slug(each.task)}/{each.mode}/{stem_of(each)}" for each in submissions]
    folded = [each.lower() for each in stems]
    return [
        f"{stem}-{submission_digest(each)[:8]}" if folded.count(stem.lower()) > 1 else stem
        for stem, each in zip(stems, submissions, strict=True)
    ]


def _slug(text: str) -> str:
    """``text`` as a file name: never a path, never hidden, never empty."""
    return cut_at_word(re.sub(r"[^A-Za-z0-9._+-]+", "-", text), _LONGEST) or "unnamed"


def place(submissions: Sequence[Submission], folder: Path, *, force: bool = False) -> Placed:
    """Write each submission to its place under ``folder``.

    Raises ``UsageError``, before anything is written, if one of the places holds another submission, unless ``force``
    is given.
    """
    wanted = [
        (folder / f"{name}.json", encode(each)) for name, each in zip(places(submissions), submissions, strict=True)
    ]
    there = {path: read_bytes(path, FILE_LIMIT, folder) for path, _ in wanted if path.exists()}
    other = [path for path, data in wanted if path in there and there[path] != data]
    if other and not force:
        many = "1 entry exists and differs" if len(other) == 1 else f"{len(other)} entries exist and differ"
        found = f"{many}, the first is {other[0].relative_to(folder)}"
        raise UsageError(f"importing into {folder}", found, "choose another folder, or give --force to replace them")
    new = [(path, data) for path, data in wanted if there.get(path) != data]
    return Placed([write_whole(path, data) for path, data in new], len(wanted) - len(new))


def entry_paths(where: Path) -> Iterator[tuple[str, Path]]:
    """Id and path of each entry in a leaderboard's folder, sorted; for a single file its stem and path."""
    if not where.is_dir():
        yield where.stem, where
        return
    for path in sorted(where.glob("*/*/*.json")):
        if path.parent.name in ("training", "inference"):
            yield path.relative_to(where).with_suffix("").as_posix(), path


Cell = str | float | int | bool | None
Tables = dict[str, list[dict[str, Cell]]]
"""The rows of each table by its name; every row has a cell for each of the table's columns."""

COLUMNS: Mapping[str, Mapping[str, tuple[type, str]]] = {
    "entries": {
        "entry": (str, "id: its path in the leaderboard without .json"),
        "ruleset": (str, ""),
        "task": (str, ""),
        "mode": (str, "training or inference"),
        "division": (str, ""),
        "author": (str, ""),
        "organisation": (str, ""),
        "submitted": (str, "day, ISO 8601"),
        "model": (str, ""),
        "framework": (str, ""),
        "hardware": (str, ""),
        "nodes": (int, ""),
        "accelerators": (int, ""),
        "metric": (str, ""),
        "threshold": (float, "on the metric's scale"),
        "direction": (str, "higher or lower is better"),
        "split": (str, ""),
        "clock": (str, "clock policy of the times"),
        "crossing": (str, "the author's rule"),
        "code_url": (str, ""),
        "code_commit": (str, ""),
        "usd_per_hour": (float, "US dollars per hour of the whole system"),
        "price_source": (str, ""),
        "price_read_on": (str, "day, ISO 8601"),
        "runs": (int, ""),
        "measurements": (int, "of inference"),
        "origin": (str, "format that it was read from"),
        "doubts": (int, "number of them"),
        "notes": (str, ""),
    },
    "runs": {
        "entry": (str, ""),
        "run": (int, "from 0"),
        "status": (str, ""),
        "seed": (int, ""),
        "points": (int, "evaluations"),
        "reached": (bool, "as stated by the author"),
        "time_to_target_s": (float, "seconds, as stated by the author"),
        "energy_j": (float, "joules"),
        "peak_memory_bytes": (float, ""),
        "curve_digest": (str, "SHA-256"),
        "record_digest": (str, "SHA-256"),
    },
    "points": {
        "entry": (str, ""),
        "run": (int, ""),
        "point": (int, "from 0"),
        "time_s": (float, "seconds, cumulative"),
        "quality": (float, "on the metric's scale"),
        "epoch": (float, ""),
        "samples": (int, ""),
        "others": (str, "JSON: further columns by name"),
    },
    "inference": {
        "entry": (str, ""),
        "measurement": (int, "from 0"),
        "scenario": (str, ""),
        "queries": (int, ""),
        "samples": (int, ""),
        "duration_s": (float, "seconds"),
        "mean_latency_s": (float, "seconds"),
        "quantiles_s": (str, "JSON: seconds by quantile"),
        "estimate_s": (float, "seconds, of the early-stopping rule"),
        "estimate_quantile": (float, "the quantile of the estimate"),
        "throughput_per_s": (float, "samples per second"),
        "target_per_s": (float, "target queries per second of scenario server"),
        "latency_bound_s": (float, "seconds, of scenario server"),
        "valid": (bool, "by the scenario's own rules"),
        "quality": (float, ""),
        "cost_usd": (float, "US dollars per answer, as stated by the author"),
    },
}
"""The columns of each table: type and meaning, with the unit."""

TABLES = tuple(COLUMNS)
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "'")
_LARGEST_CSV = 1 << 30


def tabulate(entries: Iterable[tuple[str, Submission]]) -> Tables:
    """The four tables of entries, each entry with its id in the leaderboard."""
    tables: Tables = {name: [] for name in TABLES}
    for name, entry in entries:
        cells = {column: value_at(entry, _PLACES.get(column, column)) for column in COLUMNS["entries"]}
        doubts = len(entry.origin.doubts) if entry.origin else None
        counts = {"runs": len(entry.runs), "measurements": len(entry.inference), "doubts": doubts}
        tables["entries"].append({**cells, "entry": name, **counts})
        for at, run in enumerate(entry.runs):
            stated = {key: getattr(run, key) for key in COLUMNS["runs"] if hasattr(run, key)}
            tables["runs"].append({"entry": name, "run": at, **stated, "points": len(run.curve.time_s)})
            columns = {key: getattr(run.curve, key) for key in ("time_s", "quality", "epoch", "samples")}
            for point in range(len(run.curve.time_s)):
                cells = {key: values[point] for key, values in columns.items() if values is not None}
                others = {key: values[point] for key, values in run.curve.others.items()}
                text = json.dumps(others, ensure_ascii=False) if others else None
                tables["points"].append({"entry": name, "run": at, "point": point, **cells, "others": text})
        for at, measured in enumerate(entry.inference):
            stated = {key: getattr(measured, key) for key in COLUMNS["inference"] if hasattr(measured, key)}
            quantiles = json.dumps(measured.quantiles_s) if measured.quantiles_s else None
            tables["inference"].append({"entry": name, "measurement": at, **stated, "quantiles_s": quantiles})
    return {
        table: [{key: _typed(row.get(key), kind) for key, (kind, _) in COLUMNS[table].items()} for row in rows]
        for table, rows in tables.items()
    }


def _typed(value: object, kind: type) -> Cell:
    """The value in its column's type; an empty text counts as not stated."""
    if value is None or value == "":
        return None
    cell: Cell = kind(value)
    return cell


_PLACES = {
    **{"author": "author.name", "organisation": "author.organisation", "hardware": "hardware.description"},
    **{name: f"hardware.{name}" for name in ("nodes", "accelerators")},
    **{name: f"target.{name}" for name in ("metric", "threshold", "direction", "split")},
    **{"code_url": "code.url", "code_commit": "code.commit", "usd_per_hour": "price.usd_per_hour"},
    **{"price_source": "price.source", "price_read_on": "price.read_on", "origin": "origin.format"},
}
"""The dotted name in an entry of each column of the table of entries whose name differs."""


def write_csv(tables: Tables, folder: Path) -> list[Path]:
    """Each table as ``NAME.csv`` in ``folder``: RFC 4180, UTF-8, with a header."""
    paths = []
    for name in TABLES:
        out = io.StringIO(newline="")
        writer = csv.writer(out)
        writer.writerow(COLUMNS[name])
        writer.writerows([_written(each) for each in row.values()] for row in tables[name])
        paths.append(write_whole(folder / f"{name}.csv", out.getvalue()))
    return paths


def _written(value: Cell) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return "" if value is None else repr(value)


def read_csv(folder: Path) -> Tables:
    """The tables that :func:`write_csv` wrote; ``RecordError`` for other files."""
    tables: Tables = {}
    for name in TABLES:
        path = folder / f"{name}.csv"
        asked = f"reading {path}"
        try:
            if path.stat().st_size > _LARGEST_CSV:
                raise RecordError(asked, f"it is larger than {_LARGEST_CSV:,} bytes", "export fewer entries")
            with path.open(encoding="utf-8", newline="") as file:
                header, *rows = csv.reader(file, strict=True)
            if header != list(COLUMNS[name]):
                raise RecordError(asked, "it has another header", "give a table that board export wrote")
            kinds = [kind for kind, _ in COLUMNS[name].values()]
            tables[name] = [
                dict(zip(header, [_read(c, k) for c, k in zip(row, kinds, strict=True)], strict=True)) for row in rows
            ]
        except OSError as error:
            raise RecordError(asked, error.strerror or str(error), "give the folder of an export") from error
        except (ValueError, csv.Error) as error:
            raise RecordError(asked, str(error), "export the tables again") from error
    return tables


def _read(cell: str, kind: type) -> Cell:
    if cell == "":
        return None
    if kind is bool:
        return cell == "true"
    if kind is str:
        return cell[1:] if cell.startswith("'") else cell
    value: Cell = kind(cell)
    return value


def write_parquet(tables: Tables, folder: Path) -> list[Path]:
    """Each table as ``NAME.parquet`` in ``folder``, with the columns' meaning in the metadata. ``MissingError``."""
    pyarrow, parquet = _pyarrow()
    paths = []
    for name in TABLES:
        types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
        fields = [
            pyarrow.field(key, types[kind], metadata={"description": said} if said else None)
            for key, (kind, said) in COLUMNS[name].items()
        ]
        table = pyarrow.Table.from_pylist(tables[name], schema=pyarrow.schema(fields))
        sink = pyarrow.BufferOutputStream()
        parquet.write_table(table, sink)
        paths.append(write_whole(folder / f"{name}.parquet", sink.getvalue().to_pybytes()))
    return paths


def read_parquet(folder: Path) -> Tables:
    """The tables that :func:`write_parquet` wrote; ``RecordError`` for other files."""
    pyarrow, parquet = _pyarrow()
    tables: Tables = {}
    for name in TABLES:
        path = folder / f"{name}.parquet"
        try:
            tables[name] = parquet.read_table(path).to_pylist()
        except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
            raise RecordError(f"reading {path}", str(error)[:200], "give the folder of an export") from error
    return tables


def _pyarrow() -> tuple[Any, Any]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        do = "install levelbench[parquet], or export as csv"
        raise MissingError("the tables as Parquet", "pyarrow is not installed", do) from error
