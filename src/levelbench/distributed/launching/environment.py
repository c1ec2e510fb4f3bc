"""What a process's environment says: its place in a team, and the job that it belongs to.

Every launcher has its own variables for a rank's place, so a rank needs no argument for it, and any program that reads
torchrun's variables runs under all engines. All processes of a job carry its mark, by which they can be found and
ended: process groups and sessions can be left, and parents may die first, but the environment stays.
"""

from __future__ import annotations

import os
import re
import select
import signal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

from levelbench.errors import UsageError
from levelbench.measure.clocks import HOST


@dataclass(frozen=True)
class RankPlace:
    """Rank ``rank`` of ``size``, number ``local_rank`` on its machine.

    Rank 0 listens on ``address`` and ``port``; the port is 0 if the launcher agreed on none, such as a bare ``mpirun``.
    """

    rank: int
    size: int
    local_rank: int
    address: str
    port: int
    engine: str


class _Launcher(NamedTuple):
    """The variables that hold a process's place under a launcher."""

    engine: str
    rank: str
    size: str
    local_rank: str


# In this order: a launcher inside another's allocation takes precedence, and both sets of variables exist.
_LAUNCHERS = (
    _Launcher("process", "LEVELBENCH_RANK", "LEVELBENCH_SIZE", "LEVELBENCH_LOCAL_RANK"),
    _Launcher("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
    _Launcher("mpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    _Launcher("mpi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    _Launcher("slurm", "SUBMITIT_LOCAL_GLOBALID", "SUBMITIT_LOCAL_NTASKS", "SUBMITIT_LOCAL_LOCALID"),
    _Launcher("slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)

_ADDRESS = ("MASTER_ADDR", "MASTER_PORT")

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""The variables that an engine sets for its ranks unless they are set already."""

RANK_VARIABLES: frozenset[str] = frozenset(
    {name for each in _LAUNCHERS for name in (each.rank, each.size, each.local_rank)}
    | {*_ADDRESS, "LEVELBENCH_ENGINE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK"}
    | {"ROLE_NAME", "ROLE_WORLD_SIZE", "PMI_FD", "PMI_PORT", "PMI_ID", "PMIX_RANK", "PMIX_NAMESPACE"}
)
"""The variables that hold a process's place; a process that starts ranks does not pass its own on."""

_OF_A_LAUNCHER = re.compile(
    r"TORCHELASTIC_|OMPI_COMM_WORLD_|OMPI_MCA_(?:orte|pmix|prte)|PMIX_|PRTE_|PMI_|HYDI?_|MPI_LOCAL"
)


def without_place(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without this process's place in a team; SLURM's allocation stays."""
    return {
        name: value
        for name, value in environment.items()
        if name not in RANK_VARIABLES and not _OF_A_LAUNCHER.match(name)
    }


def variables_of(place: RankPlace) -> dict[str, str]:
    """The variables that hold a place: ours and torchrun's, so that programs for torchrun run under any launcher."""
    named = {"MASTER_ADDR": place.address, "MASTER_PORT": str(place.port), "LEVELBENCH_ENGINE": place.engine}
    for launcher in _LAUNCHERS[:2]:
        named[launcher.rank], named[launcher.size] = str(place.rank), str(place.size)
        named[launcher.local_rank] = str(place.local_rank)
    return named


def place_of(environment: Mapping[str, str]) -> RankPlace:
    """The place given by the environment: by us, torchrun, MPI or SLURM.

    ``UsageError`` if there is none, or an impossible one.
    """
    for launcher in _LAUNCHERS:
        if launcher.rank in environment and launcher.size in environment:
            return _place(environment, launcher)
    raise UsageError(
        "the place of this process in its team",
        "its environment has no variable that names its rank (LEVELBENCH_RANK, RANK, PMI_RANK, SLURM_PROCID, ...)",
        "start it with --ranks, torchrun, mpirun or srun",
    )


def accelerator_of(local_rank: int, environment: Mapping[str, str]) -> int:
    """The number of the accelerator of a rank among those that it sees: its local rank.

    0 if SLURM shows this very task a single one (``--gpus-per-task=1``), since ranks that share one are not meant.
    """
    own_task = environment.get("SLURM_LOCALID") == str(local_rank)
    seen = next((environment[name] for name in _VISIBLE if name in environment), "")
    return 0 if own_task and seen and "," not in seen else local_rank


_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def _place(environment: Mapping[str, str], launcher: _Launcher) -> RankPlace:
    rank = _number(environment, launcher.rank)
    size = _number(environment, launcher.size)
    # A launcher that does not set it starts one rank per machine, such as `srun --ntasks-per-node=1`.
    local_rank = _number(environment, launcher.local_rank, otherwise=0)
    if not 0 <= rank < size:
        raise UsageError(
            f"the place of this process in its team, {launcher.rank}={rank}",
            f"there are {size} ranks ({launcher.size}), from 0 to {size - 1}",
            "start all ranks with the same number of ranks",
        )
    engine = environment.get("LEVELBENCH_ENGINE", launcher.engine)
    address, port = _rendezvous(environment)
    return RankPlace(rank, size, local_rank, address, port, engine)


def _number(environment: Mapping[str, str], name: str, otherwise: int | None = None) -> int:
    text = environment.get(name)
    if text is None and otherwise is not None:
        return otherwise
    if text is None or not re.fullmatch(r"\d{1,9}", text.strip(), re.ASCII):
        raise UsageError(
            f"the place of this process in its team, {name}={text!r}",
            "it is not a whole number from 0 up",
            "start the ranks with a launcher that sets it, or unset it",
        )
    return int(text)


def _rendezvous(environment: Mapping[str, str]) -> tuple[str, int]:
    """Where rank 0 listens. SLURM only gives the machines and the job."""
    port = _number(environment, "MASTER_PORT", otherwise=0)
    if "MASTER_ADDR" in environment:
        return environment["MASTER_ADDR"], port
    machines = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    if not machines:
        return "127.0.0.1", port
    # Jobs on the same machine use different ports, and all ranks of a job the same.
    job = _number(environment, "SLURM_JOB_ID", otherwise=0)
    return _first_machine(machines), port or 20_000 + job % 20_000


def _first_machine(machines: str) -> str:
    """The first name in SLURM's list: ``node[003-007,9],login`` begins with ``node003``."""
    found = re.match(r"([^,\[\]]+)(?:\[(\w+)[^\]]*\]([^,\[\]]*))?", machines)
    if found is None:
        raise UsageError(
            f"SLURM's list of machines {machines!r}", "it does not begin with a name", "set MASTER_ADDR and MASTER_PORT"
        )
    return "".join(part or "" for part in found.groups())


JOB = "LEVELBENCH_JOB"
"""The variable that marks the job that a process belongs to."""

_PROC = Path("/proc")


def marked(job: str) -> list[int]:
    """Ids of the living processes of a job. Those of other users cannot be read and do not belong to it."""
    mark = f"{JOB}={job}".encode()
    return [pid for pid in _processes() if mark in _environment(pid) and state_of(pid) != "Z"]


def end_marked(job: str) -> None:
    """Kill what is left of a job, until nothing is or two seconds are over."""
    until_ns = HOST.now_ns() + 2_000_000_000
    while (left := [pid for pid in marked(job) if pid != os.getpid()]) and HOST.now_ns() < until_ns:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # Give the kernel a moment to remove them.
        select.select([], [], [], 0.01)


def tell_supervisors(job: str) -> None:
    """Ask the supervisors of a job on this machine to end their ranks."""
    for pid, _ in _supervisors(job):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def rank_supervisors(job: str) -> list[int]:
    """Ids of the rank supervisors of a job on this machine, without the launcher's."""
    return [pid for pid, words in _supervisors(job) if b"--launcher" not in words]


PATIENCE = 0.9
"""How long a rank may be silent, in units of the timeout: what ends the others then takes a while, too."""


@final
class StopWatch:
    """Watches for ranks of a job on this machine that were stopped (SIGSTOP, a debugger) and not continued.

    Nobody else notices one before the ranks have met: a library that starts may wait for it for ever.
    """

    def __init__(self, job: str, ranks: int, patience_s: float) -> None:
        """``ranks``: how many are on this machine; ``patience_s``: after which a stopped rank counts as lost."""
        self._job, self._ranks, self._patience_ns = job, ranks, int(patience_s * 1e9)
        # Rarely, because looking takes time from the ranks.
        self._every_ns = self._patience_ns // 20
        self._due_ns = HOST.now_ns() + self._every_ns
        self._known: dict[int, int] = {}
        self._since_ns: dict[int, int] = {}

    def lost(self) -> int | None:
        """The rank that has been stopped for too long, the first of several; ``None`` if there is none."""
        now = HOST.now_ns()
        if now < self._due_ns:
            return None
        self._due_ns = now + self._every_ns
        states = {pid: state_of(pid) for pid in self._known}
        if len(states) < self._ranks or any(state in (None, "Z") for state in states.values()):
            self._known = self._found()
            states = {pid: state_of(pid) for pid in self._known}
        # A tracer's stops (``t``) count, too.
        stopped = [pid for pid, state in states.items() if state in ("T", "t")]
        self._since_ns = {pid: self._since_ns.get(pid, now) for pid in stopped}
        late = [pid for pid in stopped if now - self._since_ns[pid] >= self._patience_ns]
        return self._known[min(late, key=self._since_ns.__getitem__)] if late else None

    @property
    def seen(self) -> bool:
        """Whether a rank was stopped at the last look."""
        return bool(self._since_ns)

    def _found(self) -> dict[int, int]:
        """Ranks by the process ids of what their supervisors have started."""
        found = {}
        for supervisor in rank_supervisors(self._job):
            for pid in (each for each in _processes() if _parent(each) == supervisor):
                place = dict(part.partition(b"=")[::2] for part in _environment(pid))
                if place.get(b"LEVELBENCH_RANK", b"").isdigit():
                    found[pid] = int(place[b"LEVELBENCH_RANK"])
        return found


def _parent(pid: int) -> int | None:
    fields = _fields(pid)
    return int(fields[1]) if fields else None


def _supervisors(job: str) -> Iterator[tuple[int, list[bytes]]]:
    """Ids of the supervisors of a job, and their arguments up to the command."""
    for pid in marked(job):
        with suppress(FileNotFoundError, ProcessLookupError):
            words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
            if words[1:4] == [b"-P", b"-m", b"levelbench.distributed.launching.supervisor"]:
                yield pid, words[: words.index(b"--")]


def descendants(pid: int) -> list[int]:
    """Ids of all descendants of a process that have not been waited for."""
    children: dict[int, list[int]] = {}
    for each in _processes():
        fields = _fields(each)
        if fields:
            children.setdefault(int(fields[1]), []).append(each)
    found, todo = [], [pid]
    while todo:
        new = children.get(todo.pop(), [])
        found += new
        todo += new
    return found


def state_of(pid: int) -> str | None:
    """The state from proc(5): ``T`` stopped, ``Z`` zombie, ...; ``None`` if there is no such process."""
    fields = _fields(pid)
    return fields[0] if fields else None


def start_of(pid: int) -> int | None:
    """A process's start, in clock ticks after boot: with its id it identifies one process for good."""
    fields = _fields(pid)
    return int(fields[19]) if fields else None


def _fields(pid: int) -> list[str] | None:
    """The fields of ``/proc/PID/stat`` after the name, which may contain anything but ends at the last bracket."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text[text.rindex(")") + 2 :].split()


def _processes() -> Iterator[int]:
    return (int(name) for name in os.listdir(_PROC) if name.isdecimal())  # noqa: PTH208  # paths would be thrown away


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []
