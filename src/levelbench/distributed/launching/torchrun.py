"""torchrun as an engine: PyTorch's elastic launcher, on one machine or on each of several.

Its launcher waits for lost nodes, for ten minutes or for ever. A node that lives comes back to the rendezvous within
seconds, so a launcher that has had no rank for longer than that is ended, and the failure says so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, final

from levelbench.distributed.launching.base import PEER_LOST, Engine, Failure, RunningJob, last_lines, read_reports
from levelbench.distributed.launching.environment import JOB, rank_supervisors
from levelbench.distributed.launching.local import (
    JobAround,
    SupervisedJob,
    environment_of_ranks,
    start_supervisor,
    supervisor_words,
    tidy_folder,
)
from levelbench.errors import UsageError
from levelbench.measure.clocks import HOST

_MEET_S, _END_S = 20.0, 5.0
"""How long a launcher may have no rank after one failed: with restarts, until live nodes have met again; without."""
_SETTLED_S = 10.0
"""Ranks that still run so long after an end on this node were started again; supervisors outlive them by up to 2 s."""


@final
class OnNode(JobAround):
    """The ranks of this node. ``meet`` is where the nodes' launchers do; ``restarts`` says whether they may again."""

    def __init__(self, job: SupervisedJob, ranks: int, meet: str, restarts: bool) -> None:
        super().__init__(job, ranks)
        self._meet, self._wait_s = meet, _MEET_S if restarts else _END_S
        self._seen: tuple[int, int] | None = None
        """When the last rank of this node ended, and when that was first seen here."""
        self._empty_ns: int | None = None
        self._alone = False

    def poll(self) -> bool:
        """As :class:`SupervisedJob`, and look whether the launcher waits for nodes that do not come."""
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
        """Whether a rank failed here, and none has run since for too long."""
        now_ns = HOST.now_ns()
        reports = [each for each in read_reports(self.folder, self._ranks) if each.rank is not None]
        if not any(each.code != 0 for each in reports):
            return False
        last_ns = max(each.time_ns for each in reports)
        if self._seen is None or self._seen[0] != last_ns:
            self._seen, self._empty_ns = (last_ns, now_ns), None
        # To look through all processes takes milliseconds: not while ranks train again.
        if self._empty_ns is None and now_ns - self._seen[1] > _SETTLED_S * 1e9:
            return False
        if rank_supervisors(self.job):
            self._empty_ns = None
            return False
        self._empty_ns = self._empty_ns or now_ns
        return now_ns - self._empty_ns > self._wait_s * 1e9


RESTARTS = "TORCHELASTIC_RESTART_COUNT"
"""How often torchrun has started a rank again; in the rank's environment."""


@final
class Torchrun(Engine):
    """``python -m torch.distributed.run``.

    Options: ``nodes`` (1) with ``rendezvous`` (``host:port`` of one of them) and ``job`` (a name that no other job
    there has): the same command is started on each node, and ``ranks`` counts those on all. ``address`` is the node's
    own as the others reach it, where its name does not lead there. torchrun's own variables (``PET_NNODES``,
    ``PET_RDZV_ENDPOINT``, ...), as clusters set them, stand in for options that are not given. After a rank failed
    torchrun starts all again up to ``max_restarts`` times (0): what is run must know how to go on.
    """

    name: ClassVar[str] = "torchrun"
    communicators: ClassVar[tuple[str, ...]] = ("gloo", "nccl")
    options: ClassVar[tuple[str, ...]] = ("nodes", "rendezvous", "job", "address", "max_restarts")

    def lacks(self) -> str | None:
        return None if find_spec("torch") is not None else "PyTorch is not installed: pip install 'levelbench[torch]'"

    def check(self, ranks: int, options: Mapping[str, object]) -> None:
        super().check(ranks, options)
        self._command(ranks, options, os.environ)

    def _command(self, ranks: int, options: Mapping[str, object], seen: Mapping[str, str]) -> tuple[int, list[str]]:
        """The number of nodes, and torchrun's own words."""
        least, _, most = seen.get("PET_NNODES", "1").partition(":")
        if most not in ("", least) and "nodes" not in options:
            raise UsageError(
                f"{ranks} ranks on {least} to {most} nodes (PET_NNODES)",
                "with fewer nodes it would be a run of fewer ranks",
                "set PET_NNODES to one number, or give nodes=N",
            )
        nodes = self.number({"nodes": least, **options}, "nodes", 1)
        here = _ranks_here(ranks, nodes)
        words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(here), "--no-python"]
        restarts = str(self.number(options, "max_restarts", 0, least=0))
        return nodes, [*words, "--max-restarts", restarts, *_meeting(nodes, options, seen)]

    def start(
        self, command: Sequence[str], ranks: int, folder: Path, environment: Mapping[str, str], **options: Any
    ) -> RunningJob:
        """Start torchrun under a supervisor; it starts a supervisor for each rank."""
        self.check(ranks, options)
        self.require()
        folder = tidy_folder(folder, command, ranks)
        seen = {**os.environ, **environment}
        nodes, words = self._command(ranks, options, seen)
        base = environment_of_ranks(environment, self.name, ranks // nodes)
        job = SupervisedJob(folder, ranks, base[JOB], launcher=True, whole=nodes == 1)
        inner = supervisor_words(folder, command, child=False)
        job.add(start_supervisor(supervisor_words(folder, [*words, *inner], launcher=True), base))
        if nodes == 1:
            return job
        meet = str(options.get("rendezvous") or seen.get("PET_RDZV_ENDPOINT"))
        return OnNode(job, ranks, meet, restarts=bool(self.number(options, "max_restarts", 0, least=0)))


def nodes_of(options: Mapping[str, object], environment: Mapping[str, str]) -> int:
    """On how many nodes the same command is started: as the option says, else torchrun's own variable."""
    given = options.get("nodes", environment.get("PET_NNODES", "1").split(":")[-1])
    return int(str(given)) if str(given).isdecimal() else 1


def _ranks_here(ranks: int, nodes: int) -> int:
    if nodes < 1 or ranks % nodes:
        raise UsageError(
            f"{ranks} ranks on {nodes} nodes",
            "torchrun starts the same number of ranks on each node",
            "choose a number of ranks that the number of nodes divides",
        )
    return ranks // nodes


def _meeting(nodes: int, options: Mapping[str, object], environment: Mapping[str, str]) -> list[str]:
    """Where the nodes' launchers meet, in torchrun's words."""
    rendezvous, job = options.get("rendezvous"), options.get("job")
    if rendezvous is None and "PET_RDZV_ENDPOINT" in environment:
        # What PET_NNODES says may be another number.
        return ["--nnodes", str(nodes)]
    if nodes == 1 and rendezvous is None:
        # The loopback by name: a machine's own name need not lead anywhere.
        return ["--standalone", "--local-addr", "127.0.0.1"]
    if rendezvous is None:
        raise UsageError(
            f"{nodes} nodes with torchrun",
            "nothing says where their launchers meet",
            "give rendezvous=HOST:PORT of one of them, and start the same command on each",
        )
    words = ["--nnodes", str(nodes), "--rdzv-backend", "c10d", "--rdzv-endpoint", str(rendezvous)]
    words += ["--rdzv-id", str(job or "levelbench")]
    address = options.get("address")
    if address is None:
        return words
    # torchrun looks whether its machine's name leads to the rendezvous to know whether it is the one to listen there.
    listens = str(rendezvous).rpartition(":")[0] == str(address)
    return [*words, "--local-addr", str(address), "--rdzv-conf", f"is_host={str(listens).lower()}"]
