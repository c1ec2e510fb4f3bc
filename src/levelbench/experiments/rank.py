"""One rank of a run: an engine starts ``python -m levelbench.experiments.rank FOLDER``, which carries out its part.

The environment, which every engine sets, tells the rank its position; everything else is in the job's file in the
folder. It writes its messages, one per line, to its own file there, which the launching process reads. Only that
process knows which rank failed first, so it writes the end of a failed run.

Facts about the team are computed from what all ranks report. Whether ranks share cores, for example, follows from the
cores of all ranks on a machine, even if each rank is bound to its own cores.

Each rank writes its own part of a checkpoint, and a checkpoint counts only if all parts were written. The first rank's
file is the checkpoint. It is written last, once the others' parts of that step are on the disk, and the parts of the
previous step are removed after it. So whenever the ranks are killed, the existing file has all its parts.

A launcher may restart the ranks after one died. The lost time is the time since the team was first ready, minus what
the checkpoint has on its clock. This uses the machine's clock, which all its processes share, so it does not matter
when a rank died.
"""

from __future__ import annotations

import atexit
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
from levelbench.distributed.launching.environment import RankPlace, accelerator_of, place_of
from levelbench.distributed.launching.launchers import RESTARTS
from levelbench.distributed.ranks import Ranks
from levelbench.errors import CommunicationError, DataError, DefinitionError, LevelbenchError, UsageError
from levelbench.experiments.child import boundary, message_of
from levelbench.experiments.jobfolder import ANSWERS, JOB, PULSE, mark, messages_of, record_paths
from levelbench.experiments.jobs import Hear, Job, Member, Message, Tell, Together, Written
from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.forking import die_with_parent, end_on_interrupt
from levelbench.measure.meters import Reading
from levelbench.measure.meters.resources import NAME as PEAK_MEMORY
from levelbench.measure.meters.resources import own_cpu_s
from levelbench.measure.timeline import Phase
from levelbench.networks.executor import Backend
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
    """What one rank reports: its machine, the cores that it may use, its CPU seconds, its threads, its memory.

    ``threads`` are those of its framework, or of each numeric library by name. ``peak_memory`` is its meter's reading
    in bytes; without one, ``reason`` says why.
    """

    machine: str
    cores: list[int]
    cpu_s: float
    threads: Any = None
    peak_memory: float | None = None
    method: str | None = None
    reason: str | None = None


def machine() -> str:
    """A name for this machine: the kernel's id of this boot, or else the host's name."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return socket.gethostname()


def threads_of(environment: Mapping[str, Any]) -> Any:
    """The threads that the framework reports; otherwise those of the loaded numeric libraries."""
    own = environment.get("framework", {}).get("threads")
    if own is not None:
        return own
    loaded = environment.get("threads", {}).get("loaded", {})
    return {name: each.get("threads") for name, each in loaded.items()} or None


def own_share(cpu_s: float, threads: object, readings: Sequence[Reading]) -> Share:
    """The share of this process."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]
    peak = next((each for each in readings if each.name == PEAK_MEMORY), None)
    if peak is None:
        return Share(machine(), cores, cpu_s, threads, reason="no meter read it")
    return Share(machine(), cores, cpu_s, threads, peak.value, peak.method, peak.reason)


def gather_shares(communicator: Communicator, own: Share) -> list[Share]:
    """The shares of all ranks, by rank. Collective."""
    text = np.frombuffer(msgspec.json.encode(own), np.uint8)
    lengths = [int(each[0]) for each in communicator.all_gather(np.array([len(text)], np.int64))]
    # A collective needs arrays of the same shape.
    padded = np.zeros(max(lengths), np.uint8)
    padded[: len(text)] = text
    texts = communicator.all_gather(padded)
    return [
        msgspec.json.decode(np.asarray(each)[:length].tobytes(), type=Share)
        for each, length in zip(texts, lengths, strict=True)
    ]


