"""Checks whether a record is consistent.

A record states many things more than once: step times are within phases, phases within the time of the run, the run
within what the machine's counters measured, and evaluations are where the specification puts them. On every reading
these have to agree. The tolerances follow from the trainer: phases sum to the time exactly, since the time is computed
as their sum, and a step's time is the difference of two readings that the phases are made of.

A contradiction never happens in an honest run: the record is damaged or was edited. A record without contradictions may
still be false, since someone may have changed everything consistently.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from levelbench.errors import RecordError, UsageError
from levelbench.records.schema import End, Evaluation, Samples, Target, instant_s, key_of

if TYPE_CHECKING:
    from levelbench.records.reader import Record
    from levelbench.records.summary import RunSummary

__all__ = ["TRAINING_PHASES", "contradictions", "require_consistent"]

_CONTINUED = ("it resumed from", "its ranks were restarted", "went on from", "its ranks were started again")
"""Doubts that say that a run continues an earlier process; the last two are those of older records."""
_UNTRAINED = ("untrained_quality", "chance_quality")
_NS = 1e-9
TRAINING_PHASES = ("data", "environment", "forward", "backward", "communicate", "update")
"""The phases of our training steps."""
_COMPUTING = ("forward", "backward", "update")
"""The phases that a single process is only in during steps."""
_NOT_AFTER_TRAINING = ("prepare", "compile", "data", "environment", "forward", "backward", "update", "checkpoint")
"""The phases that a single process is not in after its last evaluation."""
_LOADER_END_NS = 1_000_000_000
"""Before each evaluation the loader's workers are stopped, which takes time outside of steps."""
_BEGINNING_S = 60.0
"""The environment is captured right before the header is made; both times are calendar times."""
_APART_S = 0.5
"""Clock and counters are read one after the other, and the process may have to wait for a processor in between."""
_SOON_S = 0.05
"""So much later than a process ends its parent may notice, and so coarse may its processor time be."""
_TICKS = 1.1
"""The factor by which processor time may exceed what the processors have, since the kernel counts it in ticks."""
_AMOUNTS = ("B", "J", "share", "cores")
_LEAST_W, _MOST_W = 1e-3, 1e5
"""Fewer and more watts than any machine of one record takes."""
_COUNTED_S = 1.0
"""After this time every counter of energy has moved."""
_LEAST_B = 65_536
"""Less memory than any process takes: its stack and its C library alone take more."""
_MOST_MEMORY = 4.0
"""So many times the memory of its machine no process has resident, whatever is swapped or added meanwhile."""
_MOST_FLOP_S = 1e19
"""More operations a second than the processors of any record perform."""
_SHOWN = 3
_ID_DIGITS = 16
"""Digits of an id since schema 2; before, it had eight."""


def require_consistent(run: RunSummary) -> RunSummary:
    """``run``; ``RecordError`` that names it and its contradictions if its record contradicts itself."""
    if not run.contradictions:
        return run
    rest = len(run.contradictions) - _SHOWN
    more = f"; and {rest} more" if rest > 0 else ""
    raise RecordError(
        f"the run {run.id} in {run.path}",
        f"its record contradicts itself: {'; '.join(run.contradictions[:_SHOWN])}{more}",
        "restore the record from a copy, or remove it and make the run again",
    )


def contradictions(record: Record) -> list[str]:
    """The contradictions in ``record``, in sentences; empty for a consistent record."""
    return [
        *_identity(record),
        *_first_schema(record),
        *_sums(record),
        *_growth(record),
        *_schedule(record),
        *_steps(record),
        *_ranks(record),
        *_qualities(record),
        *_training_after_stop(record),
        *_end(record),
        *_machine(record),
        *_meters(record),
    ]


def _own_program(record: Record) -> bool:
    """Whether it is the record of a user's own program, which evaluates, counts epochs and stops as it likes."""
    return record.header.specification.scored_by is not None


