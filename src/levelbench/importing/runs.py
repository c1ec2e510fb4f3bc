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
import statistics
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

from levelbench import __version__
from levelbench.errors import DataError, LevelbenchError, MissingError, UsageError
from levelbench.records.reader import read_record
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
from levelbench.records.selection import OWN_NAMES
from levelbench.records.writer import RecordWriter, path_part

__all__ = ["Point", "RunLog", "import_run", "read_runs", "scalars"]

Setting = int | float | str | bool
Status = Literal["done", "failed", "interrupted"]
_TIMELESS = {"metrics.csv": "Lightning's CSV logger", "trainer_state.json": "Hugging Face's Trainer"}
_MOST_SETTINGS, _LONGEST = 100, 200
_SEED = re.compile(r"(?:.*[./])?(?:random_|manual_|rng_)?seed", re.IGNORECASE)
_EPOCH = re.compile(r"(?:.*/)?epochs?", re.IGNORECASE)
_BLOCK = 1 << 15
_TRAINING = re.compile(r"(?<![a-z])train(?:ing)?(?![a-z])", re.IGNORECASE)
_PROCESS = re.compile(r"tfevents\.\d+\.(.+)\.(\d+)\.(\d+)\D*")
"""Host, process and the number of the writer in it, in the name of an event file."""
_LONG_GAPS = 10
"""A gap this many times as long as the median gap gives a doubt."""
_AT_ONCE_S, _SOON_S, _LATE = 0.02, 0.1, 100
"""A loop after training logs its values this close together (a call of MLflow's takes 2 to 12 ms): if most are within
the first, the log is refused, within the second it is doubted. So it is if the first value came this many times as late
as the others are apart."""
_KERAS = ("train", "validation")
_MLFLOW: dict[str, Status] = {"FINISHED": "done", "3": "done", "FAILED": "failed", "4": "failed"}
"""By the status in MLflow's databases and folders; the others are of runs that were killed or go on."""


class Point(NamedTuple):
    """A logged value, with its time in seconds since 1970 and the number of steps before it."""

    at_s: float
    step: int
    value: float


@dataclass(frozen=True)
class RunLog:
    """A run as logged by ``tool``.

    ``identity`` is unique among the runs of that tool. ``started_s`` and ``ended_s`` are seconds since 1970;
    ``metrics`` are by name, values in the order of logging. ``status`` is how it ended, as far as the log says it.
    ``fault`` is why its times are not those of a training, or why it cannot be read.
    """

    tool: str
    name: str
    identity: str
    started_s: float
    ended_s: float
    settings: Mapping[str, Setting] = field(default_factory=dict)
    metrics: Mapping[str, list[Point]] = field(default_factory=dict)
    status: Status = "done"
    fault: str = ""


