"""What is doubtful in one DAWNBench entry beyond what its CI looked at, each as ``kind: sentence``.

The one idea: a doubt is no refusal. The entry is read as well as it can be, and whoever compares sees what it rests on:
one run, a curve that falls below its target again or ends with the crossing, code that nobody can find again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from levelbench.measure.crossing import find_crossing
from levelbench.records.exchange.dawnbench.entry import quality_key, unit_of
from levelbench.records.exchange.dawnbench.raw import RawEntry
from levelbench.records.exchange.dawnbench.tasks import DawnTask
from levelbench.records.submissions.schema import Submission

__all__ = ["PRICE_TOLERANCE", "doubts", "inconsistent"]

PRICE_TOLERANCE = 0.01
"""How far the cost that is stated may lie from latency times price: published figures have two digits or more."""

_DOCUMENTED = frozenset(
    (
        "version",
        "author",
        "authorEmail",
        "framework",
        "codeURL",
        "model",
        "hardware",
        "timestamp",
        "logFilename",
        "misc",
    )
)
_OF_MODE = {"train": {"costPerHour"}, "inference": {"latency", "cost"}}


def doubts(raw: RawEntry, entry: Submission, task: DawnTask, mode: str, today: date) -> list[str]:
    """Every doubt about the entry, the graver ones first; ``today`` is what no day may lie beyond."""
    found = [*_of_curve(raw, entry, task)] if mode == "train" else [*_of_inference(raw.record, entry, task)]
    found += [*_of_price(raw.record, entry, mode), *_of_code(entry), *_of_days(raw.record, entry, today)]
    found += [*_of_fields(raw.record, task, mode), *_of_name(raw)]
    return found + [f"format: {each}" for each in raw.oddities]


def _of_curve(raw: RawEntry, entry: Submission, task: DawnTask) -> Iterator[str]:
    curve, target = entry.runs[0].curve, entry.target
    yield "single-run: one run, so nothing is known of its spread or of how often it arrives"
    first, sustained = (
        find_crossing(curve.quality, target.threshold, direction=target.direction, rule=rule, x=curve.time_s)
        for rule in ("first", "sustained")
    )
    if first is None:
        yield f"threshold: the best of {len(curve.quality)} evaluations is {max(curve.quality):g}"
    elif sustained is None:
        yield f"flapping: at the target after {first.position:.2f} s, and below it again at the end"
    elif sustained.index > first.index:
        yield f"flapping: at the target after {first.position:.2f} s, to stay only after {sustained.position:.2f} s"
    if first is not None and first.index == len(curve.quality) - 1:
        yield "censored: the curve ends where it crosses, so whether the model stays at the target is unknown"
    yield from _of_order(curve.time_s, curve.epoch)
    yield from _of_scale(list((raw.columns or {}).get(task.key, ())), curve.quality, task)


def _of_order(time_s: Sequence[float], epoch: Sequence[float] | None) -> Iterator[str]:
    if time_s[0] < 0:
        yield f"curve: it begins at {time_s[0]:g} s"
    for name, values in (("hours", time_s), ("epoch", epoch or ())):
        at = next((i for i in range(1, len(values)) if values[i] <= values[i - 1]), None)
        if at is not None:
            yield f"curve: {name} does not increase in row {at + 1}"


def _of_scale(given: Sequence[Decimal], shares: Sequence[float], task: DawnTask) -> Iterator[str]:
    places = unit_of(list(given), task)
    if given and places != task.places:
        said, due = ("per cent", "a share") if places else ("a share", "per cent")
        yield f"scale: {task.key} is given as {said} where {due} is due; read as {said}"
    outside = [each for each in shares if not 0 <= each <= 1]
    if outside:
        yield f"scale: a quality of {outside[0]:g} is beyond what can be reached"


def _of_inference(record: Mapping[str, Any], entry: Submission, task: DawnTask) -> Iterator[str]:
    measured = entry.inference[0]
    yield "single-run: one mean, so nothing is known of the latency's spread"
    key = quality_key(record, task)
    if key != task.key:
        yield f"fields: the quality stands under {key!r}, not {task.key!r}"
    if measured.quality is None:
        yield f"quality: none is stated under {task.key!r}"
    else:
        if measured.quality < entry.target.threshold:
            yield f"threshold: the quality is {measured.quality:g}, the target {entry.target.threshold:g}"
        yield from _of_scale([Decimal(record[key])], [measured.quality], task)
    if measured.mean_latency_s is None:
        yield "latency: none is stated"
    elif measured.mean_latency_s <= 0:
        yield f"latency: {measured.mean_latency_s:g} s is no time"


def _of_price(record: Mapping[str, Any], entry: Submission, mode: str) -> Iterator[str]:
    if mode == "train":
        if entry.price is None:
            given = record.get("costPerHour")
            yield "price: none is stated" if given is None else f"price: costPerHour is {given!r}, no price"[:200]
        return
    cost = entry.inference[0].cost_usd
    if cost is None:
        yield "price: no cost is stated"
    elif cost <= 0:
        yield f"price: a cost of {cost:g} is none"
    elif entry.price is not None:
        yield from inconsistent(entry, entry.price.usd_per_hour, "its own costPerHour")


def inconsistent(entry: Submission, usd_per_hour: float, source: str) -> Iterator[str]:
    """The doubt whether cost is latency times price, where both are stated and it is not."""
    measured = entry.inference[0]
    if measured.cost_usd is None or not measured.mean_latency_s or measured.mean_latency_s < 0:
        return
    due = usd_per_hour / 3600 * measured.mean_latency_s
    if abs(measured.cost_usd - due) > PRICE_TOLERANCE * due:
        yield f"cost: {measured.cost_usd:.4g} USD is stated, latency times price is {due:.4g} ({source})"


def _of_code(entry: Submission) -> Iterator[str]:
    if entry.code.url is None:
        yield "code: no link to it"
    elif entry.code.commit is None:
        yield "code: the link names no commit, so what ran may have changed since"
    if entry.code.url is not None and not entry.code.url.startswith(("https://", "http://")):
        yield "code: the link is no web address"


def _of_days(record: Mapping[str, Any], entry: Submission, today: date) -> Iterator[str]:
    if date.fromisoformat(entry.submitted) > today:
        yield f"date: {entry.submitted} lies in the future"
    if record.get("timestamp") != entry.submitted:
        yield f"date: {record.get('timestamp')!r} is not written as YYYY-MM-DD"


def _of_fields(record: Mapping[str, Any], task: DawnTask, mode: str) -> Iterator[str]:
    known = _DOCUMENTED | _OF_MODE[mode] | ({quality_key(record, task)} if mode == "inference" else set())
    if record.get("usedBlacklist") is True:
        yield "data: evaluated without the images that the dataset's own list excludes, which others count"
    unknown = sorted(set(record) - known)
    if unknown:
        yield f"fields: the format does not have {', '.join(unknown)}"[:1000]
    if not isinstance(record.get("misc", {}), dict):
        yield "fields: misc is no object"
    for name in ("author", "framework", "model", "hardware"):
        if len(record[name].strip()) > 200:
            yield f"fields: {name} is longer than 200 characters; what is shown is cut"


def _of_name(raw: RawEntry) -> Iterator[str]:
    if raw.path.stem.count("_") < 3:
        yield "name: the file is not called AUTHOR_MODEL_HARDWARE_FRAMEWORK"
