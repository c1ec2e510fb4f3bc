"""MPI's own launchers as an engine: mpiexec of MPICH, Intel MPI or Open MPI, and srun inside SLURM's allocations."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, final

from levelbench.distributed.launching.base import Engine, RunningJob
from levelbench.distributed.launching.environment import JOB
from levelbench.distributed.launching.local import (
    SupervisedJob,
    environment_of_ranks,
    free_port,
    start_supervisor,
    supervisor_words,
    tidy_folder,
)
from levelbench.errors import MissingError, UsageError

_NAMES = ("mpiexec", "mpirun")
_VERSION_TIMEOUT_S = 10.0


@final
class Mpi(Engine):
    """``mpiexec``: the one beside this Python (wheels put it there), else the one on ``PATH``, else ``srun``.

    Options: ``launcher``, the path of another; ``machines``, names with commas between them, to start the ranks on
    (the folder must be shared among them).
    """

    name: ClassVar[str] = "mpi"
    communicators: ClassVar[tuple[str, ...]] = ("mpi", "gloo", "nccl")
    options: ClassVar[tuple[str, ...]] = ("launcher", "machines")

    def lacks(self) -> str | None:
        if _find(os.environ) is not None:
            return None
        return "no mpiexec, mpirun or srun is beside this Python or on PATH: pip install mpich mpi4py"

    def check(self, ranks: int, options: Mapping[str, object]) -> None:
        super().check(ranks, options)
        if "machines" in options and not all(_machines(options).split(",")):
            raise UsageError(
                f"machines={options['machines']} of the engine {self.name!r}",
                "one of them has no name",
                "give names with commas between them",
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
        base |= _meeting(machines, base)
        # Intel MPI looks for its parts on PATH, wherever it was itself found.
        base["PATH"] = os.pathsep.join([str(Path(launcher).resolve().parent), base.get("PATH", os.defpath)])
        words = launcher_words(str(launcher), _version(str(launcher), base), ranks, machines, base)
        running = SupervisedJob(folder, ranks, base[JOB], launcher=True, watch=True)
        inner = supervisor_words(folder, command, child=False)
        running.add(start_supervisor(supervisor_words(folder, [*words, *inner], launcher=True), base))
        return running


def _find(environment: Mapping[str, str]) -> str | None:
    """Beside Python before PATH, as mpi4py in the same place is most likely built for it; srun in an allocation."""
    beside = Path(sys.executable).parent
    for name in _NAMES:
        found = shutil.which(name, path=str(beside)) or shutil.which(name, path=environment.get("PATH"))
        if found:
            return found
    return shutil.which("srun", path=environment.get("PATH")) if "SLURM_JOB_ID" in environment else None


def _machines(options: Mapping[str, object]) -> str:
    return str(options.get("machines", "")).replace(" ", "")


def _version(launcher: str, environment: Mapping[str, str]) -> str:
    """What it says of itself, which tells whose it is."""
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


def _meeting(machines: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Where ranks meet that talk past MPI, as gloo's do. Inside SLURM's allocation the ranks know."""
    if machines:
        first = machines.split(",")[0].split(":")[0]
        # Not the loopback: rank 0 is elsewhere, and which of its ports are free cannot be known here.
        return {"MASTER_ADDR": first, "MASTER_PORT": environment.get("MASTER_PORT", "29500")}
    if "SLURM_JOB_ID" in environment and int(environment.get("SLURM_JOB_NUM_NODES", "1")) > 1:
        return {}
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}


def launcher_words(launcher: str, version: str, ranks: int, machines: str, environment: Mapping[str, str]) -> list[str]:
    """The launcher's command line up to the program, by the family that its ``version`` shows."""
    if Path(launcher).name == "srun":
        words = [launcher, "--ntasks", str(ranks), "--kill-on-bad-exit=1"]
        return [*words, "--nodelist", machines] if machines else words
    words = [launcher, "-n", str(ranks)]
    if "Open MPI" not in version and "OpenRTE" not in version and "prte" not in version.lower():
        return [*words, "-hosts", machines] if machines else words
    # It refuses root, and more ranks than cores, unless told; bound to one core, a rank's threads would share it.
    words += ["--oversubscribe", "--bind-to", "none"]
    if os.geteuid() == 0:
        words.insert(1, "--allow-run-as-root")
    if machines:
        words += ["--host", machines]
        for name in sorted(environment):
            if name.startswith(("LEVELBENCH_", "MASTER_", "OMP_", "OPENBLAS_", "MKL_")):
                words += ["-x", name]
    return words
