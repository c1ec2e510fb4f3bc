"""One rank of a run: ``python -m levelbench.experiments.rank FOLDER``, started by an engine, carries out its part.

Where it is among the ranks it learns from its environment, as every engine sets it, and all else from the job's file in
the folder. What it has to say goes as a line to a file of its own there, which whoever started the team reads; that one
alone knows which rank failed first, and so writes the end of a run that failed.

No rank judges from what it sees alone. Each says what it has; whether ranks share cores is judged for every machine by
the cores of all ranks on it, so also where each rank is bound to cores of its own.

Each rank keeps its own part of a checkpoint, and one counts only where all have written theirs. The first rank's file
is the checkpoint. It is put there last, once the others' parts of that step are on the disk, and the parts of the step
before go away after it; so whenever all are killed, the file that is there has all its parts.

A launcher may start the ranks again after one died. What was lost is the time since the team was first ready, less what
the checkpoint has on its clock. The clock is the machine's own, which all processes on it read alike, so it does not
matter when a rank died.
"""

from __future__ import annotations

import os
import socket
import sys
import time
import traceback
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import msgspec
import numpy as np
from numpy.typing import NDArray

from levelbench.distributed.communicator import Communicator
from levelbench.distributed.finding import named_scheme, open_communicator
from levelbench.distributed.launching.base import PEER_LOST
from levelbench.distributed.launching.environment import RankPlace, place_of
from levelbench.distributed.launching.launchers import RESTARTS
from levelbench.distributed.ranks import Ranks
from levelbench.errors import CommunicationError, DataError, DefinitionError, LevelbenchError, UsageError
from levelbench.experiments.child import boundary, message_of
from levelbench.experiments.jobfolder import ANSWERS, JOB, PULSE, messages_of, paths_told
from levelbench.experiments.jobs import Hear, Job, Member, Message, Tell, Together, Written
from levelbench.measure.clocks import HOST
from levelbench.measure.forking import die_with_parent, end_on_interrupt
from levelbench.measure.meters import Reading
from levelbench.measure.meters.resources import NAME as PEAK_MEMORY
from levelbench.measure.meters.resources import own_cpu_s
from levelbench.measure.timeline import Phase
from levelbench.records import Evaluation, Header, RecordWriter, new_id
from levelbench.records.ranks import RankWriter, merge_ranks, remove_old_rank_files, remove_rank_files
from levelbench.records.schema import Between
from levelbench.training.checkpoints import Saving, Snapshot, checkpoint_of, load, part_of, save
from levelbench.training.observers import Observer, Progress, Pulse
from levelbench.training.stopping import Evaluate

__all__ = [
    "RankCheckpoints",
    "RankMember",
    "Share",
    "began",
    "count_start",
    "gather_shares",
    "last_checkpoint",
    "lost_ns",
]
__all__ += ["machine", "main", "own_share", "restarts_of", "threads_of", "together"]


_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Share(msgspec.Struct, frozen=True):
    """What one rank says: its machine, the cores it may use, the CPU seconds it spent, its threads, its memory.

    ``threads`` are those of its framework, or of each numeric library by name; ``peak_memory`` is what its meter read,
    or why it could not.
    """

    machine: str
    cores: list[int]
    cpu_s: float
    threads: Any = None
    peak_memory: float | None = None
    method: str | None = None
    reason: str | None = None


def machine() -> str:
    """What names this machine among others: the kernel's own name of this boot, else the name of the host."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return socket.gethostname()


def threads_of(environment: Mapping[str, Any]) -> Any:
    """What a framework says of its threads; where it says nothing, those of the numeric libraries that are loaded."""
    own = environment.get("framework", {}).get("threads")
    if own is not None:
        return own
    loaded = environment.get("threads", {}).get("loaded", {})
    return {name: each.get("threads") for name, each in loaded.items()} or None


def own_share(cpu_s: float, threads: object, readings: Sequence[Reading]) -> Share:
    """That of this process."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]
    peak = next((each for each in readings if each.name == PEAK_MEMORY), None)
    if peak is None:
        return Share(machine(), cores, cpu_s, threads, reason="no meter read it")
    return Share(machine(), cores, cpu_s, threads, peak.value, peak.method, peak.reason)