def read_runs(path: Path) -> list[RunLog]:
    """The runs logged in a file or a folder, by their start. Of several logs, damaged ones are runs with a ``fault``.

    ``UsageError`` if there are none, ``DataError`` if all are damaged, ``MissingError`` for a missing library.
    """
    asked = f"importing {path}"
    if not path.exists():
        raise UsageError(asked, "it does not exist", "give a log, or a folder of logs")
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    logs: list[tuple[Path, Callable[[], list[RunLog]]]] = []
    events = dict.fromkeys(each.parent for each in files if ".tfevents." in each.name)
    # Keras writes the curves of one run into two folders.
    runs: dict[Path, list[Path]] = {}
    for folder in events:
        of_keras = folder.name in _KERAS and all(folder.parent / each in events for each in _KERAS)
        runs.setdefault(folder.parent if of_keras else folder, []).append(folder)
    # What ``add_hparams`` logs in a folder within that of the run is the run's.
    lent: dict[Path, dict[str, Setting]] = {}
    for folder, parts in sorted(runs.items(), key=lambda each: -len(each[0].parts)):
        own = [each for each in files if each.parent in parts and ".tfevents." in each.name]
        top = path if path.is_dir() else folder
        logs.append((folder, partial(_tensorboard, asked, top, folder, own, folder.parent in events, lent)))
    for each in files:
        if each.suffix == ".wandb":
            logs.append((each, partial(_wandb, asked, each)))
        elif each.name == "meta.yaml" and (each.parent / "metrics").is_dir() and not _is_deleted(each):
            logs.append((each.parent, partial(_mlflow_folder, asked, each.parent)))
        # A store within the folder has an index of that kind.
        elif each.suffix in (".db", ".sqlite") and (each == path or not each.name.startswith(".")):
            logs.append((each, partial(_mlflow_database, asked, each)))
    found: list[RunLog] = []
    damaged: list[DataError] = []
    for place, read in logs:
        try:
            found += read()
        except DataError as error:
            damaged.append(error)
            name = str(place.relative_to(path)) if place.is_relative_to(path) else place.name
            found.append(RunLog("", name, name, math.inf, math.inf, fault=error.found))
    if damaged and len(damaged) == len(found):
        raise damaged[0]
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
    crossing: Literal["confirmed", "final", "first", "sustained"] = "confirmed",
    task: str,
    recipe: str,
    ignore: Iterable[str] = (),
) -> tuple[Path, bool]:
    """The record of a run in ``store``, and whether it is new.

    ``metric`` is the log's name for the target's metric, ``crossing`` the rule by which it counts as reached. The seed
    is the setting of that name; without one it is a number that no other run has. Settings in ``ignore`` do not
    distinguish runs. The record of a run that had not ended is written again once its log has grown. Raises
    ``UsageError`` for a log that lacks the metric, whose values or times cannot be those of a training, or whose values
    are off the target's scale.
    """
    points = _points(run, target, metric or target.metric)
    settings, seed = _settings(run.settings, frozenset(ignore))
    specification = Specification(
        task=task,
        recipe=path_part(recipe),
        framework="imported",
        device="unknown",
        settings=settings,
        target=target,
        crossing=crossing,
        clock="wall",
        evaluate_every="time in its log",
        budget_epochs=0.0,
        scored_by="program",
    )
    key = key_of(specification)
    identity = hashlib.sha256(f"{run.tool} {run.identity} {key}".encode()).hexdigest()[:16]
    seed = int(identity[:8], 16) if seed is None else seed
    for path in (store / path_part(task)).glob(f"*/{key[:8]}-s{seed}-{identity}.jsonl"):
        found = read_record(path)
        if found.end is not None or (run.status == "interrupted" and len(found.evaluations) == len(points)):
            return path, False
        path.unlink()
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
        epoch, ns = 0.0, 0
        for point in points:
            told = [each.value for each in epochs if each.step <= point.step and math.isfinite(each.value)]
            epoch = max(epoch, told[-1] if told else 0.0)
            ns = round((point.at_s - run.started_s) * 1e9)
            quality = {target.split: target.read(point.value)}
            # A log does not say whether its steps are updates, epochs or its own lines.
            writer.append(Evaluation(ns, 0, epoch, 0, quality, None, {"train": ns}))
        end_ns = max(ns, round((run.ended_s - run.started_s) * 1e9))
        phases = {"train": end_ns}
        if run.status == "done":
            suspect = list(_doubts(run, metric or target.metric, points))
            writer.append(End("done", end_ns, phases, quality, suspect=suspect, stopped_by="its log ends"))
        elif run.status == "failed":
            writer.append(End("failed", end_ns, phases, error=f"{run.tool} says that it failed"))
    return writer.path, True


def _points(run: RunLog, target: Target, metric: str) -> list[Point]:
    """The values of the metric; ``UsageError`` for what cannot be the qualities and times of a training."""
    asked = f"importing {run.name} from {run.tool}"
    if run.fault:
        raise UsageError(asked, run.fault, "leave it out")
    points = run.metrics.get(metric)
    if not points:
        names = ", ".join(sorted(run.metrics)) or "nothing"
        raise UsageError(asked, f"it logs {names}", f"give its name for {target.metric}: --metric NAME")
    if any(later.step < earlier.step for earlier, later in pairwise(points)):
        found = "its steps go back: it was resumed, and no clock ran in between"
        raise UsageError(asked, found, "import only runs that were not resumed")
    if points[0].at_s < run.started_s or any(b.at_s < a.at_s for a, b in pairwise(points)):
        raise UsageError(asked, "its times go back", "the clock of its machine was set while it ran: leave it out")
    again = "measure the next run: levelbench.track, or levelbench time --target"
    if points[0].at_s <= run.started_s:
        found = f"its first {metric} was logged 0 s after its start, so it does not say how long it trained before"
        raise UsageError(asked, found, again)
    together = sum(later.at_s - earlier.at_s < _AT_ONCE_S for earlier, later in pairwise(points))
    if 2 * together > len(points) - 1:
        span_s = points[-1].at_s - points[0].at_s
        found = f"its {len(points)} values of {metric} were logged within {span_s:.2g} s, as by a loop after training"
        raise UsageError(asked, f"{found}: their times are not those of the evaluations", again)
    low, high = target.ends
    outside = [each.value for each in points if each.value < low or each.value > high]
    if outside:
        found = f"{metric} is {outside[0]:g}, and the scale of the target goes {target.scale}"
        do = "say its scale: --scale LOWEST,HIGHEST"
        if target.is_per_cent(max(outside)):
            do = f"give the target in per cent: --target {target.metric}={100 * target.threshold:g}"
        raise UsageError(asked, found, do)
    return points