def together(shares: Sequence[Share], rank: int, readings: Sequence[Reading]) -> Together:
    """What ``rank`` records of ``shares``: facts about the team, and a doubt if ranks outnumber cores.

    The peak memory among ``readings`` is replaced by the largest of all ranks.
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
    return f"{ranks} ranks share {cores} core{'s' * (cores > 1)}, so its times say nothing about scaling"


def _largest(reading: Reading, shares: Sequence[Share]) -> Reading:
    """The largest peak memory of all ranks; none if that of any rank is unknown."""
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
        """Remember what this rank observed: checkpoints contain all of it, since a new process starts a new file."""
        for name, (unit, values) in taken.items():
            self._observed.setdefault(name, (unit, []))[1].extend(values)

    def write(self, path: Path, snapshot: Snapshot) -> None:
        """Write the checkpoint of all ranks to ``path``. Collective; ``StoreError`` if a rank cannot write its part.

        Everything that the ranks have observed must have been passed to :meth:`observed`.
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

        Raises ``DataError`` if it cannot be read, or a part belongs to another step.
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
        part, do = part_of(path, step, self._rank), f"remove {path}; the run then starts over"
        try:
            found = load(part)
        except DataError as error:
            # The whole checkpoint has to go: the first rank's file alone would look like a complete one.
            raise DataError(error.asked, error.found, do) from error
        if found.facts.step != step:
            raise DataError(f"the checkpoint {part}", "it belongs to another step", do)
        return found

    def resume_observed(self, snapshot: Snapshot) -> None:
        """Continue with what this rank had observed."""
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
    """When a node's leading rank was first ready, on its machine's clock, and how much was on the run's clock then."""

    machine: str
    now_ns: int
    before_ns: int


def restarts_of(environment: Mapping[str, str]) -> int:
    """How often the ranks were restarted; 0 under a launcher that never restarts."""
    text = environment.get(RESTARTS, "0")
    return int(text) if text.isdecimal() else 0


def count_start(folder: Path, local_rank: int, environment: MutableMapping[str, str]) -> int:
    """How often this process's rank was started before; this replaces torchrun's number in ``environment``.

    torchrun's launcher on each node counts only the failures of its own ranks, so on several nodes ranks that start
    together would get different numbers. Since all are started together, each counts its own starts in a file of
    ``folder``, which belongs to its node.
    """
    with (folder / f"starts-{local_rank}").open("ab") as file:
        before = file.tell()
        file.write(b"\n")
    restarts = max(before, restarts_of(environment))
    environment[RESTARTS] = str(restarts)
    return restarts


def last_checkpoint(folder: Path, otherwise: Path | None) -> Path | None:
    """The newest checkpoint of the ranks that were started before; ``otherwise`` if there is none."""
    kept = [checkpoint_of(path) for path in record_paths(folder)]
    return next((path for path in reversed(kept) if path.is_file()), otherwise)


def began(folder: Path, before_ns: int) -> None:
    """Note that this node's leading rank is ready, at ``before_ns`` on the run's clock; only the first call counts."""
    path = folder / _BEGAN
    if not path.exists():
        path.write_bytes(msgspec.json.encode(_Began(machine(), HOST.now_ns(), before_ns)))


