"""Starts the ranks of one run through an engine, and follows the record that the first of them writes.

As with a run of one process, the record is the only channel for results. Everything else that a rank reports, such as
its phase or its error, is a line in its file of messages. Once all ranks have ended, this module decides which error is
the cause: that of the rank which failed first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from levelbench.distributed.launching import ENGINES
from levelbench.distributed.launching.base import PEER_LOST, Failure, RunningJob, read_reports
from levelbench.distributed.launching.environment import PATIENCE, StopWatch
from levelbench.errors import CommunicationError, LevelbenchError, StoreError, UsageError
from levelbench.experiments.jobfolder import ANSWERS, PULSE, Inbox, job_folder, mark, only_one
from levelbench.experiments.jobs import Job, Message, Parent
from levelbench.experiments.processes import reported_error
from levelbench.experiments.request import starts_on_each_node
from levelbench.measure.clocks import HOST
from levelbench.records import Event, Follower, parse_item
from levelbench.records.ranks import end_failed, remove_rank_files_if_left
from levelbench.records.schema import Between
from levelbench.training.observers import Pulse

__all__ = ["run_team"]

_SEEN_S = 60.0
"""How late a file written on another machine may show in a shared folder."""
_LOOK_S = 0.5
_LOOK_SOON_S = 0.05
"""Used while the first rank may wait for an answer: before its clock starts and after the last evaluation."""

OnProgress = Callable[[list[Event], float, str, tuple[int, int, int]], None]


def run_team(
    job: Job, on_progress: OnProgress | None = None
) -> tuple[Path | None, LevelbenchError | None, tuple[Between, ...] | None]:
    """Run ``job`` on its ranks to the end.

    Returns the record, if it was begun; the error that ended the run, if any; and what this process answered the first
    rank as the witness of its clock, ``None`` if that rank is on another node. ``on_progress`` gets new events, the
    elapsed seconds and the phase twice a second. If this process is interrupted, all ranks are ended.
    """
    distribution = job.specification.distribution
    assert distribution is not None
    name, options = parse_item(distribution.engine)
    if options.get("max_restarts") and not job.checkpoint:
        raise UsageError(
            f"restarting ranks ({distribution.engine})",
            "without checkpoints they could not resume",
            'write checkpoints, as with --checkpoint "1 epoch"',
        )
    one_of_several = starts_on_each_node(distribution)
    alone = nullcontext() if one_of_several else only_one(job)
    with alone, job_folder(job) as folder:
        command = [sys.executable, "-P", "-m", "levelbench.experiments.rank", str(folder)]
        look = _Look(Inbox(folder, distribution.ranks), Pulse.at(folder / PULSE), on_progress, folder / ANSWERS)
        try:
            with ENGINES[name].start(command, distribution.ranks, folder, {}, **options) as running:
                look.stops = StopWatch(running.job, distribution.ranks, PATIENCE * job.timeout_s)
                if not one_of_several:
                    patience_s = max(PATIENCE * job.timeout_s, _SEEN_S * ENGINES[name].elsewhere(options))
                    look.waits = _Waits(folder, distribution.ranks, patience_s, distribution.communicator == "mpi")
                look.follow(running)
            error = _error(job, look.stopped or running.failure(), look.told)
        finally:
            if look.path is not None:
                remove_rank_files_if_left(look.path)
    path = look.path
    if path is None or path.is_file():
        testimony = look.witness.testimony
        return path, error, None if one_of_several and not testimony else testimony
    asked, do = f"the record of a run on {_team(job)}", "give a --store that all machines share"
    return None, error or StoreError(asked, f"{path} is on another machine than this one", do), None


class _Waits:
    """Watches for a rank that the others wait for where no timeout ends it: before they have met, and after the run.

    MPI waits for all ranks as it starts and ends, and launchers wait for all to end.
    """

    def __init__(self, folder: Path, ranks: int, patience_s: float, mpi: bool) -> None:
        """``mpi``: the ranks meet by MPI; other libraries have timeouts once they have begun to meet."""
        self._folder, self._everyone, self._mpi = folder, range(ranks), mpi
        self._patience_ns = int(patience_s * 1e9)
        self._stage = (0, "start")
        self._since_ns = 0

    def lost(self, restarts: int, done: bool) -> tuple[int | None, str] | None:
        """The rank that has been waited for too long (``None``: it is not known which), and the words for it.

        ``done``: the first rank has said that the run is done.
        """
        if not done and self._stage == (restarts, "met"):
            return None
        missing = self._missing("left" if done else "ready", restarts)
        if done:
            ended = {report.rank for report in read_reports(self._folder, len(self._everyone))}
            stage, missing = "end", missing or [rank for rank in self._everyone if rank not in ended]
        elif missing:
            stage = "start" if len(missing) == len(self._everyone) else "ready"
        else:
            stage = "met" if not self._mpi or mark(self._folder, "met", 0, restarts).exists() else "meet"
        if (restarts, stage) != self._stage:
            self._stage, self._since_ns = (restarts, stage), HOST.now_ns()
        if stage in ("start", "met") or HOST.now_ns() - self._since_ns < self._patience_ns:
            return None
        return (missing[0], "while the others waited for it") if missing else (None, "and its ranks did not meet")

    def _missing(self, moment: Literal["ready", "left"], restarts: int) -> list[int]:
        """The ranks that have not written this mark."""
        return [rank for rank in self._everyone if not mark(self._folder, moment, rank, restarts).exists()]


@dataclass
class _Look:
    """Watches the ranks while they run."""

    inbox: Inbox
    pulse: Pulse
    on_progress: OnProgress | None
    answers: Path
    told: list[Message] = field(default_factory=list)
    witness: Parent = field(default_factory=Parent)
    path: Path | None = None
    stops: StopWatch | None = None
    waits: _Waits | None = None
    stopped: Failure | None = None
    """The rank that was stopped or waited for so long that this process ended the others."""

    def follow(self, running: RunningJob) -> None:
        """Watch until all have ended; write the end of the record if the run failed by an error of its own."""
        began_ns = HOST.now_ns()
        follower: Follower | None = None
        phase, alive = "start", True
        while alive:
            alive = not running.wait(_LOOK_S if phase == "train" else _LOOK_SOON_S)
            if alive and (self._stops(running) or self._waits_in_vain(running, phase == "done")):
                running.kill()
                alive = False
            restarts = self.inbox.restarts
            self.witness.look()
            messages = self.inbox.take()
            self._answer(messages)
            if self.inbox.restarts > restarts:
                # Messages from before the restart no longer matter.
                self.told.clear()
            for message in messages:
                self.told.append(message)
                phase = message.phase or phase
                if message.path is not None and self.path != Path(message.path):
                    self.path = Path(message.path)
                    follower = Follower(self.path)
            if not alive and self.path is not None:
                self._end(self.stopped or running.failure(), self.path)
            if self.on_progress is not None:
                elapsed_s = (HOST.now_ns() - began_ns) * 1e-9
                stage = self.pulse.stage(phase)
                self.on_progress(follower.poll() if follower else [], elapsed_s, stage, self.pulse.steps)

    def _stops(self, running: RunningJob) -> bool:
        """Whether a rank has been stopped for too long."""
        rank = None if self.stops is None else self.stops.lost()
        if rank is not None:
            self.stopped = running.silence(rank, "stopped")
        return rank is not None

    def _waits_in_vain(self, running: RunningJob, done: bool) -> bool:
        """Whether the ranks have waited too long for one of them."""
        found = None if self.waits is None else self.waits.lost(self.inbox.restarts, done)
        # A stopped rank is left to the watch that can say so.
        if found is None or (self.stops is not None and self.stops.seen):
            return False
        self.stopped = running.silence(*found)
        return True

    def _answer(self, messages: list[Message]) -> None:
        """Answer the first rank, as the witness of its clock, if it waits for that."""
        answer = self.witness.found(messages)
        if answer is not None:
            # Without an answer the rank continues after a while, and its record says so.
            with suppress(OSError), self.answers.open("ab") as file:
                file.write(msgspec.json.encode(answer) + b"\n")

    def _end(self, failure: Failure | None, path: Path) -> None:
        """End the record of a rank's own error, which would recur; a lost rank leaves the run interrupted."""
        cause = _cause(failure, self.told)
        if cause is not None:
            # The cause is reported in any case.
            with suppress(StoreError):
                end_failed(path, f"rank {cause.rank}: {cause.fault}")


