"""AlgoPerf's logs as submissions: each workload has a validation metric, a target for it and a time budget.

A log's own meta data state them for the version that ran; without meta data the ruleset of version 0.6 applies. Source:
the rules of mlcommons/algorithmic-efficiency, version 0.6.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, TypeGuard

from levelbench.competition.entries import (
    SUBMISSION_SCHEMA,
    Author,
    Code,
    Hardware,
    Origin,
    Submission,
    SubmittedCurve,
    SubmittedRun,
    TuningEffort,
    curve_digest,
    name_in,
)
from levelbench.competition.exchange import read_bytes, text_of
from levelbench.competition.rulesets import ruleset
from levelbench.competition.rulesets.scores import workload_time
from levelbench.errors import LevelbenchError, RecordError
from levelbench.measure.crossing import find_crossing
from levelbench.records.schema import Target

RULES, SELF_TUNING = "algoperf-0.6", "algoperf-self-tuning-0.6"
"""The rulesets of entries with tuning trials, and without."""
PREFIX = "algoperf-"
"""What the name of a workload's task begins with."""

_LOWER = frozenset({"ce_loss", "error_rate", "ctc_loss", "wer", "l1_loss", "loss", "ppl"})
_HIGHER = frozenset({"mean_average_precision", "ssim", "accuracy", "bleu"})
_WITHOUT_END = frozenset({"ce_loss", "ctc_loss", "wer", "l1_loss", "loss", "ppl"})


_BUDGETS_S: Mapping[str, float] = {
    "criteo1tb": 7703,
    "fastmri": 4430,
    "imagenet_resnet": 66159,
    "imagenet_vit": 69768,
    "librispeech_conformer": 58015,
    "librispeech_deepspeech": 44405,
    "ogbg": 12011,
    "wmt": 43336,
}
"""The longest time in seconds, version 0.6."""


def _workload(name: str, meta: Mapping[str, object]) -> tuple[Target, float | None]:
    """The target on the validation split, and the time budget in seconds, if stated.

    They come from ``meta`` (a log's meta data), else from version 0.6, whose ImageNet targets are given as the
    accuracies that its logs hold. ``RecordError`` if neither has the workload.
    """
    metric, threshold = meta.get("workload.target_metric_name"), _finite(meta.get("workload.validation_target_value"))
    if isinstance(metric, str) and metric in _LOWER | _HIGHER and threshold is not None:
        high = None if metric in _WITHOUT_END else 100.0 if metric == "bleu" else 1.0
        target = Target(metric, threshold, "lower" if metric in _LOWER else "higher", 0.0, high, "validation")
        return target, _finite(meta.get("workload.max_allowed_runtime_sec"))
    known = {each.task.removeprefix(PREFIX): each.target for each in ruleset(RULES).tasks}
    if name in known:
        return known[name], _BUDGETS_S.get(name)
    do = f"keep its meta_data file, or give one of {', '.join(known)}"
    raise RecordError(f"reading the workload {name}", "neither its meta data nor version 0.6 has its target", do)


def _finite(value: object) -> float | None:
    """The value as a float, if it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e300 and math.isfinite(value) else None


FORMAT = "algoperf"
_EVALUATIONS = "eval_measurements.csv"
_TIME = "accumulated_submission_time"
_LARGEST_CSV = 64 << 20
_LARGEST_JSON = 1 << 20
_MOST_ROWS = 100_000
_MOST_FILES = 5000
_DEEPEST = 8
_MOST_FIELDS = 500
_LONGEST = 4000
_WORKLOAD = re.compile(r"(?P<workload>[A-Za-z0-9_]{1,80})_(?P<framework>jax|pytorch)")
_META = re.compile(r"meta_data_\d{1,6}\.json")


class _Trial(NamedTuple):
    """The path of a trial's file, and what it says about the trial."""

    path: Path
    submission: str
    name: str
    workload: str
    framework: str


def read_results(root: Path) -> tuple[list[Submission], list[str]]:
    """A submission for each algorithm and workload with logs under ``root``, and a sentence for each broken file.

    Raises ``RecordError`` if there is no ``eval_measurements.csv`` under ``root``.
    """
    groups: dict[tuple[str, str, str], list[_Trial]] = defaultdict(list)
    problems = []
    for path in _found(root):
        trial = _placed(path)
        if trial is None:
            where = name_in(path, root)
            problems.append(
                f"{where}: its folder is not named WORKLOAD_jax or WORKLOAD_pytorch; keep the layout of the logs"
            )
        else:
            groups[trial.submission, trial.workload, trial.framework].append(trial)
    submissions = []
    for trials in groups.values():
        try:
            submissions.append(_submission(trials, root, problems))
        except LevelbenchError as error:
            problems.append(f"{name_in(trials[0].path, root)}: {error.found}; {error.do}")
    return submissions, problems