def gather_shares(communicator: Communicator, own: Share) -> list[Share]:
    """Those of all ranks, by rank. Collective."""
    text = np.frombuffer(msgspec.json.encode(own), np.uint8)
    lengths = [int(each[0]) for each in communicator.all_gather(np.array([len(text)], np.int64))]
    # A collective takes arrays of one shape.
    padded = np.zeros(max(lengths), np.uint8)
    padded[: len(text)] = text
    texts = communicator.all_gather(padded)
    return [
        msgspec.json.decode(np.asarray(each)[:length].tobytes(), type=Share)
        for each, length in zip(texts, lengths, strict=True)
    ]


def together(shares: Sequence[Share], rank: int, readings: Sequence[Reading]) -> Together:
    """What ``rank`` writes down of ``shares``: facts about the team, and a doubt where ranks outnumber cores.

    The peak memory among ``readings`` becomes the largest of all ranks'.
    """
    machines = list(dict.fromkeys(share.machine for share in shares))
    by_machine = [[share for share in shares if share.machine == name] for name in machines]
    cores = [len({core for share in each for core in share.cores}) for each in by_machine]
    ranks = [len(each) for each in by_machine]
    crowded = [at for at in range(len(machines)) if ranks[at] > cores[at]]
    facts = {
        "hosts": len(machines),
        "ranks_by_host": ranks,
        "cores_by_host": cores,
        "threads_by_rank": [share.threads for share in shares],
        "crowded": bool(crowded),
        "peak_memory_bytes_by_rank": [share.peak_memory for share in shares],
    }
    own = shares[rank]
    others = sum(share.cpu_s for share in shares if share.machine == own.machine) - own.cpu_s
    taken = tuple(_largest(each, shares) if each.name == PEAK_MEMORY else each for each in readings)
    return Together(taken, tuple(_doubt(ranks[at], cores[at]) for at in crowded[:1]), facts, max(0.0, others))


def _doubt(ranks: int, cores: int) -> str:
    return f"{ranks} ranks share {cores} core{'s' * (cores > 1)}: its times say nothing about how it scales"


def _largest(reading: Reading, shares: Sequence[Share]) -> Reading:
    """The peak memory of the rank that had most; none where one rank's is not known."""
    known = [share.peak_memory for share in shares if share.peak_memory is not None]
    for rank, share in enumerate(shares):
        if share.peak_memory is None:
            return Reading(reading.name, reading.unit, None, None, f"rank {rank}: {share.reason}")
    methods = ", ".join(sorted({str(share.method) for share in shares}))
    return Reading(reading.name, reading.unit, max(known), f"{methods}, the largest of {len(shares)} ranks")


_OBSERVED = "observed"
Observed = Mapping[str, tuple[str, Sequence[float]]]


class RankCheckpoints:
    """Writes and reads the checkpoints of one rank."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks, self._rank = ranks, ranks.communicator.rank
        self._observed: dict[str, tuple[str, list[float]]] = {}
        self._last: Path | None = None
        """This rank's newest part; the first rank has none."""

    def observed(self, taken: Observed) -> None:
        """Remember what this rank has observed: a checkpoint holds all of it, as a new process starts a new file."""
        for name, (unit, values) in taken.items():
            self._observed.setdefault(name, (unit, []))[1].extend(values)

    def write(self, path: Path, snapshot: Snapshot) -> None:
        """Put the checkpoint of all ranks at ``path``. Collective; ``StoreError`` where a rank cannot write its part.

        What the ranks observed up to now must have been given to :meth:`observed`.
        """
        whole = replace(snapshot, arrays={**snapshot.arrays, **self._arrays()})
        part = part_of(path, snapshot.facts.step, self._rank)
        if self._rank:
            save(part, whole)
        self._ranks.communicator.barrier()
        self._ranks.decide(lambda: save(path, whole))
        if self._last not in (None, part):
            self._last.unlink(missing_ok=True)
        self._last = part if self._rank else None

    def read(self, path: Path | None) -> tuple[Path | None, Snapshot | None]:
        """The checkpoint at the first rank's ``path``, and this rank's part of it. Collective.

        ``DataError`` where it cannot be read, or is of another step.
        """
        read: list[Snapshot] = []

        def look() -> tuple[str, int] | None:
            if path is None:
                return None
            read.append(load(path))
            return str(path), read[0].facts.step

        found = self._ranks.decide(look)
        if found is None:
            return None, None
        name, step = found
        if self._rank:
            read.append(self._part(Path(name), step))
        return Path(name), read[0]

    def _part(self, path: Path, step: int) -> Snapshot:
        part, do = part_of(path, step, self._rank), f"remove {path}, and the run starts from the beginning"
        try:
            found = load(part)
        except DataError as error:
            # Without its part the first rank's file would still be gone on from.
            raise DataError(error.asked, error.found, do) from error
        if found.facts.step != step:
            raise DataError(f"the checkpoint {part}", "it is of another step", do)
        return found

    def went_on(self, snapshot: Snapshot) -> None:
        """Go on with what this rank had observed."""
        self._observed = {}
        self._ranks.go_on(_observed_in(snapshot.of(_OBSERVED)))

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {
            f"{_OBSERVED}/{unit}|{name}": np.array(values, np.float64)
            for name, (unit, values) in self._observed.items()
        }


