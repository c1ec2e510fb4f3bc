"""Third-party launchers as engines: MPI's own (mpiexec, or srun in an allocation), SLURM through submitit, torchrun.

torchrun's launcher waits for lost nodes, for ten minutes or for ever. A living node returns to the rendezvous within
seconds, so a launcher that has had no rank for longer than that is ended, and the failure says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, final

from levelbench.distributed.launching.base import (
    PEER_LOST,
    Engine,
    Failure,
    RunningJob,
    first_failure,
    has_failed,
    last_lines,
    ranks_per_node,
    read_reports,
)
from levelbench.distributed.launching.environment import (
    JOB,
    THREADS,
    end_marked,
    rank_supervisors,
    tell_supervisors,
    without_place,
)
from levelbench.distributed.launching.local import (
    JobAround,
    OnHosts,
    Process,
    SupervisedJob,
    environment_of_ranks,
    free_port,
    start_supervisor,
    supervisor_words,
    tidy_folder,
)
from levelbench.errors import CommunicationError, MissingError, UsageError
from levelbench.measure.clocks import HOST

_NAMES = ("mpiexec", "mpirun")
_VERSION_TIMEOUT_S = 10.0


@final
class Mpi(Engine):
    """``mpiexec``: the one next to this Python (where wheels install it), else the one on ``PATH``, else ``srun``.

    Options: ``launcher``, the path of another; ``machines``, comma-separated names of machines to start the ranks on,
    which must share the folder.
    """

    name: ClassVar[str] = "mpi"
    communicators: ClassVar[tuple[str, ...]] = ("mpi", "gloo", "nccl")
    options: ClassVar[tuple[str, ...]] = ("launcher", "machines")

    def lacks(self, options: Mapping[str, object] | None = None) -> str | None:
        if _find(os.environ) is not None:
            return None
        return "no mpiexec, mpirun or srun is next to this Python or on PATH: pip install mpich mpi4py"

    def check(self, ranks: int, options: Mapping[str, object]) -> None:
        super().check(ranks, options)
        if "machines" in options and not all(_machines(options).split(",")):
            raise self.refused(
                "machines", options["machines"], "one of them has no name", "give names separated by commas"
            )

    def start(
        self, command: Sequence[str], ranks: int, folder: Path, environment: Mapping[str, str], **options: Any
    ) -> RunningJob:
        """Start the launcher under a supervisor; it starts a supervisor for each rank."""
        self.check(ranks, options)
        seen = {**os.environ, **environment}
        launcher = options.get("launcher") or _find(seen)
        if launcher is None or shutil.which(str(launcher)) is None:
            found = self.lacks() if launcher is None else f"there is no program {str(launcher)!r}"
            raise MissingError(f"engine {self.name!r}", str(found), "install an MPI, or choose another engine")
        folder = tidy_folder(folder, command, ranks)
        machines = _machines(options)
        here = -(-ranks // (machines.count(",") + 1))
        base = environment_of_ranks(environment, self.name, here)
        base |= _mpi_meeting(machines, base)
        # Intel MPI looks for its parts on PATH, wherever it was found itself.
        base["PATH"] = os.pathsep.join([str(Path(launcher).resolve().parent), base.get("PATH", os.defpath)])
        words = launcher_words(str(launcher), _version(str(launcher), base), ranks, machines, base)
        running = SupervisedJob(folder, ranks, base[JOB], launcher=True, watch=True)
        inner = supervisor_words(folder, command, child=False)
        running.add(start_supervisor(supervisor_words(folder, [*words, *inner], launcher=True), base))
        return running


def _find(environment: Mapping[str, str]) -> str | None:
    """Next to Python before PATH, since mpi4py in the same place is most likely built for it; srun in an allocation."""
    here = Path(sys.executable).parent
    for name in _NAMES:
        found = shutil.which(name, path=str(here)) or shutil.which(name, path=environment.get("PATH"))
        if found:
            return found
    return shutil.which("srun", path=environment.get("PATH")) if "SLURM_JOB_ID" in environment else None


def _machines(options: Mapping[str, object]) -> str:
    return str(options.get("machines", "")).replace(" ", "")


def _version(launcher: str, environment: Mapping[str, str]) -> str:
    """The launcher's version output, which tells its family."""
    try:
        done = subprocess.run(
            [launcher, "--version"],
            check=False,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_VERSION_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MissingError(
            f"the MPI launcher {launcher}",
            f"it does not report its version ({type(error).__name__}: {error})",
            "repair the installation, or name another with launcher=PATH",
        ) from error
    return done.stdout + done.stderr


def _mpi_meeting(machines: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Where ranks meet that bypass MPI, such as gloo's. Within SLURM's allocation ranks find out themselves."""
    if machines:
        first = machines.split(",")[0].split(":")[0]
        # Not the loopback: rank 0 is elsewhere, and its free ports are unknown here.
        return {"MASTER_ADDR": first, "MASTER_PORT": environment.get("MASTER_PORT", "29500")}
    if "SLURM_JOB_ID" in environment and int(environment.get("SLURM_JOB_NUM_NODES", "1")) > 1:
        return {}
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}


def launcher_words(launcher: str, version: str, ranks: int, machines: str, environment: Mapping[str, str]) -> list[str]:
    """The launcher's command line up to the program; its family follows from its ``version`` output."""
    if Path(launcher).name == "srun":
        words = [launcher, "--ntasks", str(ranks), "--kill-on-bad-exit=1"]
        return [*words, "--nodelist", machines] if machines else words
    words = [launcher, "-n", str(ranks)]
    if "Open MPI" not in version and "OpenRTE" not in version and "prte" not in version.lower():
        return [*words, "-hosts", machines] if machines else words
    # By default it refuses root and more ranks than cores, and binds each rank, with all its threads, to one core.
    words += ["--oversubscribe", "--bind-to", "none"]
    if os.geteuid() == 0:
        words.insert(1, "--allow-run-as-root")
    if machines:
        words += ["--host", machines]
        for name in sorted(environment):
            if name.startswith(("LEVELBENCH_", "MASTER_", "OMP_", "OPENBLAS_", "MKL_")):
                words += ["-x", name]
    return words


_LOOK_S = 1.0
_LOOK_HERE_S = 0.05
_END_S = 5.0
_OF_SLURM = (
    *("partition", "account", "qos", "constraint", "exclusive", "gres", "nodelist", "exclude"),
    *("gpus_per_node", "cpus_per_task", "mem_gb"),
)
_OWN_NAMES = {"gpus_per_node", "cpus_per_task", "mem_gb"}
"""Parameters with submitit's own names; it prefixes SLURM's others with ``slurm_``."""
_SBATCH = "sbatch."
"""Options that begin with this are passed to sbatch as they are."""


_SET_HERE = {
    "nodes": "give nodes=N",
    "ntasks": "give --ranks N",
    "ntasks_per_node": "give --ranks N and nodes=N",
    "time": "give timeout_min=MINUTES",
    "cpus_per_task": "give cpus_per_task=N",
    "gpus_per_node": "give gpus_per_node=N",
    "array": "give -n N: each run is a job of its own",
    **dict.fromkeys(("output", "error", "open_mode", "job_name", "signal"), "leave it out"),
}
"""Options of sbatch that a job cannot have twice, and how to say the same here."""


@final
class Slurm(Engine):
    """``submitit`` submits a job with a task per rank, and this process waits for it.

    Options: ``cluster`` (``slurm``, the default, or ``local`` for this machine), ``nodes`` (1),
    ``timeout_min`` (60), SLURM's ``partition``, ``account``, ``qos``, ``constraint``, ``exclusive``, ``gres``,
    ``nodelist``, ``exclude``, ``gpus_per_node``, ``cpus_per_task``, ``mem_gb``, and any other of sbatch's as
    ``sbatch.NAME``, where ``true`` is an option without a value. ``setup`` is a line of shell that the job runs first
    (``module load cuda``). The machines must share the folder. If this process is killed and cannot cancel the job, it
    stays in SLURM's queue: use ``scancel``.
    """

    name: ClassVar[str] = "slurm"
    communicators: ClassVar[tuple[str, ...]] = ("gloo", "nccl", "mpi")
    options: ClassVar[tuple[str, ...]] = ("cluster", "nodes", "timeout_min", "setup", *_OF_SLURM)

    def elsewhere(self, options: Mapping[str, object]) -> bool:
        return options.get("cluster") != "local"

    def lacks(self, options: Mapping[str, object] | None = None) -> str | None:
        if find_spec("submitit") is None:
            return "submitit is not installed: pip install submitit"
        # submitit itself would silently run the job on this machine.
        if (options or {}).get("cluster") != "local" and shutil.which("srun") is None:
            return "SLURM: srun is not on PATH. slurm[cluster=local] runs the same job on this machine"
        return None

    def check(self, ranks: int, options: Mapping[str, object]) -> None:
        super().check(ranks, {name: each for name, each in options.items() if not name.startswith(_SBATCH)})
        for name in options:
            if (taken := name.removeprefix(_SBATCH).replace("-", "_")) in _SET_HERE and name != taken:
                raise self.refused(name, options[name], "levelbench sets it itself", _SET_HERE[taken])
        nodes = self.number(options, "nodes", 1)
        for name in ("timeout_min", "cpus_per_task"):
            self.number(options, name, 1)
        if "gpus_per_node" in options:
            self.number(options, "gpus_per_node", 0, least=0)
        if (cluster := options.get("cluster")) not in (None, "slurm", "local"):
            raise self.refused("cluster", cluster, "it is slurm or local", "leave it out to use SLURM")
        ranks_per_node(ranks, nodes)

    def start(
        self, command: Sequence[str], ranks: int, folder: Path, environment: Mapping[str, str], **options: Any
    ) -> RunningJob:
        self.check(ranks, options)
        self.require(options)
        folder = tidy_folder(folder, command, ranks)
        nodes = self.number(options, "nodes", 1)
        cpus = self.number(options, "cpus_per_task", 0, least=0)
        base = environment_of_ranks(environment, self.name, ranks // nodes, cpus * (ranks // nodes))
        submitit = import_module("submitit")
        executor = submitit.AutoExecutor(folder / "submitit", cluster=options.get("cluster"))
        if executor.cluster == "local":
            base |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        elif not cpus:
            # This machine's cores say nothing about those of the nodes: each rank counts its own.
            for name in THREADS:
                if name not in {**os.environ, **environment}:
                    del base[name]
        asked: dict[str, object] = {"name": "levelbench", "tasks_per_node": ranks // nodes, "nodes": nodes}
        asked["timeout_min"] = self.number(options, "timeout_min", 60)
        # Without this, SLURM lets the other tasks of a job continue when one fails.
        asked["slurm_srun_args"] = ["--kill-on-bad-exit=1"]
        for name in options.keys() & {*_OF_SLURM}:
            asked[name if name in _OWN_NAMES else f"slurm_{name}"] = options[name]
        if "setup" in options:
            asked["slurm_setup"] = [str(options["setup"])]
        further = {name.removeprefix(_SBATCH): each for name, each in options.items() if name.startswith(_SBATCH)}
        if further:
            asked["slurm_additional_parameters"] = further
        executor.update_parameters(**asked)
        changed = {name: value for name, value in base.items() if os.environ.get(name) != value}
        words = supervisor_words(folder, command, child=False)
        try:
            job = executor.submit(run_supervisor, words, changed, _foreign())
        except (submitit.core.utils.FailedJobError, OSError) as error:
            # submitit has printed all that sbatch said.
            said = (str(error).strip().splitlines() or ["nothing said"])[-1]
            do = "change the options in slurm[...], or ask sbatch itself (sinfo lists the partitions)"
            raise CommunicationError(f"submitting a job of {ranks} ranks", f"sbatch refused it: {said}", do) from None
        return _Submitted(job, folder, ranks, base[JOB], executor.cluster == "local")


def _foreign() -> list[str]:
    """Variables with this process's place that its tasks would inherit, except SLURM's own."""
    kept = without_place(os.environ)
    return [name for name in os.environ if name not in kept and not name.startswith(("SLURM_", "SUBMITIT_"))]


def threads_of_a_task(environment: Mapping[str, str], tasks: int) -> dict[str, str]:
    """How many threads a task of a job of SLURM may use, unless the job asked for a number of cores.

    A node that binds its tasks shows each only its own cores; else the task gets its share of the node's.
    """
    cores = len(os.sched_getaffinity(0))
    if cores == os.cpu_count():
        cores //= tasks
    return dict.fromkeys(THREADS, environment.get(THREADS[0], str(max(1, cores))))


def run_supervisor(words: Sequence[str], environment: Mapping[str, str], without: Sequence[str]) -> None:
    """Run a rank's supervisor in a task of the job, and fail if the rank does."""
    inherited = {name: value for name, value in os.environ.items() if name not in without}
    if (tasks := inherited.get("SLURM_NTASKS_PER_NODE", "")).isdecimal():
        inherited = {**threads_of_a_task(inherited, int(tasks)), **inherited}
    done = subprocess.run(list(words), check=False, env={**inherited, **environment})
    if done.returncode:
        raise CommunicationError(
            "a rank of a job", f"it ended with code {done.returncode}", "see its log next to those of the other ranks"
        )


@final
class _Submitted(RunningJob):
    """A queued or running job. All that is known of its ranks is what their supervisors write to the folder."""

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
        # A queued job has no result and is not over. Asked before reading the reports, because all reports of a
        # finished job exist.
        done = bool(self._job.done())
        reports = read_reports(self.folder, self._ranks)
        failed = has_failed(self.folder, self._ranks)
        # Locally its own processes must end as well; SLURM's accounting may lag by minutes.
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
        """Cancel in the queue; locally through the supervisors, as the local executor prints a traceback."""
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


_MEET_S, _ALONE_S = 20.0, 5.0
"""How long a launcher may have no rank after one failed: with restarts, until live nodes have met again; without."""
_SETTLED_S = 10.0
"""Ranks that run this long after another ended on this node were restarted; supervisors outlive them by up to 2 s."""


@final
class OnNode(JobAround):
    """The ranks of this node. ``meet`` is where the nodes' launchers meet, again after failures with ``restarts``."""

    def __init__(self, job: SupervisedJob, ranks: int, meet: str, restarts: bool) -> None:
        super().__init__(job, ranks)
        self._meet, self._wait_s = meet, _MEET_S if restarts else _ALONE_S
        self._seen: tuple[int, int] | None = None
        """When the last rank of this node ended, and when this was first seen."""
        self._empty_ns: int | None = None
        self._alone = False

    def poll(self) -> bool:
        """As :class:`SupervisedJob`, and check whether the launcher waits in vain for other nodes."""
        over = self._job.poll()
        if not over and self._waits_in_vain():
            self._alone = True
            self._job.kill()
            over = self._job.poll()
        return over

    def failure(self) -> Failure | None:
        found = self._job.failure()
        if self._alone:
            log = self.folder / "launcher.log"
            found = found or Failure(None, None, None, last_lines(log), log)
            return replace(found, note=f"and its launcher waited {self._wait_s:g} s in vain for other nodes")
        if found is None:
            return None
        if found.rank is None:
            return replace(found, note=f"the nodes meet at {self._meet}")
        return replace(found, note="what it lost is on another node") if found.code == PEER_LOST else found

    def _waits_in_vain(self) -> bool:
        """Whether a rank failed here, and none has run for too long since."""
        now_ns = HOST.now_ns()
        reports = [each for each in read_reports(self.folder, self._ranks) if each.rank is not None]
        if not any(each.code != 0 for each in reports):
            return False
        last_ns = max(each.time_ns for each in reports)
        if self._seen is None or self._seen[0] != last_ns:
            self._seen, self._empty_ns = (last_ns, now_ns), None
        # Searching all processes takes milliseconds: not while ranks train again.
        if self._empty_ns is None and now_ns - self._seen[1] > _SETTLED_S * 1e9:
            return False
        if rank_supervisors(self.job):
            self._empty_ns = None
            return False
        self._empty_ns = self._empty_ns or now_ns
        return now_ns - self._empty_ns > self._wait_s * 1e9


RESTARTS = "TORCHELASTIC_RESTART_COUNT"
"""How often torchrun has restarted a rank; in the rank's environment."""


_NUMA = ("node", "socket", "exclusive", "core-complex")


@final
class Torchrun(Engine):
    """``python -m torch.distributed.run``.

    Options: ``nodes`` (1) with ``rendezvous`` (``host:port`` of one of them) and ``job`` (a name that is unique there):
    the same command is started on each node, and ``ranks`` is the total number. ``address`` is the node's address for
    the others, if its name does not resolve to it. torchrun's own variables (``PET_NNODES``, ``PET_RDZV_ENDPOINT``,
    ``PET_MASTER_ADDR``, ...), which clusters set, replace options that are not given. After a failure torchrun restarts
    all ranks up to ``max_restarts`` times (0): the program must be able to resume. ``numa`` (``node``, ``socket``,
    ``exclusive``, ``core-complex``) binds each rank to the cores near its accelerator.
    """

    name: ClassVar[str] = "torchrun"
    communicators: ClassVar[tuple[str, ...]] = ("gloo", "nccl")
    options: ClassVar[tuple[str, ...]] = ("nodes", "rendezvous", "job", "address", "max_restarts", "numa")

    def lacks(self, options: Mapping[str, object] | None = None) -> str | None:
        return None if find_spec("torch") is not None else "PyTorch is not installed: pip install 'levelbench[torch]'"

    def check(self, ranks: int, options: Mapping[str, object]) -> None:
        super().check(ranks, options)
        self._command(ranks, options, os.environ)

    def _command(self, ranks: int, options: Mapping[str, object], seen: Mapping[str, str]) -> tuple[int, list[str]]:
        """The number of nodes, and torchrun's command line."""
        least, _, most = seen.get("PET_NNODES", "1").partition(":")
        if most not in ("", least) and "nodes" not in options:
            raise UsageError(
                f"{ranks} ranks on {least} to {most} nodes (PET_NNODES)",
                "with fewer nodes there would be fewer ranks",
                "set PET_NNODES to one number, or give nodes=N",
            )
        nodes = self.number({"nodes": least, **options}, "nodes", 1)
        here = str(ranks_per_node(ranks, nodes))
        words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", here, "--no-python"]
        restarts = str(self.number(options, "max_restarts", 0, least=0))
        if (numa := options.get("numa")) is not None:
            if numa not in _NUMA:
                raise self.refused("numa", numa, f"it is {', '.join(_NUMA)}", "choose one, or leave it out")
            words.append(f"--numa-binding={numa}")
        return nodes, [*words, "--max-restarts", restarts, *_meeting(nodes, options, seen)]

    def start(
        self, command: Sequence[str], ranks: int, folder: Path, environment: Mapping[str, str], **options: Any
    ) -> RunningJob:
        """Start torchrun under a supervisor; it starts a supervisor for each rank."""
        self.check(ranks, options)
        self.require(options)
        folder = tidy_folder(folder, command, ranks)
        seen = {**os.environ, **environment}
        nodes, words = self._command(ranks, options, seen)
        base = environment_of_ranks(environment, self.name, ranks // nodes)
        job = SupervisedJob(folder, ranks, base[JOB], launcher=True, whole=nodes == 1)
        inner = supervisor_words(folder, command, child=False)
        job.add(start_supervisor(supervisor_words(folder, [*words, *inner], launcher=True), base))
        if nodes == 1:
            return job
        meet = str(options.get("rendezvous") or _place_of_meeting(seen))
        return OnNode(job, ranks, meet, restarts=bool(self.number(options, "max_restarts", 0, least=0)))


def nodes_of(options: Mapping[str, object], environment: Mapping[str, str]) -> int:
    """The number of nodes on which the same command is started: the option, else torchrun's own variable."""
    given = options.get("nodes", environment.get("PET_NNODES", "1").split(":")[-1])
    return int(str(given)) if str(given).isdecimal() else 1


def _place_of_meeting(environment: Mapping[str, str]) -> str | None:
    """Where launchers meet by torchrun's own variables: a rendezvous, else the first node by its address."""
    return environment.get("PET_RDZV_ENDPOINT") or environment.get("PET_MASTER_ADDR")


def _meeting(nodes: int, options: Mapping[str, object], environment: Mapping[str, str]) -> list[str]:
    """Arguments of torchrun for where the nodes' launchers meet."""
    rendezvous, job = options.get("rendezvous"), options.get("job")
    if rendezvous is None and _place_of_meeting(environment):
        # torchrun reads the variables itself. PET_NNODES may differ from the option.
        return ["--nnodes", str(nodes)]
    if nodes == 1 and rendezvous is None:
        # The loopback by address: a machine's own name need not resolve.
        return ["--standalone", "--local-addr", "127.0.0.1"]
    if rendezvous is None:
        raise UsageError(
            f"{nodes} nodes with torchrun",
            "there is no rendezvous for their launchers",
            "give rendezvous=HOST:PORT of one of them, and start the same command on each",
        )
    words = ["--nnodes", str(nodes), "--rdzv-backend", "c10d", "--rdzv-endpoint", str(rendezvous)]
    words += ["--rdzv-id", str(job or "levelbench")]
    address = options.get("address")
    if address is None:
        return words
    # torchrun decides whether to listen by whether its machine's name resolves to the rendezvous.
    listens = str(rendezvous).rpartition(":")[0] == str(address)
    return [*words, "--local-addr", str(address), "--rdzv-conf", f"is_host={str(listens).lower()}"]


ENGINES: Mapping[str, Engine] = MappingProxyType(
    {each.name: each for each in (Process(), Torchrun(), Mpi(), Slurm(), OnHosts())}
)
"""All engines by name."""
