"""Makes ONNX Runtime's sessions and runs them on its own values, without a copy and with errors that say what is meant.

The one idea: ``run_with_ortvaluevector`` takes and gives native values on any device. ``run_with_ort_values`` does so
too, but its Python wrapper iterates over a C++ vector, whose end costs 40 microseconds at each call.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnxruntime
from onnxruntime import OrtValue
from onnxruntime.capi import onnxruntime_pybind11_state as native

from levelbench.errors import UnsupportedError, UsageError

__all__ = ["Device", "Preparation", "Session", "WrongInputError", "lacking_device", "spins", "threads"]

_REFUSALS = (
    native.EPFail,
    native.Fail,
    native.InvalidArgument,
    native.InvalidGraph,
    native.InvalidProtobuf,
    native.NotImplemented,
    native.RuntimeException,
    RuntimeError,
)
WrongInputError = native.InvalidArgument
"""What a session raises for values of another type than its inputs', and kernels for values that they cannot take."""
Preparation = Callable[[onnxruntime.SessionOptions], None]
_FATAL = 4
_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ")


@dataclass(frozen=True)
class Device:
    """Where values lie and sessions run."""

    kind: str
    index: int = 0

    @classmethod
    def parse(cls, text: str) -> Device:
        """``cpu``, ``cuda`` or ``cuda:N``; ``UsageError`` for anything else."""
        kind, _, index = text.partition(":")
        if kind not in ("cpu", "cuda") or (index and not (kind == "cuda" and index.isdecimal())):
            raise UsageError(f"device {text!r}", "it is none of cpu, cuda and cuda:N", "give one of these")
        return cls(kind, int(index or 0))

    @property
    def providers(self) -> list[str | tuple[str, dict[str, int]]]:
        """The execution providers of a session."""
        cpu = "CPUExecutionProvider"
        return [cpu] if self.kind == "cpu" else [("CUDAExecutionProvider", {"device_id": self.index}), cpu]

    def native(self) -> native.OrtDevice:
        """ONNX Runtime's own description of the device."""
        return onnxruntime.OrtDevice.make(self.kind, self.index)._get_c_device()


def lacking_device(device: str) -> str | None:
    """``None`` if this build of ONNX Runtime can use ``device``, else the reason."""
    try:
        wanted = Device.parse(device)
    except UsageError:
        return f"this adapter runs on cpu and cuda, not on {device}"
    if wanted.kind == "cpu" or "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        return None
    return "this build of ONNX Runtime has no CUDAExecutionProvider: pip install onnxruntime-gpu"


def threads() -> int:
    """Threads of one operator: what ``OMP_NUM_THREADS`` says, else the cores that this process may use."""
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return len({_siblings(cpu) for cpu in usable})


def spins() -> bool:
    """Whether idle threads go on spinning after a call: ONNX Runtime's default, unless ``OMP_WAIT_POLICY=passive``.

    Spinning takes a core from whatever else the process does in the next 20 milliseconds and more; without it a call
    whose work is shared among threads takes some 25 microseconds longer, until they have woken up.
    """
    return os.environ.get("OMP_WAIT_POLICY", "").strip().lower() != "passive"


def _siblings(cpu: int) -> str:
    """The hardware threads that share a core with ``cpu``: ONNX Runtime, too, starts one thread a core."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(cpu)


class Session:
    """A model made ready: native values in and out, in the order of ``inputs`` and ``outputs``."""

    def __init__(
        self,
        model: onnx.ModelProto,
        device: Device,
        asked: str,
        *,
        only_device: bool = False,
        prepare: Preparation | None = None,
    ) -> None:
        """Raises ``UnsupportedError`` with ONNX Runtime's own words where it refuses.

        ``only_device`` refuses a model that would, in part, be computed on the CPU instead of ``device``; ``prepare``
        completes the options: how far to optimise, which arrays are given, whether it is profiled.
        """
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads()
        options.log_severity_level = _FATAL
        if not spins():
            options.add_session_config_entry("session.force_spinning_stop", "1")
        if only_device and device.kind != "cpu":
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        if prepare is not None:
            prepare(options)
        text = model.SerializeToString()
        try:
            # Falling back to other providers would be a silent change of what is measured.
            self.session = onnxruntime.InferenceSession(text, options, device.providers, enable_fallback=0)
        except _REFUSALS as error:
            raise _refusal(asked, error) from error
        self.inputs = [each.name for each in self.session.get_inputs()]
        self.outputs = [each.name for each in self.session.get_outputs()]
        self._asked = asked
        self._options = onnxruntime.RunOptions()
        self._options.log_severity_level = _FATAL
        self._devices = [device.native()] * len(self.outputs)
        self._run = self.session.run_with_ortvaluevector
        self._rest = range(1, len(self.outputs))

    def run(self, values: Sequence[OrtValue], names: Sequence[str] | None = None) -> tuple[OrtValue, ...]:
        """The outputs, given values of the inputs ``names`` (``None``: of all); an optional one may be left out.

        Raises ONNX Runtime's own exceptions where it fails, ``UnsupportedError`` where it says that it has no kernel.
        """
        feeds, found = native.OrtValueVector(), native.OrtValueVector()
        feed = feeds.push_back
        for value in values:
            feed(value._ortvalue)
        names = self.inputs if names is None else names
        try:
            self._run(self._options, names, feeds, self.outputs, found, self._devices)
        except native.NotImplemented as error:
            raise _refusal(self._asked, error) from error
        # Iterating over the vector would cost 40 microseconds: its end is a C++ exception.
        first = OrtValue(found[0])
        return (first, *[OrtValue(found[at]) for at in self._rest]) if self._rest else (first,)


def _refusal(asked: str, error: Exception) -> UnsupportedError:
    return UnsupportedError(f"{asked} on ONNX Runtime", _first_line(error), "use another framework")


def _first_line(error: Exception) -> str:
    """What it says, without its code and without the signature of the C++ function that says it."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    words = _CODE.sub("", lines[0])
    return words.rpartition("&) ")[2].rstrip(". ")
