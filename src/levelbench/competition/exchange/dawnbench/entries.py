"""One DAWNBench entry, its JSON and its table of epochs: read into a submission, and written from one.

The format has one run, one target per task, and no seed, interval or provenance; so losses are listed, and an entry
that its CI would refuse is not written.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from levelbench.competition.entries import (
    SUBMISSION_SCHEMA,
    Author,
    Code,
    Hardware,
    Inference,
    Origin,
    Provenance,
    Submission,
    SubmittedCurve,
    SubmittedRun,
    SystemPrice,
    TuningEffort,
    curve_digest,
    write_whole,
)
from levelbench.competition.exchange import read_bytes, text_of, unplaced, value_at
from levelbench.competition.rulesets import TaskRules, ruleset, task_rules
from levelbench.competition.scoring import first_arrival_s
from levelbench.errors import RecordError, UsageError

RULESET = "dawnbench-1.0"
MODES = ("train", "inference")
PLACES = {
    "author": "author.name",
    "authorEmail": "author.email",
    "framework": "framework",
    "codeURL": "code.url",
    "model": "model",
    "hardware": "hardware.description",
    "timestamp": "submitted",
    "commitHash": "code.commit",
    "costPerHour": "price.usd_per_hour",
}
"""The place in a submission of each key in an entry's JSON."""


@dataclass(frozen=True)
class DawnTask:
    """One task: folder, our name, key of its quality, decimal places between its scale and ours, columns."""

    folder: str
    task: str
    key: str
    places: int
    columns: tuple[str, ...]


TASKS = (
    DawnTask("CIFAR10", "cifar10", "top1Accuracy", 2, ("epoch", "hours", "top1Accuracy")),
    DawnTask("ImageNet", "imagenet", "top5Accuracy", 2, ("epoch", "hours", "top1Accuracy", "top5Accuracy")),
    DawnTask("SQuAD", "squad", "f1Score", 0, ("epoch", "hours", "f1Score")),
)


def task_called(task: str) -> DawnTask | None:
    """The task that we call ``task``; ``None`` if DAWNBench does not have it."""
    return next((each for each in TASKS if each.task == task), None)


@cache
def rules_of(task: DawnTask) -> TaskRules:
    """The competition's own rules for the task."""
    found = task_rules(ruleset(RULESET), task.task)
    assert found is not None
    return found


_LONGEST = 80
_HOUR = 3600


def figure(text: str, asked: str, where: str) -> Decimal:
    """The number in ``text``; ``RecordError`` for anything else, or if it is infinite or exceeds a double's range."""
    try:
        value = Decimal(text) if len(text) <= _LONGEST and "_" not in text else None
    except InvalidOperation:
        value = None
    # A double can hold it without overflow or underflow, so no exponent makes arithmetic slow either.
    if value is None or not value.is_finite() or (value and not -300 < value.adjusted() < 300):
        found = f"{where} is {text[:40]!r}, which is not a finite number"
        raise RecordError(asked, found, "correct or remove the figure")
    return value


def to_hours(seconds: float) -> str:
    """The shortest text of hours, with 15 or more digits, that converts back to exactly these seconds."""
    if not seconds:
        return "0.0"
    hours = Decimal(repr(seconds)) / _HOUR
    for digits in range(15, 28):
        short = Decimal(f"{hours:.{digits - 1}e}")
        if float(short * _HOUR) == seconds:
            return to_text(short)
    return to_text(hours)


def to_text(value: Decimal | float, places: int = 0) -> str:
    """``value`` in plain digits, multiplied by 10 to the power ``places``; whole numbers end in ``.0``."""
    exact = value if isinstance(value, Decimal) else Decimal(repr(value))
    if not math.isfinite(exact):
        raise RecordError("writing a figure", f"it is {value}", "leave out what is not finite")
    moved = exact.scaleb(places).normalize()
    text = f"{moved:f}" if -20 < moved.adjusted() < 20 else f"{moved:e}"
    return text if any(each in text for each in ".e") else f"{text}.0"


Leaf = int | float | str | bool | None
MISC = "misc."
_JSON = ":json"


