"""What the ranks of a distributed run observed: one file per rank, merged into the run's record, and a summary of it.

Each rank appends to its own file, so it loses nothing when another dies. The first rank copies all files into the
record before writing its end. So a finished record has every rank once, and a run interrupted before is run again.

The summary never compares the clocks of two ranks. The computation of a step is its time minus the time in
communication, which each rank measures itself. All ranks leave a collective together, so a rank waited for the others
for as long as it spent there beyond the rank that spent least.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import RecordError, StoreError
from levelbench.measure.statistics import estimate_median
from levelbench.records import lines
from levelbench.records.locks import store_fault
from levelbench.records.reader import Record, open_record, read_line, read_record
from levelbench.records.schema import End, RankSamples, Samples
from levelbench.records.writer import RecordWriter, write_whole

__all__ = ["RankWriter", "Teamwork", "end_failed", "merge_ranks", "rank_file", "remove_old_rank_files"]
__all__ += ["remove_rank_files", "remove_rank_files_if_left", "teamwork"]


_SUFFIX = ".rank-"


def rank_file(record: Path, rank: int) -> Path:
    """The file of a rank, next to the record."""
    return record.with_suffix(f"{_SUFFIX}{rank}")


class RankWriter:
    """Writes the file of one rank, replacing an existing one. A context manager, for one thread."""

    def __init__(self, record: Path, rank: int) -> None:
        """Raises ``StoreError`` if the file cannot be made."""
        self.path, self.rank = rank_file(record, rank), rank
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
            self._descriptor = os.open(self.path, flags, 0o666)
            self._sum = ""
        except OSError as error:
            raise store_fault(f"beginning {self.path}", self.path, error) from error

    def append(self, observed: Mapping[str, tuple[str, Sequence[float]]]) -> None:
        """Write a line for each quantity; ``observed`` maps its name to its unit and values."""
        for name, (unit, values) in observed.items():
            line = lines.sealed(lines.encode(RankSamples(self.rank, name, unit, values)), self._sum)
            try:
                write_whole(self._descriptor, line)
            except OSError as error:
                raise store_fault(f"appending to {self.path}", self.path, error) from error
            self._sum = lines.checksum_in(line)

    def close(self) -> None:
        """Flush everything to disk and close the file. Closing twice is harmless."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.fsync(descriptor)
            os.close(descriptor)

    def __enter__(self) -> RankWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def merge_ranks(writer: RecordWriter, ranks: int) -> dict[int, str]:
    """Append the files of all ``ranks`` to the record, in order; a damaged file is left out as a whole.

    Returns the ranks that were left out, with the reasons. All ranks must have closed their files.
    :func:`remove_rank_files` removes the files once the record has its end.

    Raises ``StoreError`` if the record cannot be written.
    """
    doubts = {}
    for rank in range(ranks):
        try:
            events = list(_events(rank_file(writer.path, rank), rank))
        except (RecordError, StoreError) as problem:
            doubts[rank] = f"what rank {rank} observed is not in this record: {problem.found}"
            continue
        for event in events:
            writer.append(event)
    return doubts


def remove_rank_files(record: Path, but: Collection[int] = ()) -> None:
    """Remove the files of a record's ranks, except those of the ranks in ``but``, which the record lacks."""
    kept = {rank_file(record, rank).name for rank in but}
    for path in record.parent.glob(f"{record.stem}{_SUFFIX}*"):
        if path.name not in kept:
            path.unlink(missing_ok=True)


def remove_rank_files_if_left(record: Path) -> None:
    """Remove the files of a record's ranks if the run failed or was interrupted: no record will include them."""
    if _is_left(record):
        remove_rank_files(record)


def remove_old_rank_files(record: Path, key: str, seed: int) -> None:
    """Remove the files of ranks of failed or interrupted runs with this key and seed, in the store of ``record``.

    Files of runs that are done or running stay.
    """
    for path in record.parent.parent.glob(f"*/{key[:8]}-s{seed}-*{_SUFFIX}*"):
        other = path.with_suffix(record.suffix)
        if other != record and _is_left(other):
            path.unlink(missing_ok=True)


