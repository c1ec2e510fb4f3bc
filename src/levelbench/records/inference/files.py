"""Writes and reads the files of inference: ``<store>/inference/<title>/<date>/<key8>-s<process>-<id>.jsonlines``.

Lines are whole and only the last can be torn, so a process that was killed leaves a record that can be
read and counts as interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from levelbench.errors import RecordError, StoreError
from levelbench.records import locks
from levelbench.records.digest import key_of
from levelbench.records.inference.schema import (
    FOLDER,
    INFERENCE_SCHEMA,
    Accuracy,
    Audit,
    Driven,
    InferenceEnd,
    InferenceEvent,
    InferenceFacts,
    InferenceHeader,
    InferenceOutcome,
    InferenceSpecification,
    PeakTrial,
)
from levelbench.records.processes import (
    ENDING,
    ProcessRecord,
    ProcessWriter,
    decoded_header,
    decoded_lines,
    find_records,
    open_record,
)
from levelbench.records.schema import Measurement, Samples
from levelbench.records.writer import path_part

if TYPE_CHECKING:
    # A process that measures imports this first, and NumPy is part of what it takes a framework to start.
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["InferenceRecord", "InferenceWriter", "find_inference_records", "inference_key"]
__all__ += ["inference_headers", "other_seeds", "read_inference"]

_BLOCK = 100_000
_HEADER = msgspec.json.Decoder(InferenceHeader)
# Lax, so that "nan" and "inf", which stand for what JSON has not, are figures again.
_EVENT: msgspec.json.Decoder[Any] = msgspec.json.Decoder(InferenceEvent, strict=False)


@dataclass(frozen=True)
class InferenceRecord(ProcessRecord):
    """What one process left behind.

    ``samples`` by name, in nanoseconds: ``latency`` one a query, ``lateness`` of its issue where the scenario has a
    schedule. ``measurements`` by name: ``phase/open`` and the others in s, ``peak_memory`` in B.
    """

    path: Path
    header: InferenceHeader
    facts: InferenceFacts
    measurements: dict[str, Measurement]
    samples: dict[str, NDArray[np.int64]]
    peaks: tuple[PeakTrial, ...]
    driven: Driven | None
    accuracy: Accuracy | None
    audits: tuple[Audit, ...]
    outcome: InferenceOutcome | None
    end: InferenceEnd | None
    running: bool = False

    def seconds(self, name: str) -> NDArray[np.float64]:
        """The raw values of that name in seconds; none where there are none."""
        import numpy as np

        return np.asarray(self.samples.get(name, ()), np.float64) * np.float64(1e-9)

    @property
    def latencies_s(self) -> NDArray[np.float64]:
        """Latencies in seconds, one a query (offline: a sample); those kept of thinned ones stand for all."""
        import numpy as np

        kept = self.seconds("latency")
        thinned = self.driven.thinned if self.driven is not None else 1
        if self.driven is None or thinned == 1:
            return kept
        return np.repeat(kept, thinned)[: self.driven.latencies]


def inference_key(specification: InferenceSpecification) -> str:
    """The digest of a specification, as for runs: 64 hexadecimal digits of the canonical JSON's SHA-256."""
    return key_of(specification)


class InferenceWriter(ProcessWriter[InferenceHeader, InferenceEvent]):
    """An open record of inference."""

    folder = FOLDER
    kind = "record of inference"

    def add_ns(self, name: str, values: NDArray[np.int64]) -> None:
        """Write raw values in nanoseconds, in as many lines as it takes."""
        for start in range(0, len(values), _BLOCK):
            self.add(Samples(name, "ns", values[start : start + _BLOCK].tolist()))


def read_inference(path: str | Path) -> InferenceRecord:
    """The record at ``path``; a torn last line is passed over. ``RecordError`` for what is none, or is damaged."""
    path = Path(path)
    asked = f"reading the record of inference {path}"
    with open_record(path, asked) as file:
        running = locks.is_held(file.fileno())
        header, chain = decoded_header(file, _HEADER, INFERENCE_SCHEMA, "record of inference", asked)
        events = list(decoded_lines(file, _EVENT, chain, asked))

    def last(kind: type[Any]) -> Any:
        return next((event for event in reversed(events) if isinstance(event, kind)), None)

    return InferenceRecord(
        path=path,
        header=header,
        facts=last(InferenceFacts) or InferenceFacts(),
        measurements={event.name: event for event in events if isinstance(event, Measurement)},
        samples=_joined([event for event in events if isinstance(event, Samples)], asked),
        peaks=tuple(event for event in events if isinstance(event, PeakTrial)),
        driven=last(Driven),
        accuracy=last(Accuracy),
        audits=tuple(event for event in events if isinstance(event, Audit)),
        outcome=last(InferenceOutcome),
        end=last(InferenceEnd),
        running=running,
    )


def _joined(blocks: Sequence[Samples], asked: str) -> dict[str, NDArray[np.int64]]:
    import numpy as np

    found: dict[str, list[NDArray[np.int64]]] = {}
    for block in blocks:
        values = np.asarray(block.values)
        if block.unit != "ns" or (values.size and values.dtype.kind != "i"):
            wrong = f"samples of {block.name!r} are no whole nanoseconds"
            raise RecordError(asked, wrong, "restore the record from a copy, or remove the file")
        found.setdefault(block.name, []).append(values.astype(np.int64))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def other_seeds(store: Path, specification: InferenceSpecification) -> dict[int, int]:
    """How many processes were measured of the same but for the seed of the queries, by that seed."""
    own = inference_key(specification)
    found: dict[int, int] = {}
    for path in (store / FOLDER / path_part(specification.title)).glob(f"*/*{ENDING}"):
        with suppress(RecordError), open_record(path, str(path)) as file:
            header, _ = decoded_header(file, _HEADER, INFERENCE_SCHEMA, "record of inference", str(path))
            theirs = header.specification
            alike = msgspec.structs.replace(theirs, seed=specification.seed)
            if theirs.seed != specification.seed and inference_key(alike) == own:
                found[theirs.seed] = found.get(theirs.seed, 0) + 1
    return found


def inference_headers(store: Path) -> Iterator[tuple[Path, InferenceHeader]]:
    """The path and header of every record in ``store`` (or below a folder of one); those damaged are passed over."""
    for path in store.rglob(f"*{ENDING}"):
        with suppress(RecordError, StoreError), open_record(path, str(path)) as file:
            yield path, decoded_header(file, _HEADER, INFERENCE_SCHEMA, "record of inference", str(path))[0]


def find_inference_records(store: Path, key: str) -> list[InferenceRecord]:
    """The records in ``store`` of the specification with that key, oldest first; those damaged are passed over."""
    return find_records(store, FOLDER, key, read_inference)
