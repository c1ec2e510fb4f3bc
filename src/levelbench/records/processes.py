"""The common part of records of operators, networks, inference and commands, which have one file per process.

They are JSONL files like those of runs, read and written in the same way, with another extension, so that neither kind
is mistaken for the other. Each kind adds its specification, its events, and the fields of its record.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar, cast

import msgspec
from msgspec import Struct, structs

from levelbench import __version__
from levelbench.errors import RecordError, StoreError
from levelbench.measure.clocks import utc_now
from levelbench.records import lines
from levelbench.records.reader import FileLines, read_header, read_lines
from levelbench.records.schema import SCHEMA, Count, key_of
from levelbench.records.selection import Value
from levelbench.records.writer import RecordWriter, path_part

__all__ = ["ENDING", "FileLines", "Planned", "ProcessEnd", "ProcessFormat", "ProcessHeader", "ProcessRecord"]
__all__ += ["ProcessWriter"]

ENDING = ".jsonlines"

S = TypeVar("S")
E = TypeVar("E")


class ProcessHeader(Struct, Generic[S], frozen=True, tag_field="kind"):
    """The first line. ``seed`` is the number of the process; ``ceilings`` are as ``Ceilings.to_dict`` gives them.

    ``planned_effect`` and ``planned_runs`` are as for runs. ``measured_before`` counts how often its arm was measured
    before, in the same store and under the same conditions.
    """

    schema: int
    id: str
    key: str
    seed: Count
    started: str
    specification: S
    environment: dict[str, Any]
    version: str
    ceilings: dict[str, Any] = {}
    planned_effect: float | None = None
    planned_runs: Count = 0
    measured_before: Count = 0


class Planned(NamedTuple):
    """What the header of a process says of the command that it is a part of; ``before`` is ``measured_before``."""

    effect: float | None = None
    runs: int = 0
    before: int = 0


class ProcessEnd(Struct, frozen=True, tag="end", tag_field="kind"):
    """The last line. ``suspect`` lists reasons to doubt the times."""

    suspect: list[str] = msgspec.field(default_factory=list)
    environment_after: dict[str, Any] = msgspec.field(default_factory=dict)


H = TypeVar("H", bound=ProcessHeader[Any])


class ProcessFormat(lines.Format[H, E]):
    """A kind of these records, in the store's ``folder``."""

    def __init__(self, name: str, folder: str, header: type[H], events: object) -> None:
        super().__init__(name, header, events)
        self.header, self.folder = header, folder


@dataclass(frozen=True)
class ProcessRecord(ABC, Generic[H]):
    """The record of one process; ``end`` is its last line, ``running`` says whether it is being written."""

    form: ClassVar[ProcessFormat[Any, Any]]

    path: Path
    header: H
    end: ProcessEnd | None = field(kw_only=True)
    running: bool = field(kw_only=True, default=False)

    @property
    def status(self) -> Literal["done", "running", "interrupted"]:
        """``done`` if it has an end; a record without one that is not being written was interrupted."""
        return "done" if self.end is not None else "running" if self.running else "interrupted"

    @classmethod
    @abstractmethod
    def _parts(cls, found: FileLines[Any, Any], asked: str) -> dict[str, Any]:
        """The other fields of this kind of record, by name."""

    @classmethod
    def names(cls, header: H) -> tuple[str, ...]:
        """The words that select it."""
        return (header.specification.title,)

    @classmethod
    def words(cls, header: H) -> dict[str, Value]:
        """What filters can select it by, in addition to its id, key and number."""
        found: dict[str, Any] = structs.asdict(header.specification)
        return {name: each for name, each in found.items() if isinstance(each, str | int | float)}

    @classmethod
    def measurement(cls, header: H) -> str:
        """What all arms of its measurement have in common."""
        return ""

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The record at ``path``, without an incomplete last line.

        Raises ``RecordError`` for a file that is not such a record, or is damaged.
        """
        path = Path(path)
        found = read_lines(path, cls.form)
        parts = cls._parts(found, f"reading the {cls.form.name} {path}")
        return cls(path, found.header, end=found.last(ProcessEnd), running=found.running, **parts)

    @classmethod
    def find(cls, store: Path, key: str) -> list[Self]:
        """The readable records in ``store`` of the specification with this key, oldest first."""
        found = [record for record in cls.all(store, key[:8]) if record.header.key == key]
        return sorted(found, key=lambda record: (record.header.started, str(record.path)))

    @classmethod
    def all(cls, store: Path, key: str = "") -> Iterator[Self]:
        """The readable records in ``store`` whose keys begin with ``key`` (up to eight digits)."""
        for path in (store / cls.form.folder).glob(f"*/*/{key}*-s*{ENDING}"):
            with suppress(RecordError):
                yield cls.read(path)

    @classmethod
    def headers(cls, folder: Path) -> Iterator[tuple[Path, H]]:
        """The path and header of every such readable record in ``folder`` or below."""
        for path in folder.rglob(f"*{ENDING}"):
            with suppress(RecordError, StoreError):
                yield path, read_header(path, cls.form)


class ProcessWriter(RecordWriter, Generic[H, E]):
    """Writes the record of one process."""

    form: ClassVar[ProcessFormat[Any, Any]]

    @classmethod
    def begin(cls, store: Path, header: H) -> Self:
        """Begin ``<store>/<folder>/<title>/<date>/<key8>-s<seed>-<id>.jsonlines`` with its header in it.

        Raises ``StoreError`` if the file cannot be made; nothing is left behind.
        """
        name = f"{header.key[:8]}-s{header.seed}-{path_part(header.id)}{ENDING}"
        title, date = path_part(header.specification.title), path_part(header.started[:10])
        path = store / cls.form.folder / title / date / name
        return cls._begin(path, lines.first_line(header), f"beginning a {cls.form.name} in {store}")

    @classmethod
    def start(
        cls,
        store: Path,
        specification: Struct,
        *,
        seed: int,
        identity: str,
        environment: dict[str, Any],
        ceilings: dict[str, Any] | None = None,
        planned: Planned | None = None,
    ) -> Self:
        """Begin the record of a process that starts now."""
        started = utc_now().isoformat(timespec="milliseconds")
        header = cls.form.header(
            SCHEMA,
            identity,
            key_of(specification),
            seed,
            started,
            specification,
            environment,
            __version__,
            ceilings or {},
            *(planned or Planned()),
        )
        return cls.begin(store, cast(H, header))

    def add(self, event: E) -> None:
        """Write one line; from then on it survives the end of this process."""
        self.append(cast(Any, event))
