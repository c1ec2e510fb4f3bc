"""Supervised jobs on this machine, and our own engines: a process per rank, directly or on emulated hosts.

Supervisors do the killing, so it works even if this process is killed; here they are only asked to.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, final

from levelbench.distributed.launching.base import (
    PEER_LOST,
    Engine,
    Failure,
    RunningJob,
    first_failure,
    has_failed,
    last_lines,
)
from levelbench.distributed.launching.environment import (
    JOB,
    THREADS,
    RankPlace,
    end_marked,
    variables_of,
    without_place,
)
from levelbench.distributed.launching.namespaces import Hosts, Link, lacks
from levelbench.errors import UsageError
from levelbench.measure.clocks import HOST

_END_S = 5.0
"""How long supervisors may take to end their ranks; longer than their own grace period."""


@final
class SupervisedJob(RunningJob):
    """Running supervisors: one per rank, in order, or one for a ``launcher`` that starts the ranks' own.

    ``whole``: all ranks report to this folder, which they do not on one of several machines without a shared folder.
    ``watch``: the launcher may not end the others after a failure, as MPI's do not before that rank has called MPI.
    """

    def __init__(
        self, folder: Path, ranks: int, job: str, launcher: bool = False, whole: bool = True, watch: bool = False
    ) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self.folder = folder
        self.job = job
        self._ranks = ranks
        self._launcher = launcher
        self._whole = whole
        self._watch = watch
        self._told_ns: int | None = None
        self._failed_first = False
        self._over = False

    def add(self, supervisor: subprocess.Popen[bytes]) -> None:
        """Add a supervisor to the job."""
        self._processes.append(supervisor)

    def poll(self) -> bool:
        if self._over:
            return True
        codes = [process.poll() for process in self._processes]
        if None not in codes:
            end_marked(self.job)
            self._over = True
        elif self._told_ns is None:
            if any(codes) or (self._watch and has_failed(self.folder, self._ranks)):
                self._tell()
        elif HOST.now_ns() - self._told_ns > _END_S * 1e9:
            self._finish()
        return self._over

    def kill(self) -> None:
        """Ask the supervisors to end, and kill what has not ended after a while."""
        if not self.poll():
            self._tell()
            if not self.wait(_END_S):
                self._finish()

    def failure(self) -> Failure | None:
        """From the supervisors' reports; a supervisor that was itself killed could not write one."""
        # A launcher may restart its ranks.
        if self._launcher and not self._over:
            return None
        found = first_failure(self.folder, self._ranks, self._over and self._whole)
        if found is not None or (self._told_ns is not None and not self._failed_first):
            return found
        # One that was killed wrote no report; then the others were asked to end, by SIGTERM, some as they started.
        codes = {at: process.returncode for at, process in enumerate(self._processes) if process.returncode}
        if not codes:
            return None
        at = min(codes, key=lambda at: codes[at] > 0 or codes[at] == -signal.SIGTERM)
        rank = None if self._launcher else at
        log = self.log(at) if rank is not None else self.folder / "launcher.log"
        code, number = (None, -codes[at]) if codes[at] < 0 else (codes[at], None)
        return Failure(rank, code, number, last_lines(log), log)

    def _tell(self) -> None:
        if self._told_ns is None:
            self._told_ns = HOST.now_ns()
            self._failed_first = any(process.returncode for process in self._processes) or (
                self._watch and has_failed(self.folder, self._ranks)
            )
        for process in self._processes:
            if process.poll() is None:
                process.terminate()

    def _finish(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
        end_marked(self.job)
        for process in self._processes:
            process.wait()
        self._over = True

    def sleep(self, seconds: float) -> None:
        """Sleep until a supervisor ends or the time is over."""
        # Popen.wait would wake twenty times a second, on the ranks' cores.
        poll = select.poll()
        with ExitStack() as stack:
            for process in self._processes:
                if process.returncode is None:
                    descriptor = os.pidfd_open(process.pid)
                    stack.callback(os.close, descriptor)
                    poll.register(descriptor, select.POLLIN)
            poll.poll(seconds * 1e3)


class JobAround(RunningJob):
    """A supervised job with additions: waits for and ends the same supervisors."""

    def __init__(self, job: SupervisedJob, ranks: int) -> None:
        self._job, self._ranks = job, ranks
        self.folder, self.job = job.folder, job.job

    def sleep(self, seconds: float) -> None:
        self._job.sleep(seconds)

    def kill(self) -> None:
        self._job.kill()


@contextmanager
def killed_on_error(running: RunningJob) -> Iterator[None]:
    """Kill the job if an error is raised in the block."""
    try:
        yield
    except BaseException:
        running.kill()
        raise


def start_supervisor(words: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a supervisor in its own session, so that an interrupt from the terminal only reaches this process."""
    return subprocess.Popen(
        list(words),
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def supervisor_words(folder: Path, command: Sequence[str], *, launcher: bool = False, child: bool = True) -> list[str]:
    """The command that runs ``command`` under a supervisor; ``child``: this very process will start it."""
    # -P: files in the working directory, such as a json.py, are for the rank and not for the supervisor.
    words = [sys.executable, "-P", "-m", "levelbench.distributed.launching.supervisor", str(folder)]
    words += ["--launcher"] * launcher + (["--parent", str(os.getpid())] if child else [])
    return [*words, "--", *command]


def environment_of_ranks(
    environment: Mapping[str, str], engine: str, ranks_here: int, cores: int | None = None
) -> dict[str, str]:
    """The base environment of a new job's ranks: a mark, the engine's name and a number of threads.

    Each of ``OMP_NUM_THREADS``, ``OPENBLAS_NUM_THREADS`` and ``MKL_NUM_THREADS`` that is not set becomes the cores
    available to this process divided by the ranks on this machine, at least 1.
    """
    made = {**without_place(os.environ), **environment}
    threads = max(1, (cores or len(os.sched_getaffinity(0))) // max(1, ranks_here))
    chosen = made.get("OMP_NUM_THREADS", str(threads))
    for name in THREADS:
        made.setdefault(name, chosen)
    made[JOB] = os.urandom(8).hex()
    made["LEVELBENCH_ENGINE"] = engine
    return made


def free_port() -> int:
    """A free port of the loopback. Another process may take it before rank 0, which then fails with a clear error."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def tidy_folder(folder: Path, command: Sequence[str], ranks: int) -> Path:
    """Create a job's folder, or clear it of an earlier job's logs and reports; returns its absolute path.

    ``UsageError`` for no command or fewer than one rank.
    """
    if not command or ranks < 1:
        raise UsageError(
            f"{ranks} ranks of the command {' '.join(command)!r}",
            "a job has a command and at least one rank",
            "give a command, and a number of ranks from 1",
        )
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in ("rank-*.log", "rank-*.json", "launcher.log", "launcher.json"):
        for path in folder.glob(pattern):
            path.unlink()
    return folder


@final
class Process(Engine):
    """One process per rank on this machine; they meet at a free port of the loopback."""

    name: ClassVar[str] = "process"
    communicators: ClassVar[tuple[str, ...]] = ("gloo", "nccl")

    def lacks(self, options: Mapping[str, object] | None = None) -> str | None:
        return None

    def start(
        self, command: Sequence[str], ranks: int, folder: Path, environment: Mapping[str, str], **options: Any
    ) -> RunningJob:
        self.check(ranks, options)
        folder = tidy_folder(folder, command, ranks)
        base = environment_of_ranks(environment, self.name, ranks)
        running = SupervisedJob(folder, ranks, base[JOB])
        port, words = free_port(), supervisor_words(folder, command)
        with killed_on_error(running):
            for rank in range(ranks):
                place = RankPlace(rank, ranks, rank, "127.0.0.1", port, self.name)
                running.add(start_supervisor(words, {**base, **variables_of(place)}))
        return running


_PORT = 29_500
"""The namespace is private, so any port is free."""


@final
class OnHosts(Engine):
    """One process per rank on hosts emulated by network namespaces: rank r on host r modulo their number.

    Options: ``hosts``, existing ones, or how many to create for this job (default: the number of ranks); for new ones
    ``rate``, ``delay`` and ``loss`` of their links (``100mbit``, ``5ms``, ``1%``).
    """

    name: ClassVar[str] = "hosts"
    communicators: ClassVar[tuple[str, ...]] = ("gloo",)
    options: ClassVar[tuple[str, ...]] = ("hosts", "rate", "delay", "loss")

    def lacks(self, options: Mapping[str, object] | None = None) -> str | None:
        return lacks()

    def check(self, ranks: int, options: Mapping[str, object]) -> None:
        super().check(ranks, options)
        self._hosts(ranks, options)

    def _hosts(self, ranks: int, options: Mapping[str, object]) -> Hosts:
        """The given hosts, or new ones that are not yet set up."""
        hosts = options.get("hosts")
        if isinstance(hosts, Hosts):
            return hosts
        link = Link(*(str(options.get(name, "")) for name in ("rate", "delay", "loss")))
        return Hosts(self.number(options, "hosts", ranks), link)

    def start(
        self, command: Sequence[str], ranks: int, folder: Path, environment: Mapping[str, str], **options: Any
    ) -> RunningJob:
        """Start the ranks inside the namespaces. All ranks share this machine's cores."""
        self.check(ranks, options)
        folder = tidy_folder(folder, command, ranks)
        base = environment_of_ranks(environment, self.name, ranks)
        # A library would resolve the host's name to the machine's address, which is not in the namespace.
        base |= {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0", "TP_SOCKET_IFNAME": "eth0"}
        with ExitStack() as stack:
            hosts = self._hosts(ranks, options)
            if hosts is not options.get("hosts"):
                stack.enter_context(hosts)
            job = SupervisedJob(folder, ranks, base[JOB])
            running = _OnHosts(job, hosts, ranks)
            with killed_on_error(running):
                for rank in range(ranks):
                    place = RankPlace(rank, ranks, rank // hosts.count, hosts.addresses[0], _PORT, self.name)
                    words = hosts.command(rank % hosts.count, supervisor_words(folder, command))
                    job.add(start_supervisor(words, {**base, **variables_of(place)}))
            running.own = stack.pop_all()
        return running


@final
class _OnHosts(JobAround):
    """The ranks, and the hosts that were unreachable when the first of them failed."""

    def __init__(self, job: SupervisedJob, hosts: Hosts, ranks: int) -> None:
        super().__init__(job, ranks)
        self._hosts = hosts
        self.own = ExitStack()
        """Resources created for this job."""
        self._lost: list[int] | None = None

    def poll(self) -> bool:
        over = self._job.poll()
        if self._lost is None and self._job.failure() is not None:
            self._lost = self._hosts.unreachable()
        if over:
            self.own.close()
        return over

    def kill(self) -> None:
        self._job.kill()
        self.poll()

    def failure(self) -> Failure | None:
        failure = self._job.failure()
        if failure is None or not self._lost:
            return failure
        many = len(self._lost) > 1
        rank = self._lost[0]
        if failure.code == PEER_LOST and not many and rank < self._ranks:
            # The others ended because they could not reach it, and it ended because it could reach none of them.
            failure = Failure(rank, None, None, last_lines(self.log(rank)), self.log(rank))
        named = ", ".join(self._named(host) for host in self._lost)
        return replace(failure, note=f"host{'s' * many} {named} cannot be reached")

    def _named(self, host: int) -> str:
        ranks = [str(rank) for rank in range(host, self._ranks, self._hosts.count)]
        return f"{host} ({self._hosts.addresses[host]}, rank{'s' * (len(ranks) > 1)} {', '.join(ranks)})"