def _identity(record: Record) -> Iterator[str]:
    header = record.header
    try:
        key = key_of(header.specification)
    except UsageError as error:
        yield f"its specification has no key: {error.found}"
        return
    if key != header.key:
        yield f"its key begins with {header.key[:8]}, and that of its specification with {key[:8]}"
    if hashlib.sha256(header.source.text.encode()).hexdigest() != header.source.digest:
        yield "the digest of its source is not that of the source's text"
    looked, started = instant_s(header.environment.get("time")), instant_s(header.started)
    if started is None:
        yield f"its start, {header.started!r}, is not a time"
    elif looked is not None and abs(started - looked) > _BEGINNING_S:
        yield f"it started at {header.started}, and its environment was captured at {header.environment['time']}"
    framework, asked = header.environment.get("framework"), header.specification
    if isinstance(framework, dict) and {"name", "device"} <= framework.keys():
        if framework["name"] != asked.framework:
            yield f"its specification has the framework {asked.framework}, and its environment {framework['name']}"
        if (framework["device"] == "cpu") != (asked.device == "cpu"):
            yield f"its specification has the device {asked.device}, and its environment {framework['device']}"
        name, loaded = framework["name"], framework.get("version")
        installed = (header.environment.get("libraries") or {}).get(name)
        if isinstance(loaded, str) and isinstance(installed, str) and not _same_version(loaded, installed):
            yield f"its framework {name} has version {loaded} and, among the libraries, {installed}"


def _same_version(loaded: str, installed: str) -> bool:
    """PyTorch calls itself 2.11.0+cu130 where the package's metadata says 2.11.0: a build that one does not name."""
    if "+" not in loaded or "+" not in installed:
        return loaded.partition("+")[0] == installed.partition("+")[0]
    return loaded == installed


def _first_schema(record: Record) -> Iterator[str]:
    """Records of schema 1 have no checksums, and nothing that was added later."""
    header, end = record.header, record.end
    if header.schema != 1:
        return
    later = {
        f"an id of {len(header.id)} digits": len(header.id) >= _ID_DIGITS,
        "a planned effect": header.planned_effect is not None,
        "a planned number of runs": bool(header.planned_runs or header.replaced),
        "which settings were set": header.chosen is not None,
        "digests of the task's quality and data": bool(header.source.quality or header.source.data),
        "digests of imported modules": bool(header.source.modules),
        "what other clocks saw": end is not None and end.witness is not None,
        "what its process did before its clock": "before_clock" in header.environment,
        "the quality of its untrained network": any(each.name in _UNTRAINED for each in record.measurements),
        "digests of labels": end is not None and end.dataset is not None and bool(end.dataset.digests),
    }
    if found := [what for what, there in later.items() if there]:
        yield f"it says that it is of schema 1, which never had {', '.join(found)}"


def _sums(record: Record) -> Iterator[str]:
    for each in _points(record):
        total = sum(each.phases_ns.values())
        if total != each.t_ns:
            yield f"{_place(each)} the phases sum to {_s(total)} where the run's time is {_s(each.t_ns)}"
            return


def _growth(record: Record) -> Iterator[str]:
    """Counts never decrease, and there are steps between evaluations."""
    before = Evaluation(0, 0, 0.0, 0, {}, None, {})
    for after in record.evaluations:
        place = _place(after)
        # A user's own program may evaluate twice.
        own = _own_program(record)
        if after.step < before.step or (after.step == before.step and not own):
            yield f"the evaluation at step {after.step} comes after that at step {before.step}"
        elif after.samples - before.samples < after.step - before.step:
            found = f"{after.samples - before.samples} examples in {after.step - before.step} steps"
            yield f"{place} there were {found} since the previous evaluation"
        elif after.epoch < before.epoch or (after.epoch == before.epoch and not own):
            yield f"{place} the epoch is {after.epoch:g} after {before.epoch:g}"
        before = after
    for earlier, later in pairwise(_points(record)):
        shrunk = next((name for name, ns in earlier.phases_ns.items() if later.phases_ns.get(name, 0) < ns), None)
        if later.t_ns < earlier.t_ns:
            yield f"{_place(later)} the run's time is {_s(later.t_ns)} after {_s(earlier.t_ns)}"
        elif shrunk is not None:
            now, was = later.phases_ns.get(shrunk, 0), earlier.phases_ns[shrunk]
            yield f"{_place(later)} the phase {shrunk} has {_s(now)} after {_s(was)}"


