"""Records from training runs that TensorBoard, MLflow or Weights & Biases has logged.

A log has values with timestamps, which is enough for a time to a target. What it lacks (phases, meters, the program's
source, a second clock) is missing from the record too. The record says where it came from.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from levelbench import __version__
from levelbench.errors import DataError, LevelbenchError, MissingError, UsageError
from levelbench.records.schema import (
    SCHEMA,
    End,
    Evaluation,
    Header,
    Specification,
    Target,
    key_of,
    redact,
    source_of_text,
)
from levelbench.records.writer import RecordWriter, path_part

__all__ = ["Point", "RunLog", "import_run", "read_runs", "scalars"]

Setting = int | float | str | bool
_TIMELESS = {"metrics.csv": "Lightning's CSV logger", "trainer_state.json": "Hugging Face's Trainer"}
_MOST_SETTINGS, _LONGEST = 100, 200
_SEED = re.compile(r"(?:.*[./])?(?:random_|manual_|rng_)?seed", re.IGNORECASE)
_EPOCH = re.compile(r"(?:.*/)?epochs?", re.IGNORECASE)
_BLOCK = 1 << 15
_TRAINING = re.compile(r"(?<![a-z])train(?:ing)?(?![a-z])", re.IGNORECASE)
_LONG_GAPS = 20
"""A gap this many times as long as the median gap gives a doubt."""
_KERAS = ("train", "validation")


class Point(NamedTuple):
    """A logged value, with its time in seconds since 1970 and the number of steps before it."""

    at_s: float
    step: int
    value: float


@dataclass(frozen=True)
class RunLog:
    """A run as logged by ``tool``.

    ``identity`` is unique among the runs of that tool. ``started_s`` and ``ended_s`` are seconds since 1970;
    ``metrics`` are by name, values in the order of logging.
    """

    tool: str
    name: str
    identity: str
    started_s: float
    ended_s: float
    settings: Mapping[str, Setting] = field(default_factory=dict)
    metrics: Mapping[str, list[Point]] = field(default_factory=dict)


def read_runs(path: Path) -> list[RunLog]:
    """The runs logged in a file or a folder, by their start.

    ``UsageError`` if there are none, ``DataError`` for a damaged log, ``MissingError`` for a missing library.
    """
    asked = f"importing {path}"
    if not path.exists():
        raise UsageError(asked, "it does not exist", "give a log, or a folder of logs")
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    found: list[RunLog] = []
    events = dict.fromkeys(each.parent for each in files if ".tfevents." in each.name)
    # Keras writes the curves of one run into two folders.
    runs: dict[Path, list[Path]] = {}
    for folder in events:
        of_keras = folder.name in _KERAS and all(folder.parent / each in events for each in _KERAS)
        runs.setdefault(folder.parent if of_keras else folder, []).append(folder)
    for folder, parts in runs.items():
        own = [each for each in files if each.parent in parts and ".tfevents." in each.name]
        found.append(_tensorboard(asked, path if path.is_dir() else folder, folder, own))
    for each in files:
        if each.suffix == ".wandb":
            found.append(_wandb(asked, each))
        elif each.name == "meta.yaml" and (each.parent / "metrics").is_dir() and not _is_deleted(each):
            found.append(_mlflow_folder(asked, each.parent))
        elif each.suffix in (".db", ".sqlite"):
            found += _mlflow_database(asked, each)
    if not found:
        timeless = next((each for each in files if each.name in _TIMELESS), None)
        if timeless is not None:
            what = f"{timeless.name} of {_TIMELESS[timeless.name]} has no times"
            raise UsageError(asked, what, "measure the next run: levelbench.track, or levelbench time --target")
        do = "give event files of TensorBoard, a folder or database of MLflow, or an offline run of W&B (.wandb)"
        raise UsageError(asked, "there is no log of a supported tool", do)
    return sorted(found, key=lambda each: (each.started_s, each.name))


def import_run(
    run: RunLog,
    target: Target,
    store: Path,
    *,
    metric: str | None = None,
    task: str,
    recipe: str,
    ignore: Iterable[str] = (),
) -> tuple[Path, bool]:
    """The record of a run in ``store``, and whether it is new.

    ``metric`` is the log's name for the target's metric. The seed is the setting of that name; without one it is a
    number that no other run has. Settings in ``ignore`` do not distinguish runs. Raises ``UsageError`` for a log that
    lacks the metric, or whose steps or times go back.
    """
    asked = f"importing {run.name} from {run.tool}"
    points = run.metrics.get(metric or target.metric)
    if not points:
        names = ", ".join(sorted(run.metrics)) or "nothing"
        raise UsageError(asked, f"it logs {names}", f"give its name for {target.metric}: --metric NAME")
    if any(later.step < earlier.step for earlier, later in pairwise(points)):
        found = "its steps go back: it was resumed, and no clock ran in between"
        raise UsageError(asked, found, "import only runs that were not resumed")
    if points[0].at_s < run.started_s or any(b.at_s < a.at_s for a, b in pairwise(points)):
        raise UsageError(asked, "its times go back", "the clock of its machine was set while it ran: leave it out")
    settings, seed = _settings(run.settings, frozenset(ignore))
    specification = Specification(
        task=task,
        recipe=path_part(recipe),
        framework="imported",
        device="unknown",
        settings=settings,
        target=target,
        crossing="confirmed",
        clock="wall",
        evaluate_every="time in its log",
        budget_epochs=0.0,
        scored_by="program",
    )
    key = key_of(specification)
    identity = hashlib.sha256(f"{run.tool} {run.identity} {key}".encode()).hexdigest()[:16]
    seed = int(identity[:8], 16) if seed is None else seed
    for path in (store / path_part(task)).glob(f"*/{key[:8]}-s{seed}-{identity}.jsonl"):
        return path, False
    text = f"a run logged by {run.tool}; the log does not have its program\n"
    header = Header(
        schema=SCHEMA,
        id=identity,
        key=key,
        seed=seed,
        started=datetime.fromtimestamp(run.started_s, UTC).isoformat(timespec="milliseconds"),
        specification=specification,
        environment={"started": "imported", "log": {"tool": run.tool, "name": redact(run.name)}},
        source=source_of_text(run.tool, text),
        version=__version__,
    )
    epochs = next((each for name, each in run.metrics.items() if _EPOCH.fullmatch(name)), [])
    with RecordWriter.create(store, header) as writer:
        epoch = 0.0
        for point in points:
            told = [each.value for each in epochs if each.step <= point.step and math.isfinite(each.value)]
            epoch = max(epoch, told[-1] if told else 0.0)
            ns = round((point.at_s - run.started_s) * 1e9)
            quality = {target.split: target.read(point.value)}
            # A log does not say whether its steps are updates, epochs or its own lines.
            writer.append(Evaluation(ns, 0, epoch, 0, quality, None, {"train": ns}))
        end_ns = max(ns, round((run.ended_s - run.started_s) * 1e9))
        suspect = list(_doubts(run, metric or target.metric, points))
        writer.append(End("done", end_ns, {"train": end_ns}, quality, suspect=suspect, stopped_by="its log ends"))
    return writer.path, True


def _doubts(run: RunLog, metric: str, points: Sequence[Point]) -> Iterator[str]:
    if _TRAINING.search(f"{run.name}/{metric}"):
        yield f"the names {run.name} and {metric} suggest training data: is this a quality on held-out data?"
    gaps = sorted(later.at_s - earlier.at_s for earlier, later in pairwise(points))
    if len(gaps) > 2 and gaps[-1] > _LONG_GAPS * max(gaps[len(gaps) // 2], 1.0):
        yield f"nothing was logged for {gaps[-1]:.3g} s: if the run was interrupted, its time includes that"


def _settings(given: Mapping[str, Setting], ignore: frozenset[str]) -> tuple[dict[str, Setting], int | None]:
    """The settings for the record, and the seed."""
    found: dict[str, Setting] = {}
    seed = None
    for name, value in given.items():
        if name in ignore:
            continue
        if _SEED.fullmatch(name) and isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
            seed = value
        elif len(found) < _MOST_SETTINGS:
            plain = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)
            plain = plain if re.match(r"[A-Za-z_]", plain) else f"_{plain}"
            found[plain] = redact(value)[:_LONGEST] if isinstance(value, str) else value
    return found, seed


def _plain(text: str) -> Setting:
    """The value of a logged text: true or false, a whole number, a number, or the text itself."""
    if text in ("True", "true", "False", "false"):
        return text in ("True", "true")
    for kind in (int, float):
        with suppress(ValueError):
            value = kind(text)
            return value if math.isfinite(value) else text
    return text


def _need(package: str, asked: str) -> None:
    if find_spec(package) is None:
        raise MissingError(asked, f"{package} is not installed", f"pip install {package}")


def _guarded(asked: str, path: Path, read: Callable[[], RunLog]) -> RunLog:
    """What ``read`` returns; errors from a damaged log become ``DataError``."""
    try:
        return read()
    except LevelbenchError:
        raise
    except Exception as error:  # other libraries, and any user's files
        found = f"{path} is damaged: {type(error).__name__}: {error}"
        raise DataError(asked, found, "restore it from a copy, or leave it out") from error


def scalars(event: Any) -> Iterator[tuple[str, float]]:
    """The numbers in a TensorBoard event, as ``EventFileLoader`` returns it: tag and value."""
    from tensorboard.util.tensor_util import make_ndarray

    for value in event.summary.value:
        if value.metadata.plugin_data.plugin_name in ("", "scalars") and value.HasField("tensor"):
            array = make_ndarray(value.tensor)
            if array.size == 1 and array.dtype.kind in "fiub":
                yield value.tag, float(array.reshape(()))


def _tensorboard(asked: str, top: Path, folder: Path, files: list[Path]) -> RunLog:
    _need("tensorboard", asked)

    def read() -> RunLog:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

        metrics: dict[str, list[Point]] = {}
        times = []
        for path in files:
            for event in EventFileLoader(str(path)).Load():
                times.append(event.wall_time)
                prefix = "train/" if path.parent != folder and path.parent.name == _KERAS[0] else ""
                for tag, value in scalars(event):
                    metrics.setdefault(prefix + tag, []).append(Point(event.wall_time, event.step, value))
        if not times:
            raise DataError(asked, f"there are no events in {folder}", "give the folder of a run with logged values")
        name = folder.name if folder == top else str(folder.relative_to(top))
        # A copied or renamed folder is still the same run.
        identity = f"{min(times)!r} {max(times)!r} {len(times)} {sorted(metrics.items())}"
        return RunLog("TensorBoard", name, identity, min(times), max(times), {}, metrics)

    return _guarded(asked, folder, read)


def _is_deleted(meta: Path) -> bool:
    """Whether an MLflow run was deleted, which leaves its folder in place."""
    try:
        text = meta.read_text(errors="replace")
    except OSError:
        return False
    return re.search(r"^lifecycle_stage:\s*['\"]?deleted", text, re.MULTILINE) is not None


def _mlflow_folder(asked: str, folder: Path) -> RunLog:
    def read() -> RunLog:
        meta = dict(
            line.split(": ", 1) for line in (folder / "meta.yaml").read_text().splitlines() if ": " in line[:80]
        )
        metrics = {}
        for path in (each for each in (folder / "metrics").rglob("*") if each.is_file()):
            rows = (line.split() for line in path.read_text().splitlines() if line.strip())
            name = path.relative_to(folder / "metrics").as_posix()
            metrics[name] = [
                Point(int(row[0]) / 1e3, int(row[2]) if len(row) > 2 else 0, float(row[1])) for row in rows
            ]
        texts = {
            each.relative_to(folder / "params").as_posix(): each.read_text()
            for each in (folder / "params").rglob("*")
            if each.is_file()
        }
        name = meta.get("run_name", "").strip("'\"")
        return _mlflow(name, folder.name, meta["start_time"], meta.get("end_time"), texts, metrics)

    return _guarded(asked, folder, read)


def _mlflow_database(asked: str, path: Path) -> list[RunLog]:
    found = []
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            rows = database.execute(
                "SELECT run_uuid, name, start_time, end_time FROM runs WHERE lifecycle_stage = 'active'"
            ).fetchall()
            for identity, name, started, ended in rows:
                metrics: dict[str, list[Point]] = {}
                columns = "SELECT key, timestamp, step, value, is_nan FROM metrics"
                logged = database.execute(f"{columns} WHERE run_uuid = ? ORDER BY timestamp, step", (identity,))
                for key, at_ms, step, value, is_nan in logged:
                    metrics.setdefault(key, []).append(Point(at_ms / 1e3, step, math.nan if is_nan else value))
                texts = dict(database.execute("SELECT key, value FROM params WHERE run_uuid = ?", (identity,)))
                found.append(_mlflow(name, identity, started, ended, texts, metrics))
    except (sqlite3.Error, TypeError, ValueError) as error:
        do = "give a database of MLflow"
        raise DataError(asked, f"{path} cannot be read as a database of MLflow: {error}", do) from error
    return found


def _mlflow(
    name: str | None,
    identity: str,
    started_ms: object,
    ended_ms: object,
    texts: Mapping[str, str],
    metrics: dict[str, list[Point]],
) -> RunLog:
    started_s = int(str(started_ms)) / 1e3
    last_s = max((point.at_s for points in metrics.values() for point in points), default=started_s)
    with suppress(ValueError):
        last_s = max(last_s, int(str(ended_ms)) / 1e3)
    settings = {each: _plain(text) for each, text in texts.items()}
    return RunLog("MLflow", name or identity, identity, started_s, last_s, settings, metrics)


def _wandb(asked: str, path: Path) -> RunLog:
    _need("wandb", asked)

    def read() -> RunLog:
        from wandb.proto.wandb_internal_pb2 import Record

        begun = None
        settings: dict[str, Setting] = {}
        metrics: dict[str, list[Point]] = {}
        name = identity = path.stem
        ended_s = 0.0
        for body in _wandb_bodies(path.read_bytes()):
            entry = Record()
            entry.ParseFromString(body)
            kind = entry.WhichOneof("record_type")
            if kind == "run":
                identity, name = entry.run.run_id, entry.run.display_name or entry.run.run_id
                begun = entry.run.start_time.seconds + entry.run.start_time.nanos * 1e-9
                told = {each.key: json.loads(each.value_json) for each in entry.run.config.update}
                settings |= {each: value for each, value in told.items() if isinstance(value, int | float | str | bool)}
            elif kind == "history":
                row = {
                    "/".join(each.nested_key) or each.key: json.loads(each.value_json) for each in entry.history.item
                }
                at_s, step = float(row["_timestamp"]), int(row.get("_step", entry.history.step.num))
                ended_s = max(ended_s, at_s)
                for each, value in row.items():
                    if isinstance(value, int | float) and not each.startswith("_"):
                        metrics.setdefault(each, []).append(Point(at_s, step, float(value)))
        if begun is None:
            raise DataError(asked, f"{path} does not name its run", "give the .wandb file of an offline run")
        return RunLog("W&B", name, identity, begun, max(begun, ended_s), settings, metrics)

    return _guarded(asked, path, read)


def _wandb_bodies(data: bytes) -> Iterator[bytes]:
    """The records in a ``.wandb`` file: LevelDB's log format after 7 bytes of header. An incomplete end is dropped."""
    if data[:4] != b":W&B":
        raise ValueError("it does not begin like a file of W&B")
    at, whole = 7, b""
    while at + 7 <= len(data):
        left = _BLOCK - at % _BLOCK
        if left < 7:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        body = data[at + 7 : at + 7 + length]
        if kind not in (1, 2, 3, 4) or len(body) < length:
            return
        at += 7 + length
        whole = body if kind in (1, 2) else whole + body
        if kind in (1, 4):
            yield whole
