"""Checks whether a run's clock agrees with other clocks, and whether its network was trained before the run.

On each clock a moment has an earliest and a latest possible time. A message delayed by a busy machine only widens these
bounds, and two clocks disagree only if no times within them agree.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from levelbench.records.integrity import set_back
from levelbench.records.reader import Record
from levelbench.records.schema import Between, Measurement, Witness

__all__ = ["CHANCE", "FIXED_ANSWERS", "UNTRAINED", "witness_contradictions", "witness_doubts"]

UNTRAINED = "untrained_quality"
"""The measurement of the network's quality before training."""

CHANCE = "chance_quality"
"""The measurement of the quality of always giving the same answer, at best, if known."""

FIXED_ANSWERS = "fixed_answers_quality"
"""The measurement of the quality of made-up answers, after training: equal ones for equal data."""

DOUBT, REFUSE = 0.01, 0.1
"""If clocks differ by more than this share of the time, the run is doubted, or refused."""
_METERS = ("peak_memory", "energy", "cpu_utilisation")
"""Every run has a reading of each, even if that only says why there is no value."""
_LEAST_NS = 1_000_000
_LATE_NS = 250_000_000
_OFTEN_LATE_NS = 20_000_000
_OTHERS = {
    "parent_ns": "the process that started it",
    "second_ns": "a second clock in its own process",
    "uptime_ns": "the kernel",
}


@dataclass(frozen=True)
class _Apart:
    """The run's time and another clock's in nanoseconds, as close to each other as the bounds allow."""

    run_ns: int
    other_ns: int
    clock: str
    where: str

    @property
    def share(self) -> float:
        return abs(self.run_ns - self.other_ns) / max(abs(self.other_ns), 1)

    def __str__(self) -> str:
        ours, theirs = self.run_ns * 1e-9, self.other_ns * 1e-9
        return f"{self.where} its clock had counted {ours:.4g} s and {_OTHERS[self.clock]} {theirs:.4g} s"


def witness_contradictions(record: Record) -> list[str]:
    """A sentence for each clock that differs from the run's by more than a tenth, so that its times cannot be used.

    Also one if the network had the target's quality before training and luck does not explain it.
    """
    if record.end is None:
        return []
    found = [*_trained_before(record, refused=True), *_missing_readings(record)]
    if record.end.witness is None:
        return found
    seen = max((each.evaluations for each in record.end.witness.sights), default=0)
    if seen > len(record.evaluations):
        found.append(f"other clocks saw {seen} evaluations of it, and it has {len(record.evaluations)}")
    found += [str(each) for each in _apart(record.end.witness) if each.share > REFUSE]
    delays = _delays_ns(record, record.end.witness)
    if any(delay < -max(_LEAST_NS, 1e-3 * claimed) for delay, claimed in delays):
        found.append("an evaluation has a later time than the clock that it was taken from")
    elif len(delays) > 2 and statistics.median(_late_share(*each) for each in delays) > REFUSE:
        found.append("the times of its evaluations are earlier than those at which they were made")
    return found