def _schedule(record: Record) -> Iterator[str]:
    """Evaluations are at multiples of the interval in the specification, except for the last."""
    specification, curve = record.header.specification, record.evaluations
    if not curve or curve[0].step < 1 or not 0 < curve[0].epoch < math.inf or _own_program(record):
        return
    first = curve[0]
    per_epoch = max(1, round(first.step / first.epoch))
    for each in curve:
        if abs(each.epoch * per_epoch - each.step) > 1e-6 * per_epoch:
            yield f"{_place(each)} the epoch is {each.epoch:.6g}, with {per_epoch} steps an epoch"
            return
    most = max(1, round(specification.budget_epochs * per_epoch))
    if curve[-1].step > most:
        yield f"it made {curve[-1].step} steps, and {specification.budget_epochs:g} epochs are {most}"
    found = re.fullmatch(r"(\d+) (epoch|step|sample)s?", specification.evaluate_every)
    if found is None:
        return
    steps = {"epoch": int(found[1]) * per_epoch, "step": int(found[1]), "sample": first.step}[found[2]]
    for number, each in enumerate(curve, 1):
        last = number == len(curve)
        if each.step > number * steps or (each.step < number * steps and not last):
            found_at, due = f"evaluation {number} is at step {each.step}", f"step {number * steps}"
            yield f"{found_at} and not at {due}, where an interval of {specification.evaluate_every} puts it"
            return


def _steps(record: Record) -> Iterator[str]:
    """Each step has one time, and the times between two evaluations fit into the phases between them."""
    curve, samples = record.evaluations, record.samples.get("step_time")
    values = _ints(samples)
    if values is None:
        yield "its step times are not whole nanoseconds"
        return
    steps = curve[-1].step if curve else 0
    if len(values) < steps or (len(values) > steps and record.status == "done"):
        yield f"it has {len(values)} step times, and made {steps} steps"
        return
    own_program = _own_program(record)
    alone = record.header.specification.distribution is None
    done, before, stepped, trained = 0, 0, 0, 0
    for each in curve:
        if each.step < done:
            return
        own = sum(values[done : each.step])
        # The steps of a program need not be in phases that it names.
        now = sum(ns for name, ns in each.phases_ns.items() if own_program or name in TRAINING_PHASES)
        if own > now - before:
            between = f"between steps {done} and {each.step}"
            yield f"the steps {between} took {_s(own)}, and training took {_s(now - before)} in all"
            return
        done, before, stepped, trained = each.step, now, stepped + own, now
    if own_program:
        return
    stretches = len(curve) + (math.ceil(curve[-1].epoch) if curve and math.isfinite(curve[-1].epoch) else 0)
    computing = sum(curve[-1].phases_ns.get(name, 0) for name in _COMPUTING) if curve else 0
    if not alone:
        # An optimizer may update the weights before an evaluation, which is not part of a rank's steps.
        computing -= curve[-1].phases_ns.get("update", 0) if curve else 0
    if stepped < 0.99 * computing:
        yield f"its steps took {_s(stepped)}, and computing alone {_s(computing)}"
    elif alone and trained - stepped > 0.1 * trained + _LOADER_END_NS * stretches:
        yield f"its steps took {_s(stepped)}, and training without evaluations {_s(trained)}"


def _ranks(record: Record) -> Iterator[str]:
    """Each rank of a finished run has a time for each step, and communicates for part of it."""
    own, steps = record.samples.get("step_time"), record.evaluations[-1].step if record.evaluations else 0
    for rank, seen in record.ranks.items():
        times, talk = seen.get("step_time"), seen.get("communicate_time")
        if times is None:
            continue
        if record.status == "done" and len(times.values) != steps:
            yield f"rank {rank} has {len(times.values)} step times, and the run made {steps} steps"
        elif rank == 0 and own is not None and record.status == "done" and list(times.values) != list(own.values):
            yield "the step times of rank 0 are not those of the run"
        elif talk is not None and any(a > b for a, b in zip(talk.values, times.values, strict=False)):
            yield f"rank {rank} communicated for longer than a step took"


def _qualities(record: Record) -> Iterator[str]:
    """Qualities are on the metric's scale, and a share of a split corresponds to whole examples."""
    target = record.header.specification.target
    sizes = record.end.dataset.sizes if record.end and record.end.dataset else {}
    for each in _points(record):
        for name, value in each.quality.items():
            split, _, metric = name.partition(".")
            if not metric and not _on_scale(value, target):
                yield f"{_place(each)} {name} is {value:.6g}, on a scale {target.scale}"
                return
            if re.fullmatch(r"top\d+", metric or target.metric) and not is_share(value, sizes.get(split)):
                yield (
                    f"{_place(each)} {name} is {value:.10g}, which is not a share of {sizes[split]} examples: "
                    "a metric that counts differently needs another name"
                )
                return


