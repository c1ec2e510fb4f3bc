"""Samples a workload across fresh processes: one median a process, and the interval over these.

Each process draws a new memory layout, new hash seeds and a new state of the machine, so values within one process
agree with each other but not with those of the next; the replicate is the process (Kalibera & Jones, ISMM 2013). Each
is short: a slice of a tenth of a second, or two calls after the first. Several start together, then wait and are
measured alone.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import numpy as np
from numpy.typing import NDArray

from levelbench.errors import DefinitionError, LevelbenchError, MissingError, UsageError
from levelbench.measure.clocks import HOST, Clock, time_ns
from levelbench.measure.sampling import MeasuredValues
from levelbench.measure.stopping import INTERVAL_NEEDS, Budget, Precision, SampleSoFar, StoppingRule, bounded
from levelbench.measure.warmup import find_warmup
from levelbench.measure.worker import READY

PROCESS_RULE: StoppingRule = Precision(0.02) | Budget(10.0)
SLICE_S: Final = 0.1
LEAST_VALUES: Final = 3


@dataclass(frozen=True, eq=False)
class ProcessSample(MeasuredValues):
    """One value a process: the median of what it measured after its warm-up, in seconds a call.

    ``values`` has shape (processes,); ``raw`` holds the values of each process in order, warm-up included, ``inner``
    the calls in one raw value of each process, ``wall_s`` the total time including start-up.
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
    process measures it for ``slice_s`` seconds and at least three calls, the first of which is warm-up. A list of words
    is a command, whose value is its wall time from start to exit. ``together`` workers start at once (default: one for
    each processor); none is measured while another starts or is measured. Commands run one at a time.

    Raises ``UsageError`` for an unusable argument, ``DefinitionError`` for a workload that cannot be set up or fails,
    ``MissingError`` for a command that does not exist.
    """
    _require(least >= 1, f"least={least}", "a sample has at least one process", "give 1 or more")
    _require(most >= least, f"most={most}", f"it is below least={least}", f"give {least} or more")
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
    """As ``sample_processes``, for the processes that ``make`` starts; ``until`` must be sure to end."""
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
        # Up to half as many again, not one more: each look is another chance to stop on a lucky agreement.
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

    The first value always counts as warm-up if there are others: from three values nothing can be detected, and the
    first call of a process is known to differ.
    """
    values = np.asarray(answer.values_ns, dtype=np.float64) * 1e-9
    cut = max(find_warmup(values).cut, 1 if len(values) > 1 and not answer.first_ns else 0)
    return float(np.median(values[cut:]))


def _require(holds: bool, asked: str, found: str, do: str) -> None:
    if not holds:
        raise UsageError(f"sample_processes({asked})", found, do)


_PACKAGES: Final = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True)
class Answer:
    """What a process measured, in nanoseconds a call: calibration attempts, then values of ``inner`` calls each."""

    values_ns: tuple[float, ...]
    first_ns: tuple[float, ...] = ()
    inner: int = 1


class Running(AbstractContextManager["Running"]):
    """A process that was started."""

    @abstractmethod
    def wait_ready(self) -> None:
        """Return when it can be measured."""

    @abstractmethod
    def measure(self) -> Answer:
        """Let it measure, alone, and return what it found."""


class Launcher(ABC):
    """Starts processes of one kind."""

    @abstractmethod
    def start(self) -> Running:
        """A fresh process."""


@dataclass(frozen=True)
class WorkerReplicate(Launcher):
    """Fresh Python processes that measure the workload ``module:function`` or ``path.py:function``."""

    workload: str
    slice_s: float
    least: int
    timeout_s: float
    python: str

    def __post_init__(self) -> None:
        place, colon, name = self.workload.rpartition(":")
        if not (colon and place and name.isidentifier()):
            raise UsageError(
                f"the workload {self.workload!r}",
                "it does not name the function that sets it up",
                "write module:function or path.py:function; a command is given as a list of words",
            )

    def start(self) -> Running:
        """A worker that begins its setup."""
        inherited = os.environ.get("PYTHONPATH")
        paths = os.pathsep.join([_PACKAGES, *([inherited] if inherited else [])])
        words = [self.python, "-m", "levelbench.measure.worker"]
        words += [self.workload, str(int(self.slice_s * 1e9)), str(self.least)]
        errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
        return _RunningWorker(process, errors, self.workload, self.timeout_s)


