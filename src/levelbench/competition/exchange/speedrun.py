"""Logs of the NanoGPT speed run as submissions: a folder of logs is an entry, and each log one of its runs.

A log has the program, then the machine, then lines such as ``step:125/1480 val_loss:4.3719 train_time:29736ms``. The
target is the mean validation loss at the end of runs of fixed length. Source: KellerJordan/modded-nanogpt, README.
"""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path

from levelbench.competition.entries import (
    SUBMISSION_SCHEMA,
    Author,
    Hardware,
    Origin,
    Submission,
    SubmittedCurve,
    SubmittedRun,
    curve_digest,
    name_in,
)
from levelbench.competition.exchange import SPEED_RUN_LOG, read_bytes
from levelbench.competition.rulesets import ruleset
from levelbench.errors import LevelbenchError, RecordError

__all__ = ["FORMAT", "ONE_RUN", "RULES", "read_results"]

FORMAT = "speedrun"
RULES, ONE_RUN = "speedrun-1.0", "speedrun-1-run-1.0"
"""The rulesets of entries with several logs, whose mean is tested, and of those with one."""

_SHORT, _MEDIUM = "nanogpt-speedrun", "nanogpt-speedrun-medium"
_LINE = re.compile(
    rb"^step:(\d{1,9})/(\d{1,9}) val_loss:([\w.+-]{1,30}) train_time:(\d{1,15}(?:\.\d{1,9})?)(ms|s)\b", re.MULTILINE
)
_STEP = re.compile(rb"^step:(\d{1,9})/\d{1,9} .{0,60}?\btrain_time:(\d{1,15})(?:\.\d{1,9})?(?:ms|s)\b", re.MULTILINE)
_GPU = re.compile(rb"^\|\s+(\d{1,3})\s+((?:NVIDIA|Tesla|AMD) [\w /.-]{2,60}?)\s+(?:On|Off)\s+\|", re.MULTILINE)
_TORCH = re.compile(rb"^Running pytorch (\d[\w.+]{1,40})", re.IGNORECASE | re.MULTILINE)
_DATED = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?=_|$)")
_DATED_SHORT = re.compile(r"(\d\d)(\d\d)(\d\d)(?=_|$)")
_LARGEST = 32 << 20
_MOST_FILES = 5000
_DEEPEST = 8
_CLOCK = "clock: train_time stops for each validation, and starts after compiling; the log has neither"


def read_results(root: Path) -> tuple[list[Submission], list[str]]:
    """A submission for each folder of logs under ``root``, and a sentence for each log that cannot be read.

    Text files without a line of validation are left out, unless their name is that of a log. Raises ``RecordError`` if
    there is no log.
    """
    folders: dict[Path, list[tuple[Path, bytes]]] = defaultdict(list)
    problems: list[str] = []
    for path in _found(root):
        try:
            text = read_bytes(path, _LARGEST, root)
        except LevelbenchError as error:
            problems.append(f"{name_in(path, root)}: {error.found}; {error.do}")
            continue
        if _LINE.search(text):
            folders[path.parent].append((path, text))
        elif SPEED_RUN_LOG.fullmatch(path.name):
            problems.append(f"{name_in(path, root)}: it has no line 'step:N/M val_loss:... train_time:...ms'")
    if not folders and not problems:
        do = "give a folder of logs with lines such as step:125/1480 val_loss:4.3719 train_time:29736ms"
        raise RecordError(f"reading {root}", "it has no log of a speed run", do)
    made = [_submission(logs, root, problems) for logs in folders.values()]
    return [each for each in made if each is not None], problems


