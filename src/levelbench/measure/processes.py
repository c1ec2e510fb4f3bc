"""Samples a workload across fresh processes: one median a process, and the interval over these.

Memory layout, hash seeds and the state of the machine are drawn anew with each process, so values inside
one agree with each other and not with the next one; the replicate is the process (Kalibera & Jones, ISMM 2013). Each is
short: a slice of a tenth of a second, or two calls after the first. Several start together, then wait and are measured
alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import UsageError
from levelbench.measure.clocks import HOST, Clock
from levelbench.measure.launching import Answer, CommandReplicate, Launcher, WorkerReplicate
from levelbench.measure.sampling import MeasuredValues
from levelbench.measure.stopping import INTERVAL_NEEDS, Budget, Precision, SampleSoFar, StoppingRule, bounded
from levelbench.measure.warmup import find_warmup

PROCESS_RULE: StoppingRule = Precision(0.02) | Budget(10.0)
SLICE_S: Final = 0.1
LEAST_VALUES: Final = 3


@dataclass(frozen=True, eq=False)
class ProcessSample(MeasuredValues):
    """One value a process: the median of what it measured after its warm-up, in seconds a call.

    ``values`` has shape (processes,), ``raw`` the values of each process in order, warm-up included, ``inner`` the
    calls in one raw value of each process, ``wall_s`` the whole time with start-up. As a sequence it is its values.
    """

    raw: tuple[NDArray[np.float64], ...]
    inner: tuple[int, ...]
    stopped_by: str
    wall_s: float
    name: str = ""
    unit: str = "s"


def sample_processes(
    workload: str | Sequence[str],
    until: StoppingRule = PROCESS_RULE,
    *,
    least: int = INTERVAL_NEEDS,
    most: int = 1000,
    slice_s: float = SLICE_S,
    together: int | None = None,
    timeout_s: float = 600.0,
    python: str = sys.executable,
    name: str = "",
    clock: Clock = HOST,
) -> ProcessSample:
    """Run ``workload`` in ``least`` fresh processes, then in more until ``until`` is met or there are ``most``.

    A string ``module:function`` or ``path.py:function`` names a setup that returns the callable to measure: each
    process measures it for ``slice_s`` seconds, and three calls at the least, the first of which is warm-up. A list of
    words is a command: its value is its wall time from start to exit. ``together`` workers start at once (default: as
    many as there are processors); none is measured while another starts or is measured. Commands run one at a time.

    Raises ``UsageError`` for an unusable argument, ``DefinitionError`` for a workload that cannot be set up or fails,
    ``MissingError`` for a command that does not exist.
    """
    _require(least >= 1, f"least={least}", "a sample has at least one process", "give 1 or more")
    _require(most >= least, f"most={most}", f"it is below least={least}", "give as many or more")
    _require(slice_s > 0, f"slice_s={slice_s}", "a process must measure for some time", "give a positive time")
    _require(timeout_s > 0, f"timeout_s={timeout_s}", "a process needs some time", "give a positive time")
    _require(together is None or together >= 1, f"together={together}", "none would start", "give 1 or more")
    batch = together or os.cpu_count() or 1
    if isinstance(workload, str):
        make: Launcher = WorkerReplicate(workload, slice_s, LEAST_VALUES, timeout_s, python)
    else:
        make, batch = CommandReplicate(tuple(workload), timeout_s, clock), 1
    return sample_replicates(make, bounded(until), least, most, batch, name, clock)


def sample_replicates(
    make: Launcher,
    until: StoppingRule,
    least: int = INTERVAL_NEEDS,
    most: int = 1000,
    batch: int = 1,
    name: str = "",
    clock: Clock = HOST,
) -> ProcessSample:
    """As ``sample_processes``, of whatever ``make`` starts; ``until`` has to be sure to end."""
    started_ns = clock.now_ns()
    answers: list[Answer] = []
    wanted = least
    while True:
        answers += _round(make, min(batch, wanted))
        wanted -= min(batch, wanted)
        if wanted:
            continue
        values = np.array([process_median(answer) for answer in answers])
        elapsed_s = (clock.now_ns() - started_ns) * 1e-9
        progress = SampleSoFar(values, elapsed_s)
        check = until.check(progress)
        if check.met or len(answers) >= most:
            text = check.text if check.met else f"{most} processes, the most allowed; unmet: {check.text}"
            break
        # Half as many more, not one more: each look is another chance to stop on a lucky agreement.
        wanted = min(max(until.more(progress), len(answers) // 3), len(answers) // 2 + 1, most - len(answers))
    values.flags.writeable = False
    raw = tuple(np.asarray(answer.values_ns) * 1e-9 for answer in answers)
    return ProcessSample(values, raw, tuple(answer.inner for answer in answers), text, elapsed_s, name)


def _round(make: Launcher, count: int) -> list[Answer]:
    """Start ``count`` replicates, wait until all are ready, then measure one after the other."""
    with ExitStack() as running:
        started = [running.enter_context(make.start()) for _ in range(count)]
        for each in started:
            each.wait_ready()
        return [each.measure() for each in started]


def process_median(answer: Answer) -> float:
    """Seconds a call: the median of a process's values after warm-up.

    The first value goes with the warm-up wherever there are others: with three values nothing can be found, and the
    first call of a process is the one that is known to differ.
    """
    values = np.asarray(answer.values_ns, dtype=np.float64) * 1e-9
    cut = max(find_warmup(values).cut, 1 if len(values) > 1 and not answer.first_ns else 0)
    return float(np.median(values[cut:]))


def _require(holds: bool, asked: str, found: str, do: str) -> None:
    if not holds:
        raise UsageError(f"sample_processes({asked})", found, do)
