"""SLURM as an engine, through submitit; its local executor runs the same job on this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, final

from levelbench.distributed.launching.base import (
    Engine,
    Failure,
    RunningJob,
    first_failure,
    has_failed,
    last_lines,
    read_reports,
)
from levelbench.distributed.launching.environment import JOB, end_marked, tell_supervisors, without_place
from levelbench.distributed.launching.local import environment_of_ranks, free_port, supervisor_words, tidy_folder
from levelbench.errors import CommunicationError, UsageError
from levelbench.measure.clocks import HOST

_LOOK_S = 1.0
_LOOK_HERE_S = 0.05
_END_S = 5.0
_OF_SLURM = ("partition", "account", "qos", "constraint", "gpus_per_node", "cpus_per_task", "mem_gb")
_OWN_NAMES = {"gpus_per_node", "cpus_per_task", "mem_gb"}
"""Parameters that submitit names itself; the others are SLURM's, ``slurm_...`` there."""


@final
class Slurm(Engine):
    """``submitit`` submits one job with a task for each rank, and this process waits for it.

    Options: ``cluster`` (``slurm``, or ``local``; SLURM where ``srun`` is found), ``nodes`` (1), ``timeout_min`` (60),
    and SLURM's ``partition``, ``account``, ``qos``, ``constraint``, ``gpus_per_node``, ``cpus_per_task``, ``mem_gb``.
    The folder must be shared among the machines. A job in SLURM's queue outlives this process where that is killed
    and cannot cancel it: ``scancel``.
    """

    name: ClassVar[str] = "slurm"
    communicators: ClassVar[tuple[str, ...]] = ("gloo", "nccl", "mpi")
    options: ClassVar[tuple[str, ...]] = ("cluster", "nodes", "timeout_min", *_OF_SLURM)

    def lacks(self) -> str | None:
        return None if find_spec("submitit") is not None else "submitit is not installed: pip install submitit"

    def check(self, ranks: int, options: Mapping[str, object]) -> None:
        super().check(ranks, options)
        nodes = self.number(options, "nodes", 1)
        for name in ("timeout_min", "cpus_per_task"):
            self.number(options, name, 1)
        if "gpus_per_node" in options:
            self.number(options, "gpus_per_node", 0, least=0)
        if options.get("cluster") not in (None, "slurm", "local"):
            raise UsageError(
                f"cluster={options['cluster']} of the engine {self.name!r}",
                "it is slurm or local",
                "leave it out for SLURM where it is found",
            )
        if ranks % nodes:
            raise UsageError(
                f"{ranks} ranks on {nodes} nodes",
                "each node gets the same number of ranks",
                "choose a number of ranks that the nodes divide",
            )

    def start(
        self, command: Sequence[str], ranks: int, folder: Path, environment: Mapping[str, str], **options: Any
    ) -> RunningJob:
        self.check(ranks, options)
        self.require()
        folder = tidy_folder(folder, command, ranks)
        nodes = self.number(options, "nodes", 1)
        # Not the cores of this machine: only a user who asks for some knows how many a rank has there.
        cpus = self.number(options, "cpus_per_task", 1)
        cores = cpus * (ranks // nodes) if "cpus_per_task" in options else None
        base = environment_of_ranks(environment, self.name, ranks // nodes, cores)
        executor = import_module("submitit").AutoExecutor(folder / "submitit", cluster=options.get("cluster"))
        if executor.cluster == "local":
            base |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        minutes = self.number(options, "timeout_min", 60)
        executor.update_parameters(**_parameters(options, ranks // nodes, nodes, minutes))
        changed = {name: value for name, value in base.items() if os.environ.get(name) != value}
        job = executor.submit(run_supervisor, supervisor_words(folder, command, child=False), changed, _foreign())
        return _Submitted(job, folder, ranks, base[JOB], executor.cluster == "local")


def _parameters(options: Mapping[str, object], tasks: int, nodes: int, minutes: int) -> dict[str, object]:
    named: dict[str, object] = {"name": "levelbench", "tasks_per_node": tasks, "nodes": nodes}
    named["timeout_min"] = minutes
    # SLURM lets the other tasks of a job go on where one fails, unless asked not to.
    named["slurm_srun_args"] = ["--kill-on-bad-exit=1"]
    for name in _OF_SLURM:
        if name in options:
            named[name if name in _OWN_NAMES else f"slurm_{name}"] = options[name]
    return named


def _foreign() -> list[str]:
    """Variables that say where this process is in a team, and that its tasks would inherit. Theirs are SLURM's."""
    kept = without_place(os.environ)
    return [name for name in os.environ if name not in kept and not name.startswith(("SLURM_", "SUBMITIT_"))]


def run_supervisor(words: Sequence[str], environment: Mapping[str, str], without: Sequence[str]) -> None:
    """What each task of the job does: run its rank's supervisor, and fail where the rank does."""
    inherited = {name: value for name, value in os.environ.items() if name not in without}
    done = subprocess.run(list(words), check=False, env={**inherited, **environment})
    if done.returncode:
        raise CommunicationError(
            "a rank of a job", f"it ended with code {done.returncode}", "see its log beside the other ranks'"
        )


@final
class _Submitted(RunningJob):
    """A job in the queue, or under way. What is known of its ranks is what their supervisors write into the folder."""

    def __init__(self, job: Any, folder: Path, ranks: int, mark: str, here: bool) -> None:
        self._job = job
        self.folder = folder
        self.job = mark
        self._ranks = ranks
        self._here = here
        self.look_s = _LOOK_HERE_S if here else _LOOK_S
        self._told_ns: int | None = None
        self._failed_first = False
        self._over = False

    def poll(self) -> bool:
        if self._over:
            return True
        # A job that waits in the queue has no result and is not over. Asked before the reports are read, as those of
        # a job that is over are all there.
        done = bool(self._job.done())
        reports = read_reports(self.folder, self._ranks)
        failed = has_failed(self.folder, self._ranks)
        # Here its own processes have to end as well; SLURM's accounts may lag behind by minutes.
        if done or (len(reports) == self._ranks and not self._here):
            end_marked(self.job)
            self._over = True
            self._failed_first |= self._told_ns is None
        elif failed and self._told_ns is None:
            self._failed_first = True
            self._cancel()
        elif self._told_ns is not None and HOST.now_ns() - self._told_ns > _END_S * 1e9:
            self._job.cancel()
            end_marked(self.job)
            self._over = True
        elif self._told_ns is not None:
            tell_supervisors(self.job)
        return self._over

    def _cancel(self) -> None:
        """Through the queue; here through the supervisors, as the local executor prints a traceback at the user."""
        self._told_ns = HOST.now_ns()
        if self._here:
            tell_supervisors(self.job)
        else:
            self._job.cancel()

    def kill(self) -> None:
        if not self.poll():
            if self._told_ns is None:
                self._cancel()
            self.wait(2 * _END_S)

    def failure(self) -> Failure | None:
        if self._told_ns is not None and not self._failed_first:
            return None
        found = first_failure(self.folder, self._ranks, self._over)
        if found is None and self._over and len(read_reports(self.folder, self._ranks)) < self._ranks:
            log = Path(str(self._job.paths.stderr))
            return Failure(None, 1, None, last_lines(log), log, "before any rank had")
        return found
