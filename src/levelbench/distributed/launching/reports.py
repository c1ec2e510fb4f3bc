"""How each rank ended, as its keeper wrote it down, and which of them failed first.

The one idea: when one rank fails the others die of it, each in its own way. The first to fail is the one meant; a rank
that says that it lost another (``PEER_LOST``) is never meant while another can be.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from levelbench.distributed.launching.base import PEER_LOST, Failure
from levelbench.measure.clocks import HOST

__all__ = ["LINGER_S", "Report", "first_failure", "has_failed", "last_lines", "read_reports"]

LINGER_S = 1.5
"""How long the end of a rank that lost another is held back, so that the other's is known before anything is ended."""
_LINES = 20
_TAIL_BYTES = 16_384


def _machine() -> str:
    return os.uname().nodename


@dataclass(frozen=True)
class Report:
    """How a rank ended: ``code``, or the ``signal`` that killed it.

    ``ended`` where its keeper was told to end it; ``stopped`` where it was found stopped then (SIGSTOP, a debugger).
    ``time_ns`` is on the clock of ``machine``.
    """

    rank: int | None
    code: int | None
    signal: int | None
    ended: bool
    stopped: bool
    time_ns: int
    machine: str = field(default_factory=_machine)

    @property
    def failed(self) -> bool:
        """Whether it failed by itself."""
        return not self.ended and self.code != 0

    def write(self, folder: Path) -> None:
        """Keep it in the folder, whole or not at all."""
        path = folder / f"{_stem(self.rank)}.json"
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self)))
        part.replace(path)


def _stem(rank: int | None) -> str:
    return "launcher" if rank is None else f"rank-{rank}"


def read_reports(folder: Path, ranks: int) -> list[Report]:
    """The reports that are there, the launcher's included, in the order in which their processes ended."""
    paths = [folder / f"{_stem(rank)}.json" for rank in (None, *range(ranks))]
    found = [(path.stat().st_mtime_ns, Report(**json.loads(path.read_text()))) for path in paths if path.exists()]
    # Machines have no common clock but the folder's, which is coarse: it decides only where machines differ.
    one = len({report.machine for _, report in found}) == 1
    return [report for _, report in sorted(found, key=lambda pair: pair[1].time_ns if one else pair[0])]


def has_failed(folder: Path, ranks: int) -> bool:
    """Whether a rank failed and the others can be ended: at once, but where it lost another that has a while to show.

    For ranks whose launcher does not end them, or not before they have called it.
    """
    for report in read_reports(folder, ranks):
        if report.rank is not None and report.failed:
            shown = report.machine != _machine() or HOST.now_ns() - report.time_ns > LINGER_S * 1e9
            if report.code != PEER_LOST or shown:
                return True
    return False


def first_failure(folder: Path, ranks: int, over: bool = True) -> Failure | None:
    """What failed first; ``over`` says that the job has ended, so that a rank without a report never will have one.

    In this order: a rank that failed by itself; where others only lost a peer, the rank that was found stopped, or the
    only one that had not ended before it was ended; the first that lost a peer; the launcher.
    """
    reports = read_reports(folder, ranks)
    of_ranks = [report for report in reports if report.rank is not None]
    failed = [report for report in of_ranks if report.failed]
    own = [report for report in failed if report.code != PEER_LOST]
    if own:
        return _failure(own[0], folder)
    if failed:
        silent = _silent(of_ranks, ranks, over)
        return _failure(silent, folder) if silent is not None else _failure(failed[0], folder)
    launcher = [report for report in reports if report.rank is None and report.failed]
    return _failure(launcher[0], folder) if launcher else None


def _silent(reports: Sequence[Report], ranks: int, over: bool) -> Report | None:
    """The rank that the others waited for in vain."""
    stopped = [report for report in reports if report.stopped]
    if stopped:
        return stopped[0]
    ended = [report for report in reports if report.ended]
    there = {report.rank for report in reports}
    if over:
        ended += [Report(rank, None, None, True, False, 0) for rank in range(ranks) if rank not in there]
    return ended[0] if len(ended) == 1 else None


def _failure(report: Report, folder: Path) -> Failure:
    log = folder / f"{_stem(report.rank)}.log"
    lines = last_lines(log)
    if report.ended:
        note = "stopped" if report.stopped else "while the others waited for it"
        return Failure(report.rank, None, None, lines, log, note)
    return Failure(report.rank, report.code, report.signal, lines, log)


def last_lines(log: Path) -> tuple[str, ...]:
    """The last lines of a log; empty where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ()
    return tuple(text.splitlines()[-_LINES:])