def witness_doubts(record: Record) -> list[str]:
    """A sentence for each clock that differs by more than a hundredth, and for each missing reading."""
    if record.end is None:
        return []
    doubtful = [f"{each}: choose another target" for each in _trained_before(record, refused=False)]
    if record.end.witness is None:
        return [*doubtful, *_unwatched(record)]
    witness, end_ns = record.end.witness, record.end.t_ns
    if back := set_back(record):
        doubtful.append(f"{back}: the calendar time was set back in between")
    found = doubtful + [
        f"{each}: something changes one of the clocks" for each in _apart(witness) if DOUBT < each.share <= REFUSE
    ]
    if witness.absent:
        found.append(f"no other process watched its clock ({witness.absent}): run it again")
    if witness.slept_ns > max(DOUBT * end_ns, 1e8):
        found.append(
            f"the machine was suspended for {witness.slept_ns * 1e-9:.3g} s while it ran: keep the machine awake"
        )
    late_ns = max((delay for delay, _ in _delays_ns(record, witness)), default=0)
    typical = [delay for delay, claimed in _delays_ns(record, witness) if delay > max(_LEAST_NS, DOUBT * claimed)]
    if len(typical) > max(1, len(_delays_ns(record, witness)) // 2):
        found.append(
            "most of its evaluations have an earlier time in the record than its own clock had after them: run it again"
        )
    if late_ns > max(REFUSE * end_ns, _LATE_NS):
        found.append(
            f"an evaluation was reported {late_ns * 1e-9:.3g} s after the time that it has in the record: run it again "
            "on a less busy machine"
        )
    return found


def _missing_readings(record: Record) -> Iterator[str]:
    """Readings that the end of a run of ``levelbench run`` always has, and that this one lacks.

    Such a run is recognised by ``before_clock`` in its environment. Records of the first schema have fewer readings.
    """
    end, before = record.end, record.header.environment
    if end is None or end.status != "done" or not record.checksum:
        return
    witness = end.witness
    if "before_clock" not in before:
        if witness is not None:
            yield "it does not say what its process did before its clock started, and every watched run does"
        return
    if witness is None or (len(witness.sights) < 2 and not witness.absent):
        yield "it lacks the readings of other clocks, which every run has at its end"
    if _has_counters(before) and not _has_counters(end.environment_after):
        yield "the machine's counters were read before it, and its end lacks them"
    if all(each.name != UNTRAINED for each in record.measurements):
        yield "it lacks the quality of its untrained network, which every run has at its end"
    if lacking := [name for name in _METERS if all(each.name != name for each in record.measurements)]:
        yield f"it lacks the readings of {', '.join(lacking)}, which every run has at its end"


def _unwatched(record: Record) -> Iterator[str]:
    if not record.checksum or record.status != "done" or "before_clock" in record.header.environment:
        return
    if record.header.environment.get("started") == "imported":
        yield "it was imported: its times and its quality come from another tool's log, and nothing watched it"
    else:
        yield "no other clock watched its own: run it again with levelbench run"


def _has_counters(environment: Mapping[str, object]) -> bool:
    load = environment.get("load")
    return isinstance(load, dict) and bool(load.get("counters"))


def _trained_before(record: Record, *, refused: bool) -> Iterator[str]:
    """A sentence if the untrained network reaches the target: if that is ``refused``, or else if it may be luck."""
    target = record.header.specification.target
    untrained = next((each for each in record.measurements if each.name == UNTRAINED), None)
    if untrained is None or untrained.value is None:
        return
    value = untrained.value
    reached = value >= target.threshold if target.direction == "higher" else value <= target.threshold
    if reached and refused == (value > _by_luck(record, untrained)):
        wanted = f"the target is {target.threshold:g}"
        yield f"its network had {target.metric} {value:.4g} before it was trained, and {wanted}"


def _by_luck(record: Record, untrained: Measurement) -> float:
    """The highest quality that an untrained network may have by luck; infinity if unknown.

    It may get a whole class right or wrong, so the spread is that of as many draws as there are classes, plus that of
    the examples. With six classes or fewer any quality may be luck.
    """
    chance = next((each.value for each in record.measurements if each.name == CHANCE), None)
    examples = re.match(r"[1-9]\d{0,8}\b", untrained.method or "")
    if chance is None or examples is None or not 0 <= chance <= 1 or record.header.specification.target.high != 1:
        return math.inf
    spread = math.sqrt(chance * (1 - chance) * (chance + 1 / int(examples[0])))
    return max((1 + chance) / 2, chance + 5 * spread)


def _late_share(delay_ns: int, claimed_ns: int) -> float:
    return delay_ns / max(claimed_ns, 1) if delay_ns > _OFTEN_LATE_NS else 0.0


def _apart(witness: Witness) -> list[_Apart]:
    """For each clock that disagrees, the moment at which it differs most from the run's."""
    found: dict[str, _Apart] = {}
    for each in _all_apart(witness):
        if each.clock not in found or each.share > found[each.clock].share:
            found[each.clock] = each
    return list(found.values())


def _all_apart(witness: Witness) -> Iterator[_Apart]:
    for sight in witness.sights[1:]:
        first, last = witness.sights[0], sight is witness.sights[-1]
        run = _passed(first.run_ns, sight.run_ns)
        for clock in _OTHERS:
            began, now = getattr(first, clock), getattr(sight, clock)
            if began is None or now is None:
                continue
            # Only the kernel's uptime includes the time while the machine is suspended.
            slept = witness.slept_ns if clock == "uptime_ns" else 0
            other = _passed(began, (now[0] - slept, now[1]))
            ours, theirs = (run[1], other[0]) if run[1] < other[0] else (run[0], other[1])
            if (run[1] < other[0] or run[0] > other[1]) and abs(ours - theirs) > _LEAST_NS:
                where = "at its end" if last else f"after {sight.evaluations} evaluations"
                yield _Apart(ours, theirs, clock, where)


def _passed(began: Between, now: Between) -> Between:
    """The shortest and longest possible time between two moments."""
    return now[0] - began[1], now[1] - began[0]


def _delays_ns(record: Record, witness: Witness) -> list[tuple[int, int]]:
    """For each evaluation and the end: the delay from its recorded time to the reading right after it, and that time.

    Of several readings after one evaluation, only the first is right after it.
    """
    found, seen = [], witness.sights[0].evaluations if witness.sights else 0
    for sight in witness.sights[1:]:
        if seen < sight.evaluations <= len(record.evaluations):
            seen = sight.evaluations
            claimed = record.evaluations[seen - 1].t_ns
            found.append((sight.run_ns[0] - claimed, claimed))
    if record.end is not None and len(witness.sights) > 1:
        found.append((witness.sights[-1].run_ns[0] - record.end.t_ns, record.end.t_ns))
    return found
