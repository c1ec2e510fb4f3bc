"""Whether a training log keeps MLPerf's common rules: which keys it needs, in which order, with which values.

The one idea: the official checker runs its rules as Python text; here a rule is a row of data (a key, how often it must
occur, named tests), so that a log or a rule from a stranger can never run anything. The rows are those of the official
``common`` rules of round 6.0; what ours refuses beyond them is marked ``own`` in ``docs/mlperf.md``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from levelbench.records.exchange.mlperf.dialects import Event
from levelbench.records.exchange.mlperf.logs import TrainingLog
from levelbench.records.exchange.mlperf.rules import State, cap_s, rules_for

__all__ = ["LogFinding", "check_log"]

Severity = Literal["error", "warning", "note"]

_CLOCK_SET_S = 1.0
"""Ranks share a log and not a clock: their lines may be out of order by less than this."""


@dataclass(frozen=True)
class LogFinding:
    """What is wrong with one log: ``line`` from 1, ``None`` for what is not there; ``found`` and ``do`` are clauses."""

    code: str
    severity: Severity
    file: str
    line: int | None
    key: str
    found: str
    do: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.severity} {self.code}: {self.found}. {self.do[:1].upper()}{self.do[1:]}."


def check_log(log: TrainingLog, *, benchmarks: Collection[str] | None = None) -> list[LogFinding]:
    """The findings about one log, in order of its lines; what is not there comes last.

    ``benchmarks`` are the names that the round has; ``None`` allows any, our own tasks among them. A v0.5 log is held
    only to what its tags share with later rounds: the run and its evaluations.
    """
    findings = [*_by_line(log, benchmarks), *_own(log)]
    return sorted(findings, key=lambda finding: (finding.line is None, finding.line or 0)) + list(_by_count(log))


def _by_line(log: TrainingLog, benchmarks: Collection[str] | None) -> Iterator[LogFinding]:
    rules = {rule.key: rule for rule in rules_for(log.dialect, log.division)}
    state = State(cap_s(log.dialect, log.division))
    told: set[str] = set()
    for event in log.events:
        rule = rules.get(event.key)
        # What several ranks say about the submission is judged once.
        if rule is not None and not (event.key in told and event.key.startswith("submission_")):
            told.add(event.key)
            for test in rule.tests:
                if not test.holds(event, state):
                    found = f"{event.key}: {test.found}"
                    yield LogFinding(test.code, "error", log.name, event.line, event.key, found, test.do)
            if event.key == "submission_benchmark" and benchmarks is not None and str(event.value) not in benchmarks:
                found = f"the round has no benchmark {event.value!r}"
                do = "name one of " + ", ".join(sorted(benchmarks))
                yield LogFinding("benchmark-unknown", "error", log.name, event.line, event.key, found, do)
        _advance(state, event)


def _advance(state: State, event: Event) -> None:
    if event.key == "init_start":
        started = state.init_started_ns
        state.init_started_ns = event.time_ns if started is None else min(event.time_ns, started)
    elif event.key == "init_stop":
        state.init_stopped = True
    elif event.key == "run_start":
        state.run_started = True


def _by_count(log: TrainingLog) -> Iterator[LogFinding]:
    for rule in rules_for(log.dialect, log.division):
        events = log.all(rule.key)
        if rule.occurs == "some" and not events and not (rule.instead and log.all(rule.instead)):
            either = f"{rule.key} or {rule.instead}" if rule.instead else rule.key
            yield LogFinding("key-missing", "error", log.name, None, rule.key, f"there is no {either}", "log it")
        elif rule.occurs == "once" and not events:
            yield LogFinding("key-missing", "error", log.name, None, rule.key, f"there is no {rule.key}", "log it")
        elif rule.occurs == "once" and len(events) > 1:
            same = all(event.value == events[0].value for event in events)
            found = f"{rule.key} is there {len(events)} times, " + ("with one value" if same else "with other values")
            severity: Severity = "note" if same else "error"
            yield LogFinding("key-repeated", severity, log.name, events[1].line, rule.key, found, "log it once")


def _own(log: TrainingLog) -> Iterator[LogFinding]:
    """What the official checker lets pass: clocks that go back, curves that do, values that are none."""
    latest, reported = 0, False
    for event in log.events:
        if not reported and (latest - event.time_ns) / 1e9 > _CLOCK_SET_S and event.time_ns:
            reported = True
            found = f"{event.key} is {(latest - event.time_ns) / 1e9:.3f} s before an earlier line"
            do = "log from a clock that is not set during the run"
            yield LogFinding("time-back", "error", log.name, event.line, event.key, found, do)
        latest = max(latest, event.time_ns)
    if log.time_s is not None and log.time_s <= 0 and log.run_stop is not None:
        found, do = f"run_stop is {log.time_s:g} s after run_start", "log both from one clock"
        yield LogFinding("time-negative", "error", log.name, log.run_stop.line, "run_stop", found, do)
    last: dict[str, float] = {}
    for each in log.evaluations:
        place = each.samples if each.samples is not None else each.epoch
        if place is not None and place < last.get(each.metric, place):
            found, do = f"training goes back from {last[each.metric]:g} to {place:g}", "log evaluations in order"
            yield LogFinding("curve-back", "error", log.name, each.line, each.key, found, do)
        if place is not None:
            last[each.metric] = place
        if not math.isfinite(each.value):
            found, do = f"{each.key} is {each.value}", "look at the run: it has diverged"
            yield LogFinding("not-finite", "warning", log.name, each.line, each.key, found, do)
