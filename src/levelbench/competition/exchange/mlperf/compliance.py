"""MLPerf's own checks of a log: required events and values, and seeds that no two runs may share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from levelbench.competition.exchange.mlperf.logs import CLOCK_SET_S, Event, LogEvaluation, TrainingLog, number_of

FORMATS = frozenset(
    {"fp64", "fp32", "tf32", "fp16", "fp8", "nvfp4", "mxfp4", "bfloat16", "Graphcore FLOAT 16.16"}
    | {"int8", "uint8", "int4", "uint4"}
)
"""The numerical formats that a log may name as its lowest."""
INIT_CAP_S = {"closed": 30 * 60, "open": 240 * 60}
"""The longest initialisation in each division, from the first ``init_start`` to ``init_stop``."""
_INIT_CAP_V06_S = 20 * 60


@dataclass
class State:
    """The state after the lines so far."""

    cap_s: float
    init_started_ns: int | None = None
    init_stopped: bool = False
    run_started: bool = False


class Test(NamedTuple):
    """A condition on every event of a key; nothing comes before or after the key ``beside`` if the log lacks it."""

    code: str
    holds: Callable[[Event, State], bool]
    found: str
    do: str
    beside: str = ""


class KeyRule(NamedTuple):
    """A key: ``once`` or at least once (``some``, or another key ``instead``), and its tests."""

    key: str
    occurs: Literal["once", "some", "any"] = "any"
    instead: str = ""
    tests: tuple[Test, ...] = ()


def _has(*names: str) -> Callable[[Event, State], bool]:
    return lambda event, _: any(name in event.metadata for name in names)


def _figure(value: object) -> float:
    """The number, or NaN, which is in no range."""
    number = number_of(value)
    return math.nan if number is None else number


def _integral(value: object) -> bool:
    number = _figure(value)
    return abs(number) < 2**53 and abs(round(number) - number) < 1e-5


_NOT_EMPTY = Test("value-empty", lambda event, _: event.value != "", "its value is empty", "log the value")
_PLACE = Test(
    "place-missing",
    _has("epoch_num", "samples_count"),
    "its metadata has neither epoch_num nor samples_count",
    "log how much training came before",
)
_FORMAT = Test(
    "format-unknown",
    lambda event, _: isinstance(event.value, str) and event.value in FORMATS,
    "its value is not one of the rules' numerical formats",
    "name one of " + ", ".join(sorted(FORMATS)),
)
_INTEGER = Test("not-integer", lambda event, _: _integral(event.value), "its value is not an integer", "log a count")
_RUNNING = Test(
    "before-run",
    lambda _, state: state.run_started,
    "it comes before run_start",
    "log run_start when the clock starts",
    "run_start",
)
_BLOCK = (
    _RUNNING,
    Test(
        "place-missing", _has("epoch_count", "samples_count"), "it has neither epoch_count nor samples_count", _PLACE.do
    ),
    Test(
        "place-missing",
        lambda event, _: "epoch_count" not in event.metadata or "first_epoch_num" in event.metadata,
        "it has epoch_count but not first_epoch_num",
        "log the first epoch of the block",
    ),
    Test(
        "count-range",
        lambda event, _: (
            _figure(event.metadata.get("epoch_count", 1)) > 0 and _figure(event.metadata.get("samples_count", 0)) >= 0
        ),
        "its epoch_count is not above zero, or its samples_count below it",
        "log the size of the block",
    ),
)
_INIT_START = Test(
    "init-order",
    lambda _, state: not state.init_stopped and not state.run_started,
    "it comes after init_stop or run_start",
    "log it before",
)
_INIT_ORDER = "log init_start, init_stop, run_start in this order"
_INIT_STOP = (
    Test("init-order", lambda _, state: not state.run_started, "it comes after run_start", _INIT_ORDER),
    Test(
        "init-order",
        lambda _, state: state.init_started_ns is not None,
        "it comes before init_start",
        _INIT_ORDER,
        "init_start",
    ),
    Test(
        "init-cap",
        lambda event, state: (
            state.init_started_ns is None or (event.time_ns - state.init_started_ns) / 1e9 < state.cap_s
        ),
        "initialisation took longer than the division allows",
        "start the clock at the cap, or make initialisation shorter",
    ),
)


_DIVISION = Test(
    "division-unknown",
    lambda event, _: event.value in ("closed", "open"),
    "its value is neither closed nor open",
    "log the division",
)
_INITIALISED = Test(
    "run-order",
    lambda _, state: state.init_stopped,
    "it comes before init_stop",
    "end initialisation first",
    "init_stop",
)
_STATUS = Test("status-missing", _has("status"), "its metadata has no status", "log success or aborted")
_WHICH_BLOCK = Test("place-missing", _has("first_epoch_num", "samples_count"), "it does not say which block", _PLACE.do)
_RUN: tuple[KeyRule, ...] = (
    KeyRule("run_start", "once"),
    KeyRule("run_stop", "once", tests=(_RUNNING,)),
    KeyRule("eval_accuracy", "some"),
)
"""The rules for all dialects; v0.5 has little else in common with later rounds."""
_ACCUMULATION = KeyRule(
    "gradient_accumulation_steps",
    "once",
    tests=(Test("count-range", lambda event, _: _figure(event.value) > 0, "it is not above zero", _PLACE.do),),
)
_COMMON: tuple[KeyRule, ...] = (
    KeyRule("submission_benchmark", "once", tests=(_NOT_EMPTY,)),
    KeyRule("submission_org", "once", tests=(_NOT_EMPTY,)),
    KeyRule("submission_platform", "once", tests=(_NOT_EMPTY,)),
    KeyRule("submission_division", "once", tests=(_DIVISION,)),
    KeyRule("cache_clear", "some"),
    KeyRule("init_start", "some", tests=(_INIT_START,)),
    KeyRule("init_stop", "once", tests=_INIT_STOP),
    KeyRule("run_start", "once", tests=(_INITIALISED,)),
    KeyRule("run_stop", "once", tests=(_RUNNING, _STATUS)),
    KeyRule("block_start", "some", "epoch_start", _BLOCK),
    KeyRule("block_stop", "some", "epoch_stop", (_WHICH_BLOCK,)),
    KeyRule("epoch_start", tests=(_PLACE,)),
    KeyRule("epoch_stop", tests=(_PLACE,)),
    KeyRule("eval_start", "some", "block_start", (_PLACE,)),
    KeyRule("eval_stop", "some", "block_stop", (_PLACE,)),
    KeyRule("eval_accuracy", "some", tests=(_PLACE,)),
    KeyRule("train_samples", "once", tests=(_NOT_EMPTY,)),
    KeyRule("eval_samples", "once", tests=(_NOT_EMPTY,)),
    *(KeyRule(f"lowest_numerical_precision_in_{part}", tests=(_FORMAT,)) for part in ("linear", "attn", "comm")),
    *(KeyRule(f"{kind}_parallelism", tests=(_INTEGER,)) for kind in ("tensor", "pipeline", "context", "expert")),
    KeyRule("micro_batch_size", tests=(_INTEGER,)),
)


def _rules_for(log: TrainingLog) -> tuple[KeyRule, ...]:
    if log.dialect == "v0.5":
        return _RUN
    return (*_COMMON, _ACCUMULATION) if log.division == "closed" and log.dialect == "mllog" else _COMMON


Severity = Literal["error", "warning", "note"]

_Place = Event | LogEvaluation | None


@dataclass(frozen=True)
class LogFinding:
    """One finding about a log: ``line`` from 1, ``None`` for something missing; ``found`` and ``do`` are clauses."""

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


def _finding(
    log: TrainingLog, code: str, at: _Place, found: str, do: str, *, key: str = "", severity: Severity = "error"
) -> LogFinding:
    line, key = (None, key) if at is None else (at.line, key or at.key)
    return LogFinding(code, severity, log.name, line, key, found, do)


def check_log(log: TrainingLog) -> list[LogFinding]:
    """The findings about one log, in the order of its lines; missing keys come last.

    Any benchmark is allowed, including our own tasks. A v0.5 log is only checked for what its tags share with later
    rounds: the run and its evaluations.
    """
    findings = [*_by_line(log), *_own(log)]
    return sorted(findings, key=lambda finding: (finding.line is None, finding.line or 0)) + list(_by_count(log))


def _by_line(log: TrainingLog) -> Iterator[LogFinding]:
    rules = {rule.key: rule for rule in _rules_for(log)}
    cap_s = INIT_CAP_S.get(log.division or "", INIT_CAP_S["closed"])
    state = State(_INIT_CAP_V06_S if log.dialect == "v0.6" else cap_s)
    reported: set[str] = set()
    logged = {event.key for event in log.events}
    for event in log.events:
        rule = rules.get(event.key)
        # Submission facts that several ranks log are checked once.
        if rule is not None and not (event.key in reported and event.key.startswith("submission_")):
            reported.add(event.key)
            for test in rule.tests:
                if not (test.beside and test.beside not in logged) and not test.holds(event, state):
                    yield _finding(log, test.code, event, f"{event.key}: {test.found}", test.do)
        if event.key == "init_start":
            started = state.init_started_ns
            state.init_started_ns = event.time_ns if started is None else min(event.time_ns, started)
        state.init_stopped |= event.key == "init_stop"
        state.run_started |= event.key == "run_start"


def _by_count(log: TrainingLog) -> Iterator[LogFinding]:
    for rule in _rules_for(log):
        events = log.all(rule.key)
        if rule.occurs != "any" and not events and not (rule.instead and log.all(rule.instead)):
            either = f"{rule.key} or {rule.instead}" if rule.instead else rule.key
            yield _finding(log, "key-missing", None, f"there is no {either}", "log it", key=rule.key)
        elif rule.occurs == "once" and len(events) > 1:
            same = all(event.value == events[0].value for event in events)
            found = f"{rule.key} occurs {len(events)} times, with {'the same value' if same else 'different values'}"
            yield _finding(log, "key-repeated", events[1], found, "log it once", severity="note" if same else "error")


def _own(log: TrainingLog) -> Iterator[LogFinding]:
    """What the official checker does not notice: clocks and curves that go back, values that are not numbers."""
    latest, reported = 0, False
    for event in log.events:
        if not reported and (latest - event.time_ns) / 1e9 > CLOCK_SET_S and event.time_ns:
            reported = True
            found = f"{event.key} is {(latest - event.time_ns) / 1e9:.3f} s before an earlier line"
            yield _finding(log, "time-back", event, found, "log from a clock that is not adjusted during the run")
        latest = max(latest, event.time_ns)
    if log.time_s is not None and log.time_s <= 0 and log.run_stop is not None:
        found = f"run_stop is {log.time_s:g} s after run_start"
        yield _finding(log, "time-negative", log.run_stop, found, "log both from one clock")
    last: dict[str, float] = {}
    for each in log.evaluations:
        place = each.samples if each.samples is not None else each.epoch
        if place is not None and place < last.get(each.metric, place):
            found, do = f"training goes back from {last[each.metric]:g} to {place:g}", "log evaluations in order"
            yield _finding(log, "curve-back", each, found, do)
        if place is not None:
            last[each.metric] = place
        if not math.isfinite(each.value):
            found, do = f"{each.key} is {each.value}", "check the run: it has diverged"
            yield _finding(log, "not-finite", each, found, do, severity="warning")


_KEYS = ("seed", "run_set_random_seed")


def check_seeds(logs: Sequence[TrainingLog]) -> list[LogFinding]:
    """The findings about the seeds of all runs of one result, in the order of the runs."""
    findings: list[LogFinding] = []
    owners: dict[tuple[str, str, int], str] = {}
    for log in logs:
        events = log.all(*_KEYS)
        seeds = [(event, seed) for event in events if (seed := _integer(event.value)) is not None]
        for event in events:
            if _integer(event.value) is None:
                found = f"the seed {event.value!r} is not an integer"
                findings.append(_finding(log, "seed-format", event, found, "log integers", key="seed"))
        if not events:
            do = "log one integer as `seed`; without it copies cannot be told from runs"
            findings.append(_finding(log, "seed-missing", None, "no seed is logged", do, key="seed"))
        if len(seeds) > 1:
            found = f"{len(seeds)} seeds are logged"
            findings.append(
                _finding(log, "seed-several", None, found, "log one per run", key="seed", severity="warning")
            )
        for event, seed in seeds:
            place = (str(event.metadata.get("file")), str(event.metadata.get("lineno")), seed)
            owner = owners.setdefault(place, log.name)
            if owner != log.name:
                found = f"seed {seed} was also used by {owner}"
                findings.append(
                    _finding(log, "seed-repeated", event, found, "draw a new seed for each run", key="seed")
                )
    return findings


def _integer(value: Any) -> int | None:
    """Like ``int()`` in the official checker, which accepts numbers in text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None