def _doubts(run: RunLog, metric: str, points: Sequence[Point]) -> Iterator[str]:
    if _TRAINING.search(f"{run.name}/{metric}"):
        yield f"the names {run.name} and {metric} suggest training data: is this a quality on held-out data?"
    gaps = sorted(later.at_s - earlier.at_s for earlier, later in pairwise(points))
    first_s, apart_s = points[0].at_s - run.started_s, statistics.median(gaps or [math.inf])
    if apart_s < max(_SOON_S, first_s / _LATE) or (gaps and gaps[0] < _AT_ONCE_S):
        yield (
            f"its values were logged {gaps[0]:.2g} to {gaps[-1]:.2g} s apart, the first after {first_s:.3g} s: those "
            "that were logged after training, or together, have times that are not those of their evaluations"
        )
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
            plain = plain if re.match(r"[A-Za-z_]", plain) and plain not in OWN_NAMES else f"_{plain}"
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


def _guarded(asked: str, path: Path, read: Callable[[], RunLog]) -> list[RunLog]:
    """What ``read`` returns, alone; errors from a damaged log become ``DataError``."""
    try:
        return [read()]
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


def _events(asked: str, path: Path) -> Iterator[Any]:
    """The events in a file of TensorBoard, and ``None`` if it is cut in the middle of one.

    TensorBoard's own loader ends without a word at a damaged event. ``DataError`` says where it is.
    """
    from tensorboard import data_compat, dataclass_compat
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    read_bytes, count = 0, 0
    metadata: dict[str, Any] = {}
    for body in RawEventFileLoader(str(path)).Load():
        # Around each: its length, and a checksum of the length and of itself.
        read_bytes, count = read_bytes + len(body) + 16, count + 1
        yield from dataclass_compat.migrate_event(data_compat.migrate_event(Event.FromString(body)), metadata)
    left_bytes = path.stat().st_size - read_bytes
    if not left_bytes:
        return
    with path.open("rb") as file:
        file.seek(read_bytes)
        head = file.read(12)
    is_length = len(head) == 12 and masked_crc32c(head[:8]) == int.from_bytes(head[8:], "little")
    if len(head) == 12 and not (is_length and left_bytes < int.from_bytes(head[:8], "little") + 16):
        found = f"{path} is damaged from its event {count + 1} on"
        raise DataError(asked, found, "restore it from a copy, or leave it out")
    yield None