def keep(record: Mapping[str, object]) -> dict[str, Leaf]:
    """Every member of ``record`` (an entry without what has a place, its ``misc`` flattened by one level) by name."""
    found: dict[str, Leaf] = {}
    for key, value in record.items():
        if key == "misc" and isinstance(value, dict):
            found.update(kept(f"{MISC}{name}", each) for name, each in value.items())
        else:
            found.update([kept(f".{key}" if key.startswith((".", MISC)) else key, value)])
    return found


def kept(name: str, value: Any) -> tuple[str, Leaf]:
    """The name and value under which one member is kept."""
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, dict | list) or name.endswith(_JSON):
        return f"{name}{_JSON}", json.dumps(value, ensure_ascii=False, default=float)
    return name, value


def put_back(fields: Mapping[str, Leaf]) -> dict[str, object]:
    """The inverse of :func:`keep`."""
    record: dict[str, object] = {}
    misc: dict[str, object] = {}
    for name, value in fields.items():
        key, plain = name, cast(Any, value)
        if name.endswith(_JSON) and isinstance(value, str):
            key = name.removesuffix(_JSON)
            # The author may have used such a name for something that is not JSON.
            with suppress(ValueError, RecursionError):
                plain = json.loads(value)
        if key.startswith(MISC):
            misc[key.removeprefix(MISC)] = plain
        else:
            record[key.removeprefix(".")] = plain
    return {**record, "misc": misc} if misc else record


LARGEST_JSON = 1 << 20
LARGEST_TSV = 16 << 20
_DEEPEST = 32
_MOST_ROWS = 100_000
_MOST_MEMBERS = 500
_MOST_COLUMNS = 32
_BOM = b"\xef\xbb\xbf"
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKETS = re.compile(rb"[][{}]")


@dataclass(frozen=True)
class RawEntry:
    """One entry as in its files: ``columns`` is ``None`` if there is no TSV next to the JSON.

    ``digest`` is the SHA-256 of the JSON's bytes followed by the TSV's; ``oddities`` are sentences about the form.
    """

    path: Path
    record: Mapping[str, object]
    columns: Mapping[str, list[Decimal]] | None
    digest: str
    oddities: list[str] = field(default_factory=list)


def read_raw(path: Path, root: Path | None = None) -> RawEntry:
    """The entry whose JSON is at ``path``, with the TSV of the same name; ``RecordError`` if it is not an entry.

    ``root`` is the folder that no file may lead out of.
    """
    encoded = read_bytes(path, LARGEST_JSON, root)
    oddities: list[str] = []
    record = parse_json(encoded, str(path), oddities)
    table_path = path.with_suffix(".tsv")
    columns, table = None, b""
    if table_path.is_symlink() or table_path.exists():
        table = read_bytes(table_path, LARGEST_TSV, root)
        columns = parse_tsv(table, str(table_path), oddities)
    return RawEntry(path, record, columns, hashlib.sha256(encoded + table).hexdigest(), oddities)


def parse_json(data: bytes, name: str, oddities: list[str]) -> dict[str, object]:
    """The object in ``data``, with decimals for non-integers; ``RecordError`` for anything else."""
    asked = f"reading {name}"
    text = _text(data, asked, "the JSON", oddities)
    depth = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub(b"", data)):
        depth += 1 if bracket in b"[{" else -1
        if depth > _DEEPEST:
            raise RecordError(asked, f"it nests deeper than {_DEEPEST} levels", "flatten the file")
    try:
        found = json.loads(
            text,
            parse_float=lambda number: figure(number, asked, "a number"),
            parse_int=lambda number: _whole(number, asked),
            parse_constant=lambda word: figure(word, asked, "a number"),
            object_pairs_hook=lambda pairs: _object(pairs, asked),
        )
        json.dumps(found, ensure_ascii=False, default=str).encode()
    except (json.JSONDecodeError, RecursionError) as error:
        raise RecordError(asked, f"it is not JSON ({error})", "correct the file") from error
    except UnicodeEncodeError as error:
        raise RecordError(asked, "a text holds half a surrogate pair", "write the text as UTF-8") from error
    if not isinstance(found, dict):
        raise RecordError(asked, f"it holds a {type(found).__name__}, not an object", "give an entry's file")
    return found


