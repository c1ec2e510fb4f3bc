"""MLPerf Training: folders and archives of results are read, and runs are written as training logs (``:::MLLOG``).

Logs are written so that the official checker and other readers accept them, and claim only what is known. For our own
runs caches are logged as not cleared; for other systems' runs nothing is logged about them. Unstated counts are
``null``, and what MLPerf's keys cannot express (the target, all settings) is logged under keys of our own, as the
format allows.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import msgspec

from levelbench.competition.entries import Submission, write_whole
from levelbench.competition.exchange import read_bytes
from levelbench.competition.exchange.mlperf.compliance import check_log, check_seeds
from levelbench.competition.exchange.mlperf.entries import (
    LoggedEvaluation,
    LoggedRun,
    losses_of,
    of_record,
    of_submission,
    submission_of,
)
from levelbench.competition.exchange.mlperf.logs import (
    ENTRY_KEY,
    ORIGIN_KEY,
    SETTINGS_KEY,
    TARGET_KEY,
    TrainingLog,
    Tree,
    benchmark,
    json_value,
    number_of,
    parse_log,
    read_log,
    read_tree,
    require_one_run,
)
from levelbench.competition.rulesets.scores import ReferencePoint, scaling_of
from levelbench.errors import LevelbenchError, RecordError
from levelbench.records.reader import Record
from levelbench.records.writer import path_part

__all__ = ["check_log", "check_seeds", "losses_of", "read_log", "read_points", "read_results", "write_log"]
__all__ += ["write_submission"]

_LOG = re.compile(r"result_\d{1,6}\.txt")


def read_results(path: str | Path) -> tuple[list[Submission], list[str]]:
    """The submissions below ``path``, and the problems: what could not be read, and why.

    ``path`` is a folder, a tar archive of one, or a single log. A log that cannot be read is a problem, and a doubt
    about its submission. Raises ``RecordError`` if the path does not exist, has no log below it, or is a damaged
    archive.
    """
    path = Path(path)
    asked = f"reading the MLPerf results in {path}"
    tree = read_tree(path, _LOG, asked)
    groups: dict[PurePosixPath, list[PurePosixPath]] = {}
    for name in tree:
        if name.suffix != ".json":
            groups.setdefault(name.parent, []).append(name)
    if not groups:
        raise RecordError(asked, "there is no result_<i>.txt in it", "give a folder of results, or one log")
    found: list[Submission] = []
    problems: list[str] = []
    for folder, names in groups.items():
        try:
            found.append(_read_group(tree, folder, names, problems))
        except LevelbenchError as error:
            problems.append(str(error))
    return found, problems


def _read_group(tree: Tree, folder: PurePosixPath, names: Sequence[PurePosixPath], problems: list[str]) -> Submission:
    logs: list[TrainingLog] = []
    digests: dict[str, str] = {}
    doubts: list[str] = []
    for name in names:
        try:
            log = parse_log(io.BytesIO(tree[name]), name.name, f"reading the MLPerf log {name}")
            require_one_run(log, f"reading the MLPerf log {name}")
            logs.append(log)
        except LevelbenchError as error:
            problems.append(str(error))
            doubts.append(f"{name.name} cannot be read: {error.found}")
        else:
            digests[name.name] = hashlib.sha256(tree[name]).hexdigest()
    fields: dict[str, int | float | str | bool | None] = {}
    if (scaling := folder / "scaling.json") in tree:
        fields["scaling_factor"] = scaling_of(tree[scaling], f"reading {scaling}")
    where = str(folder) if str(folder) != "." else names[0].name if len(names) == 1 else str(folder)
    system, doubt = system_of(tree, folder)
    return submission_of(
        logs, file=where, system=system, digests=digests, fields=fields, doubts=[*doubts, *([doubt] if doubt else [])]
    )


def around_results(folder: PurePosixPath) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names above and below the last folder called ``results`` on the path; empty if there is none."""
    parts = folder.parts
    if "results" not in parts:
        return (), ()
    at = len(parts) - 1 - parts[::-1].index("results")
    return parts[:at], parts[at + 1 :]


def system_of(tree: Tree, folder: PurePosixPath) -> tuple[dict[str, object], str | None]:
    """The description of the system of a folder of logs, empty if there is none; and a doubt about it."""
    above, below = around_results(folder)
    name = PurePosixPath(*above, "systems", f"{below[0]}.json") if below else None
    if name is None or name not in tree:
        return {}, None
    try:
        described = json_value(tree[name].decode("utf-8-sig"))
    except ValueError as error:
        return {}, f"{name} cannot be read ({error})"
    return (described, None) if isinstance(described, dict) else ({}, f"{name} is not an object")