def _observed_in(arrays: Mapping[str, NDArray[Any]]) -> dict[str, tuple[str, list[float]]]:
    found = {}
    for key, values in arrays.items():
        unit, _, name = key.partition("|")
        found[name] = unit, values.tolist()
    return found


_BEGAN = "began.json"


class _Began(msgspec.Struct, frozen=True):
    """When the leading rank of a node was first ready, on the clock of its machine, with how much on the run's own."""

    machine: str
    now_ns: int
    before_ns: int


def restarts_of(environment: Mapping[str, str]) -> int:
    """How often the ranks were started again; 0 under a launcher that never does."""
    text = environment.get(RESTARTS, "0")
    return int(text) if text.isdecimal() else 0


def count_start(folder: Path, local_rank: int, environment: MutableMapping[str, str]) -> int:
    """How often the rank of this process was started before; put in the place of torchrun's number in ``environment``.

    torchrun's launcher on each node counts the failures of its own ranks alone, so on several nodes ranks that start
    together would get different numbers. All are started together, so each counts its own starts, in a file of
    ``folder``, which is its node's own.
    """
    with (folder / f"starts-{local_rank}").open("ab") as file:
        before = file.tell()
        file.write(b"\n")
    restarts = max(before, restarts_of(environment))
    environment[RESTARTS] = str(restarts)
    return restarts


def last_checkpoint(folder: Path, otherwise: Path | None) -> Path | None:
    """The newest checkpoint that the ranks started before have kept; else the one with which the job began."""
    kept = [checkpoint_of(path) for path in paths_told(folder)]
    return next((path for path in reversed(kept) if path.is_file()), otherwise)


def began(folder: Path, before_ns: int) -> None:
    """Note that this node's leading rank is ready, ``before_ns`` on the run's clock; only the first time counts."""
    path = folder / _BEGAN
    if not path.exists():
        path.write_bytes(msgspec.json.encode(_Began(machine(), HOST.now_ns(), before_ns)))


def lost_ns(folder: Path, before_ns: int) -> int:
    """The nanoseconds since this node's leading rank was first ready that are not among ``before_ns``.

    0 where none ever was; ``DataError`` where it was on another machine, whose clock says nothing here.
    """
    asked = "the time that was lost before the ranks were started again"
    try:
        first = msgspec.json.decode((folder / _BEGAN).read_bytes(), type=_Began)
    except FileNotFoundError:
        return 0
    if first.machine != machine():
        raise DataError(asked, "the first rank is on another machine now", "start the same command again")
    return max(0, HOST.now_ns() - first.now_ns - (before_ns - first.before_ns))


_ANSWER_NS = 20_000_000_000


