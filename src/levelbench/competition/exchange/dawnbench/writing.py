"""A submission as an entry that DAWNBench's own CI accepts: JSON, and for training the TSV beside it.

The format has one run, one target a task and no seed, interval or provenance; so what it cannot say is
listed, and what its CI would refuse is not written at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from levelbench.competition.entries import Inference, Provenance, Submission, SubmittedRun, TuningEffort, write_whole
from levelbench.competition.exchange.dawnbench.entries import (
    FORMAT,
    OUR_NAMES,
    RULESET,
    TASKS,
    DawnTask,
    put_back,
    task_called,
    to_hours,
    to_text,
)
from levelbench.competition.scoring import first_arrival_s
from levelbench.errors import UsageError

ANSWERED_ALONE = ("dawnbench", "single-stream")
"""The scenarios that its latency means, the likest first."""
_OURS = {ours: theirs for theirs, ours in OUR_NAMES.items()}


class WrittenEntry(NamedTuple):
    """The files of an entry, and what of the submission they cannot say."""

    paths: list[Path]
    losses: list[str]


def write_entry(submission: Submission, folder: Path, *, stem: str | None = None) -> WrittenEntry:
    """Write the entry under ``folder`` as ``TASK/MODE/STEM.json`` and ``.tsv``, replacing files of that name.

    ``stem`` is that of :func:`stem_of` unless another is given. Raises ``UsageError`` for a submission that the
    competition's CI would refuse, with what it lacks.
    """
    task, mode, texts, losses = encoded(submission)
    place = folder / task.folder / mode
    stem = stem or stem_of(submission)
    paths = [place / f"{stem}{ending}" for ending in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_whole(path, text)
    return WrittenEntry(paths, losses)


def encoded(submission: Submission) -> tuple[DawnTask, str, dict[str, str], list[str]]:
    """Task, mode, the text of each file by its ending, and the losses."""
    asked = f"writing {submission.model} for DAWNBench"
    task = task_called(submission.task)
    if task is None:
        known = ", ".join(each.task for each in TASKS)
        raise UsageError(asked, f"it has no task {submission.task!r}", f"export entries of {known}")
    record = _common(submission)
    texts = {".json": ""}
    losses = [*_losses(submission)]
    if submission.mode == "training":
        run = _run(submission, asked)
        missing = [name for name in ("top1",) if task.task == "imagenet" and name not in run.curve.others]
        if missing:
            raise UsageError(asked, "its curve has no top1 beside top5", "record both, which that task's TSV must have")
        texts[".tsv"] = _tsv(run, task, losses)
        if submission.price is not None:
            record["costPerHour"] = submission.price.usd_per_hour
    else:
        record.update(_answered(submission, task, asked))
    texts[".json"] = msgspec.json.format(msgspec.json.encode(record), indent=4).decode() + "\n"
    return task, "train" if submission.mode == "training" else "inference", texts, losses


def _common(submission: Submission) -> dict[str, Any]:
    origin = submission.origin
    kept = put_back(origin.fields if origin is not None and origin.format == FORMAT else {})
    misc = kept.pop("misc", {})
    record = {
        "version": "v1.0",
        "author": submission.author.name,
        "authorEmail": submission.author.email or "",
        "framework": submission.framework,
        "codeURL": submission.code.url,
        "model": submission.model,
        "hardware": submission.hardware.description,
        "timestamp": submission.submitted,
        "commitHash": submission.code.commit,
        **kept,
        "misc": {**submission.settings, **misc} if isinstance(misc, dict) else misc,
    }
    commit, url = submission.code.commit, submission.code.url
    if commit and url and f"/{commit}" in url and "commitHash" not in kept:
        del record["commitHash"]
    return {key: each for key, each in record.items() if each is not None or key in kept}


def _run(submission: Submission, asked: str) -> SubmittedRun:
    """The run that stands for all: the only one, or the one of median time (the earlier of two in the middle)."""
    target = submission.target
    arrived = [first_arrival_s(run.curve, target) for run in submission.runs]
    timed = [(float("inf") if time_s is None else time_s, at) for at, time_s in enumerate(arrived)]
    if not timed:
        raise UsageError(asked, "it has no runs", "export a submission of training with a curve")
    time_s, at = sorted(timed)[(len(timed) - 1) // 2]
    if time_s == float("inf"):
        reached = sum(each < float("inf") for each, _ in timed)
        found_text = (
            f"{reached} of its {len(timed)} runs reached {target.threshold:g}, which is not the one in the middle"
        )
        raise UsageError(asked, found_text, "that CI refuses a curve below the target; export an entry that reaches it")
    return submission.runs[at]


def _tsv(run: SubmittedRun, task: DawnTask, losses: list[str]) -> str:
    curve = run.curve
    epochs = curve.epoch
    if epochs is None:
        losses.append("runs.curve.epoch: none is stated; the number of the evaluation stands for it")
        epochs = [float(at) for at in range(1, len(curve.quality) + 1)]
    columns: dict[str, list[str]] = {
        "epoch": [to_text(each).removesuffix(".0") for each in epochs],
        "hours": [to_hours(each) for each in curve.time_s],
    }
    qualities = {_OURS[name]: values for name, values in curve.others.items() if _OURS.get(name) in task.columns}
    qualities[task.key] = curve.quality
    for name in (each for each in task.columns if each in qualities):
        columns[name] = [to_text(each, task.places) for each in qualities[name]]
    losses += [f"runs.curve.others.{name}" for name in curve.others if _OURS.get(name) not in task.columns]
    rows = zip(*columns.values(), strict=True)
    return "".join("\t".join(each) + "\n" for each in (tuple(columns), *rows))


def _answered(submission: Submission, task: DawnTask, asked: str) -> dict[str, Any]:
    measured = _measured(submission, asked)
    if measured.mean_latency_s is None or measured.quality is None:
        found = "it states no mean latency" if measured.mean_latency_s is None else "it states no quality"
        raise UsageError(asked, found, "that CI wants latency and quality; measure both")
    if measured.quality < submission.target.threshold:
        found = f"its quality is {measured.quality:g}, below {submission.target.threshold:g}"
        raise UsageError(asked, found, "that CI refuses it; export an entry at the target")
    record: dict[str, Any] = {
        "latency": msgspec.Raw(to_text(measured.mean_latency_s, 3).encode()),
        task.key: msgspec.Raw(to_text(measured.quality, task.places).encode()),
    }
    cost = measured.cost_usd
    if cost is None and submission.price is not None:
        cost = submission.price.usd_per_hour / 3600 * measured.mean_latency_s
    return {**record, **({} if cost is None else {"cost": cost})}


def _measured(submission: Submission, asked: str) -> Inference:
    """The measurement of single answers, which is what the format means by latency."""
    for scenario in ANSWERED_ALONE:
        for each in submission.inference:
            if each.scenario == scenario:
                return each
    raise UsageError(asked, "no image was answered alone", "measure the scenario dawnbench or single-stream")


def _losses(submission: Submission) -> Iterator[str]:
    """What is stated and has no place, by field."""
    if len(submission.runs) > 1:
        yield f"runs: {len(submission.runs)} runs, of which the one of median time is written"
    if len(submission.inference) > 1:
        yield f"inference: {len(submission.inference)} measurements, of which one is written"
    for name, usual in {"ruleset": RULESET, "clock": "dawnbench", "crossing": "first"}.items():
        if getattr(submission, name) != usual:
            yield f"{name}: {getattr(submission, name)}"[:200]
    unsaid = {"division": "open", "tuning": TuningEffort(), "provenance": Provenance(), "notes": ""}
    yield from (name for name, value in unsaid.items() if getattr(submission, name) != value)
    yield from _parts("author", submission.author, ("organisation", "key"))
    parts = ("nodes", "accelerators", "accelerator", "processor", "cores", "memory_bytes")
    yield from _parts("hardware", submission.hardware, parts)
    yield from _parts("code", submission.code, ("dirty",))
    yield from _parts("price", submission.price, ("source", "read_on", "on_demand"))
    if submission.mode == "inference" and submission.price is not None:
        yield "price.usd_per_hour: only the cost of one answer has a place"
    for run in submission.runs[:1]:
        yield from _parts(
            "runs",
            run,
            tuple(each for each in run.__struct_fields__ if each not in ("curve", "status", "curve_digest")),
        )
        yield from _parts("runs.curve", run.curve, ("samples",))
    if submission.origin is not None and submission.origin.format != FORMAT:
        yield f"origin: {submission.origin.format} {submission.origin.file}"[:200]


def _parts(name: str, part: Any, fields: tuple[str, ...]) -> Iterator[str]:
    for each in fields if part is not None else ():
        if getattr(part, each) not in (None, [], {}):
            yield f"{name}.{each}"


def stem_of(submission: Submission) -> str:
    """The file's name without its ending: the one it was read from, else ``author_model_hardware_framework``."""
    origin = submission.origin
    if origin is not None and origin.format == FORMAT:
        stem = Path(origin.file).stem
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,200}", stem):
            return stem
    parts = (submission.author.name, submission.model, submission.hardware.description, submission.framework)
    return "_".join(re.sub(r"[^A-Za-z0-9.]+", "-", each).strip("-.")[:40] or "unnamed" for each in parts)
