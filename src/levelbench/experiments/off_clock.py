"""Work before a run's clock starts or after it stops: the checks that all kinds of runs share."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from levelbench.errors import DefinitionError
from levelbench.experiments.importing import Importing, files_changed, processes_started
from levelbench.experiments.own_code import is_data, is_own, is_table
from levelbench.measure.clocks import HOST
from levelbench.measure.meters.resources import own_cpu_s, waited_ns
from levelbench.records.replicates import BEFORE_THE_RUNS

__all__ = [
    "Spent",
    "after_training",
    "called_before",
    "import_doubts",
    "read_besides",
    "refuse_data",
    "some",
    "spent_doubts",
    "variables_kept",
]

_T = TypeVar("_T")

_SHOWN = 4

_LEAST_CPU_S = 0.005

_MOST_REST_S = 0.1
"""What the harness itself does between the import of a task and the clock takes a quarter of that, or all if busy."""

_TIMES_USUAL, _TIMES_WATCHING = 10, 5
"""Ordinary files take 1 to 3 times what a plain one takes, and the harness 2 times what the watching takes."""

_SHARE, _TASK_SHARE, _IMPORTS_SHARE = 0.01, 0.05, 0.02

_BEFORE_S, _BEFORE_SHARE = 10.0, 0.1
"""Processor time before the clock that no import explains: so many seconds, and this share of the run."""

_PREDICTING_S, _PREDICTING_SHARE = 0.1, 0.2
"""Predictions may take so much processor time, or this share of the training, before they are a doubt."""

_SPARED_S, _SPARED_BY_LOGS_S, _SPARED_SHARE = 0.01, 0.1, 0.5
"""A second call that is quicker by more than so much, and by this share of the first, was spared work; the second is
for one that leaves the same again, as a log."""

_WAITING_S, _TIMES_BUSY = 1.0, 10
"""And so many seconds without any, besides so many times what they take of it: so busy may a machine be."""


def refuse_data(reference: str, seen: Importing, when: str = "while it is imported") -> None:
    """``DefinitionError`` where the file has opened data or started processes before the clock runs."""
    # Where a task's file loads another one, all that is open so far is still in it.
    if names := ", ".join(dict.fromkeys(path.name for path in seen.opened if is_data(path))):
        raise DefinitionError(
            f"task file {reference}",
            f"it opens data {when}, before any clock runs: {names}",
            "read data in load() of its DatasetSource, which is on the clock",
        )
    if seen.started:
        raise DefinitionError(
            f"task file {reference}",
            f"it starts a process {when}, before any clock runs ({seen.started[0]})",
            "do this work in load() of its DatasetSource or in its recipe, which are on the clock",
        )
    if seen.hooks:
        raise DefinitionError(
            f"task file {reference}",
            f"it leaves {', '.join(seen.hooks)} behind {when}, which may work before any clock runs",
            "install it in load() of its DatasetSource or in its recipe, which are on the clock",
        )


def import_doubts(seen: Importing, wall_s: float) -> list[str]:
    """Why a run of so many seconds is to be doubted for what its task's file did before, or had other processes do."""
    found = []
    least_s = max(_LEAST_CPU_S, _TIMES_USUAL * seen.usual_s)
    if seen.cpu_s > max(least_s + _IMPORTS_SHARE * seen.imports_cpu_s, _TASK_SHARE * wall_s):
        found.append(
            f"its task file spent {seen.cpu_s:.2g} s of processor time before its clock started: do this "
            "work in load(), or in the recipe"
        )
    if seen.rest_s > max(_MOST_REST_S, _TIMES_WATCHING * seen.watching_s, _SHARE * wall_s):
        found.append(
            f"{seen.rest_s:.2g} s of processor time went by between the import of its task file and its clock: look "
            "for what the file has started"
        )
    if seen.threads:
        threads = f"{seen.threads} thread{'s' * (seen.threads > 1)}"
        found.append(f"its task file started {threads} before its clock: start none there")
    if seen.ran:
        found.append(
            f"its recipe, network or optimizer started processes ({', '.join(dict.fromkeys(seen.ran))}): settings, "
            "weights or caches that such a process reads are not seen, so read them in Python"
        )
    return found


def some(names: Sequence[str]) -> str:
    """The first of the names, and how many more there are."""
    return ", ".join(names[:_SHOWN]) + f" and {len(names) - _SHOWN} more" * (len(names) > _SHOWN)


