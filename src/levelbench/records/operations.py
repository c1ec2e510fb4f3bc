"""Operations of a run: how many to its target, in which precision, and at what share of a measured peak.

A record holds the operations of one training example, counted from the network: products alone, forward and for the
gradients that are needed, two for a multiply-add, without bias and without recomputation. Operations
to the target are these times the examples until then; evaluations are not counted, but their time is.

The peak of a machine is not in a run's record. It comes from other measurements in the store: ``levelbench operator``
and ``levelbench network`` measure the rate of a large matrix product with the same machine, device and threads.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from levelbench.errors import LevelbenchError

if TYPE_CHECKING:
    from levelbench.records.summary import RunSummary

__all__ = ["MeasuredCeiling", "OperationsUse", "measured_ceiling"]
__all__ += ["measured_peaks", "peaks_of", "use_of_operations"]


class OperationsUse(Struct, frozen=True):
    """What a run that reached its target did with its time.

    ``to_target`` are operations; ``shares`` their share by precision, which sum to 1. ``flop_s`` is their rate over the
    time to accuracy on the run's clock. ``utilisation`` is that rate over the peak, if a ``ceiling`` of each precision
    was measured; otherwise ``reason`` says what is missing.
    """

    to_target: float
    shares: dict[str, float]
    flop_s: float
    utilisation: float | None
    ceiling: dict[str, float]
    reason: str | None


_HOW = (
    "the store has none of this machine with these threads (those of doctor and analyze roofline are not kept); "
    "to record one: levelbench operator MatMul --shape A=2048x2048 --shape B=2048x2048 --framework "
)


def use_of_operations(run: RunSummary, peaks: Mapping[str, MeasuredCeiling] | None = None) -> OperationsUse | None:
    """From a summary and the peaks by precision; ``None`` without operations, or for a run that missed its target.

    An accelerator that may have used TF32 for float32 is held to a peak of either.

    With several precisions each share takes its time at its own peak.
    """
    per_example = sum(run.operations_per_example.values())
    if not per_example or not run.samples_to_target or not run.time_to_accuracy_s:
        return None
    shares = {name: each / per_example for name, each in run.operations_per_example.items()}
    total = per_example * run.samples_to_target
    rate = total / run.time_to_accuracy_s
    if run.distribution is not None:
        return OperationsUse(total, shares, rate, None, {}, "a measured peak is that of one process, not of a team")
    if lacking := sorted(set(shares) - set(peaks or {})):
        reason = f"no peak in {', '.join(lacking)}: {_HOW}{run.framework}"
        return OperationsUse(total, shares, rate, None, {}, reason)
    ceiling = {name: (peaks or {})[name].flop_s for name in shares}
    at_peak_s = sum(share / ceiling[name] for name, share in shares.items())
    return OperationsUse(total, shares, rate, rate * at_peak_s, ceiling, None)


def peaks_of(run: RunSummary) -> dict[str, MeasuredCeiling]:
    """The peaks by precision of the machine and device of a run, from the store in which its record lies."""
    from levelbench.records.benchmarks import FOLDER as OF_OPERATORS
    from levelbench.records.networks import FOLDER as OF_NETWORKS

    for folder in list(Path(run.path).parents)[:_DEPTH]:
        if (folder / OF_NETWORKS).is_dir() or (folder / OF_OPERATORS).is_dir():
            return measured_peaks(folder, run.environment, run.device)
    return {}


_DEPTH = 4
"""A record lies in a folder for its day in one for its task."""
_NEWEST = 200
"""The most records that are searched, newest first: a measurement has one record per process."""
_HALF = {"bfloat16", "float16"}


class MeasuredCeiling(Struct, frozen=True):
    """Operations per second, the precision, and the id of the record with the measurement."""

    flop_s: float
    precision: str
    record: str


class _Arm(Struct, frozen=True):
    device: str = ""


class _Specification(Struct, frozen=True):
    device: str = ""
    arm: _Arm = _Arm()


class _Rate(Struct, frozen=True):
    value: float


class _Ceilings(Struct, frozen=True):
    flop_s: dict[str, _Rate] = {}


class _Head(Struct, frozen=True):
    id: str
    specification: _Specification
    environment: dict[str, Any]
    ceilings: _Ceilings = _Ceilings()


_DECODER = msgspec.json.Decoder(_Head)


def measured_peaks(store: Path, environment: Mapping[str, object], device: str) -> dict[str, MeasuredCeiling]:
    """By precision, the highest rate that the records in ``store`` have for this machine and device.

    Unreadable records are skipped.
    """
    from levelbench.records.benchmarks import FOLDER as OF_OPERATORS
    from levelbench.records.networks import FOLDER as OF_NETWORKS
    from levelbench.records.reader import open_record, read_line

    wanted, dated, heads = _place(environment), [], []
    for path in (path for folder in (OF_NETWORKS, OF_OPERATORS) for path in (store / folder).glob("*/*/*.jsonlines")):
        with suppress(OSError):
            dated.append((os.lstat(path).st_mtime_ns, path))
    for _, path in sorted(dated, reverse=True)[:_NEWEST]:
        with suppress(LevelbenchError, msgspec.MsgspecError, UnicodeDecodeError), open_record(path, str(path)) as file:
            heads.append(_DECODER.decode(read_line(file, 1, str(path))))
    found: dict[str, MeasuredCeiling] = {}
    for head in heads:
        if (head.specification.device or head.specification.arm.device) != device or _place(head.environment) != wanted:
            continue
        for precision, rate in head.ceilings.flop_s.items():
            if math.isfinite(rate.value) and rate.value > 0:
                best = found.get(precision)
                if best is None or rate.value > best.flop_s:
                    found[precision] = MeasuredCeiling(rate.value, precision, head.id)
    return found


def measured_ceiling(
    store: Path, environment: Mapping[str, object], device: str, precision: str = "float32"
) -> MeasuredCeiling | None:
    """The highest rate in any precision that the records in ``store`` have for this machine and device.

    ``None`` unless they cover the fastest precision that may have run: ``precision`` on a CPU, elsewhere a 16-bit one,
    since an accelerator may use it unasked.
    """
    found = measured_peaks(store, environment, device)
    fastest = {precision} if device == "cpu" else _HALF
    return None if fastest.isdisjoint(found) else max(found.values(), key=lambda each: each.flop_s)


def _place(environment: Mapping[str, object]) -> tuple[str, object, object]:
    """The machine, the number of cores it may use (limited by a container or ``taskset``), and the thread settings.

    The thread settings that were set, not the loaded libraries: those differ with the framework.
    """
    from levelbench.measure.environment import machine_of

    machine, threads = environment.get("machine"), environment.get("threads")
    cores = machine.get("cores_allowed") if isinstance(machine, Mapping) else None
    settings = threads.get("settings") if isinstance(threads, Mapping) else None
    return machine_of(environment), cores, settings or {}