def _tensorboard(
    asked: str, top: Path, folder: Path, files: list[Path], within: bool, lent: dict[Path, dict[str, Setting]]
) -> list[RunLog]:
    """``within`` says whether the folder above has a log, too: then settings alone (``add_hparams``) are no run.

    They are ``lent`` to the run of that folder.
    """
    _need("tensorboard", asked)
    settings: dict[str, Setting] = {}
    has_settings = False

    def read() -> RunLog:
        nonlocal has_settings
        metrics: dict[str, list[Point]] = {}
        # Of each file its process, the number of its writer in that, and its times.
        spans: list[tuple[tuple[str, ...], str, list[float]]] = []
        training: set[tuple[str, ...]] = set()
        status: Status = "done"
        for path in files:
            named = _PROCESS.search(path.name)
            process, writer = (named.groups()[:2], named[3]) if named is not None else ((path.name,), "")
            # In a container each process may have the same number.
            if any((process, writer) == each[:2] for each in spans):
                process = (path.name,)
            times: list[float] = []
            spans.append((process, writer, times))
            for event in _events(asked, path):
                if event is None:
                    status = "interrupted"
                    continue
                times.append(event.wall_time)
                has_settings = has_settings or any(each.tag.startswith("_hparams_/") for each in event.summary.value)
                settings.update(_hyperparameters(event))
                prefix = "train/" if path.parent != folder and path.parent.name == _KERAS[0] else ""
                for tag, value in scalars(event):
                    training.add(process)
                    metrics.setdefault(prefix + tag, []).append(Point(event.wall_time, event.step, value))
        own = [(each[0], each[2]) for each in spans if each[2] and (each[0] in training or not training)]
        if not own:
            raise DataError(asked, f"there are no events in {folder}", "give the folder of a run with logged values")
        times = sorted(at for _, each in own for at in each)
        name = folder.name if folder == top else str(folder.relative_to(top))
        # A copied or renamed folder is still the same run.
        identity = f"{times[0]!r} {times[-1]!r} {len(times)} {sorted(metrics.items())}"
        return RunLog("TensorBoard", name, identity, times[0], times[-1], settings, metrics, status, _pause(own))

    (found,) = _guarded(asked, folder, read)
    if within and has_settings and not any(len(each) > 1 for each in found.metrics.values()):
        lent.setdefault(folder.parent, {}).update(settings)
        return []
    return [replace(found, settings=lent.get(folder, {}) | settings)]


def _hyperparameters(event: Any) -> Iterator[tuple[str, Setting]]:
    """What ``add_hparams`` has logged in an event."""
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    for value in event.summary.value:
        if value.tag == "_hparams_/session_start_info":
            told = HParamsPluginData.FromString(value.metadata.plugin_data.content).session_start_info.hparams
            for name, each in told.items():
                kind = each.WhichOneof("kind")
                if kind == "number_value":
                    number = each.number_value
                    yield name, int(number) if number.is_integer() else number if math.isfinite(number) else str(number)
                elif kind in ("string_value", "bool_value"):
                    yield name, getattr(each, kind)


def _pause(spans: Iterable[tuple[tuple[str, ...], Sequence[float]]]) -> str:
    """What the files' processes and times say of a pause.

    One process may begin another file, too: for that it takes longer than from any event to the next.
    """
    in_order = sorted(((process, sorted(times)) for process, times in spans), key=lambda each: each[1][0])
    longest_s = max((later - earlier for _, times in in_order for earlier, later in pairwise(times)), default=0.0)
    seen, end_s = set[tuple[str, ...]](), math.inf
    for process, times in in_order:
        pause_s = times[0] - end_s
        if pause_s > (longest_s if process in seen else 0.0):
            return f"it was resumed {pause_s:.3g} s after its last event, and no clock ran in between"
        seen.add(process)
        end_s = times[-1] if math.isinf(end_s) else max(times[-1], end_s)
    return ""


def _is_deleted(meta: Path) -> bool:
    """Whether an MLflow run was deleted, which leaves its folder in place."""
    try:
        text = meta.read_text(errors="replace")
    except OSError:
        return False
    return re.search(r"^lifecycle_stage:\s*['\"]?deleted", text, re.MULTILINE) is not None


def _mlflow_folder(asked: str, folder: Path) -> list[RunLog]:
    def read() -> RunLog:
        meta = dict(
            line.split(": ", 1) for line in (folder / "meta.yaml").read_text().splitlines() if ": " in line[:80]
        )
        metrics = {}
        for path in (each for each in (folder / "metrics").rglob("*") if each.is_file()):
            name = path.relative_to(folder / "metrics").as_posix()
            metrics[name] = [
                _mlflow_point(asked, path, at, line.split())
                for at, line in enumerate(path.read_text().splitlines(), 1)
                if line.strip()
            ]
        texts = {
            each.relative_to(folder / "params").as_posix(): each.read_text()
            for each in (folder / "params").rglob("*")
            if each.is_file()
        }
        name = meta.get("run_name", "").strip("'\"")
        times_ms = meta["start_time"], meta.get("end_time")
        return _mlflow(name, folder.name, times_ms, meta["status"].strip("'\""), texts, metrics)

    return _guarded(asked, folder, read)


