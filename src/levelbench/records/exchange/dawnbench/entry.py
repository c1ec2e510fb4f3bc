"""One DAWNBench entry as a submission: qualities as shares, seconds for hours and milliseconds, a price where one is.

The one idea: what has a place in our schema goes there; everything else the entry says is kept in ``origin.fields``, so
that the entry can be written again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from levelbench.errors import RecordError
from levelbench.records.exchange.dawnbench.fields import Leaf, keep
from levelbench.records.exchange.dawnbench.figures import from_hours, shifted
from levelbench.records.exchange.dawnbench.raw import RawEntry
from levelbench.records.exchange.dawnbench.tasks import RULESET, TASKS, DawnTask, rules_of, target_of, task_in_folder
from levelbench.records.submissions.digests import curve_digest
from levelbench.records.submissions.schema import (
    SUBMISSION_SCHEMA,
    Author,
    Code,
    Curve,
    Hardware,
    Inference,
    Origin,
    Price,
    Submission,
    SubmittedRun,
)

__all__ = ["FORMAT", "as_fraction", "build", "day_of", "place_of", "quality_key", "unit_of"]

FORMAT = "dawnbench"
_LONGEST_NAME = 200
_LONGEST_TEXT = 4000
_HEX = re.compile(r"/([0-9a-f]{40})(?=[/?#]|$)")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_NAMES = ("author", "framework", "model", "hardware")


def place_of(raw: RawEntry) -> tuple[DawnTask, str]:
    """Task and mode: from the folders an entry lies in, else from its keys and columns. ``RecordError`` for neither."""
    mode, task = raw.path.parent.name, task_in_folder(raw.path.parent.parent.name)
    if task is not None and mode in ("train", "inference"):
        return task, mode
    names = set(raw.record) | set(raw.columns or ())
    found = [each for each in TASKS if each.key in names]
    # ImageNet's curves have the key of CIFAR10 as well.
    best = max(found, key=lambda each: len(names & set(each.columns)), default=None)
    if best is None:
        asked = f"reading {raw.path}"
        do = "keep it in TASK/train or TASK/inference, with TASK one of CIFAR10, ImageNet and SQuAD"
        raise RecordError(asked, "neither its folder nor its keys say which task it is of", do)
    return best, "inference" if "latency" in raw.record else "train"


def build(raw: RawEntry, file: str) -> Submission:
    """The submission that the entry is, without doubts; ``file`` is what ``origin`` calls it."""
    task, mode = place_of(raw)
    record, asked = raw.record, f"reading {raw.path}"
    names = {key: _name(record, key, asked) for key in _NAMES}
    fields = _fields(record, task, mode)
    url, commit = _code(record)
    return Submission(
        schema=SUBMISSION_SCHEMA,
        ruleset=RULESET,
        task=task.task,
        mode="training" if mode == "train" else "inference",
        author=Author(names["author"], _text(record.get("authorEmail"))),
        submitted=day_of(record.get("timestamp"), asked).isoformat(),
        model=names["model"],
        framework=names["framework"],
        hardware=Hardware(names["hardware"]),
        target=target_of(task),
        clock="dawnbench",
        crossing="first",
        code=Code(url, commit),
        price=_price(record.get("costPerHour")),
        runs=[_run(_curve(raw, task))] if mode == "train" else [],
        inference=[_inference(record, task)] if mode == "inference" else [],
        settings=_settings(record.get("misc")),
        origin=Origin(FORMAT, file[:_LONGEST_TEXT], raw.digest, fields=fields),
    )


def _name(record: Mapping[str, Any], key: str, asked: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not value.strip():
        found = f"{key!r} is {value!r}"[:120] if key in record else f"there is no {key!r}"
        raise RecordError(asked, found, f"give {key!r} as text")
    return value.strip()[:_LONGEST_NAME]


def _text(value: Any) -> str | None:
    return value.strip()[:_LONGEST_TEXT] or None if isinstance(value, str) else None


def day_of(value: Any, asked: str) -> date:
    """The day of a timestamp, with or without leading zeros. ``RecordError`` for another thing."""
    try:
        return datetime.strptime(value, "%Y-%m-%d").date()
    except (TypeError, ValueError) as error:
        found = f"'timestamp' is {value!r}"[:120]
        raise RecordError(asked, found, "give the day of submission as YYYY-MM-DD") from error


def _code(record: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The URL, and the commit from ``commitHash`` or else from the URL."""
    url, stated = _text(record.get("codeURL")), _text(record.get("commitHash"))
    if stated and _COMMIT.fullmatch(stated):
        return url, stated
    found = _HEX.search(url or "")
    return url, found.group(1) if found else None