def _whole(number: str, asked: str) -> int:
    value = int(figure(number, asked, "a number"))
    if abs(value) >= 2**63:
        raise RecordError(asked, f"{number[:40]} is beyond 64 bits", "correct or remove the figure")
    return value


def _object(pairs: list[tuple[str, object]], asked: str) -> dict[str, object]:
    if len(pairs) > _MOST_MEMBERS:
        raise RecordError(asked, f"an object has more than {_MOST_MEMBERS} members", "shorten it")
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RecordError(asked, f"the key {twice!r} occurs twice", "keep one of them")
    return found


def _text(data: bytes, asked: str, what: str, oddities: list[str]) -> str:
    if data.startswith(_BOM):
        oddities.append(f"{what} begins with a byte-order mark")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RecordError(asked, f"byte {error.start} is not UTF-8", "save the file as UTF-8") from error


def parse_tsv(data: bytes, name: str, oddities: list[str]) -> dict[str, list[Decimal]]:
    """The columns of tab-separated ``data`` by their header; ``RecordError`` with the line of a fault."""
    asked = f"reading {name}"
    text = _text(data, asked, "the TSV", oddities)
    if "\r" in text:
        oddities.append("the TSV's lines end in CRLF")
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[-1]:
        oddities.append("the TSV has no final newline")
    if len(lines) > _MOST_ROWS:
        raise RecordError(asked, f"it has more than {_MOST_ROWS:,} lines", "give one row per epoch")
    header = [each.strip() for each in lines[0].split("\t")]
    if len(set(header)) < len(header) or "" in header or len(header) > _MOST_COLUMNS:
        found = f"its header is {lines[0][:80]!r}"
        raise RecordError(asked, found, f"name every column, each once, at most {_MOST_COLUMNS}")
    columns: dict[str, list[Decimal]] = {each: [] for each in header}
    for at, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        cells = line.split("\t")
        if len(cells) != len(header):
            found = f"line {at} has {len(cells)} cells for {len(header)} columns"
            raise RecordError(asked, found, "give every column one figure per row")
        for column, cell in zip(header, cells, strict=True):
            columns[column].append(figure(cell.strip(), asked, f"{column} in line {at}"))
    return columns


FORMAT = "dawnbench"
_LONGEST_NAME = 200
_LONGEST_TEXT = 4000
_HEX = re.compile(r"/([0-9a-f]{40})(?=[/?#]|$)")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_NAMES = ("author", "framework", "model", "hardware")


def place_of(raw: RawEntry) -> tuple[DawnTask, str]:
    """Task and mode: from the entry's folders, else from its keys and columns; ``RecordError`` if both fail."""
    mode = raw.path.parent.name
    task = next((each for each in TASKS if each.folder == raw.path.parent.parent.name), None)
    if task is not None and mode in MODES:
        return task, mode
    names = set(raw.record) | set(raw.columns or ())
    found = [each for each in TASKS if each.key in names]
    # ImageNet's curves have the key of CIFAR10 too.
    best = max(found, key=lambda each: len(names & set(each.columns)), default=None)
    if best is None:
        asked = f"reading {raw.path}"
        do = "keep it in TASK/train or TASK/inference, with TASK one of CIFAR10, ImageNet and SQuAD"
        raise RecordError(asked, "neither its folder nor its keys tell its task", do)
    return best, "inference" if "latency" in raw.record else "train"


def build(raw: RawEntry, file: str) -> Submission:
    """The entry as a submission, without doubts; ``file`` is the name in its ``origin``."""
    task, mode = place_of(raw)
    record, asked = raw.record, f"reading {raw.path}"
    names = {key: _name(record, key, asked) for key in _NAMES}
    fields = _fields(record, task, mode)
    url, commit = _code(record)
    curves = [_curve(raw, task)] if mode == "train" else []
    return Submission(
        schema=SUBMISSION_SCHEMA,
        ruleset=RULESET,
        task=task.task,
        mode="training" if mode == "train" else "inference",
        author=Author(names["author"], text_of(record.get("authorEmail"), _LONGEST_TEXT)),
        submitted=day_of(record.get("timestamp"), asked).isoformat(),
        model=names["model"],
        framework=names["framework"],
        hardware=Hardware(names["hardware"]),
        target=rules_of(task).target,
        clock="dawnbench",
        crossing="first",
        code=Code(url, commit),
        price=_price(record.get("costPerHour")),
        runs=[SubmittedRun(curve, curve_digest=curve_digest(curve)) for curve in curves],
        inference=[_inference(record, task)] if mode == "inference" else [],
        settings=_settings(record.get("misc")),
        origin=Origin(FORMAT, file[:_LONGEST_TEXT], raw.digest, fields=fields),
    )