def _is_left(record: Path) -> bool:
    """Whether a run failed or was interrupted; not if its record is unreadable, since that is unknown."""
    try:
        return read_record(record).status in ("failed", "interrupted")
    except (RecordError, StoreError):
        return not record.exists()


def end_failed(path: Path, error: str) -> bool:
    """Append the end of a failed run to a record that its ranks left without one; return whether that was possible.

    Its time is that of the last evaluation. A record that has an end, is being written or has an incomplete last line
    is not changed.

    Raises ``StoreError`` if the record cannot be written.
    """
    asked = f"appending to {path}"
    try:
        record = read_record(path)
    except (RecordError, StoreError):
        return False
    if record.status != "interrupted":
        return False
    last = record.evaluations[-1] if record.evaluations else None
    phases = dict(last.phases_ns) if last is not None else {}
    line = lines.encode(End("failed", sum(phases.values()), phases, error=error))
    if record.checksum:
        line = lines.sealed(line, record.checksum)
    try:
        with path.open("rb+", buffering=0) as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                return False
            write_whole(file.fileno(), line)
            os.fsync(file.fileno())
    except OSError as fault:
        raise store_fault(asked, path, fault) from fault
    return True


def _events(path: Path, rank: int) -> Iterator[RankSamples]:
    asked = f"reading {path}"
    number, chain = 1, lines.Chain()
    with open_record(path, asked) as file:
        while line := read_line(file, number, asked):
            try:
                chain.check(line)
                event = lines.RUN.decode_event(line)
            except (*lines.MALFORMED, lines.InvalidLine) as error:
                raise RecordError(asked, f"line {number} is damaged ({error})", "run it again") from error
            if not isinstance(event, RankSamples) or event.rank != rank:
                raise RecordError(asked, f"line {number} is not of rank {rank}", "run it again")
            yield event
            number += 1


Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Teamwork:
    """How the ranks of one run worked together. Shares are of the step; ``None`` if unknown.

    ``step_s`` is the median over steps of the slowest rank's time. ``communicate_share`` is the mean over ranks and
    steps of the time in communication (unknown if the framework itself communicates, as DDP does within its backward
    pass); ``waiting_share`` is the part of it spent waiting for slower ranks.
    ``imbalance`` is the mean over steps of the slowest rank's computation divided by the mean rank's: 1 is perfect
    balance. ``sent_bytes`` and ``messages`` are per step and rank, on average; ``sent_most_bytes`` is for the rank that
    sends most; ``predicted_*`` are the scheme's closed form. What a framework sends by itself (DDP) is not ``counted``.
    ``overlap`` is the share of communication hidden behind computation. ``staleness`` holds all recorded delays in
    updates, ``divergence`` the largest relative distance of a rank from the mean of all ranks at each evaluation.
    ``stragglers`` are the ranks for which the others wait, each with how many times as long it computes as the median
    of the others, slowest first. ``peak_memory_bytes`` is the largest of all ranks.
    """

    ranks: int
    counted: bool
    step_s: float | None
    communicate_share: float | None
    waiting_share: float | None
    imbalance: float | None
    sent_bytes: float | None
    sent_most_bytes: float | None
    messages: float | None
    predicted_bytes: float | None
    predicted_messages: float | None
    overlap: float | None
    staleness: tuple[float, ...]
    divergence: tuple[float, ...]
    stragglers: tuple[tuple[int, float], ...] = ()
    peak_memory_bytes: float | None = None


