"""MLPerf's common rules for a training log, as rows of data.

The one idea: a rule is a key, how often it must occur, and named tests of its events; ``compliance`` walks a log with
them. The rows are those of round 6.0; earlier rounds differ in the cap on initialisation, which is a figure here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from levelbench.records.exchange.mlperf.dialects import Dialect, Event, number_of

__all__ = ["FORMATS", "INIT_CAP_S", "Rule", "State", "Test", "cap_s", "rules_for"]

FORMATS = frozenset(
    {"fp64", "fp32", "tf32", "fp16", "fp8", "nvfp4", "mxfp4", "bfloat16", "Graphcore FLOAT 16.16"}
    | {"int8", "uint8", "int4", "uint4"}
)
"""The numerical formats that a log may name as its lowest."""
INIT_CAP_S = {"closed": 30 * 60, "open": 240 * 60}
"""How long initialisation may take in each division, from the first ``init_start`` to ``init_stop``."""
_INIT_CAP_V06_S = 20 * 60


@dataclass
class State:
    """What the lines so far have said."""

    cap_s: float
    init_started_ns: int | None = None
    init_stopped: bool = False
    run_started: bool = False


@dataclass(frozen=True)
class Test:
    """One thing that must hold for every event of a key."""

    code: str
    holds: Callable[[Event, State], bool]
    found: str
    do: str


@dataclass(frozen=True)
class Rule:
    """A key: ``once`` or at least once (``some``, maybe through another key ``instead``), and its tests."""

    key: str
    occurs: Literal["once", "some", "any"] = "any"
    instead: str = ""
    tests: tuple[Test, ...] = field(default=())


def _has(*names: str) -> Callable[[Event, State], bool]:
    return lambda event, _: any(name in event.metadata for name in names)


def _integral(value: Any) -> bool:
    number = number_of(value)
    return number is not None and abs(number) < 2**53 and abs(round(number) - number) < 1e-5


_NOT_EMPTY = Test("value-empty", lambda event, _: event.value != "", "its value is empty", "log the value")
_PLACE = Test(
    "place-missing",
    _has("epoch_num", "samples_count"),
    "its metadata has no epoch_num and no samples_count",
    "log how much training came before",
)
_FORMAT = Test(
    "format-unknown",
    lambda event, _: isinstance(event.value, str) and event.value in FORMATS,
    "its value is no numerical format of the rules",
    "name one of " + ", ".join(sorted(FORMATS)),
)
_INTEGER = Test("not-integer", lambda event, _: _integral(event.value), "its value is not an integer", "log a count")
_RUNNING = Test(
    "before-run", lambda _, state: state.run_started, "it comes before run_start", "log run_start when the clock starts"
)
_BLOCK = (
    _RUNNING,
    Test("place-missing", _has("epoch_count", "samples_count"), "it says no epoch_count, no samples_count", _PLACE.do),
    Test(
        "place-missing",
        lambda event, _: "epoch_count" not in event.metadata or "first_epoch_num" in event.metadata,
        "it says an epoch_count and no first_epoch_num",
        "log the first epoch of the block",
    ),
    Test(
        "count-range",
        lambda event, _: (
            (number_of(event.metadata.get("epoch_count", 1)) or 0.0) > 0
            and _at_least_zero(event.metadata.get("samples_count", 0))
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
_INIT_STOP = (
    Test(
        "init-order",
        lambda _, state: state.init_started_ns is not None and not state.run_started,
        "it comes before init_start or after run_start",
        "log init_start, init_stop, run_start in this order",
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


def _at_least_zero(value: Any) -> bool:
    number = number_of(value)
    return number is not None and number >= 0


_DIVISION = Test(
    "division-unknown",
    lambda event, _: event.value in ("closed", "open"),
    "its value is neither closed nor open",
    "log the division",
)
_RUN: tuple[Rule, ...] = (
    Rule("run_start", "once"),
    Rule("run_stop", "once", tests=(_RUNNING,)),
    Rule("eval_accuracy", "some"),
)
"""What holds in all dialects; v0.5 has little else in common with later rounds."""
_ACCUMULATION = Rule(
    "gradient_accumulation_steps",
    "once",
    tests=(Test("count-range", lambda event, _: (number_of(event.value) or 0) > 0, "it is not above zero", _PLACE.do),),
)
_COMMON: tuple[Rule, ...] = (
    Rule("submission_benchmark", "once", tests=(_NOT_EMPTY,)),
    Rule("submission_org", "once", tests=(_NOT_EMPTY,)),
    Rule("submission_platform", "once", tests=(_NOT_EMPTY,)),
    Rule("submission_division", "once", tests=(_DIVISION,)),
    Rule("cache_clear", "some"),
    Rule("init_start", "some", tests=(_INIT_START,)),
    Rule("init_stop", "once", tests=_INIT_STOP),
    Rule(
        "run_start",
        "once",
        tests=(
            Test("run-order", lambda _, s: s.init_stopped, "it comes before init_stop", "end initialisation first"),
        ),
    ),
    Rule(
        "run_stop",
        "once",
        tests=(
            _RUNNING,
            Test("status-missing", _has("status"), "its metadata has no status", "log success or aborted"),
        ),
    ),
    Rule("block_start", "some", "epoch_start", _BLOCK),
    Rule(
        "block_stop",
        "some",
        "epoch_stop",
        (Test("place-missing", _has("first_epoch_num", "samples_count"), "it does not say which block", _PLACE.do),),
    ),
    Rule("epoch_start", tests=(_PLACE,)),
    Rule("epoch_stop", tests=(_PLACE,)),
    Rule("eval_start", "some", "block_start", (_PLACE,)),
    Rule("eval_stop", "some", "block_stop", (_PLACE,)),
    Rule("eval_accuracy", "some", tests=(_PLACE,)),
    Rule("train_samples", "once", tests=(_NOT_EMPTY,)),
    Rule("eval_samples", "once", tests=(_NOT_EMPTY,)),
    *(Rule(f"lowest_numerical_precision_in_{part}", tests=(_FORMAT,)) for part in ("linear", "attn", "comm")),
    *(Rule(f"{kind}_parallelism", tests=(_INTEGER,)) for kind in ("tensor", "pipeline", "context", "expert")),
    Rule("micro_batch_size", tests=(_INTEGER,)),
)


def rules_for(dialect: Dialect, division: str | None) -> tuple[Rule, ...]:
    """The rows that a log of this dialect and division is held to."""
    if dialect == "v0.5":
        return _RUN
    return (*_COMMON, _ACCUMULATION) if division == "closed" and dialect == "mllog" else _COMMON


def cap_s(dialect: Dialect, division: str | None) -> float:
    """How many seconds initialisation may take."""
    return _INIT_CAP_V06_S if dialect == "v0.6" else INIT_CAP_S.get(division or "", INIT_CAP_S["closed"])