def _mlflow_point(asked: str, path: Path, at: int, row: Sequence[str]) -> Point:
    try:
        return Point(int(row[0]) / 1e3, int(row[2]) if len(row) > 2 else 0, float(row[1]))
    except (ValueError, IndexError) as error:
        found = f"line {at} of {path} is not a time, a value and a step: {' '.join(row)[:80]!r}"
        raise DataError(asked, found, "correct that line, or take it out") from error


def _mlflow_database(asked: str, path: Path) -> list[RunLog]:
    found = []
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            rows = database.execute(
                "SELECT run_uuid, name, start_time, end_time, status FROM runs WHERE lifecycle_stage = 'active'"
            ).fetchall()
            for identity, name, started, ended, status in rows:
                metrics: dict[str, list[Point]] = {}
                columns = "SELECT key, timestamp, step, value, is_nan FROM metrics"
                logged = database.execute(f"{columns} WHERE run_uuid = ? ORDER BY timestamp, step", (identity,))
                for key, at_ms, step, value, is_nan in logged:
                    metrics.setdefault(key, []).append(Point(at_ms / 1e3, step, math.nan if is_nan else value))
                texts = dict(database.execute("SELECT key, value FROM params WHERE run_uuid = ?", (identity,)))
                found.append(_mlflow(name, identity, (started, ended), status, texts, metrics))
    except (sqlite3.Error, TypeError, ValueError) as error:
        do = "give a database of MLflow"
        raise DataError(asked, f"{path} cannot be read as a database of MLflow: {error}", do) from error
    return found


def _mlflow(
    name: str | None,
    identity: str,
    times_ms: tuple[object, object],
    status: str,
    texts: Mapping[str, str],
    metrics: dict[str, list[Point]],
) -> RunLog:
    """``times_ms`` are its start and its end."""
    started_s = int(str(times_ms[0])) / 1e3
    last_s = max((point.at_s for points in metrics.values() for point in points), default=started_s)
    with suppress(ValueError):
        last_s = max(last_s, int(str(times_ms[1])) / 1e3)
    settings = {each: _plain(text) for each, text in texts.items()}
    ended = _MLFLOW.get(status, "interrupted")
    return RunLog("MLflow", name or identity, identity, started_s, last_s, settings, metrics, ended)


def _wandb(asked: str, path: Path) -> list[RunLog]:
    _need("wandb", asked)

    def read() -> RunLog:
        from wandb.proto.wandb_internal_pb2 import Record

        begun = None
        settings: dict[str, Setting] = {}
        metrics: dict[str, list[Point]] = {}
        name = identity = path.stem
        ended_s = 0.0
        status: Status = "interrupted"
        fault = ""
        for body in _wandb_bodies(path.read_bytes()):
            entry = Record()
            entry.ParseFromString(body)
            kind = entry.WhichOneof("record_type")
            if kind == "run":
                identity, name = entry.run.run_id, entry.run.display_name or entry.run.run_id
                fault = "it was resumed, and no clock ran in between" if entry.run.resumed else fault
                begun = entry.run.start_time.seconds + entry.run.start_time.nanos * 1e-9
                told = {each.key: json.loads(each.value_json) for each in entry.run.config.update}
                settings |= {each: value for each, value in told.items() if isinstance(value, int | float | str | bool)}
            elif kind == "exit":
                status = "failed" if entry.exit.exit_code else "done"
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
        return RunLog("W&B", name, identity, begun, max(begun, ended_s), settings, metrics, status, fault)

    return _guarded(asked, path, read)


def _wandb_bodies(data: bytes) -> Iterator[bytes]:
    """The records in a ``.wandb`` file: LevelDB's log format after 7 bytes of header. An incomplete end is dropped.

    ``ValueError`` for a damaged one.
    """
    if data[:4] != b":W&B":
        raise ValueError("it does not begin like a file of W&B")
    at, whole = 7, b""
    while at + 7 <= len(data):
        left = _BLOCK - at % _BLOCK
        if left < 7:
            at += left
            continue
        checksum, length, kind = struct.unpack("<IHB", data[at : at + 7])
        body = data[at + 7 : at + 7 + length]
        if len(body) < length <= left - 7:
            return
        if kind not in (1, 2, 3, 4) or zlib.crc32(data[at + 6 : at + 7 + length]) != checksum:
            raise ValueError(f"a checksum is wrong at byte {at} of {len(data)}")
        at += 7 + length
        whole = body if kind in (1, 2) else whole + body
        if kind in (1, 4):
            yield whole
