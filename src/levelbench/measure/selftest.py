"""What ``levelbench doctor`` finds out: how well this machine can measure time, before anything is measured on it.

It compares a workload with itself. In such an A/A test every FASTER or SLOWER is a false alarm, so their share is the
error rate of verdicts *on this machine*, and the spread of the same values says how many runs a difference of a given
size will need.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import numpy as np

from levelbench.measure.ceilings import Ceilings, GemmMaker, measure_ceilings
from levelbench.measure.clocks import HOST, Clock, time_ns
from levelbench.measure.environment import capture, capture_after, doubts
from levelbench.measure.statistics import Interval, coefficient_of_variation, runs_needed_t, wilson
from levelbench.measure.timeline import Phase, Timeline
from levelbench.measure.verdict import VerdictKind, verdict

_NS = 1e-9
_READINGS = 2_000
_BLOCKS = 5
_EFFECTS = (0.01, 0.03, 0.10)
_PER_ARM = 5
# A value this long averages over a scheduler's time slices, as a run does; a shorter one would measure the slices.
_VALUE_S = 0.020
_MOST_CALLS = 100_000
_LEAST_ROUNDS, _MOST_ROUNDS = 2, 200
# The rest of the time goes to the ceilings.
_NOISE_SHARE = 0.5
_LEVEL = 0.95
_FEW_CORES = 4
_MOST_RUNS = 50
"""A machine on which a large change needs more runs is not fit to measure on."""


@dataclass(frozen=True)
class ClockFacts:
    """The smallest step between two readings, the cost of a reading and the cost of a switch of phase, in ns."""

    resolution_ns: int
    reading_ns: float
    switch_ns: float


@dataclass(frozen=True)
class Noise:
    """An A/A self-test: ``rounds`` verdicts on one workload against itself, ``per_arm`` + ``per_arm`` values each.

    ``alarms`` of them were FASTER or SLOWER, a share with the interval ``alarm_share`` (nominally 1 - the level of a
    verdict or below). ``typical_s`` is the median time of a call, of which a value holds ``calls``; ``cv`` is the
    coefficient of variation of all values, ``runs_for`` the runs an arm that a relative difference needs at that spread
    (80 % power). A training run averages over more than such a value does, so it may need fewer.
    """

    rounds: int
    per_arm: int
    verdicts: Mapping[str, int]
    alarms: int
    alarm_share: Interval
    typical_s: float
    calls: int
    cv: float
    runs_for: Mapping[float, int]


@dataclass(frozen=True)
class Diagnosis:
    """Everything that was found; ``doubts`` are sentences with a remedy."""

    clock: ClockFacts
    noise: Noise
    ceilings: Ceilings
    doubts: tuple[str, ...]
    environment: Mapping[str, Any]

    @property
    def against(self) -> list[str]:
        """Why this machine is not fit to measure on now; empty if it is."""
        found, noise = list(self.doubts), self.noise
        if noise.alarm_share.low > 1 - _LEVEL:
            found.append(f"the self-test gave {_alarms(noise)}")
        largest = max(noise.runs_for)
        if noise.runs_for[largest] > _MOST_RUNS:
            needed = noise.runs_for[largest]
            found.append(f"its times vary by {noise.cv:.0%}, so a {largest:.0%} change would need {needed:,} runs")
        return found

    def sentences(self) -> list[str]:
        """The findings in words, one a line, without the ceilings (which are a table)."""
        clock, noise = self.clock, self.noise
        runs = noise.runs_for
        share = noise.alarm_share
        threads = self.environment.get("threads", {})
        most = max((each["threads"] for each in threads.get("loaded", {}).values()), default=1)
        # The threads of a parallel loop wait for the slowest one, which shares its core with everything else that runs.
        steadier = [
            f"threads: by default {most}, one a core; where anything else runs (levelbench itself does), "
            "OMP_NUM_THREADS=1 makes the times of small networks shorter and steadier, most of all PyTorch's"
        ]
        return [
            f"clock: steps of {clock.resolution_ns} ns, {clock.reading_ns:.0f} ns a reading, "
            f"{clock.switch_ns:.0f} ns a switch of phase",
            f"A/A self-test: {_alarms(noise)} of a workload with itself "
            f"[{share.low:.1%}, {share.high:.1%}]; {1 - _LEVEL:.0%} or fewer are expected",
            f"noise: values of {noise.typical_s * noise.calls * 1e3:.3g} ms vary by {noise.cv:.1%}; "
            + "to find a difference of "
            + ", ".join(f"{effect:.0%} takes {runs[effect]:,} runs" for effect in sorted(runs))
            + " on each side",
            *(steadier if 1 < most <= _FEW_CORES and not threads.get("settings") else []),
        ]

    def to_dict(self) -> dict[str, Any]:
        """JSON-serialisable."""
        noise = asdict(self.noise)
        noise["runs_for"] = {f"{effect:g}": runs for effect, runs in self.noise.runs_for.items()}
        return {
            "clock": asdict(self.clock),
            "noise": noise,
            "ceilings": self.ceilings.to_dict(),
            "doubts": list(self.doubts),
            "fit": not self.against,
            "against": self.against,
            "environment": dict(self.environment),
        }


def _alarms(noise: Noise) -> str:
    """``1 false alarm in 14 comparisons``."""
    return (
        f"{noise.alarms:,} false alarm{'s' * (noise.alarms != 1)} in "
        f"{noise.rounds:,} comparison{'s' * (noise.rounds != 1)}"
    )


def clock_facts(clock: Clock = HOST) -> ClockFacts:
    """Resolution, cost of a reading, cost of a phase switch; the costs are medians of blocks, in ns."""
    now_ns = clock.now_ns
    steps, costs, switches = [], [], []
    for _ in range(_BLOCKS):
        readings = [now_ns() for _ in range(_READINGS)]
        steps += [later - earlier for earlier, later in itertools.pairwise(readings) if later > earlier]
        costs.append((readings[-1] - readings[0]) / (_READINGS - 1))
        switches.append(_switch_ns(clock))
    return ClockFacts(min(steps, default=0), median(costs), median(switches))


def _switch_ns(clock: Clock) -> float:
    switch = Timeline(clock).switch
    forward, backward = Phase.FORWARD, Phase.BACKWARD
    begin = clock.now_ns()
    for _ in range(_READINGS // 2):
        switch(forward)
        switch(backward)
    return (clock.now_ns() - begin) / _READINGS


def numpy_workload(size: int = 256) -> Callable[[], object]:
    """A fraction of a millisecond of typical training work: a product, an element-wise function, a new array."""
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    return lambda: np.tanh(a @ b).sum()


def measure_noise(
    workload: Callable[[], object], *, seconds: float = 5.0, clock: Clock = HOST, per_arm: int = _PER_ARM
) -> Noise:
    """Compare ``workload`` with itself for ``seconds``: rounds of A B B A, with a verdict each.

    A round takes ``per_arm`` values an arm; a value is the mean of as many calls as fill 20 ms.
    """
    calls = _calls(workload, clock)
    kinds: Counter[str] = Counter()
    values: list[float] = []
    begin = clock.now_ns()
    while len(values) < _LEAST_ROUNDS * 2 * per_arm or (
        (clock.now_ns() - begin) * _NS < seconds and kinds.total() < _MOST_ROUNDS
    ):
        a, b = _interleaved(workload, clock, per_arm, calls)
        kinds[verdict(a, b, level=_LEVEL, resolution=_NS).kind.value] += 1
        values += a + b
    alarms = kinds[VerdictKind.FASTER.value] + kinds[VerdictKind.SLOWER.value]
    cv = coefficient_of_variation(values)
    return Noise(
        rounds=kinds.total(),
        per_arm=per_arm,
        verdicts={kind.value: kinds[kind.value] for kind in VerdictKind},
        alarms=alarms,
        alarm_share=wilson(alarms, kinds.total()),
        typical_s=median(values),
        calls=calls,
        cv=cv,
        runs_for={effect: runs_needed_t(cv, effect) for effect in _EFFECTS},
    )


def _calls(workload: Callable[[], object], clock: Clock) -> int:
    """How many calls fill the time of a value; the first few calls are warm-up and do not count."""
    took_ns = [time_ns(workload, clock) for _ in range(10)]
    typical_s = max(1.0, median(took_ns[5:])) * _NS
    return max(1, min(_MOST_CALLS, math.ceil(_VALUE_S / typical_s)))


def _interleaved(
    workload: Callable[[], object], clock: Clock, per_arm: int, calls: int
) -> tuple[list[float], list[float]]:
    """``per_arm`` mean durations of a call for each arm, in seconds, in the order A B B A A B B A ..."""
    arms: tuple[list[float], list[float]] = ([], [])
    for turn in range(2 * per_arm):
        # Even if the clock did not move, the work took some time.
        arms[(turn + 1) // 2 % 2].append(max(1, time_ns(workload, clock, calls)) / calls * _NS)
    return arms


def run_doctor(
    seconds: float = 10.0,
    clock: Clock = HOST,
    gemms: Sequence[tuple[str, GemmMaker]] = (),
    workload: Callable[[], object] | None = None,
) -> Diagnosis:
    """Examine this machine in about ``seconds``: clock, noise, ceilings, and the environment around all three.

    ``gemms`` add precisions to the ceilings, as in ``measure_ceilings``; ``workload`` replaces the built-in one.
    """
    before = capture()
    facts = clock_facts(clock)
    noise = measure_noise(workload or numpy_workload(), seconds=seconds * _NOISE_SHARE, clock=clock)
    ceilings = measure_ceilings(seconds * (1 - _NOISE_SHARE), clock, gemms)
    return Diagnosis(facts, noise, ceilings, tuple(doubts(before, capture_after())), before)