def _found(root: Path) -> list[Path]:
    found = []
    for folder, inner, files in os.walk(root):
        inner.sort()
        if len(Path(folder).relative_to(root).parts) >= _DEEPEST:
            inner.clear()
        if _EVALUATIONS in files:
            found.append(Path(folder) / _EVALUATIONS)
        if len(found) > _MOST_FILES:
            raise RecordError(f"reading {root}", f"more than {_MOST_FILES:,} trials", "read one submission at a time")
    if not found:
        do = "give the folder of a submission's logs"
        raise RecordError(f"reading {root}", f"it has no {_EVALUATIONS}", do)
    return found


def _placed(path: Path) -> _Trial | None:
    parts = (each.encode("utf-8", "backslashreplace").decode() for each in path.resolve().parts)
    *above, workload, trial, _ = ("", "", *parts)
    named = _WORKLOAD.fullmatch(workload)
    if named is None:
        return None
    study = above.pop() if above[-1].startswith("study") else "study_0"
    return _Trial(path, above[-1][:200] or "unnamed", f"{study}/{trial}"[:200], named["workload"], named["framework"])


def _submission(trials: list[_Trial], root: Path, problems: list[str]) -> Submission:
    first = trials[0]
    meta = _meta(first.path.parent, root, problems)
    target, budget_s = _workload(first.workload, meta)
    doubts: list[str] = []
    # The meta data about software and targets.
    names = ("os_platform", "python_version", "git_branch", "gpu_driver")
    wanted = [key for key in meta if key in names or key.startswith("workload.")][: _MOST_FIELDS // 2]
    runs, fields = [], {key: value for key in wanted if _is_setting(value := meta[key])}
    for trial in trials:
        try:
            runs.append(_run(trial, target, root, doubts, problems))
        except LevelbenchError as error:
            problems.append(f"{name_in(trial.path, root)}: {error.found}; {error.do}")
            continue
        named = _json(trial.path.with_name("hparams.json"), root, problems)
        settings = {f"{trial.name}.{key}": each for key, each in named.items() if _is_setting(each)}
        if len(fields) + len(settings) <= _MOST_FIELDS:
            fields.update(settings)
    if not runs:
        raise RecordError(f"reading {first.path}", "none of its trials can be read", "see the messages of its files")
    doubts += ["author: not in the logs", "date: not in the logs; the day is that of the newest file"]
    studies = {trial.name.partition("/")[0] for trial in trials}
    newest = max(trial.path.stat().st_mtime for trial in trials)
    return Submission(
        schema=SUBMISSION_SCHEMA,
        # With tuning, a study has several trials, of which some may be broken.
        ruleset=SELF_TUNING if len(studies) == len(trials) else RULES,
        task=f"{PREFIX}{first.workload}"[:200],
        mode="training",
        author=Author("not stated"),
        submitted=datetime.fromtimestamp(newest, UTC).date().isoformat(),
        model=first.submission,
        framework=first.framework,
        hardware=_hardware(meta),
        target=target,
        clock="algoperf",
        crossing="first",
        code=Code(commit=text_of(meta.get("git_commit_hash"), _LONGEST)),
        runs=runs,
        tuning=TuningEffort(trials=len(trials), notes=f"{len(trials)} trials in {len(studies)} studies"),
        settings={} if budget_s is None else {"budget_s": budget_s},
        origin=Origin(FORMAT, f"{first.submission}/{first.workload}_{first.framework}", doubts=doubts, fields=fields),
    )


def _run(trial: _Trial, target: Target, root: Path, doubts: list[str], problems: list[str]) -> SubmittedRun:
    rows = _rows(trial.path, root)
    metric = f"validation/{target.metric}"
    for name in (_TIME, metric):
        if name not in rows:
            raise RecordError(f"reading {trial.path}", f"it has no column {name!r}", "give a complete log")
    kept = [at for at, pair in enumerate(zip(rows[_TIME], rows[metric], strict=True)) if all(map(math.isfinite, pair))]
    if len(kept) < len(rows[_TIME]):
        doubts.append(f"curve: {len(rows[_TIME]) - len(kept)} evaluations of {trial.name} have no finite value")
    others = {
        name: [values[at] for at in kept]
        for name, values in rows.items()
        if name == "global_step" or (name.endswith(f"/{target.metric}") and name != metric)
    }
    complete = {name: values for name, values in others.items() if all(map(math.isfinite, values))}
    curve = SubmittedCurve([rows[_TIME][at] for at in kept], [rows[metric][at] for at in kept], others=complete)
    excluded = {"evaluate": "accumulated_eval_time", "other": "accumulated_logging_time"}
    seed = _meta(trial.path.parent, root, problems).get("rng_seed")
    return SubmittedRun(
        curve,
        status="done" if kept else "failed",
        error=None if kept else "no evaluation gave a number",
        seed=seed if isinstance(seed, int) and 0 <= seed < 2**63 else None,
        excluded_s={
            name: rows[column][kept[-1]]
            for name, column in excluded.items()
            if kept and column in rows and math.isfinite(rows[column][kept[-1]])
        },
        record_id=trial.name,
        curve_digest=curve_digest(curve),
    )


def _rows(path: Path, root: Path) -> dict[str, list[float]]:
    """The columns by name; empty cells are NaN."""
    asked = f"reading {path}"
    try:
        text = read_bytes(path, _LARGEST_CSV, root).decode("utf-8-sig")
        header, *rows = list(csv.reader(io.StringIO(text, newline=""), strict=True)) or [[]]
    except (UnicodeDecodeError, csv.Error) as error:
        raise RecordError(asked, f"it is not CSV ({error})", "give the log as it was written") from error
    if len(rows) > _MOST_ROWS or len(set(header)) < len(header):
        found = "a column occurs twice" if len(rows) <= _MOST_ROWS else f"it has more than {_MOST_ROWS:,} rows"
        raise RecordError(asked, found, "give the log as it was written")
    columns: dict[str, list[float]] = {name: [] for name in header}
    for at, row in enumerate(rows, 2):
        if len(row) != len(header):
            found = f"line {at} has {len(row)} cells for {len(header)} columns"
            raise RecordError(asked, found, "give the log as it was written")
        for name, cell in zip(header, row, strict=True):
            columns[name].append(_number(cell))
    return columns


def _number(cell: str) -> float:
    """The number in a cell; NaN for an empty cell, and for text, which unused columns may hold."""
    try:
        return float(cell) if len(cell) <= 80 else math.nan
    except ValueError:
        return math.nan


def _meta(folder: Path, root: Path, problems: list[str]) -> dict[str, object]:
    found = [each for each in folder.iterdir() if _META.fullmatch(each.name)]
    last = max(found, key=lambda each: (len(each.name), each.name), default=None)
    return {} if last is None else _json(last, root, problems)


def _json(path: Path, root: Path, problems: list[str]) -> dict[str, object]:
    if not path.exists():
        return {}
    try:
        found = json.loads(read_bytes(path, _LARGEST_JSON, root))
        json.dumps(found, ensure_ascii=False).encode()
    except (LevelbenchError, ValueError, RecursionError) as error:
        problems.append(f"{name_in(path, root)}: it cannot be read ({error}); the rest was read"[:500])
        return {}
    return found if isinstance(found, dict) else {}


def _is_setting(value: object) -> TypeGuard[str | float | bool | None]:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str) or (isinstance(value, int) and abs(value) < 2**63)