def _name(record: Mapping[str, object], key: str, asked: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not value.strip():
        found = f"{key!r} is {value!r}"[:120] if key in record else f"there is no {key!r}"
        raise RecordError(asked, found, f"give {key!r} as text")
    return value.strip()[:_LONGEST_NAME]


def day_of(value: object, asked: str) -> date:
    """The day of a timestamp, with or without leading zeros; ``RecordError`` for anything else."""
    try:
        return datetime.strptime(value if isinstance(value, str) else "", "%Y-%m-%d").date()
    except ValueError as error:
        found = f"'timestamp' is {value!r}"[:120]
        raise RecordError(asked, found, "give the day of submission as YYYY-MM-DD") from error


def _code(record: Mapping[str, object]) -> tuple[str | None, str | None]:
    """The URL, and the commit from ``commitHash`` or else from the URL."""
    url, stated = (text_of(record.get(key), _LONGEST_TEXT) for key in ("codeURL", "commitHash"))
    if stated and _COMMIT.fullmatch(stated):
        return url, stated
    found = _HEX.search(url or "")
    return url, found.group(1) if found else None


def _number(value: object) -> Decimal | None:
    return Decimal(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else None


def _price(value: object) -> SystemPrice | None:
    number = _number(value)
    return SystemPrice(float(number)) if number is not None and number > 0 else None


def _settings(misc: object) -> dict[str, int | float | str | bool]:
    """The plain values of ``misc``; lists, objects and nulls are kept elsewhere."""
    if not isinstance(misc, dict):
        return {}
    plain = {key: float(each) if isinstance(each, Decimal) else each for key, each in misc.items()}
    return {key: each for key, each in plain.items() if isinstance(each, int | float | str)}


def _fields(record: Mapping[str, object], task: DawnTask, mode: str) -> dict[str, Leaf]:
    """What has no other place: names that were cut are kept whole, and invalid prices as they were given."""
    left = {key: value for key, value in record.items() if not _has_place(record, key, task, mode)}
    if isinstance(misc := record.get("misc"), dict):
        placed = _settings(misc)
        left["misc"] = {key: value for key, value in misc.items() if key not in placed}
    return keep(left)


def _has_place(record: Mapping[str, object], key: str, task: DawnTask, mode: str) -> bool:
    value = record[key]
    if key in _NAMES:
        return len(str(value).strip()) <= _LONGEST_NAME
    if key in ("authorEmail", "codeURL"):
        return isinstance(value, str) and len(value.strip()) <= _LONGEST_TEXT
    if key == "costPerHour":
        return _price(value) is not None
    if key == "commitHash":
        return bool(_code(record)[1] == value)
    if mode == "inference" and key in ("latency", "cost", quality_key(record, task)):
        return _number(value) is not None
    return key == "timestamp"


def quality_key(record: Mapping[str, object], task: DawnTask) -> str:
    """The key of an inference entry's quality: the task's, or ``accuracy`` as in an old README."""
    return "accuracy" if task.key not in record and "accuracy" in record else task.key


def unit_of(values: list[Decimal], task: DawnTask) -> int:
    """Decimal places from the scale that the values are on to shares: 2 for per cent, whatever the task says."""
    largest = max(values, default=Decimal(0))
    if task.places:
        return 0 if 0 < largest <= 1 else task.places
    return 2 if largest > 2 else 0


def _curve(raw: RawEntry, task: DawnTask) -> SubmittedCurve:
    columns, asked = raw.columns, f"reading {raw.path}"
    if columns is None:
        raise RecordError(asked, "there is no TSV of the same name", "add the training curve")
    for name in ("hours", task.key):
        if name not in columns:
            raise RecordError(asked, f"its TSV has no column {name!r}: {', '.join(columns)[:120]}", f"add {name!r}")
    if not columns["hours"]:
        raise RecordError(asked, "its TSV has no rows", "add one row per epoch")
    shares = {
        name: [float(each.scaleb(-unit_of(values, task))) for each in values]
        for name, values in columns.items()
        if name.endswith(("Accuracy", "Score"))
    }
    epochs = columns.get("epoch")
    others = {
        OUR_NAMES.get(name, name): shares.get(name) or [float(each) for each in values]
        for name, values in columns.items()
        if name not in ("epoch", "hours", task.key)
    }
    return SubmittedCurve(
        time_s=[float(each * _HOUR) for each in columns["hours"]],
        quality=shares[task.key],
        epoch=None if epochs is None else [float(each) for each in epochs],
        others=others,
    )


OUR_NAMES = {"top1Accuracy": "top1", "top5Accuracy": "top5", "f1Score": "f1"}


def _inference(record: Mapping[str, object], task: DawnTask) -> Inference:
    """An entry states only a mean: the rules say over how many answers, and hence how long they took."""
    latency, cost = _number(record.get("latency")), _number(record.get("cost"))
    mean = None if latency is None else float(latency.scaleb(-3))
    answers = rules_of(task).samples or 0
    given = _number(record.get(quality_key(record, task)))
    quality = None if given is None else float(given.scaleb(-unit_of([given], task)))
    return Inference(
        scenario="dawnbench",
        queries=answers,
        samples=answers,
        duration_s=0.0 if mean is None else mean * answers,
        mean_latency_s=mean,
        quality=quality,
        quality_samples=None if quality is None else answers,
        batch=1,
        cost_usd=None if cost is None else float(cost),
    )


ANSWERED_ALONE = ("dawnbench", "single-stream")
"""The scenarios that its latency may mean, the likeliest first."""
_OURS = {ours: theirs for theirs, ours in OUR_NAMES.items()}


class WrittenEntry(NamedTuple):
    """The files of an entry, and what they cannot express of the submission."""

    paths: list[Path]
    losses: list[str]


def write_entry(submission: Submission, folder: Path, *, stem: str | None = None) -> WrittenEntry:
    """Write the entry under ``folder`` as ``TASK/MODE/STEM.json`` and ``.tsv``, replacing files of that name.

    ``stem`` defaults to :func:`stem_of`. Raises ``UsageError`` for a submission that the competition's CI would refuse,
    with the reason.
    """
    asked = f"writing {submission.model} for DAWNBench"
    task = task_called(submission.task)
    if task is None:
        known = ", ".join(each.task for each in TASKS)
        raise UsageError(asked, f"it has no task {submission.task!r}", f"export entries of {known}")
    record, losses, table = _common(submission), [*_losses(submission)], None
    if submission.mode == "training":
        run = _run(submission, asked)
        if task.task == "imagenet" and "top1" not in run.curve.others:
            raise UsageError(asked, "its curve has top5 without top1", "record both, as that task's TSV requires")
        table = _tsv(run, task, losses)
        if submission.price is not None:
            record["costPerHour"] = submission.price.usd_per_hour
    else:
        record.update(_answered(submission, task, asked))
    place = folder / task.folder / ("train" if submission.mode == "training" else "inference")
    stem = stem or stem_of(submission)
    text = msgspec.json.format(msgspec.json.encode(record), indent=4).decode() + "\n"
    paths = [write_whole(place / f"{stem}.json", text)]
    if table is not None:
        paths.append(write_whole(place / f"{stem}.tsv", table))
    return WrittenEntry(paths, losses)


def _common(submission: Submission) -> dict[str, object]:
    origin = submission.origin
    kept = put_back(origin.fields if origin is not None and origin.format == FORMAT else {})
    misc = kept.pop("misc", {})
    record = {
        "version": "v1.0",
        **{key: value_at(submission, place) for key, place in PLACES.items() if key != "costPerHour"},
        "authorEmail": submission.author.email or "",
        **kept,
        "misc": {**submission.settings, **misc} if isinstance(misc, dict) else misc,
    }
    commit, url = submission.code.commit, submission.code.url
    if commit and url and f"/{commit}" in url and "commitHash" not in kept:
        del record["commitHash"]
    return {key: each for key, each in record.items() if each is not None or key in kept}


def _run(submission: Submission, asked: str) -> SubmittedRun:
    """The run that represents all: the only one, or the one of median time (the earlier of two middle ones)."""
    target = submission.target
    arrived = [first_arrival_s(run.curve, target) for run in submission.runs]
    timed = [(float("inf") if time_s is None else time_s, at) for at, time_s in enumerate(arrived)]
    if not timed:
        raise UsageError(asked, "it has no runs", "export a submission of training with a curve")
    time_s, at = sorted(timed)[(len(timed) - 1) // 2]
    if time_s == float("inf"):
        reached = sum(each < float("inf") for each, _ in timed)
        found = f"{reached} of its {len(timed)} runs reached {target.threshold:g}, but not the median one"
        raise UsageError(asked, found, "export an entry that reaches the target: the CI refuses others")
    return submission.runs[at]


def _tsv(run: SubmittedRun, task: DawnTask, losses: list[str]) -> str:
    curve = run.curve
    epochs = curve.epoch
    if epochs is None:
        losses.append("runs.curve.epoch: not stated; replaced by the number of the evaluation")
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


def _answered(submission: Submission, task: DawnTask, asked: str) -> dict[str, object]:
    # The format's latency is that of single answers.
    alone = (each for scenario in ANSWERED_ALONE for each in submission.inference if each.scenario == scenario)
    measured = next(alone, None)
    if measured is None:
        raise UsageError(asked, "no sample was answered alone", "measure the scenario dawnbench or single-stream")
    if measured.mean_latency_s is None or measured.quality is None:
        found = "it states no mean latency" if measured.mean_latency_s is None else "it states no quality"
        raise UsageError(asked, found, "measure both latency and quality: the CI requires them")
    if measured.quality < submission.target.threshold:
        found = f"its quality is {measured.quality:g}, below {submission.target.threshold:g}"
        raise UsageError(asked, found, "export an entry at the target: the CI refuses others")
    record: dict[str, object] = {
        "latency": msgspec.Raw(to_text(measured.mean_latency_s, 3).encode()),
        task.key: msgspec.Raw(to_text(measured.quality, task.places).encode()),
    }
    cost = measured.cost_usd
    if cost is None and submission.price is not None:
        cost = submission.price.usd_per_hour / 3600 * measured.mean_latency_s
    return {**record, **({} if cost is None else {"cost": cost})}


def _losses(submission: Submission) -> Iterator[str]:
    """Stated fields without a place in the format."""
    if len(submission.runs) > 1:
        yield f"runs: {len(submission.runs)} runs, of which only the one of median time is written"
    if len(submission.inference) > 1:
        yield f"inference: {len(submission.inference)} measurements, of which only one is written"
    for name, usual in {"ruleset": RULESET, "clock": "dawnbench", "crossing": "first"}.items():
        if getattr(submission, name) != usual:
            yield f"{name}: {getattr(submission, name)}"[:200]
    defaults = {"division": "open", "tuning": TuningEffort(), "provenance": Provenance(), "notes": ""}
    yield from (name for name, value in defaults.items() if getattr(submission, name) != value)
    for part in ("author", "hardware", "code", "price"):
        placed = [place.removeprefix(f"{part}.") for place in PLACES.values() if place.startswith(f"{part}.")]
        yield from unplaced(getattr(submission, part), part, placed)
    if submission.mode == "inference" and submission.price is not None:
        yield "price.usd_per_hour: only the cost of one answer is written"
    for run in submission.runs[:1]:
        yield from unplaced(run, "runs", ("curve", "status", "curve_digest"))
        yield from unplaced(run.curve, "runs.curve", ("time_s", "quality", "epoch", "others"))
    if submission.origin is not None and submission.origin.format != FORMAT:
        yield f"origin: {submission.origin.format} {submission.origin.file}"[:200]


def stem_of(submission: Submission) -> str:
    """The file's stem: that of the file it was read from, else ``author_model_hardware_framework``."""
    origin = submission.origin
    if origin is not None and origin.format == FORMAT:
        stem = Path(origin.file).stem
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,200}", stem):
            return stem
    parts = (submission.author.name, submission.model, submission.hardware.description, submission.framework)
    return "_".join(re.sub(r"[^A-Za-z0-9.]+", "-", each).strip("-.")[:40] or "unnamed" for each in parts)
