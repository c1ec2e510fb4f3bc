"""One training run of MLPerf's, as its log tells it.

The one idea: a run's result is the wall clock from ``run_start`` to ``run_stop``; nothing else in the log is a time to
accuracy, and a run that does not say ``success`` did not arrive (training rules, section on timing).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Literal

from levelbench.records.exchange.mlperf.benchmarks import benchmark
from levelbench.records.exchange.mlperf.dialects import Dialect, Event, number_of, scan
from levelbench.records.reader import open_record

__all__ = [
    "ENTRY_KEY",
    "ORIGIN_KEY",
    "SETTINGS_KEY",
    "TARGET_KEY",
    "LogEvaluation",
    "TrainingLog",
    "parse_log",
    "read_log",
]

TARGET_KEY = "levelbench_target"
"""Our logs state their target, since MLPerf's leave it to the benchmark's name; other keys are allowed there."""
ENTRY_KEY = "levelbench_entry"
SETTINGS_KEY = "levelbench_settings"
ORIGIN_KEY = "levelbench_origin"
"""Where an entry that was imported came from, and what was doubtful in it: a log of ours keeps both."""

_EVALUATIONS = ("eval_accuracy", "eval_error")
_SEEDS = ("seed", "run_set_random_seed")
_BATCH = ("global_batch_size", "input_batch_size")
_HYPERPARAMETERS = ("opt_", "model_hp_", "gradient_accumulation_steps", "micro_batch_size", "max_sequence_length")
Setting = int | float | str | bool
_LONGEST = 4000


@dataclass(frozen=True)
class LogEvaluation:
    """One value of one metric: seconds since ``run_start``, the value (maybe NaN), and how much training came before.

    ``metric`` is what the log calls it, empty where it logs only one. ``key`` is ``eval_accuracy`` or ``eval_error``.
    """

    time_s: float
    value: float
    metric: str = ""
    epoch: float | None = None
    samples: int | None = None
    key: str = "eval_accuracy"
    line: int = 0


@dataclass(frozen=True)
class TrainingLog:
    """A log: its events as they stand, and what follows from them. ``name`` is the file's name, for messages.

    Times are in seconds. Of keys that several ranks log, the earliest ``run_start`` and the latest ``run_stop`` count:
    the run is not over before its last rank is.
    """

    name: str
    dialect: Dialect
    events: tuple[Event, ...]
    notes: tuple[str, ...] = ()

    def all(self, *keys: str) -> list[Event]:
        """The events of these keys, in the order of the log."""
        return [event for key in keys for event in self._by_key.get(key, ())]

    def value(self, *keys: str) -> Any:
        """The value of the first event of the first of these keys that the log has, or ``None``."""
        return next((event.value for event in self.all(*keys)), None)

    @cached_property
    def _by_key(self) -> dict[str, list[Event]]:
        found: dict[str, list[Event]] = {}
        for event in self.events:
            found.setdefault(event.key, []).append(event)
        return found

    @cached_property
    def run_start(self) -> Event | None:
        """The event that starts the clock."""
        return min(self.all("run_start"), key=lambda event: event.time_ns, default=None)

    @cached_property
    def run_stop(self) -> Event | None:
        """The event that stops the clock; ``None`` in a log that was cut off."""
        return max(self.all("run_stop"), key=lambda event: event.time_ns, default=None)

    @property
    def time_s(self) -> float | None:
        """``run_stop - run_start`` in seconds, exact to the log's digits; ``None`` without either."""
        if self.run_start is None or self.run_stop is None:
            return None
        return (self.run_stop.time_ns - self.run_start.time_ns) / 1e9

    @property
    def status(self) -> Literal["success", "aborted", "unfinished"]:
        """What ``run_stop`` says; ``aborted`` unless every rank says success, ``unfinished`` without one."""
        stops = self.all("run_stop")
        if not stops:
            return "unfinished"
        return "success" if all(_succeeded(event) for event in stops) else "aborted"

    @cached_property
    def evaluations(self) -> tuple[LogEvaluation, ...]:
        """All values of all metrics up to ``run_stop``, in order of time; what ranks say twice is there once."""
        origin = self.run_start.time_ns if self.run_start else None
        found: dict[tuple[Any, ...], LogEvaluation] = {}
        for event in sorted(self.all(*_EVALUATIONS), key=lambda event: event.time_ns):
            if origin is None or (self.run_stop is not None and event.time_ns > self.run_stop.time_ns):
                continue
            for each in _values(event, origin):
                # A value that ranks share comes with the same place in training; without a place nothing is shared.
                place = (each.epoch, each.samples) if (each.epoch, each.samples) != (None, None) else event.line
                found.setdefault((each.metric, place, repr(each.value)), each)
        return tuple(found.values())

    @property
    def to_converge(self) -> float | None:
        """Epochs (rounded to 3 digits) or samples at the last evaluation of a successful run; ``None`` otherwise.

        Which of them is the benchmark's own; for one that MLPerf does not have, samples where the log gives them. This
        is what is compared with reference convergence points (the official checker reads it so).
        """
        if self.status != "success" or not self.evaluations:
            return None
        last, known = self.evaluations[-1], benchmark(self.benchmark)
        epoch = None if last.epoch is None else round(last.epoch, 3)
        if last.samples is None or (known is not None and known.counts == "epochs" and epoch is not None):
            return epoch
        return float(last.samples)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that the run logged, each once."""
        values = (_integer(event.value) for event in self.all(*_SEEDS))
        return tuple(dict.fromkeys(seed for seed in values if seed is not None))

    @property
    def batch_size(self) -> int | None:
        """Samples a step over all workers."""
        return _integer(self.value(*_BATCH))

    @property
    def benchmark(self) -> str | None:
        """Its benchmark's name."""
        return _text(self.value("submission_benchmark")) or next(
            (event.namespace for event in self.events if event.namespace and self.dialect == "v0.5"), None
        )

    @property
    def division(self) -> str | None:
        """``closed`` or ``open``, as it is logged."""
        return _text(self.value("submission_division"))

    @property
    def organisation(self) -> str | None:
        """Who submitted it."""
        return _text(self.value("submission_org"))

    @property
    def platform(self) -> str | None:
        """The system's name."""
        return _text(self.value("submission_platform"))

    @cached_property
    def hyperparameters(self) -> dict[str, Setting]:
        """The first value of every optimizer and model key, all settings of a log of ours, the global batch size."""
        own = self.value(SETTINGS_KEY)
        found = {name: each for name, each in own.items() if _is_setting(each)} if isinstance(own, dict) else {}
        for event in self.events:
            if event.key.startswith(_HYPERPARAMETERS) and _is_setting(event.value):
                found.setdefault(event.key, event.value)
        return found if self.batch_size is None else {"global_batch_size": self.batch_size, **found}


