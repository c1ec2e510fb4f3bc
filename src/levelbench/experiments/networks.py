"""Benchmarks of networks: each replicate is one process, identified by its case, arm and number.

A replicate counts as done if its record is finished and was made on this machine with these libraries. Nothing heavy is
imported at the top, so that the start of the framework can be measured.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, final

import msgspec
from msgspec import structs

from levelbench.errors import LevelbenchError
from levelbench.experiments.kernel import (
    Kind,
    Make,
    Plan,
    Turn,
    Watcher,
    disagreement,
    measured_before,
    need_frameworks,
)
from levelbench.experiments.processes import (
    ProcessNote,
    ceilings_of,
    framework_ceilings,
    listen,
    need_folder,
    patience,
    raise_reported,
    serve,
    survived,
)
from levelbench.records import key_of, new_id
from levelbench.records.networks import (
    FOLDER,
    NOISE,
    NOISE_BYTES,
    MemoryRoom,
    NetworkArm,
    NetworkOutcome,
    NetworkRecord,
    NetworkSpecification,
    limit_held,
)
from levelbench.records.processes import Planned

__all__ = ["NetworkBenchmarks", "NetworkJob", "NetworkNote", "find_room", "main"]

NetworkPlan = Plan[NetworkSpecification, NetworkRecord]
_CHILD = "levelbench.experiments.networks"


class NetworkJob(msgspec.Struct, frozen=True):
    """Measure a replicate, the framework's ceilings in ``dtype`` or the peak memory, or compute the case's reference.

    ``reference`` is the file of the reference, to be written or read; if it is empty, ``no_reference`` says why.
    ``crashed`` says how an earlier process crashed: that is recorded, and the measurement is not tried again.
    ``planned`` is for the header, ``room`` for the plan of the arm's memory limit.
    """

    specification: NetworkSpecification
    store: str
    purpose: Literal["measure", "ceilings", "reference", "memory"] = "measure"
    id: str = ""
    seed: int = 0
    dtype: str = "float32"
    ceilings: dict[str, Any] = {}
    reference: str = ""
    no_reference: str = "there is no reference"
    crashed: str = ""
    planned: Planned = Planned()
    room: MemoryRoom = MemoryRoom()


class NetworkNote(ProcessNote, frozen=True, kw_only=True):
    """A line to the parent: also a stage that begins, the outcome, or the peak memory and what a plan has of it."""

    stage: str = ""
    outcome: NetworkOutcome | None = None
    peak_b: float | None = None
    tensors_b: int = 0


def main(arguments: list[str]) -> int:
    """Read a job from standard input and carry it out; the first argument is the file descriptor for notes."""
    return serve(arguments, NetworkJob, _carry_out)


def _carry_out(job: NetworkJob, tell: Callable[[ProcessNote], None]) -> None:
    if job.purpose == "ceilings":
        arm = job.specification.arm
        tell(NetworkNote(ceilings=framework_ceilings(arm.framework, arm.device, job.dtype)))
    elif job.purpose == "reference":
        from levelbench.networks.benchmark import reference

        reference.save(reference.make(job.specification), Path(job.reference))
    elif job.purpose == "memory":
        from levelbench.networks.benchmark.measuring import peak_of

        found, tensors = peak_of(job.specification, job.room.spare, lambda stage: tell(NetworkNote(stage=stage)))
        tell(NetworkNote(peak_b=found.value, tensors_b=tensors))
    else:
        from levelbench.networks.benchmark.measuring import make_record

        make_record(
            job.specification,
            job.seed,
            job.id,
            Path(job.store),
            job.ceilings,
            Path(job.reference) if job.reference else job.no_reference,
            lambda path, stage, outcome: tell(NetworkNote(path=str(path), stage=stage, outcome=outcome)),
            job.crashed,
            job.planned,
            job.room,
        )


@final
class NetworkBenchmarks(Kind[NetworkSpecification, NetworkRecord]):
    """Processes that measure networks; each case has the same arms.

    ``effect`` is the effect for which looks at the comparison are planned, if they are. If a process crashes, its
    record says so, and the others continue.
    """

    def __init__(self, store: Path, *, effect: float | None = None) -> None:
        self._store, self._effect = store, effect
        self._rooms: dict[str, MemoryRoom] = {}

    def check(self, arms: Sequence[NetworkSpecification]) -> None:
        """Raise ``MissingError`` for a framework or device that is not available."""
        need_frameworks((each.arm.framework, each.arm.device) for each in arms)

    def key(self, wanted: NetworkSpecification) -> str:
        """The key of its records."""
        return key_of(wanted)

    def title(self, wanted: NetworkSpecification) -> str:
        """The title of its arm."""
        return wanted.arm.title

    def find(self, wanted: NetworkSpecification) -> Iterable[NetworkRecord]:
        """Its records in the store."""
        return NetworkRecord.find(self._store, key_of(wanted))

    def why_not(self, record: NetworkRecord, wanted: NetworkSpecification, environment: Mapping[str, object]) -> str:
        """It was made on another machine, by another version, or with other libraries."""
        libraries = ("numpy", "onnx", wanted.arm.framework)
        return disagreement(record.header.version, record.header.environment, environment, libraries)

    @contextmanager
    def opened(self, plan: NetworkPlan, watcher: Watcher[NetworkRecord]) -> Iterator[Make[NetworkRecord]]:
        """Measure the ceilings and compute the references, once for all processes."""
        need_folder(self._store / FOLDER)
        ceilings = _ceilings(plan, self._store, watcher)
        with tempfile.TemporaryDirectory(prefix="levelbench-") as folder:
            references = {}
            for case in sorted({plan.case_of(turn) for turn in plan.to_go}):
                first = NetworkJob(plan.arms[case * len(plan.arms) // plan.cases], str(self._store))
                references[case] = _reference(first, Path(folder) / f"{case}.npz", watcher)

            before = measured_before(self, plan)
            for turn in plan.to_go:
                wanted = plan.arms[turn.arm]
                if wanted.arm.memory_limit is not None and self.key(wanted) not in self._rooms:
                    self._rooms[self.key(wanted)] = self._room(plan, turn, references[plan.case_of(turn)], watcher)

            def make(turn: Turn, begin: Callable[[], None]) -> tuple[NetworkRecord, None]:
                job = structs.replace(
                    references[plan.case_of(turn)],
                    specification=plan.arms[turn.arm],
                    seed=turn.seed,
                    ceilings=ceilings,
                    room=self._rooms.get(self.key(plan.arms[turn.arm]), MemoryRoom()),
                    planned=Planned(self._effect, len(plan.seeds), before[turn.arm]),
                )

                def on_note(note: NetworkNote) -> None:
                    if note.stage:
                        watcher.progress(turn, note.stage)

                notes = _survived(job, begin, on_note)
                return NetworkRecord.read(Path(next(note.path for note in notes if note.path))), None

            yield make

    def _room(self, plan: NetworkPlan, turn: Turn, job: NetworkJob, watcher: Watcher[NetworkRecord]) -> MemoryRoom:
        """What an arm has to leave of its limit to stay within it: as before, or as found by trials."""
        for (arm, _), record in plan.done.items():
            if arm == turn.arm and record.facts is not None:
                return record.facts.room
        wanted = plan.arms[turn.arm]
        return find_room(structs.replace(job, specification=wanted), watcher.preparing)


def find_room(
    job: NetworkJob,
    say: Callable[[str], None] = lambda line: None,
    carry_out: Callable[[NetworkJob], list[NetworkNote]] | None = None,
) -> MemoryRoom:
    """What the plan of a job's arm has to leave of its memory limit, found by trials; ``say`` gets what they show.

    Each plan is made for what the one before took beyond its limit. Where none needs so little, or it takes more (more
    pieces take more besides their tensors), the search goes on between the plans on both sides of the best one. Where
    none stays within the limit, it is what the one leaves that takes least. A trial is a job that is carried out in a
    process of its own.
    """
    from levelbench.networks.transforms.microbatch import format_bytes

    arm = job.specification.arm
    limit, spare, why = arm.memory_limit or 0, 0, ""
    best, room = math.inf, MemoryRoom()
    tried: set[float] = {math.inf}
    for _ in range(_TRIES):
        say(f"looking whether {arm.title} stays within its memory")
        tried.add(spare)
        note = None
        try:
            notes = (carry_out or _process)(structs.replace(job, purpose="memory", room=MemoryRoom(spare)))
            note = next((note for note in reversed(notes) if note.peak_b is not None), None)
        except LevelbenchError as error:
            # No plan needs so little, or the framework cannot do it: the measurement itself says so.
            why = error.found.partition(";")[0]
        if note is not None and note.peak_b is not None and note.peak_b < best:
            best, room = note.peak_b, MemoryRoom(spare, round(note.peak_b) - note.tensors_b)
        if best == math.inf or limit_held(best) <= limit:
            break
        spare = math.ceil(room.beside + max(NOISE * limit, NOISE_BYTES))
        above = min(each for each in tried if each > room.spare)
        if spare >= above:
            below = max((each for each in tried if each < room.spare), default=room.spare)
            start, end = max((room.spare, above), (below, room.spare), key=lambda gap: gap[1] - gap[0])
            spare = round(start + end) // 2
            if end - start < 2 * NOISE_BYTES:
                break
    if best < math.inf:
        tensors = best - room.beside
        held = ""
        if best > limit:
            known = f"{format_bytes(limit_held(best))} is the smallest limit that is known to hold"
            held = f"; this is BEYOND it{f', but {why}' if why else ''}: {known}"
        say(
            f"{arm.title}: planned {format_bytes(best)} of at most {format_bytes(limit)}: {format_bytes(tensors)} of "
            f"tensors and {format_bytes(room.beside)} that {arm.framework} took besides in a trial{held}"
        )
    return room


_TRIES = 8


def _ceilings(plan: NetworkPlan, store: Path, watcher: Watcher[NetworkRecord]) -> dict[str, object]:
    """The highest ceilings that any framework of the plan reached, in each dtype that is used."""
    from levelbench.operators.benchmark.measuring import merged

    found = []
    wanted = {}
    for turn in plan.to_go:
        specification = plan.arms[turn.arm]
        arm = specification.arm
        wanted[arm.framework, arm.device, "float32"] = specification
        wanted.update({(arm.framework, arm.device, dtype): specification for dtype in _other_dtypes(arm)})
    for (framework, _, dtype), specification in wanted.items():
        watcher.preparing(f"measuring the ceilings with {framework}")
        found.append(ceilings_of(partial(_process, NetworkJob(specification, str(store), "ceilings", dtype=dtype))))
    return merged(found)


def _other_dtypes(arm: NetworkArm) -> list[str]:
    """The dtypes to which its transforms convert the network, such as ``precision:bfloat16``."""
    words = [word.partition(";")[0].partition(":")[2] for word in arm.transforms]
    return [word for word in words if word in ("bfloat16", "float16", "float64")]


def _reference(job: NetworkJob, path: Path, watcher: Watcher[NetworkRecord]) -> NetworkJob:
    """``job`` with the file of its case's reference, or with the reason why there is none.

    Raises the error that the process reported; if it died, the arms are measured without a reference.
    """
    if job.specification.case.kind == "native":
        return structs.replace(job, no_reference="the reference is a second model of its file")
    watcher.preparing(f"computing the reference of {job.specification.case.title}")
    asked = structs.replace(job, purpose="reference", reference=str(path))
    notes, code, output = listen(_CHILD, asked, NetworkNote)
    if code == 0 or any(note.error is not None for note in notes):
        _raise_failure(asked, notes, code, output)
        return structs.replace(job, reference=str(path))
    ended = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return structs.replace(job, no_reference=f"the process that computes the reference {ended}")


def _survived(job: NetworkJob, begin: Callable[[], None], on_note: Callable[[NetworkNote], None]) -> list[NetworkNote]:
    """The notes of a process that finished: after a crash, of one that records the crash."""

    def attempt(crashed: dict[int, str]) -> list[NetworkNote]:
        begin()
        return _process(structs.replace(job, id=new_id(), crashed=crashed.get(0, "")), on_note)

    return survived(attempt)


def _process(job: NetworkJob, on_note: Callable[[NetworkNote], None] | None = None) -> list[NetworkNote]:
    """Carry out a job in a fresh process; returns its notes. Raises what it reported, or how it died."""
    silent_s = patience(job.specification.arm.framework)
    notes, code, output = listen(_CHILD, job, NetworkNote, on_note, silent_s=silent_s)
    _raise_failure(job, notes, code, output)
    return notes


def _raise_failure(job: NetworkJob, notes: Sequence[NetworkNote], code: int, output: str) -> None:
    stage = next((note.stage for note in reversed(notes) if note.stage), "")
    specification = job.specification
    asked = f"{job.purpose} of {specification.case.title} on {specification.arm.title}"
    at = f" at {stage}" if stage else ""
    ceilings = job.purpose == "ceilings"
    raise_reported(notes, code, output, asked, at or (" at its ceilings" if ceilings else ""), 0, begun=ceilings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