def _number(value: Any) -> Decimal | None:
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    return Decimal(value) if is_number else None


def _price(value: Any) -> Price | None:
    number = _number(value)
    return Price(float(number)) if number is not None and number > 0 else None


def _settings(misc: Any) -> dict[str, int | float | str | bool]:
    """The single values of ``misc``: lists, objects and nulls stay where they were."""
    if not isinstance(misc, dict):
        return {}
    plain = {key: float(each) if isinstance(each, Decimal) else each for key, each in misc.items()}
    return {key: each for key, each in plain.items() if isinstance(each, int | float | str)}


def _fields(record: Mapping[str, Any], task: DawnTask, mode: str) -> dict[str, Leaf]:
    """What has no other place: a name that was too long is kept whole, and a price that is none as it was given."""
    left = {key: value for key, value in record.items() if not _has_place(record, key, task, mode)}
    if isinstance(record.get("misc"), dict):
        placed = _settings(record["misc"])
        left["misc"] = {key: value for key, value in record["misc"].items() if key not in placed}
    return keep(left)


def _has_place(record: Mapping[str, Any], key: str, task: DawnTask, mode: str) -> bool:
    value = record[key]
    if key in _NAMES:
        return len(value.strip()) <= _LONGEST_NAME
    if key in ("authorEmail", "codeURL"):
        return isinstance(value, str) and len(value.strip()) <= _LONGEST_TEXT
    if key == "costPerHour":
        return _price(value) is not None
    if key == "commitHash":
        return bool(_code(record)[1] == value)
    if mode == "inference" and key in ("latency", "cost", quality_key(record, task)):
        return _number(value) is not None
    return key == "timestamp"


def quality_key(record: Mapping[str, Any], task: DawnTask) -> str:
    """The key under which an inference entry gives its quality: the task's, or ``accuracy`` as a README had it."""
    return "accuracy" if task.key not in record and "accuracy" in record else task.key


def unit_of(values: list[Decimal], task: DawnTask) -> int:
    """Decimal places from the scale that the values are on to shares: 2 for per cent, whatever the task says."""
    largest = max(values, default=Decimal(0))
    if task.places:
        return 0 if 0 < largest <= 1 else task.places
    return 2 if largest > 2 else 0


def as_fraction(value: Any, task: DawnTask) -> float | None:
    """One quality as a share; ``None`` where there is no number."""
    number = _number(value)
    return None if number is None else shifted(number, -unit_of([number], task))


def _curve(raw: RawEntry, task: DawnTask) -> Curve:
    columns, asked = raw.columns, f"reading {raw.path}"
    if columns is None:
        raise RecordError(asked, "there is no TSV of its name beside it", "add the training curve")
    for name in ("hours", task.key):
        if name not in columns:
            raise RecordError(asked, f"its TSV has no column {name!r}: {', '.join(columns)[:120]}", f"add {name!r}")
    if not columns["hours"]:
        raise RecordError(asked, "its TSV has no rows", "add one row an epoch")
    shares = {
        name: [shifted(each, -unit_of(values, task)) for each in values]
        for name, values in columns.items()
        if name.endswith(("Accuracy", "Score"))
    }
    epochs = columns.get("epoch")
    others = {
        _our_name(name): shares.get(name) or [float(each) for each in values]
        for name, values in columns.items()
        if name not in ("epoch", "hours", task.key)
    }
    return Curve(
        time_s=[from_hours(each) for each in columns["hours"]],
        quality=shares[task.key],
        epoch=None if epochs is None else [float(each) for each in epochs],
        others=others,
    )


def _run(curve: Curve) -> SubmittedRun:
    return SubmittedRun(curve, curve_digest=curve_digest(curve))


def _our_name(column: str) -> str:
    return {"top1Accuracy": "top1", "top5Accuracy": "top5", "f1Score": "f1"}.get(column, column)


def _inference(record: Mapping[str, Any], task: DawnTask) -> Inference:
    """The entry states a mean only: how many answers it is over, and so how long they took, is what the rules say."""
    latency, cost = _number(record.get("latency")), _number(record.get("cost"))
    mean = None if latency is None else shifted(latency, -3)
    answers = rules_of(task.task).samples or 0
    quality = as_fraction(record.get(quality_key(record, task)), task)
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