def _on_scale(value: float, target: Target) -> bool:
    """Whether a metric can have this value; rounding may move it slightly off its scale."""
    low, high = target.ends
    rounding = 1e-5 * (high - low) if high - low < math.inf else 0.0
    return math.isnan(value) or low - rounding <= value <= high + rounding


def is_share(value: float, examples: int | None) -> bool:
    """Whether ``value`` is that of a whole number of ``examples``; unknown examples may have any."""
    if not examples:
        return True
    if not 0 <= value <= 1:
        return False
    # A user's own metric may be computed in single precision.
    return abs(value * examples - round(value * examples)) <= min(0.01, 1e-6 * examples)


def _training_after_stop(record: Record) -> Iterator[str]:
    """Training went on after every evaluation except the last, so none of them may have been a reason to stop."""
    curve = record.evaluations
    first = next((each.loss for each in curve if each.loss is not None), None)
    stops = record.header.specification.crossing in ("confirmed", "first")
    if stops and record.end is not None and record.end.stopped_by == "target reached":
        at = _crossed(record)
        if at is not None and at < len(curve) - 1:
            yield f"{_place(curve[at])} the target was reached, and training went on"
            return
    for number, each in enumerate(() if _own_program(record) else curve[:-1], 1):
        exploded = first is not None and each.loss is not None and abs(each.loss) > 20.0 * max(abs(first), 1e-3)
        if each.loss is None or exploded:
            yield f"{_place(each)} the loss had diverged, and training went on"
            return
        if reason := _spent(record, number):
            yield f"{_place(each)} {reason}, and training went on"
            return


def _spent(record: Record, number: int) -> str:
    """The trainer's reason to stop at evaluation ``number`` (from 1), if the record shows one."""
    specification, curve = record.header.specification, record.evaluations[:number]
    latest = curve[-1]
    if specification.budget_s is not None and latest.t_ns > specification.budget_s * 1e9:
        return f"the budget of {specification.budget_s:g} s was spent"
    if specification.budget_samples is not None and latest.samples >= specification.budget_samples:
        return f"the budget of {specification.budget_samples} samples was spent"
    if specification.plateau is not None and (since := _since_best(record, number)) >= specification.plateau:
        return f"there had been no better quality in {since} evaluations"
    return ""


def _since_best(record: Record, number: int) -> int:
    target = record.header.specification.target
    sign = 1.0 if target.direction == "higher" else -1.0
    scores = [sign * each.quality.get(target.split, math.nan) for each in record.evaluations[:number]]
    return number - 1 - scores.index(max(scores))


def _end(record: Record) -> Iterator[str]:
    """The end of a finished run follows from its last evaluation."""
    end, curve = record.end, record.evaluations
    if end is None or end.status != "done":
        return
    if not curve:
        yield "it is done and has no evaluation"
        return
    if end.before_ns and record.checksum and not any(words in each for each in end.suspect for words in _CONTINUED):
        yield f"{_s(end.before_ns)} of it are of an earlier process, and it does not say that it resumed from one"
    last = curve[-1]
    for name, value in last.quality.items():
        if not _same(end.quality.get(name), value):
            yield f"{name} is {end.quality.get(name)} at the end, and {value} at the last evaluation"
            break
    if record.header.specification.distribution is None and not _own_program(record):
        moved = [name for name in _NOT_AFTER_TRAINING if end.phases_ns.get(name, 0) != last.phases_ns.get(name, 0)]
        if moved and end.phases_ns.get(moved[0], 0) > last.phases_ns.get(moved[0], 0):
            now, was = end.phases_ns.get(moved[0], 0), last.phases_ns.get(moved[0], 0)
            yield f"at the end the phase {moved[0]} has {_s(now)}, and {_s(was)} when training was over"
    yield from _reason_to_end(record, end)


def _reason_to_end(record: Record, end: End) -> Iterator[str]:
    """The stated reason for the end follows from the last evaluation."""
    why, count = end.stopped_by or "", len(record.evaluations)
    if (end.error is not None) != why.startswith("diverged") and why:
        yield f"it ended because of {why!r}, and its error is {end.error!r}"
    if why == "target reached" and _crossed(record) is None:
        yield "it ended because the target was reached, and its evaluations do not reach it"
    yield from _cut_short(record, why)
    kinds = ("s spent", "samples spent") if why.startswith("budget of ") else ("evaluations",)
    checked = why.startswith(("budget of ", "plateau"))
    if checked and why.endswith(kinds) and not _own_program(record) and not _spent(record, count):
        yield f"it ended because of {why!r}, which its last evaluation does not show"