def teamwork(record: Record) -> Teamwork | None:
    """How the ranks of a run worked together; ``None`` for a single process, or if no rank recorded anything."""
    by_rank = record.ranks
    distribution = record.header.specification.distribution
    if distribution is None or not by_rank:
        return None
    steps = _matrix(by_rank, "step_time")
    talk = _matrix(by_rank, "communicate_time")
    sent, messages = _per_step(by_rank, "sent"), _per_step(by_rank, "messages")
    predicted = _per_step(by_rank, "sent_predicted")
    own = _is(by_rank, "counted")
    if not own:
        sent, messages = [], []
    timed = own and steps.size > 0 and steps.shape == talk.shape
    work = steps - talk
    return Teamwork(
        ranks=distribution.ranks,
        counted=own,
        step_s=float(np.median(steps.max(axis=0))) * 1e-9 if steps.size > 0 else None,
        communicate_share=_share(talk, steps) if timed else None,
        waiting_share=_share(talk - talk.min(axis=0), steps) if timed and _is(by_rank, "lockstep") else None,
        imbalance=float(np.mean(work.max(axis=0) / work.mean(axis=0))) if timed and work.min() > 0 else None,
        sent_bytes=_mean(sent),
        sent_most_bytes=max(sent, default=None),
        messages=_mean(messages),
        predicted_bytes=_mean(predicted),
        predicted_messages=_mean(_per_step(by_rank, "messages_predicted")),
        overlap=_mean(_all(by_rank, "overlap")),
        staleness=tuple(_all(by_rank, "staleness")),
        divergence=_largest(by_rank, "divergence"),
        stragglers=_stragglers(work, [rank for rank in by_rank if "step_time" in by_rank[rank]]) if timed else (),
        peak_memory_bytes=_peak_memory(record),
    )


_FEWEST_STEPS = 20
_SLOWER = 1.1


def _stragglers(work: Matrix, ranks: Sequence[int]) -> tuple[tuple[int, float], ...]:
    """The ranks that compute clearly longer than the median of the others: with a 99 % interval above 1.1."""
    if len(work) < 2 or work.shape[1] < _FEWEST_STEPS or work.min() <= 0:
        return ()
    found = []
    for at, rank in enumerate(ranks):
        ratios = work[at] / np.median(np.delete(work, at, axis=0), axis=0)
        ratio = estimate_median(ratios.tolist(), 0.99)
        if ratio.interval is not None and ratio.interval.low > _SLOWER:
            found.append((rank, float(ratio.value)))
    return tuple(sorted(found, key=lambda each: -each[1]))


def _peak_memory(record: Record) -> float | None:
    team = record.end.environment_after.get("team", {}) if record.end is not None else {}
    known = [each for each in team.get("peak_memory_bytes_by_rank", ()) if each is not None]
    return float(max(known)) if known else None


def straggler_lines(label: str, found: Sequence[Teamwork]) -> list[str]:
    """A sentence for each rank that the others wait for in more than half of the runs."""
    seen: dict[int, list[float]] = {}
    for each in found:
        for rank, ratio in each.stragglers:
            seen.setdefault(rank, []).append(ratio)
    return [
        f"{label}: the others wait for rank {rank}, which computes {np.median(ratios):.3g} times as long as they do: "
        "look at its machine, its cores and its part of the work"
        for rank, ratios in sorted(seen.items())
        if len(ratios) > len(found) / 2
    ]


def _is(by_rank: Mapping[int, Mapping[str, Samples]], promise: str) -> bool:
    """Whether the scheme of all ranks promised it; each rank has recorded that."""
    return all(each[promise].values[0] != 0 for each in by_rank.values() if promise in each)


def _matrix(by_rank: Mapping[int, Mapping[str, Samples]], name: str) -> Matrix:
    """A row for each training rank, a column for each step that all of them made."""
    rows = [np.asarray(each[name].values, np.float64) for each in by_rank.values() if name in each]
    length = min((len(row) for row in rows), default=0)
    return np.array([row[:length] for row in rows]).reshape(len(rows), length)


def _per_step(by_rank: Mapping[int, Mapping[str, Samples]], name: str) -> list[float]:
    """The mean per step by rank. A server records several steps at once; it has as many as the workers."""
    steps = max((len(each["step_time"].values) for each in by_rank.values() if "step_time" in each), default=0)
    found = []
    for each in by_rank.values():
        if name in each:
            found.append(float(np.mean(each[name].values)))
        elif steps and f"{name}_serving" in each:
            found.append(float(np.sum(each[f"{name}_serving"].values)) / steps)
    return found


def _all(by_rank: Mapping[int, Mapping[str, Samples]], name: str) -> list[float]:
    return [float(value) for each in by_rank.values() if name in each for value in each[name].values]


def _largest(by_rank: Mapping[int, Mapping[str, Samples]], name: str) -> tuple[float, ...]:
    rows = _matrix(by_rank, name)
    return tuple(rows.max(axis=0).tolist()) if rows.size else ()


def _share(part: Matrix, whole: Matrix) -> float:
    return float(part.sum() / whole.sum())


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None