def lost_ns(folder: Path, before_ns: int) -> int:
    """The nanoseconds since this node's leading rank was first ready that are not included in ``before_ns``.

    0 if none ever was; ``DataError`` if it was on another machine, whose clock cannot be compared.
    """
    asked = "the time that was lost before the ranks were restarted"
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
        """``library`` is the communicator's module; its errors mean a lost rank. ``folder`` is the job's folder."""
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
        """The accelerator for this rank on its machine; ``UsageError`` if a single one is asked for."""
        kind, _, index = asked.partition(":")
        if kind != "cuda":
            return asked
        if index:
            raise UsageError(
                f"device {asked!r} on {self._ranks.communicator.size} ranks",
                "all of them would share one accelerator",
                f"use --device {kind}: each rank then uses the accelerator with its local number",
            )
        return f"{kind}:{accelerator_of(self._local_rank, os.environ)}"

    def clock(self, backend: Backend) -> Clock:
        """One that does not wait for messages: those that hide behind a phase would count as part of it."""
        return backend.stream_clock()

    def marks(self, backend: Backend) -> None:
        """None, since what a rank communicates in a step is read from its clock after each step."""

    def lost(self, error: LevelbenchError) -> bool:
        """Whether the communicator itself raised it: a scheme may raise the same class for other reasons."""
        if not isinstance(error, CommunicationError) or error.__traceback__ is None:
            return False
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        # A framework's own data parallelism bypasses the communicator.
        return frame.f_globals.get("__name__") in (self._library, "levelbench.frameworks.torch.communicator")

    def resumed(self, job: Job) -> tuple[Job, Snapshot | None]:
        """The first rank finds the checkpoint; each rank reads its part."""
        path = Path(job.resume) if job.resume else None
        if self.restarts and self._folder is not None:
            # A new record, since the previous one belongs to the ranks that were lost.
            job = msgspec.structs.replace(job, id=new_id())
            path = last_checkpoint(self._folder, path)
        found, snapshot = self._checkpoints.read(path)
        return msgspec.structs.replace(job, resume=str(found) if found else None), snapshot

    def before_ns(self, resume: Snapshot | None) -> dict[str, int]:
        """Also the time that was lost since the ranks were first started: the first rank's clock is the run's."""
        before = super().before_ns(resume)
        if self._leads and self._folder is not None:
            spent_ns = sum(before.values())
            # On each node: after a restart the first rank may be on another one.
            began(self._folder, spent_ns)
            if self.restarts and self.first:
                other = Phase.OTHER.label
                before[other] = before.get(other, 0) + lost_ns(self._folder, spent_ns)
        return before

    def saving(self, path: Path, every: Evaluate, key: str) -> Saving:
        """Save together with all ranks."""
        self._keeps = True
        return Saving(path, every, key, self._write)

    def _write(self, path: Path, snapshot: Snapshot) -> None:
        self._ranks.note_operations()
        self.observed()
        self._checkpoints.write(path, snapshot)

    def started(self, resume: Snapshot | None, saves: bool) -> None:
        """Continue with earlier observations; ``UnsupportedError`` if the scheme's state cannot be saved."""
        if resume is not None:
            self._checkpoints.resume_observed(resume)
        if saves:
            self._ranks.require_kept()

    def begin(self, store: Path, header: Header) -> Written:
        """Begin the record on the first rank, and a file next to it on each rank."""
        self._threads = threads_of(header.environment)
        self._key, self._seed = header.key, header.seed
        if self.first:
            self._writer = RecordWriter.create(store, header)
        path = Path(self._ranks.decide(lambda: str(self._path())))
        self._own = self._open.enter_context(RankWriter(path, self._ranks.communicator.rank))
        return Written(path, self._writer)

    def ready(self) -> None:
        """Finish all imports and synchronise, so that all clocks start together."""
        self._ranks.scheme.load()
        self._ranks.communicator.barrier()
        self._cpu_s = own_cpu_s()

    def observers(self) -> Sequence[Observer]:
        """Writes this rank's observations to its file at each evaluation."""
        return (_RankRecorder(self),)

    def observed(self) -> None:
        """Write what was observed since the last call."""
        if self._own is not None:
            taken = self._ranks.ledger.take()
            self._own.append(taken)
            if self._keeps:
                self._checkpoints.observed(taken)

    def end(self, readings: Sequence[Reading]) -> Together:
        """All ranks close their files and report, then the first rank merges the files."""
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
        """Remove the ranks' files that were merged into the record; unreadable ones stay."""
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
        """Write one line per quantity."""
        self._member.observed()


def main(arguments: Sequence[str]) -> int:
    """Read the job, connect to the other ranks, and train with them; returns the exit code."""
    end_on_interrupt()
    die_with_parent()
    folder = Path(arguments[0])
    job = msgspec.json.decode((folder / JOB).read_bytes(), type=Job)
    place = place_of(os.environ)
    # Other launchers never restart ranks, and their machines share the folder.
    restarts = count_start(folder, place.local_rank, os.environ) if place.engine == "torchrun" else 0
    messages = messages_of(folder, place.rank, restarts)
    # The first to be registered is called last.
    atexit.register(mark(folder, "left", place.rank, restarts).touch)
    # On several nodes, the command of each waits for a message.
    leads = place.rank == 0 or place.local_rank == 0
    if leads:
        # The existence of this file means that all ranks were restarted.
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
            raise UsageError(f"a run on {distribution.ranks} ranks", found, f"start {distribution.ranks}")
        scheme = named_scheme(distribution.scheme, distribution.settings)
        mark(folder, "ready", place.rank, restarts).touch()
        communicator = open_communicator(distribution.communicator, place, job.timeout_s)
        mark(folder, "met", place.rank, restarts).touch()
    except LevelbenchError as error:
        tell(message_of(error))
        return error.exit_code
    heartbeat_s = job.timeout_s / 3
    ranks = Ranks(communicator, scheme, distribution.scaling, distribution.lr_scale, heartbeat_s)
    member = RankMember(ranks, place.local_rank, type(communicator).__module__, folder, restarts)
    # Ignored by the command if this rank is on another machine.
    pulse = Pulse.at(folder / PULSE) if member.first else None
    code = boundary(job, tell, member, pulse, _answers_in(folder / ANSWERS))
    if code:
        communicator.abort()
    return code


def _answers_in(path: Path) -> Hear:
    """A function that waits for the next line that the launcher writes to ``path``."""
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
        # A library's own cleanup may wait forever for lost ranks.
        os._exit(ended)
    sys.exit(ended)
