"""Whether a run's clock agrees with the clocks that looked on, and whether its network had been trained before.

A moment is known on each clock by the earliest and the latest that it can be, so that a message which waited for a busy
machine makes it less sharp and nothing else: two clocks disagree only where no pair of moments within these bounds
agrees.
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

__all__ = ["CHANCE", "UNTRAINED", "witness_contradictions", "witness_doubts"]

UNTRAINED = "untrained_quality"
"""The measurement of the network as its run began."""

CHANCE = "chance_quality"
"""The measurement of what always answering with the most frequent label is worth, where that is known."""

DOUBT, REFUSE = 0.01, 0.1
"""Clocks that lie further apart than this share of the time are a reason to doubt the run, or to refuse it."""
_METERS = ("peak_memory", "energy", "cpu_utilisation")
"""Each is read in every run, if only to say why it has no value."""
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
    """The run's time and another clock's, in nanoseconds as near to each other as they can be, and the share apart."""

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
    """A sentence for each clock that disagrees with the run's by more than a tenth; then its times cannot be used.

    And one for a network that has the target's quality before it is trained, which luck does not explain.
    """
    if record.end is None:
        return []
    found = [*_trained_before(record, refused=True), *_left_out(record)]
    if record.end.witness is None:
        return found
    seen = max((each.evaluations for each in record.end.witness.sights), default=0)
    if seen > len(record.evaluations):
        found.append(f"other clocks saw {seen} evaluations of it, and {len(record.evaluations)} are in it")
    found += [str(each) for each in _apart(record.end.witness) if each.share > REFUSE]
    delays = _delays_ns(record, record.end.witness)
    if any(delay < -max(_LEAST_NS, 1e-3 * claimed) for delay, claimed in delays):
        found.append("an evaluation has a later time than the clock that it was taken from")
    elif len(delays) > 2 and statistics.median(_late_share(*each) for each in delays) > REFUSE:
        found.append("the times of its evaluations are earlier than those at which they were made")
    return found


def witness_doubts(record: Record) -> list[str]:
    """A sentence for each clock that disagrees by more than a hundredth, and for what could not be looked at."""
    if record.end is None:
        return []
    doubtful = [f"{each}: choose another target" for each in _trained_before(record, refused=False)]
    if record.end.witness is None:
        return [*doubtful, *_unwatched(record)]
    witness, end_ns = record.end.witness, record.end.t_ns
    if said := set_back(record):
        doubtful.append(f"{said}: the calendar's clock was set back meanwhile")
    found = doubtful + [
        f"{each}: look for what changes a clock" for each in _apart(witness) if DOUBT < each.share <= REFUSE
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
            "on a machine with less to do"
        )
    return found


def _left_out(record: Record) -> Iterator[str]:
    """What the end of a run that ``levelbench run`` made always holds, and this one does not.

    Its header is known by what the process had done before its clock started. A record of the first schema holds less.
    """
    end, before = record.end, record.header.environment
    if end is None or end.status != "done" or not record.checksum:
        return
    witness = end.witness
    if "before_clock" not in before:
        if witness is not None:
            yield "what its process had done before its clock started is not in it, and every watched run has that"
        return
    if witness is None or (len(witness.sights) < 2 and not witness.absent):
        yield "what other clocks saw of it is not in it, and every run has that at its end"
    if _has_counters(before) and not _has_counters(end.environment_after):
        yield "the machine's counters were read before it, and its end does not hold them"
    if all(each.name != UNTRAINED for each in record.measurements):
        yield "the quality of its untrained network is not in it, and every run has that at its end"
    if lacking := [name for name in _METERS if all(each.name != name for each in record.measurements)]:
        yield f"the readings of {', '.join(lacking)} are not in it, and every run has them at its end"


def _unwatched(record: Record) -> Iterator[str]:
    if not record.checksum or record.status != "done" or "before_clock" in record.header.environment:
        return
    if record.header.environment.get("started") == "imported":
        yield "it was imported: its times and its quality are what another tool's log says, and nothing watched it"
    else:
        yield "no other clock watched its own: run it again with levelbench run"


def _has_counters(environment: Mapping[str, object]) -> bool:
    load = environment.get("load")
    return isinstance(load, dict) and bool(load.get("counters"))


def _trained_before(record: Record, *, refused: bool) -> Iterator[str]:
    """What is said where the untrained network reaches the target: of what is refused, or of what may be luck."""
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
    """The highest quality that an untrained network may have by luck; infinity where nobody knows.

    It may have each class as a whole right or wrong, so that with few classes a class counts as one look: the spread is
    that of as many looks as there are classes, and of the examples. With six classes or fewer any quality may be luck.
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
    """For each clock that disagrees, the moment at which it lies furthest from the run's."""
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
            # In the kernel's file alone a suspended machine counts on.
            slept = witness.slept_ns if clock == "uptime_ns" else 0
            other = _passed(began, (now[0] - slept, now[1]))
            ours, theirs = (run[1], other[0]) if run[1] < other[0] else (run[0], other[1])
            if (run[1] < other[0] or run[0] > other[1]) and abs(ours - theirs) > _LEAST_NS:
                where = "at its end" if last else f"after {sight.evaluations} evaluations"
                yield _Apart(ours, theirs, clock, where)


def _passed(began: Between, now: Between) -> Between:
    """The least and the most that lies between two moments."""
    return now[0] - began[1], now[1] - began[0]


def _delays_ns(record: Record, witness: Witness) -> list[tuple[int, int]]:
    """How long after the time that the record has for each evaluation, and for the end, its clock was read, and that.

    It is read right after them. Several sights after one evaluation are of later moments, but for the first.
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
