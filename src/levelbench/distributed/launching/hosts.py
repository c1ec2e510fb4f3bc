"""Network namespaces on this machine as an engine: each stands for a host of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, final

from levelbench.distributed.launching.base import PEER_LOST, Engine, Failure, RunningJob, last_lines
from levelbench.distributed.launching.environment import JOB, RankPlace, variables_of
from levelbench.distributed.launching.local import (
    JobAround,
    SupervisedJob,
    environment_of_ranks,
    start_supervisor,
    supervisor_words,
    tidy_folder,
)
from levelbench.distributed.launching.namespaces import Hosts, Link, lacks

_PORT = 29_500
"""Nobody else is in the namespace, so any port is free."""


@final
class OnHosts(Engine):
    """One process a rank on hosts that are network namespaces here: rank r on host r modulo their number.

    Options: ``hosts``, which are there already, or how many to make for this job (as many as ranks); for new ones
    ``rate``, ``delay`` and ``loss`` of their links (``100mbit``, ``5ms``, ``1%``).
    """

    name: ClassVar[str] = "hosts"
    communicators: ClassVar[tuple[str, ...]] = ("gloo",)
    options: ClassVar[tuple[str, ...]] = ("hosts", "rate", "delay", "loss")

    def lacks(self) -> str | None:
        return lacks()

    def check(self, ranks: int, options: Mapping[str, object]) -> None:
        super().check(ranks, options)
        self._hosts(ranks, options)

    def _hosts(self, ranks: int, options: Mapping[str, object]) -> Hosts:
        """Those that were given, or new ones that are not there yet."""
        hosts = options.get("hosts")
        if isinstance(hosts, Hosts):
            return hosts
        link = Link(*(str(options.get(name, "")) for name in ("rate", "delay", "loss")))
        return Hosts(self.number(options, "hosts", ranks), link)

    def start(
        self, command: Sequence[str], ranks: int, folder: Path, environment: Mapping[str, str], **options: Any
    ) -> RunningJob:
        """Start them inside the namespaces. The cores are this machine's, and all ranks share them."""
        self.check(ranks, options)
        folder = tidy_folder(folder, command, ranks)
        base = environment_of_ranks(environment, self.name, ranks)
        # By a host's own name a library would find the machine's address, which is not in the namespace.
        base |= {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0", "TP_SOCKET_IFNAME": "eth0"}
        with ExitStack() as stack:
            hosts = self._hosts(ranks, options)
            if hosts is not options.get("hosts"):
                stack.enter_context(hosts)
            job = SupervisedJob(folder, ranks, base[JOB])
            running = _OnHosts(job, hosts, ranks)
            try:
                for rank in range(ranks):
                    place = RankPlace(rank, ranks, rank // hosts.count, hosts.addresses[0], _PORT, self.name)
                    words = hosts.command(rank % hosts.count, supervisor_words(folder, command))
                    job.add(start_supervisor(words, {**base, **variables_of(place)}))
            except BaseException:
                running.kill()
                raise
            running.own = stack.pop_all()
        return running


@final
class _OnHosts(JobAround):
    """The ranks, and which of their hosts were gone when the first of them failed."""

    def __init__(self, job: SupervisedJob, hosts: Hosts, ranks: int) -> None:
        super().__init__(job, ranks)
        self._hosts = hosts
        self.own = ExitStack()
        """What was made for this job alone."""
        self._lost: list[int] | None = None

    def poll(self) -> bool:
        over = self._job.poll()
        if self._lost is None and self._job.failure() is not None:
            self._lost = self._hosts.unreachable()
        if over:
            self.own.close()
        return over

    def sleep(self, seconds: float) -> None:
        self._job.sleep(seconds)

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
            # The others ended as they could not reach it, and it as it could reach nobody.
            failure = Failure(rank, None, None, last_lines(self.log(rank)), self.log(rank))
        named = ", ".join(self._named(host) for host in self._lost)
        return replace(failure, note=f"host{'s' * many} {named} cannot be reached")

    def _named(self, host: int) -> str:
        ranks = [str(rank) for rank in range(host, self._ranks, self._hosts.count)]
        return f"{host} ({self._hosts.addresses[host]}, rank{'s' * (len(ranks) > 1)} {', '.join(ranks)})"