_LIMIT = 16 * 1024 * 1024
_FIELDS = ("epochs to converge", "samples to converge")


def read_points(path: str | Path) -> dict[str, list[ReferencePoint]]:
    """The points in a file by benchmark, in the file's order; each drops as many runs as the benchmark's score.

    Raises ``RecordError`` for any other file, or a record without benchmark, batch size or values.
    """
    path = Path(path)
    asked = f"reading the reference points in {path}"
    do = 'give {"<name>": {"Benchmark": ..., "BS": ..., "Epochs to converge": [...]}, ...}'
    try:
        said = json_value(read_bytes(path, _LIMIT, asked=asked).decode("utf-8-sig"))
    except ValueError as error:
        raise RecordError(asked, str(error), do) from error
    if not isinstance(said, dict):
        raise RecordError(asked, "it is not an object", do)
    found: dict[str, list[ReferencePoint]] = {}
    for name, record in said.items():
        try:
            which, point = _point(record)
        except ValueError as error:
            raise RecordError(asked, f"{name[:80]}: {error}", do) from error
        found.setdefault(which, []).append(point)
    return found


def _point(record: object) -> tuple[str, ReferencePoint]:
    if not isinstance(record, dict):
        raise ValueError("it is not an object")
    name, batch_size = record.get("Benchmark"), record.get("BS")
    if not isinstance(name, str) or isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError("it has no Benchmark, or no BS above zero")
    values = next((each for field, each in record.items() if field.lower() in _FIELDS), None)
    if not isinstance(values, list) or not values:
        raise ValueError("it has no values to converge")
    numbers = [number_of(value) for value in values]
    known = benchmark(name)
    point = ReferencePoint(batch_size, tuple(n for n in numbers if n is not None), known.drop if known else 1)
    if len(point.values) < len(numbers):
        raise ValueError("a value is not a number")
    return name, point


_LATEST_S = 2**53 / 1000
_KINDS = {"start": "INTERVAL_START", "end": "INTERVAL_END", "point": "POINT_IN_TIME"}
Kind = Literal["start", "end", "point"]


def write_log(
    record: Record, path: str | Path, *, organisation: str = "not stated", benchmark: str | None = None
) -> Path:
    """Write one of our records to ``path`` as a log, atomically, and return the path.

    The clock and the rule that stops it (the first evaluation at the target) are MLPerf's. ``benchmark`` is the name to
    log, by default the task's own: the official checker knows only the names of its round. Times are whole
    milliseconds, as in the format.

    Raises ``RecordError`` for a record without a curve, ``StoreError`` if the file cannot be written.
    """
    return write_whole(Path(path), log_text(of_record(record, organisation), benchmark))


def write_submission(submission: Submission, folder: str | Path) -> list[Path]:
    """Write the runs of a submission as ``<org>/results/<system>/<task>/result_<i>.txt`` below ``folder``.

    The system's description goes to ``<org>/systems/<system>.json`` as far as it is known. Returns the logs' paths.
    Raises ``RecordError`` if the submission has no runs, or a run without a curve.
    """
    if submission.mode != "training" or not submission.runs:
        found = f"it is an entry of {submission.mode} with {len(submission.runs)} runs"
        raise RecordError("writing a submission as MLPerf logs", found, "export entries of training")
    logs = [log_text(of_submission(submission, run)) for run in submission.runs]
    organisation = Path(folder) / path_part(submission.author.organisation or submission.author.name)
    system = path_part(submission.hardware.description)
    hardware = submission.hardware
    # Only if all nodes have the same number.
    per_node, left = divmod(hardware.accelerators or 0, hardware.nodes or 1)
    described = {
        "submitter": submission.author.organisation or submission.author.name,
        "division": submission.division,
        "system_name": hardware.description,
        "number_of_nodes": hardware.nodes,
        "accelerators_per_node": None if hardware.accelerators is None or left else per_node,
        "accelerator_model_name": hardware.accelerator,
        "host_processor_model_name": hardware.processor,
        "framework": submission.framework,
    }
    stated = {name: value for name, value in described.items() if value is not None}
    write_whole(organisation / "systems" / f"{system}.json", json.dumps(stated, indent=2) + "\n")
    results = organisation / "results" / system / path_part(submission.task)
    return [write_whole(results / f"result_{number}.txt", text) for number, text in enumerate(logs)]