def read_log(path: str | Path) -> TrainingLog:
    """The log at ``path``.

    Raises ``RecordError`` for a broken line (with its number), a file without an event or beyond the limits, and
    ``StoreError`` for a file that the system does not let us read.
    """
    path = Path(path)
    asked = f"reading the MLPerf log {path}"
    with open_record(path, asked) as file:
        return parse_log(file, path.name, asked)


def parse_log(file: BinaryIO, name: str, asked: str) -> TrainingLog:
    """The log in an open file; raises as ``read_log`` does."""
    found = scan(file, asked)
    return TrainingLog(name, found.dialect, found.events, found.notes)


def _values(event: Event, origin: int) -> Iterable[LogEvaluation]:
    """The values of one event: a number, or several by name as Mask R-CNN logs them."""
    metadata = event.metadata
    epoch = number_of(metadata.get("epoch_num", metadata.get("epoch")))
    samples = _integer(metadata.get("samples_count"))
    named = event.value if isinstance(event.value, dict) else {str(metadata.get("metric", "")): event.value}
    for name, value in named.items():
        number = number_of(value)
        if number is not None:
            time_s = (event.time_ns - origin) / 1e9
            yield LogEvaluation(time_s, number, name, epoch, samples, event.key, event.line)


def _succeeded(event: Event) -> bool:
    return event.metadata.get("status") == "success" or event.metadata.get("success") is True


def _is_setting(value: Any) -> bool:
    """Whether a submission can hold it: text of bounded length, finite figures of 64 bits."""
    if isinstance(value, str):
        return len(value) <= _LONGEST
    return isinstance(value, int | float) and abs(value) < 2**63


def _integer(value: Any) -> int | None:
    """The value as a whole number of at most 64 bits; v0.5 wrote some as text."""
    if isinstance(value, str) and len(value) < 20 and value.strip().isdecimal():
        value = int(value)
    number = number_of(value)
    if number is None or not 0 <= number < 2**63 or number != int(number):
        return None
    return int(value)


def _text(value: Any) -> str | None:
    return value.strip()[:200] or None if isinstance(value, str) else None