@final
class RankMember(Member):
    """A rank of a team."""

    ends_failures = False

    def __init__(
        self, ranks: Ranks, local_rank: int, library: str, folder: Path | None = None, restarts: int = 0
    ) -> None:
        """``library`` is the module of the communicator, where errors come from that mean a lost rank.

        ``folder`` is the job's; the ranks were started again ``restarts`` times.
        """
        self._folder, self.restarts = folder, restarts
        self.team = self._ranks = ranks
        self._local_rank, self._library = local_rank, library
        self.first = ranks.communicator.rank == 0
        self._leads = self.first or local_rank == 0
        self._writer: RecordWriter | None = None
        self._own: RankWriter | None = None
        self._open = ExitStack()
        self._cpu_s = 0.0
        self._threads: Any = None
        self._missing: dict[int, str] = {}
        self._key, self._seed = "", 0
        self._checkpoints = RankCheckpoints(ranks)
        self._keeps = False

    def device(self, asked: str) -> str:
        """An accelerator for each rank of a machine; ``UsageError`` where all are asked onto one."""
        kind, _, index = asked.partition(":")
        if kind != "cuda":
            return asked
        if index:
            raise UsageError(
                f"device {asked!r} on {self._ranks.communicator.size} ranks",
                "all of them would share one accelerator",
                f"use --device {kind}: each rank takes the one of its number on its machine",
            )
        return f"{kind}:{self._local_rank}"

    def lost(self, error: LevelbenchError) -> bool:
        """Whether it came from the communicator itself: a scheme may raise the same class for reasons of its own."""
        if not isinstance(error, CommunicationError) or error.__traceback__ is None:
            return False
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        # A framework's own data parallelism talks past the communicator.
        return frame.f_globals.get("__name__") in (self._library, "levelbench.frameworks.torch.communicator")

    def resumed(self, job: Job) -> tuple[Job, Snapshot | None]:
        """As the first rank finds; each reads its part."""
        path = Path(job.resume) if job.resume else None
        if self.restarts and self._folder is not None:
            # Another record, as the one before is that of the ranks that were lost.
            job = msgspec.structs.replace(job, id=new_id())
            path = last_checkpoint(self._folder, path)
        found, snapshot = self._checkpoints.read(path)
        return msgspec.structs.replace(job, resume=str(found) if found else None), snapshot

    def before_ns(self, resume: Snapshot | None) -> dict[str, int]:
        """With what was lost since the ranks were first started: the first rank's clock is the run's."""
        before = super().before_ns(resume)
        if self._leads and self._folder is not None:
            spent_ns = sum(before.values())
            # On each node: the first rank may be on another one when all are started again.
            began(self._folder, spent_ns)
            if self.restarts and self.first:
                other = Phase.OTHER.label
                before[other] = before.get(other, 0) + lost_ns(self._folder, spent_ns)
        return before

    def saving(self, path: Path, every: Evaluate, key: str) -> Saving:
        """All ranks together."""
        self._keeps = True
        return Saving(path, every, key, self._write)

    def _write(self, path: Path, snapshot: Snapshot) -> None:
        self._ranks.note_operations()
        self.observed()
        self._checkpoints.write(path, snapshot)

    def started(self, resume: Snapshot | None, saves: bool) -> None:
        """What it had observed is taken up; ``UnsupportedError`` for a scheme that cannot be kept."""
        if resume is not None:
            self._checkpoints.went_on(resume)
        if saves:
            self._ranks.require_kept()

    def begin(self, store: Path, header: Header) -> Written:
        """The record on the first rank, a file next to it on all."""
        self._threads = threads_of(header.environment)
        self._key, self._seed = header.key, header.seed
        if self.first:
            self._writer = RecordWriter.create(store, header)
        path = Path(self._ranks.decide(lambda: str(self._path())))
        self._own = self._open.enter_context(RankWriter(path, self._ranks.communicator.rank))
        return Written(path, self._writer)

    def ready(self) -> None:
        """All clocks start together, with nothing left to be imported."""
        self._ranks.scheme.load()
        self._ranks.communicator.barrier()
        self._cpu_s = own_cpu_s()

    def observers(self) -> Sequence[Observer]:
        """What this rank observes goes to its file at each evaluation."""
        return (_RankRecorder(self),)

    def observed(self) -> None:
        """Write down what was observed since the last time."""
        if self._own is not None:
            taken = self._ranks.ledger.take()
            self._own.append(taken)
            if self._keeps:
                self._checkpoints.observed(taken)

    def end(self, readings: Sequence[Reading]) -> Together:
        """All close their files and say what they have, then the first rank takes it in."""
        ranks = self._ranks.communicator
        self._ranks.note_operations()
        self.observed()
        self._open.close()
        found = together(
            gather_shares(ranks, own_share(own_cpu_s() - self._cpu_s, self._threads, readings)), ranks.rank, readings
        )
        ranks.barrier()
        if self._writer is not None:
            self._missing = merge_ranks(self._writer, ranks.size)
        facts = {**found.facts, "restarts": self.restarts} if self.restarts else found.facts
        return replace(found, facts=facts, doubts=(*found.doubts, *self._missing.values()))

    def leave(self) -> None:
        """The ranks' files have gone into the record, but those that could not be read."""
        if self._writer is not None:
            remove_rank_files(self._writer.path, but=self._missing)
            remove_old_rank_files(self._writer.path, self._key, self._seed)
        self._ranks.close()

    def _path(self) -> Path:
        assert self._writer is not None
        return self._writer.path


