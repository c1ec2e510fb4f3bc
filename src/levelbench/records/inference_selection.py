"""Which records of inference are meant: the grammar of runs, with what a measurement of inference has.

Headers are read first and whole records only of what is meant, since one may hold a million latencies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from levelbench.errors import RecordError, StoreError, UnknownNameError
from levelbench.measure.environment import machine_of
from levelbench.records.inference import FOLDER, InferenceArm, InferenceHeader, InferenceRecord
from levelbench.records.processes import ENDING
from levelbench.records.schema import key_of
from levelbench.records.selection import Selector, Value, parse_selector, parse_value

__all__ = ["arms_among", "select_inference"]

_AFTERWARDS = ("status",)
_PREFIXES = ("id", "key")


def select_inference(store: Path, word: str = "", limit: int | None = None) -> list[InferenceRecord]:
    """The records that ``word`` means, newest first, at most ``limit``; all of the store for an empty word.

    ``digits``, an id's beginning, ``latest:3``, a file or a folder, with filters such as ``[scenario=offline]``. Raises
    ``UnknownNameError`` for a filter by what no record has, ``RecordError`` for a file that is named and damaged.
    """
    if word.endswith(ENDING):
        return [InferenceRecord.read(word)]
    chosen = parse_selector(word) if word else Selector("")
    place = chosen.path or store / FOLDER
    headers = list(InferenceRecord.headers(place))
    _require_known(chosen, [header for _, header in headers])
    meant = [(header.started, str(path)) for path, header in headers if _meant(chosen, header)]
    found: list[InferenceRecord] = []
    most = chosen.latest or limit
    for _, path in sorted(meant, reverse=True):
        if most is not None and len(found) == most:
            break
        with suppress(RecordError, StoreError):
            record = InferenceRecord.read(path)
            if all(record.status == text for name, text in chosen.filters if name in _AFTERWARDS):
                found.append(record)
    return found[:limit]


def arms_among(records: Sequence[InferenceRecord]) -> list[list[list[InferenceRecord]]]:
    """The whole ones by measurement, arm and process: as ``summarise_inference`` takes them, one measurement at a time.

    Arms of one measurement differ in the arm alone, and were on one machine; of a process that was made anew the newest
    record counts.
    """
    found: dict[tuple[str, str], dict[str, dict[int, InferenceRecord]]] = {}
    for record in sorted(records, key=lambda each: each.header.started):
        if record.status == "done":
            specification = record.header.specification
            alike = key_of(replace(specification, arm=InferenceArm("")))
            arms = found.setdefault((alike, machine_of(record.header.environment)), {})
            arms.setdefault(record.header.key, {})[record.header.seed] = record
    return [[list(processes.values()) for processes in arms.values()] for arms in found.values()]


def _meant(chosen: Selector, header: InferenceHeader) -> bool:
    model, words = header.specification.model, _words(header)
    if chosen.word and chosen.word not in (model.task, model.name) and not _begins(header.id, chosen.word):
        return False
    return all(_agrees(words.get(name), name, text) for name, text in chosen.filters if name not in _AFTERWARDS)


def _begins(identity: str, word: str) -> bool:
    return re.fullmatch("[0-9a-z]{4,}", word) is not None and identity.startswith(word)


def _words(header: InferenceHeader) -> dict[str, Value]:
    """What filters may name."""
    specification = header.specification
    arm, own = specification.arm, specification.model.settings
    return {
        **own,
        "id": header.id,
        "key": header.key,
        "seed": header.seed,
        "scenario": specification.scenario.name,
        "framework": arm.framework,
        "mode": arm.mode,
        "device": arm.device,
        "recipe": specification.model.recipe,
        "preprocessing": specification.preprocessing,
    }


def _agrees(value: Value | None, name: str, text: str) -> bool:
    if name in _PREFIXES:
        return str(value).startswith(text)
    wanted = parse_value(text)
    return value is not None and (value == wanted and isinstance(value, bool) == isinstance(wanted, bool))


def _require_known(chosen: Selector, headers: list[InferenceHeader]) -> None:
    known = {name for header in headers for name in _words(header)} | set(_AFTERWARDS)
    for name, _ in chosen.filters if headers else ():
        if name not in known:
            raise UnknownNameError("filter of inference", name, sorted(known))