@contextmanager
def variables_kept() -> Iterator[None]:
    """Put the environment's variables back at the end."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def called_before(what: str, call: Callable[[], _T]) -> tuple[_T, list[str]]:
    """Call a user's ``what`` before the first run; and a doubt if that left something which spares the runs work.

    What that may be are files and folders that it changed, or processes and threads that it started; variables of the
    environment are put back. It spares work if a second call, made only then, is much quicker; by more where that
    changes the same again, as a log.
    """
    left, threads = list[str](), threading.active_count()

    def took_s() -> tuple[_T, float]:
        # Without what a busy machine makes it wait for a core.
        began_ns, waited_before_ns = HOST.now_ns(), waited_ns()
        made = call()
        return made, (HOST.now_ns() - began_ns - waited_ns() + waited_before_ns) * 1e-9

    def watched(names: list[str]) -> tuple[_T, float]:
        with files_changed(lambda path: names.append(path.name)), processes_started(lambda name, _: names.append(name)):
            return took_s()

    with variables_kept():
        made, first_s = watched(left)
        left += ["a thread"] if threading.active_count() > threads else []
        again = list[str]()
        again_s = watched(again)[1] if left and first_s > _SPARED_S else first_s
    least_s = _SPARED_S if {*left} - {*again} else _SPARED_BY_LOGS_S
    if first_s - again_s <= max(least_s, _SPARED_SHARE * first_s):
        return made, []
    return made, [
        f"{what} left {some(list(dict.fromkeys(left)))} when it was {BEFORE_THE_RUNS}, which took "
        f"{first_s:.2g} s, and {again_s:.2g} s a second time: work that this spares the runs is on no clock; let each "
        "run do all of it"
    ]


def read_besides(read: Iterable[Path], loaded: Container[Path]) -> list[str]:
    """The doubt on a run that ``read`` data of the user's own for its network, but for those that ``loaded`` has."""
    data = [path for path in dict.fromkeys(read) if path not in loaded and is_data(path) and not is_table(path)]
    own = [path for path in data if is_own(path.resolve())]
    if not own:
        return []
    names = some([path.name for path in own])
    return [
        f"data were read while its recipe and network were made ({names}): look for weights that were trained before, "
        "or for what an earlier run has computed; read training data in load()"
    ]


@dataclass(frozen=True)
class Spent:
    """Processor time and wall time of this process."""

    cpu_s: float = 0.0
    wall_s: float = 0.0

    @classmethod
    def now(cls) -> Spent:
        """What this process has spent so far."""
        return cls(own_cpu_s(), _running_s())

    def __sub__(self, other: Spent) -> Spent:
        return Spent(max(0.0, self.cpu_s - other.cpu_s), max(0.0, self.wall_s - other.wall_s))


def _running_s() -> float:
    """How long ago this process started, as the kernel knows it; 0 if unknown, or in an interactive session."""
    # In an interactive session most of that time is waiting for the next line.
    if hasattr(sys, "ps1"):
        return 0.0
    try:
        started = int(Path("/proc/self/stat").read_text(errors="replace").rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


def spent_doubts(before: Spent, elapsed_ns: int) -> list[str]:
    """The doubt on a tracked run of ``elapsed_ns`` whose process had spent ``before`` when the clock started."""
    if before.cpu_s <= max(_BEFORE_S, _BEFORE_SHARE * elapsed_ns * 1e-9):
        return []
    return [
        f"its process spent {before.cpu_s:.3g} s of processor time before its clock started: begin to track before "
        "anything is trained"
    ]


def after_training(trained_s: float, after: Spent) -> list[str]:
    """A doubt where a program that had trained for so long goes on for long after its clock has stopped.

    ``after`` is the processor time that it took from then on, and the time until its predictions were there. On a busy
    machine it waits for the processor, which is not work; but it may also wait for whoever does the work.
    """
    least_s = max(_PREDICTING_S, _PREDICTING_SHARE * trained_s)
    waited_s = max(_WAITING_S, _PREDICTING_SHARE * trained_s) + _TIMES_BUSY * after.cpu_s
    if after.wall_s <= waited_s and min(after.cpu_s, after.wall_s) <= least_s:
        return []
    return [
        f"it went on for {after.wall_s:.3g} s ({after.cpu_s:.3g} s of processor time) after it had said that it was "
        f"trained, which took {trained_s:.3g} s: what it did then is on no clock"
    ]