def _cut_short(record: Record, why: str) -> Iterator[str]:
    """If all epochs are done, the last one is that of the budget or of the recipe's own setting."""
    specification, last = record.header.specification, record.evaluations[-1]
    own = specification.settings.get("epochs")
    if why != "all epochs done" or not isinstance(own, int | float) or specification.budget_samples is not None:
        return
    per_epoch = last.step / last.epoch if last.epoch > 0 else math.inf
    planned = min(specification.budget_epochs, float(own))
    if all(last.step != max(1, round(each * per_epoch)) for each in (specification.budget_epochs, float(own))):
        yield f"it ended because all epochs were done, after {last.epoch:g} of {planned:g}"


def _crossed(record: Record) -> int | None:
    """The index of the evaluation at which the run reached its target by its own rule."""
    from levelbench.measure.crossing import find_crossing

    specification = record.header.specification
    target = specification.target
    qualities = [each.quality.get(target.split, math.nan) for each in record.evaluations]
    found = find_crossing(qualities, target.threshold, direction=target.direction, rule=specification.crossing)
    return None if found is None else found.index


def _machine(record: Record) -> Iterator[str]:
    """The machine's counters cover the time of the run, and no more processor time than was available."""
    end, environment = record.end, record.header.environment
    if end is None or (own_s := _own_s(environment, end.environment_after)) is None:
        return
    # In the first schema, the time of an earlier process is unknown.
    here_s = (end.t_ns - end.before_ns) * _NS if record.checksum else 0.0
    yield from beyond_counters(environment, end.environment_after, "run", here_s)
    allowed = _number(_machine_of(environment).get("cores_allowed"))
    used = next((each.value for each in record.measurements if each.name == "cpu_utilisation"), None)
    if allowed is not None and used is not None and used * allowed * here_s > own_s + 1e-6:
        found = f"{used:.3g} of {allowed:g} cores over {here_s:.4g} s"
        yield f"the meter read {found}, and the process spent {own_s:.4g} s of processor time"


def beyond_counters(
    environment: Mapping[str, object], later: Mapping[str, object], what: str, took_s: float
) -> Iterator[str]:
    """Sentences if ``what`` took longer than passed between two captures, or more processor time than there was."""
    before, after = _counters(environment), _counters(later)
    if before is None or after is None:
        return
    passed = {name: after[name] - before[name] for name in before}
    window_s, cores = passed["at_s"], _number(_machine_of(environment).get("cores_logical"))
    if took_s > window_s + 1e-6:
        yield f"the {what} took {took_s:.6g} s, and {window_s:.6g} s passed between the readings around it"
    # At most, if it said so in both; time in which the machine was suspended only adds to it.
    kernel_s = after["uptime_to_s"] - before["uptime_from_s"]
    if 0 <= kernel_s < (window_s - _SOON_S) / _TICKS:
        yield f"{window_s:.4g} s passed by its clock, and {kernel_s:.4g} s by the kernel's"
    if cores is not None:
        most_s = cores * (_TICKS * window_s + _APART_S)
        ticks_s = passed["busy_s"] + passed["idle_s"] + passed["steal_s"]
        for who, spent_s in (("the process", passed["own_s"]), ("all processors", ticks_s)):
            if spent_s > most_s:
                yield f"{who} spent {spent_s:.4g} s of processor time in {window_s:.4g} s on {cores:g} cores"


def beyond_cores(environment: Mapping[str, object], spent_s: float, took_s: float) -> Iterator[str]:
    """A sentence if a process spent more processor time than the machine has in the time that it took."""
    cores = _number(_machine_of(environment).get("cores_logical"))
    if cores is not None and spent_s > cores * (_TICKS * took_s + _SOON_S):
        yield f"it spent {spent_s:.4g} s of processor time in {took_s:.4g} s on {cores:g} cores"


def _machine_of(environment: Mapping[str, object]) -> Mapping[str, Any]:
    from levelbench.measure.environment.compare import part_of  # imported here, since its package loads NumPy

    return part_of(environment, "machine")


def _own_s(environment: Mapping[str, object], later: Mapping[str, object]) -> float | None:
    before, after = _counters(environment), _counters(later)
    return None if before is None or after is None else after["own_s"] - before["own_s"]