class _RunningWorker(Running):
    """A worker process, from its start to its answer."""

    def __init__(self, process: subprocess.Popen[str], errors: IO[str], workload: str, timeout_s: float) -> None:
        self._process = process
        self._errors = errors
        self._workload = workload
        self._timeout_s = timeout_s

    def wait_ready(self) -> None:
        """Return when the setup is done."""
        stdout = self._process.stdout
        if stdout is None or not select.select([stdout], [], [], self._timeout_s)[0]:
            raise self._failure("set up", f"it was not ready after {self._timeout_s:g} s")
        said = stdout.readline().strip()
        if said != READY:
            # A process that goes on but does not talk like a worker is killed; one that closed its output may finish.
            ended = not said
            if not ended:
                self._process.kill()
            self._wait()
            raise self._failure("set up", self._last_error() if ended else f"its process said {said[:80]!r} instead")

    def measure(self) -> Answer:
        """Request the measurement and read the answer."""
        try:
            text, _ = self._process.communicate("measure\n", timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            raise self._failure("measured", f"no answer came within {self._timeout_s:g} s") from None
        if self._process.returncode != 0 or not text:
            raise self._failure("measured", self._last_error())
        answer = json.loads(text)
        return Answer(tuple(answer["values_ns"]), tuple(answer["first_ns"]), answer["inner"])

    def _wait(self) -> None:
        try:
            self._process.wait(self._timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _last_error(self) -> str:
        return _last_line(self._errors) or f"its process ended with status {self._process.returncode} and said nothing"

    def _failure(self, what: str, found: str) -> LevelbenchError:
        return DefinitionError(
            f"the workload {self._workload!r}",
            f"it could not be {what}: {found}",
            "in a Python shell, call the function that sets it up and then what it returns",
        )

    def __exit__(self, *raised: object) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()


@dataclass(frozen=True)
class CommandReplicate(Launcher, Running):
    """Runs of a command; the value of each is its wall time from start to exit."""

    words: tuple[str, ...]
    timeout_s: float
    clock: Clock

    def __post_init__(self) -> None:
        if not self.words:
            raise UsageError("a command to measure", "it has no words", "give a program and its arguments")

    def start(self) -> Running:
        """Itself: a run begins when it is measured, so that its start-up counts."""
        return self

    def wait_ready(self) -> None:
        """Nothing to wait for."""

    def measure(self) -> Answer:
        """Run it; its output is discarded, and a failure is an error, never a time."""
        # A file, because reading a pipe while the command runs would take processor time from it.
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
            spent_ns = time_ns(lambda: self._run(errors), self.clock)
        return Answer((float(spent_ns),))

    def _run(self, errors: IO[str]) -> None:
        asked = f"the command {' '.join(self.words)!r}"
        try:
            done = subprocess.run(
                self.words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                timeout=self.timeout_s,
                check=False,
            )
        except FileNotFoundError:
            raise MissingError(
                asked, f"there is no program {self.words[0]!r}", "install it, or correct its name"
            ) from None
        except PermissionError:
            found = f"{self.words[0]!r} may not be executed"
            raise UsageError(asked, found, "give a program, or make the file executable") from None
        except OSError as error:
            found = f"{self.words[0]!r} cannot be run: {error.strerror}"
            raise UsageError(
                asked, found, "give a program for this system, or a script that names its interpreter"
            ) from None
        except subprocess.TimeoutExpired:
            found = f"it did not finish within {self.timeout_s:g} s"
            raise UsageError(asked, found, "give a larger timeout_s or a shorter command") from None
        if done.returncode != 0:
            found = f"it ended with status {done.returncode}: {_last_line(errors) or 'it said nothing'}"
            raise DefinitionError(asked, found, "run it by hand until it succeeds")

    def __exit__(self, *raised: object) -> None:
        """Nothing is left running."""


def _last_line(errors: IO[str]) -> str:
    """The last line that a process wrote there; empty if it wrote nothing."""
    errors.seek(0)
    return next((line for each in reversed(errors.readlines()) if (line := each.strip())), "")
