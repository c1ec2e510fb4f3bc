"""Writes runs as MLPerf training logs (``:::MLLOG``), so that the official checker and any other reader takes them.

Only what is known is claimed. Caches of our runs are logged as not cleared and those of other systems'
runs not at all, counts that nobody stated as ``null``, and what MLPerf's keys cannot say (the target, all settings)
stands under keys of our own, which the format allows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from levelbench.competition.entries import Submission, SubmittedRun, write_whole
from levelbench.competition.exchange.mlperf.entries import LoggedEvaluation, LoggedRun, of_record, of_submission
from levelbench.competition.exchange.mlperf.logs import ENTRY_KEY, ORIGIN_KEY, SETTINGS_KEY, TARGET_KEY
from levelbench.errors import RecordError
from levelbench.records.reader import Record
from levelbench.records.writer import path_part

_LATEST_S = 2**53 / 1000
_KINDS = {"start": "INTERVAL_START", "end": "INTERVAL_END", "point": "POINT_IN_TIME"}
Kind = Literal["start", "end", "point"]


def write_log(
    run: Record | SubmittedRun,
    path: str | Path,
    *,
    submission: Submission | None = None,
    organisation: str = "not stated",
    division: str = "open",
    benchmark: str | None = None,
    crossing: str | None = None,
) -> Path:
    """Write ``run`` to ``path`` as one log, and return the path; the file appears whole or not at all.

    A ``SubmittedRun`` needs the ``submission`` that it is of, which says who, where and the target; for a record of
    ours ``organisation`` and ``division`` say so. ``benchmark`` is the name to log, the task's own unless given: the
    official checker knows only the names of its round. ``crossing`` is the rule that stops the clock: for a record
    MLPerf's (``first``) unless given, for a submitted run its entry's own. Times are whole milliseconds, as the format
    has them.

    Raises ``RecordError`` for a run that has no curve to write, ``StoreError`` where the file cannot be written.
    """
    if isinstance(run, Record):
        logged = of_record(run, organisation=organisation, division=division, crossing=crossing or "first")
    elif submission is not None:
        logged = of_submission(submission, run, crossing=crossing)
    else:
        raise RecordError(f"writing {path}", "a submitted run without its submission", "give the submission as well")
    return write_whole(Path(path), log_text(logged, benchmark=benchmark))


def write_submission(submission: Submission, folder: str | Path) -> list[Path]:
    """Write the runs of a submission as ``<org>/results/<system>/<task>/result_<i>.txt`` below ``folder``.

    The system's description goes to ``<org>/systems/<system>.json`` as far as it is known. Returns the logs' paths.
    Raises ``RecordError`` for a submission without runs, or with one that has no curve.
    """
    if submission.mode != "training" or not submission.runs:
        found = f"it is an entry of {submission.mode} with {len(submission.runs)} runs"
        raise RecordError("writing a submission as MLPerf logs", found, "export entries of training")
    logs = [log_text(of_submission(submission, run)) for run in submission.runs]
    organisation = Path(folder) / path_part(submission.author.organisation or submission.author.name)
    system = path_part(submission.hardware.description)
    write_whole(organisation / "systems" / f"{system}.json", _described(submission))
    results = organisation / "results" / system / path_part(submission.task)
    return [write_whole(results / f"result_{number}.txt", text) for number, text in enumerate(logs)]


def _described(submission: Submission) -> str:
    hardware = submission.hardware
    per_node = hardware.accelerators if hardware.nodes in (None, 0, 1) or hardware.accelerators is None else None
    if per_node is None and hardware.accelerators is not None and hardware.nodes:
        per_node = hardware.accelerators // hardware.nodes if hardware.accelerators % hardware.nodes == 0 else None
    fields = {
        "submitter": submission.author.organisation or submission.author.name,
        "division": submission.division,
        "system_name": hardware.description,
        "number_of_nodes": hardware.nodes,
        "accelerators_per_node": per_node,
        "accelerator_model_name": hardware.accelerator,
        "host_processor_model_name": hardware.processor,
        "framework": submission.framework,
    }
    return json.dumps({name: value for name, value in fields.items() if value is not None}, indent=2) + "\n"


def log_text(run: LoggedRun, *, benchmark: str | None = None) -> str:
    """The whole log of one run. Raises ``RecordError`` for times that no clock says."""
    start_s = run.started_s + run.init_s
    times = [start_s, run.stop_s, *(each.time_s for each in run.evaluations)]
    if not all(math.isfinite(time) and 0 <= time < _LATEST_S / 2 for time in times):
        do = "correct its curve: `levelbench board check`"
        raise RecordError("writing a run as an MLPerf log", "its times are not finite or below zero", do)
    lines = [*_before(run, benchmark or run.benchmark), *_during(run, start_s)]
    return "".join(f":::MLLOG {line}\n" for line in lines)


def _line(
    time_s: float, key: str, value: Any = None, kind: Kind = "point", metadata: Mapping[str, Any] | None = None
) -> str:
    """One event, its fields in the format's order; ``file`` and ``lineno`` are wanted by the seed checker."""
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
    """What is said up to the start of the clock."""
    began, ready = run.started_s, run.started_s + run.init_s
    yield _line(began, "submission_benchmark", benchmark)
    yield _line(began, "submission_org", run.organisation)
    yield _line(began, "submission_division", run.division)
    yield _line(began, "submission_platform", run.platform)
    yield _line(began, TARGET_KEY, msgspec.to_builtins(run.target))
    yield _line(began, ENTRY_KEY, {"task": run.benchmark, **run.entry})
    yield _line(began, SETTINGS_KEY, run.settings)
    if run.origin is not None:
        yield _line(began, ORIGIN_KEY, run.origin)
    if run.ours:
        # The format wants the key, and nothing of ours clears the caches.
        yield _line(began, "cache_clear", False)
    initialised = run.ours or run.init_s > 0
    if initialised:
        yield _line(began, "init_start", kind="start")
    if run.seed is not None:
        yield _line(began, "seed", run.seed)
    if run.batch_size is not None:
        yield _line(began, "global_batch_size", run.batch_size)
    if run.accumulation is not None:
        yield _line(began, "gradient_accumulation_steps", run.accumulation)
    if isinstance(rate := run.settings.get("lr"), int | float):
        yield _line(began, "opt_base_learning_rate", rate)
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
        block, place = _block(before, each), _place(each)
        yield _line(clock_s, "block_start", kind="start", metadata=block)
        yield _line(begin_s, "block_stop", kind="end", metadata=block)
        yield _line(begin_s, "eval_start", kind="start", metadata=place)
        # JSON as MLPerf's logger writes it has NaN, and a diverged run has it too.
        yield _line(end_s, "eval_accuracy", each.quality, metadata=place)
        yield _line(end_s, "eval_stop", kind="end", metadata=place)
        clock_s, before = end_s, each
    ended = {"status": "success" if run.success else "aborted"} | ({"error": run.error} if run.error else {})
    yield _line(max(start_s + run.stop_s, clock_s), "run_stop", kind="end", metadata=ended)


def _place(each: LoggedEvaluation) -> dict[str, int | float]:
    place = {"epoch_num": each.epoch, "samples_count": each.samples}
    return {name: value for name, value in place.items() if value is not None}


def _block(before: LoggedEvaluation, each: LoggedEvaluation) -> dict[str, int | float]:
    """The block of training between two evaluations; epochs are counted from 1, as the rules say."""
    block: dict[str, int | float] = {}
    if each.epoch is not None and before.epoch is not None:
        block["first_epoch_num"] = math.floor(before.epoch) + 1
        if each.epoch > before.epoch:
            block["epoch_count"] = each.epoch - before.epoch
    if each.samples is not None:
        block["samples_count"] = before.samples or 0
    return block