def _hardware(meta: dict[str, object]) -> Hardware:
    gpu, cpu = (text_of(meta.get(name), _LONGEST) for name in ("gpu_model_name", "cpu_model_name"))
    count = meta.get("gpu_count")
    number = count if isinstance(count, int) and 0 < count < 2**31 else None
    said = f"{number or ''} {gpu}".strip() if gpu else cpu
    return Hardware((said or "not stated")[:200], accelerators=number, accelerator=gpu, processor=cpu)


def target_times(
    submissions: Iterable[Submission], *, best: Literal["time", "evaluation"] = "time"
) -> dict[str, dict[str, float]]:
    """Seconds to the target by algorithm and workload, for performance profiles: infinite if the target was missed.

    The trial of a study with the least ``time`` counts; the published scores took the one with the earliest
    ``evaluation`` instead, which differs if evaluations are not evenly spaced.
    """
    times: dict[str, dict[str, float]] = defaultdict(dict)
    for each in submissions:
        studies: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for run in each.runs:
            curve, target = run.curve, each.target
            found = find_crossing(
                curve.quality, target.threshold, direction=target.direction, rule="first", x=curve.time_s
            )
            time_s = math.inf if found is None or found.position is None else found.position
            rank = time_s if best == "time" or found is None else float(found.index)
            studies[(run.record_id or "").rpartition("/")[0]].append((rank, time_s))
        times[each.model][each.task] = workload_time([[min(trials)[1]] for trials in studies.values()])
    return dict(times)


def common_times(submissions: Iterable[Submission]) -> dict[str, dict[str, float]]:
    """The :func:`target_times` of the workloads that all algorithms ran; empty if there are none."""
    times = target_times(submissions)
    names = set.intersection(*(set(own) for own in times.values())) if times else set()
    return {each: {name: own[name] for name in sorted(names)} for each, own in times.items()} if names else {}