def _found(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    found: list[Path] = []
    for folder, inner, files in os.walk(root):
        inner[:] = sorted(each for each in inner if not each.startswith("."))
        if len(Path(folder).relative_to(root).parts) >= _DEEPEST:
            inner.clear()
        found += [Path(folder) / each for each in sorted(files) if each.endswith((".txt", ".log"))]
        if len(found) > _MOST_FILES:
            raise RecordError(f"reading {root}", f"more than {_MOST_FILES:,} text files", "read some records at a time")
    return found


def _submission(logs: list[tuple[Path, bytes]], root: Path, problems: list[str]) -> Submission | None:
    """The entry of one folder; ``None`` if none of its logs can be read."""
    folder = logs[0][0].resolve().parent
    runs = []
    for path, text in logs:
        try:
            runs.append(_run(path, text))
        except LevelbenchError as error:
            problems.append(f"{name_in(path, root)}: {error.found}; {error.do}")
    if not runs:
        return None
    named = folder.name.encode("utf-8", "backslashreplace").decode()
    rules = ruleset(RULES if len(runs) > 1 else ONE_RUN)
    # The two tracks differ in their target, and only the names of folders tell them apart.
    name = _MEDIUM if any("medium" in part.lower() for part in folder.parts[-3:]) else _SHORT
    target = next(each.target for each in rules.tasks if each.task == name)
    doubts = ["author: not in the logs", _CLOCK, "seed: not in the logs"]
    day = _day(named)
    if day is None:
        newest = max(path.stat().st_mtime for path, _ in logs)
        day = datetime.fromtimestamp(newest, UTC).date().isoformat()
        doubts.append("date: not in the folder's name; the day is that of the newest file")
    if again := next((step for _, text in logs if (step := _begins_again(text))), None):
        doubts.append(f"clock: train_time begins again at step {again}, and the steps before are not in it")
    if len(runs) == 1:
        doubts.append("runs: one log, so the mean of the final loss is not tested")
    text = logs[0][1]
    torch = _TORCH.search(text)
    return Submission(
        schema=SUBMISSION_SCHEMA,
        ruleset=rules.id,
        task=name,
        mode="training",
        author=Author("not stated"),
        submitted=day,
        model=named[:200] or "unnamed",
        framework=f"PyTorch {torch[1].decode()}" if torch else "PyTorch",
        hardware=_hardware(text),
        target=target,
        clock=rules.clock,
        crossing=rules.crossing,
        runs=runs,
        origin=Origin(FORMAT, name_in(logs[0][0].parent, root) if logs[0][0] != root else named, doubts=doubts),
    )


def _run(path: Path, text: bytes) -> SubmittedRun:
    """One log: its validations on the clock ``train_time``, which a warm-up may set back once after step 0."""
    asked, do = f"reading {path}", "give the log of one run as it was written"
    rows: list[tuple[int, float, float]] = []
    total = 0
    for step, of, loss, time, unit in _LINE.findall(text):
        total, row = int(of), (int(step), _loss(loss), float(time) / (1000.0 if unit == b"ms" else 1.0))
        if rows and row[0] < rows[-1][0]:
            raise RecordError(asked, f"step {row[0]} comes after step {rows[-1][0]}: it has more than one run", do)
        if rows and row[0] == rows[-1][0]:
            if repr(row) != repr(rows[-1]):
                raise RecordError(asked, f"step {row[0]} is there twice, with different figures", do)
            continue
        rows.append(row)
    if len(rows) > 1 and rows[0][0] == 0 and rows[0][2] > rows[1][2]:
        del rows[0]
    back = next((later for one, later in pairwise(rows) if later[2] < one[2]), None)
    if back is not None:
        raise RecordError(asked, f"train_time goes back at step {back[0]}", do)
    kept = [row for row in rows if math.isfinite(row[1])]
    error = None
    if len(kept) < len(rows):
        error = f"its loss at step {next(row[0] for row in rows if not math.isfinite(row[1]))} is not a number"
    elif kept[-1][0] < total:
        error = f"it ends at step {kept[-1][0]} of {total}"
    curve = SubmittedCurve([row[2] for row in kept], [row[1] for row in kept], steps=[row[0] for row in kept])
    return SubmittedRun(
        curve,
        status="done" if error is None else "failed",
        error=error,
        record_id=path.stem.encode("utf-8", "backslashreplace").decode()[:200],
        curve_digest=curve_digest(curve),
    )


def _begins_again(text: bytes) -> int | None:
    """The step at which the clock is set back, as after ten steps of warm-up; the lines of training show it."""
    times = [(int(step), int(time)) for step, time in _STEP.findall(text)]
    return next((step for (_, before), (step, time) in pairwise(times) if 2 * time < before), None)


def _loss(word: bytes) -> float:
    """The loss, or NaN where it is not a number."""
    try:
        return float(word)
    except ValueError:
        return math.nan


def _day(name: str) -> str | None:
    """The ISO day at the beginning of a record's folder: ``2024-10-14_Name`` or, as once, ``101424_Name``."""
    if found := _DATED.match(name):
        year, month, day = map(int, found.groups())
    elif found := _DATED_SHORT.match(name):
        month, day, year = map(int, found.groups())
        year += 2000
    else:
        return None
    try:
        return date(year, month, day).isoformat()
    except ValueError:
        return None


def _hardware(text: bytes) -> Hardware:
    """The accelerators that the log's nvidia-smi lists."""
    found = {int(at): name.decode() for at, name in _GPU.findall(text)}
    if not found:
        return Hardware("not stated")
    kind = next(iter(found.values()))
    return Hardware(f"{len(found)} {kind}"[:200], accelerators=len(found), accelerator=kind)