def _cause(failure: Failure | None, told: list[Message]) -> Message | None:
    """The own error of the rank that failed first; if that rank is unknown, the own error of any rank."""
    own = [message for message in told if message.error and not message.lost]
    if failure is None or failure.rank is None or failure.code == PEER_LOST:
        return own[0] if own else None
    return next((message for message in own if message.rank == failure.rank), None)


def _error(job: Job, failure: Failure | None, told: list[Message]) -> LevelbenchError | None:
    """What ended the run: the error of the rank that failed first, or else how it ended and what the others saw."""
    cause = _cause(failure, told)
    if cause is not None:
        assert cause.error is not None
        return reported_error(cause.error, cause.exit_code, cause.trace)
    asked = f"a run of {job.specification.task} on {_team(job)}, seed {job.seed}"
    again = f"run the same command again{_node_suffix(job)}; --debug shows the last lines that the rank printed"
    if failure is not None:
        error = failure.error(asked)
        error.do = again
        lost = _lost(failure, told)
        silent = failure.code is None and failure.signal is None
        if lost is not None and lost.error is not None and (silent or failure.code == PEER_LOST or not failure.lines):
            who = "" if lost.rank == failure.rank else f"rank {lost.rank}: "
            error.found = f"{failure.reason} ({who}{lost.error[1]})"
            error.trace = error.trace or lost.trace
        return error
    if any(message.phase == "done" for message in told):
        return None
    return CommunicationError(asked, "its ranks ended before the run was done, without reporting an error", again)


def _lost(failure: Failure, told: list[Message]) -> Message | None:
    """A rank's report that it lost another one, preferably by the rank that the failure names."""
    lost = [message for message in told if message.error and message.lost]
    return min(lost, key=lambda message: message.rank != failure.rank, default=None)


def _node_suffix(job: Job) -> str:
    """`` on each node`` if the command is run on several nodes."""
    assert job.specification.distribution is not None
    return " on each node" if starts_on_each_node(job.specification.distribution) else ""


def _team(job: Job) -> str:
    distribution = job.specification.distribution
    assert distribution is not None
    return f"{distribution.ranks} ranks ({distribution.engine})"