def _meters(record: Record) -> Iterator[str]:
    """Each meter has one reading with a possible value, and the calendar time did not go back."""
    names = [each.name for each in record.measurements]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        yield f"it has more than one reading of {', '.join(twice)}"
    machine = record.header.environment.get("machine")
    alone = record.header.specification.distribution is None
    whole_b = _number(machine.get("memory_bytes")) if alone and isinstance(machine, dict) else None
    for each in record.measurements:
        if each.unit in _AMOUNTS and each.value is not None and not 0 <= each.value < math.inf:
            yield f"its {each.name} is {each.value:g} {each.unit}"
        elif each.unit == "J" and record.end and (each.value or 0.0) > _MOST_W * max(record.end.t_ns * _NS, _APART_S):
            yield f"its {each.name} is {each.value:.4g} J in {_s(record.end.t_ns)}, more than any machine takes"
        elif each.unit == "J" and record.end and _too_little(each.value, record.end.t_ns * _NS):
            yield f"its {each.name} is {each.value:.4g} J in {_s(record.end.t_ns)}, less than any machine takes"
        elif each.name == "peak_memory" and each.value is not None and each.value < _LEAST_B:
            yield f"its peak memory is {each.value:,.0f} B, less than any process takes"
        elif each.name == "peak_memory" and whole_b and (each.value or 0.0) > _MOST_MEMORY * whole_b:
            yield f"its peak memory is {each.value:.4g} B, on a machine that has {whole_b:.4g} B"
    performed = sum(each.value or 0.0 for each in record.measurements if each.name.startswith("operations/"))
    computing_s = sum(record.end.phases_ns.values()) * _NS if record.end else 0.0
    if record.evaluations and performed * record.evaluations[-1].samples > _MOST_FLOP_S * max(computing_s, 1e-3):
        rate = performed * record.evaluations[-1].samples / max(computing_s, 1e-3)
        yield f"its operations an example make {rate:.3g} operations a second, more than any machine performs"
    before = record.header.environment.get("before_clock")
    for name, value in before.items() if isinstance(before, dict) else ():
        if (_number(value) or 0.0) < 0:
            yield f"before its clock started it spent {value:g} s ({name})"
    if record.end is not None and record.end.witness is None and (back := set_back(record)):
        yield back


def _too_little(energy_j: float | None, seconds: float) -> bool:
    """Whether it is less than any machine takes; counters that have not moved yet say so of short runs."""
    return energy_j is not None and seconds > _COUNTED_S and energy_j < _LEAST_W * seconds


def set_back(record: Record) -> str:
    """A sentence if the calendar time went back during the run, else empty; other clocks may confirm its times."""
    looked = record.end.environment_after.get("time") if record.end is not None else None
    after, started = instant_s(looked), instant_s(record.header.started)
    if after is None or started is None or after >= started - _BEGINNING_S:
        return ""
    return f"its environment was captured after it at {looked}, and it started at {record.header.started}"


def _counters(environment: Mapping[str, object]) -> dict[str, float] | None:
    load = environment.get("load")
    found = load.get("counters") if isinstance(load, dict) else None
    if not isinstance(found, dict):
        return None
    values = {name: _number(found.get(name)) for name in ("at_s", "own_s", "busy_s", "idle_s", "steal_s")}
    known = {name: value for name, value in values.items() if value is not None}
    if len(known) < len(values):
        return None
    least, most = (_number(found.get(name)) for name in ("uptime_from_s", "uptime_to_s"))
    return known | {"uptime_from_s": -math.inf if least is None else least, "uptime_to_s": most or math.inf}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _ints(samples: Samples | None) -> list[int] | None:
    if samples is None:
        return []
    values: list[Any] = list(samples.values)
    whole = samples.unit == "ns" and {*map(type, values)} <= {int} and min(values, default=0) >= 0
    return values if whole else None


def _points(record: Record) -> list[Evaluation | End]:
    """The lines that state how much time has passed, in order."""
    return [*record.evaluations] if record.end is None else [*record.evaluations, record.end]


def _place(each: Evaluation | End) -> str:
    return f"at step {each.step}" if isinstance(each, Evaluation) else "at the end"


def _same(one: float | None, other: float) -> bool:
    return one == other or (one is not None and math.isnan(one) and math.isnan(other))


def _s(ns: int) -> str:
    return f"{ns * _NS:.6g} s"
