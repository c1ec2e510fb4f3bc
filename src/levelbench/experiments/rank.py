"""One rank of a run: ``python -m levelbench.experiments.rank FOLDER``, started by an engine, carries out its part.

Where it is among the ranks it learns from its environment, as every engine sets it, and all else from the
job's file in the folder. What it has to say goes as a line to a file of its own there, which whoever started the team
reads; that one alone knows which rank failed first, and so writes the end of a run that failed.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import msgspec

from levelbench.distributed.finding import named_scheme, open_communicator
from levelbench.distributed.launching.base import PEER_LOST
from levelbench.distributed.launching.environment import RankPlace, place_of
from levelbench.distributed.ranks import Ranks
from levelbench.errors import CommunicationError, DefinitionError, LevelbenchError, UsageError
from levelbench.experiments.child import boundary, message_of
from levelbench.experiments.jobfolder import ANSWERS, JOB, PULSE, messages_of
from levelbench.experiments.jobs import Job, Message, Tell
from levelbench.experiments.keeping import Keeper
from levelbench.experiments.members import Member, Together, Written
from levelbench.experiments.restarts import began, count_start, last_checkpoint, lost_ns
from levelbench.experiments.together import gather_shares, own_share, threads_of, together
from levelbench.experiments.witness import Hear
from levelbench.measure.clocks import HOST
from levelbench.measure.lifetime import die_with_parent, end_on_interrupt
from levelbench.measure.meters import Reading
from levelbench.measure.meters.resources import own_cpu_s
from levelbench.measure.timeline import Phase
from levelbench.records import Evaluation, Header, RecordWriter, new_id
from levelbench.records.ranks import RankWriter, merge_ranks, remove_old_rank_files, remove_rank_files
from levelbench.records.schema import Between
from levelbench.training.checkpoints import Saving, Snapshot
from levelbench.training.observers.base import Observer, Progress
from levelbench.training.pulse import Pulse
from levelbench.training.stopping import Evaluate

__all__ = ["RankMember", "main"]

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
        self._keeper = Keeper(ranks)
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
        found, snapshot = self._keeper.read(path)
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
        self._keeper.write(path, snapshot)

    def started(self, resume: Snapshot | None, saves: bool) -> None:
        """What it had observed is taken up; ``UnsupportedError`` for a scheme that cannot be kept."""
        if resume is not None:
            self._keeper.went_on(resume)
        if saves:
            self._ranks.require_kept()

    def begin(self, store: Path, header: Header) -> Written:
        """The record on the first rank, a file beside it on all."""
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
                self._keeper.observed(taken)

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
    # Of several nodes, each has a command that waits to be told.
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
    patience_s = job.timeout_s / 3
    ranks = Ranks(communicator, scheme, distribution.scaling, distribution.lr_scale, patience_s)
    member = RankMember(ranks, place.local_rank, type(communicator).__module__, folder, restarts)
    # On another machine than the command's nobody sees it.
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
