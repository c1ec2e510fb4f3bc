"""A job whose ranks are on several nodes, as one of them sees it: what fails here may have its cause elsewhere.

The one idea: torchrun's launcher waits for lost nodes, for ten minutes or for ever. A node that lives comes back to the
rendezvous within seconds, so a launcher that has had no rank for longer than that is ended, and says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import final

from levelbench.distributed.launching.base import PEER_LOST, Failure, Running
from levelbench.distributed.launching.kept import Kept
from levelbench.distributed.launching.marked import rank_keepers
from levelbench.distributed.launching.reports import last_lines, read_reports
from levelbench.measure.clocks import HOST

__all__ = ["OnNode"]

_MEET_S, _END_S = 20.0, 5.0
"""How long a launcher may have no rank after one failed: nodes that live meet again by then; or where none shall."""
_LOOK_S = 0.5
_SETTLED_S = 10.0
"""Ranks that still run so long after an end on this node were started again; a keeper may outlive its rank by 2 s."""


@final
class OnNode(Running):
    """The ranks of this node. ``meet`` is where the nodes' launchers do; ``restarts`` says whether they may again."""

    def __init__(self, kept: Kept, ranks: int, meet: str, restarts: bool) -> None:
        self._kept, self._ranks, self._meet = kept, ranks, meet
        self._patience_s = _MEET_S if restarts else _END_S
        self.folder, self.job = kept.folder, kept.job
        self._seen: tuple[int, int] | None = None
        """When the last rank of this node ended, and when that was first seen here."""
        self._empty_ns: int | None = None
        self._alone = False

    def poll(self) -> bool:
        """As :class:`Kept`, and look whether the launcher waits for nodes that do not come."""
        over = self._kept.poll()
        if not over and self._waits_in_vain():
            self._alone = True
            self._kept.kill()
            over = self._kept.poll()
        return over

    def wait(self, timeout_s: float) -> bool:
        """As :class:`Kept`, looking now and then."""
        until_ns = HOST.now_ns() + int(timeout_s * 1e9)
        while not self.poll():
            left_s = (until_ns - HOST.now_ns()) * 1e-9
            if left_s <= 0:
                return False
            self._kept.wait(min(left_s, _LOOK_S))
        return True

    def kill(self) -> None:
        """As :class:`Kept`."""
        self._kept.kill()

    def failure(self) -> Failure | None:
        """What failed first on this node, and where else to look."""
        found = self._kept.failure()
        if self._alone:
            log = self.folder / "launcher.log"
            found = found or Failure(None, None, None, last_lines(log), log)
            return replace(found, note=f"and its launcher waited {self._patience_s:g} s in vain for other nodes")
        if found is None:
            return None
        if found.rank is None:
            return replace(found, note=f"the nodes meet at {self._meet}")
        return replace(found, note="what it lost is on another node") if found.code == PEER_LOST else found

    def _waits_in_vain(self) -> bool:
        """Whether a rank failed here, and since then none has run for too long."""
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
        if rank_keepers(self.job):
            self._empty_ns = None
            return False
        self._empty_ns = self._empty_ns or now_ns
        return now_ns - self._empty_ns > self._patience_s * 1e9