@final
class _RankRecorder(Observer):
    def __init__(self, member: RankMember) -> None:
        self._member = member

    def on_evaluation(self, progress: Progress, evaluation: Evaluation, step_times_ns: list[int]) -> None:
        """A line for each quantity."""
        self._member.observed()


def main(arguments: Sequence[str]) -> int:
    """Read the job, find the other ranks, and train with them; the exit code."""
    end_on_interrupt()
    die_with_parent()
    folder = Path(arguments[0])
    job = msgspec.json.decode((folder / JOB).read_bytes(), type=Job)
    place = place_of(os.environ)
    # Other launchers start no rank again, and their machines share the folder.
    restarts = count_start(folder, place.local_rank, os.environ) if place.engine == "torchrun" else 0
    messages = messages_of(folder, place.rank, restarts)
    # On several nodes, the command of each waits for a message.
    leads = place.rank == 0 or place.local_rank == 0
    if leads:
        # Its being there says that all ranks were started again.
        messages.touch()
    lost = False

    def tell(message: Message) -> None:
        nonlocal lost
        lost = lost or message.lost
        if message.error or leads:
            line = msgspec.json.encode(msgspec.structs.replace(message, rank=place.rank)) + b"\n"
            with messages.open("ab", buffering=0) as file:
                file.write(line)

    code = _take_part(job, place, tell, folder, restarts)
    return PEER_LOST if lost else code


def _take_part(job: Job, place: RankPlace, tell: Tell, folder: Path, restarts: int) -> int:
    distribution = job.specification.distribution
    if distribution is None:
        raise DefinitionError("a rank of a run", "its job is for one process", "start it with levelbench run --ranks")
    try:
        if place.size != distribution.ranks:
            found = f"its launcher started {place.size}"
            raise UsageError(f"a run of {distribution.ranks} ranks", found, "start as many as the run is of")
        scheme = named_scheme(distribution.scheme, distribution.settings)
        communicator = open_communicator(distribution.communicator, place, job.timeout_s)
    except LevelbenchError as error:
        tell(message_of(error))
        return error.exit_code
    heartbeat_s = job.timeout_s / 3
    ranks = Ranks(communicator, scheme, distribution.scaling, distribution.lr_scale, heartbeat_s)
    member = RankMember(ranks, place.local_rank, type(communicator).__module__, folder, restarts)
    # The command does not see it if this rank is on another machine.
    pulse = Pulse.at(folder / PULSE) if member.first else None
    code = boundary(job, tell, member, pulse, _hearing(folder / ANSWERS))
    if code:
        communicator.abort()
    return code


def _hearing(path: Path) -> Hear:
    """Waits for the next line that the launcher writes there."""
    answered = path.read_bytes().count(b"\n") if path.exists() else 0

    def hear() -> list[Between] | str:
        nonlocal answered
        until_ns = HOST.now_ns() + _ANSWER_NS
        while HOST.now_ns() < until_ns:
            lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
            if len(lines) > answered:
                answered = len(lines)
                return msgspec.json.decode(lines[-1], type=list[Between])
            time.sleep(0.01)
        return f"its launcher gave no answer in {_ANSWER_NS * 1e-9:g} s"

    return hear


if __name__ == "__main__":
    ended = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    if ended:
        # A library's own tidying up may wait for ranks that will never come.
        os._exit(ended)
    sys.exit(ended)