def log_text(run: LoggedRun, benchmark: str | None = None) -> str:
    """The whole log of one run; ``RecordError`` for impossible times."""
    start_s = run.started_s + run.init_s
    times = [start_s, run.stop_s, *(each.time_s for each in run.evaluations)]
    if not all(math.isfinite(time) and 0 <= time < _LATEST_S / 2 for time in times):
        do = "correct its curve: `levelbench board check`"
        raise RecordError("writing a run as an MLPerf log", "its times are infinite or below zero", do)
    lines = [*_before(run, benchmark or run.benchmark), *_during(run, start_s)]
    return "".join(f":::MLLOG {line}\n" for line in lines)


def _line(
    time_s: float, key: str, value: object = None, kind: Kind = "point", metadata: Mapping[str, object] | None = None
) -> str:
    """One event, its fields in the format's order; the seed checker requires ``file`` and ``lineno``."""
    fields = {
        "namespace": "",
        "time_ms": round(time_s * 1000),
        "event_type": _KINDS[kind],
        "key": key,
        "value": value,
        "metadata": {"file": "levelbench", "lineno": 0, **(metadata or {})},
    }
    return json.dumps(fields)


def _before(run: LoggedRun, benchmark: str) -> Iterator[str]:
    began, ready = run.started_s, run.started_s + run.init_s
    facts: dict[str, Any] = {
        "submission_benchmark": benchmark,
        "submission_org": run.organisation,
        "submission_division": run.division,
        "submission_platform": run.platform,
        TARGET_KEY: msgspec.to_builtins(run.target),
        ENTRY_KEY: {"task": run.benchmark, **run.entry},
        SETTINGS_KEY: run.settings,
        **({} if run.origin is None else {ORIGIN_KEY: run.origin}),
    }
    yield from (_line(began, key, value) for key, value in facts.items())
    if run.ours:
        # The format requires the key, and nothing of ours clears the caches.
        yield _line(began, "cache_clear", False)
    initialised = run.ours or run.init_s > 0
    if initialised:
        yield _line(began, "init_start", kind="start")
    rate = run.settings.get("lr")
    stated = {
        "seed": run.seed,
        "global_batch_size": run.batch_size,
        "gradient_accumulation_steps": run.accumulation,
        "opt_base_learning_rate": rate if isinstance(rate, int | float) else None,
    }
    yield from (_line(began, key, value) for key, value in stated.items() if value is not None)
    yield _line(began, "train_samples", run.train_samples)
    yield _line(began, "eval_samples", run.eval_samples)
    if initialised:
        yield _line(ready, "init_stop", kind="end")


def _during(run: LoggedRun, start_s: float) -> Iterator[str]:
    """The run: a block of training before each evaluation, the evaluation, and the end."""
    yield _line(start_s, "run_start", kind="start")
    clock_s, before = start_s, LoggedEvaluation(0.0, math.nan, epoch=0.0, samples=0)
    for each in run.evaluations:
        end_s = start_s + each.time_s
        begin_s = max(clock_s, end_s - max(each.took_s, 0.0))
        block: dict[str, int | float] = {}
        if each.epoch is not None and before.epoch is not None:
            # Epochs count from 1, as in the rules.
            block["first_epoch_num"] = math.floor(before.epoch) + 1
            if each.epoch > before.epoch:
                block["epoch_count"] = each.epoch - before.epoch
        if each.samples is not None:
            block["samples_count"] = before.samples or 0
        place = {"epoch_num": each.epoch, "samples_count": each.samples}
        place = {name: value for name, value in place.items() if value is not None}
        yield _line(clock_s, "block_start", kind="start", metadata=block)
        yield _line(begin_s, "block_stop", kind="end", metadata=block)
        yield _line(begin_s, "eval_start", kind="start", metadata=place)
        # MLPerf's logger writes NaN into JSON, and a diverged run needs it.
        yield _line(end_s, "eval_accuracy", each.quality, metadata=place)
        yield _line(end_s, "eval_stop", kind="end", metadata=place)
        clock_s, before = end_s, each
    ended = {"status": "success" if run.success else "aborted"} | ({"error": run.error} if run.error else {})
    yield _line(max(start_s + run.stop_s, clock_s), "run_stop", kind="end", metadata=ended)
