"""Runs a custom operator in its own process, so that a crash is reported and does no harm.

Arrays are passed as raw bytes in files and everything else as JSON, so reading what the operator's process writes never
executes anything.
"""

from __future__ import annotations

import faulthandler
import inspect
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import ml_dtypes  # noqa: F401  # registers the name bfloat16 with NumPy
import numpy as np
from numpy.typing import NDArray

from levelbench.checks import isolation
from levelbench.checks.isolation import JsonLine, Say
from levelbench.errors import (
    CheckFailedError,
    DataError,
    DefinitionError,
    LevelbenchError,
    UnknownNameError,
    UsageError,
)
from levelbench.operators.custom import host
from levelbench.operators.custom.compiled import CompiledOperator
from levelbench.operators.custom.definition import Attribute, CustomOperator
from levelbench.operators.custom.library import load_file

Described = Mapping[str, Any]
"""The file, dtype and shape of an array, as JSON."""


def write_arrays(folder: Path, kind: str, arrays: Sequence[NDArray[Any] | None]) -> list[Described | None]:
    """Write each to ``folder/<kind>-<number>``; returns their descriptions."""
    described: list[Described | None] = []
    for at, each in enumerate(arrays):
        if each is None:
            described.append(None)
            continue
        native = np.asarray(each, each.dtype.newbyteorder("="), order="C")
        (folder / f"{kind}-{at}").write_bytes(native.tobytes())
        described.append({"file": f"{kind}-{at}", "dtype": native.dtype.name, "shape": list(native.shape)})
    return described


def read_arrays(folder: Path, described: Sequence[Described | None]) -> list[NDArray[Any] | None]:
    """The arrays; ``DataError`` for a file that does not match its description or is not in ``folder``."""
    return [None if each is None else _read(folder, each) for each in described]


def _read(folder: Path, described: Described) -> NDArray[Any]:
    file = folder / Path(str(described["file"])).name
    try:
        dtype = np.dtype(str(described["dtype"]))
        if dtype.hasobject:
            raise TypeError(f"{dtype} holds Python objects")
        return np.fromfile(file, dtype).reshape([int(size) for size in described["shape"]])
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"the array {file.name}", str(error), "run the operator again") from None


class Isolated(NamedTuple):
    """The results of an operator in its own process; ``input_gradients`` is ``None`` if no backward was requested."""

    outputs: tuple[NDArray[Any], ...]
    input_gradients: tuple[NDArray[Any] | None, ...] | None


def run_isolated(
    operator: str | Path | type[CustomOperator] | CustomOperator,
    inputs: Sequence[NDArray[Any]],
    *,
    name: str = "",
    attributes: Mapping[str, Attribute] | None = None,
    gradients: Sequence[NDArray[Any] | None] | None = None,
    timeout_s: float = 60.0,
) -> Isolated:
    """Run forward on ``inputs`` and, given ``gradients`` (one per output), backward.

    ``operator`` is a file (with ``name``, if it defines several), or a class or an operator whose file is known. The
    outputs of a compiled operator hold 0xFF bytes (NaN, -1) where it writes nothing.

    Raises ``CheckFailedError`` for an operator that crashes (with the signal and the stage), does not end within
    ``timeout_s`` seconds, or raises an exception. levelbench's own errors are raised unchanged.
    """
    path, name, attributes = _place(operator, name, attributes)
    asked = f"operator {name or path.name} in its own process"
    heard: JsonLine = {"stage": "start"}
    with tempfile.TemporaryDirectory(prefix="levelbench-") as made:
        folder = Path(made)
        request = {
            "asked": asked,
            "folder": made,
            "path": str(path.resolve()),
            "name": name,
            "attributes": dict(attributes),
            "inputs": write_arrays(folder, "input", inputs),
            "gradients": None if gradients is None else write_arrays(folder, "gradient", gradients),
        }
        ended = isolation.run_isolated(f"{__name__}:answer", request, heard.update, timeout_s=timeout_s)
        if ended.error is not None:
            raise ended.error
        if ended.how or "outputs" not in heard:
            failure = _failure(asked, heard["stage"], ended.code, timeout_s)
            failure.trace = ended.printed
            raise failure
        outputs = read_arrays(folder, heard["outputs"])
        found = heard["input_gradients"]
        slopes = None if found is None else tuple(read_arrays(folder, found))
        return Isolated(tuple(each for each in outputs if each is not None), slopes)


def _place(
    operator: str | Path | type[CustomOperator] | CustomOperator, name: str, attributes: Mapping[str, Attribute] | None
) -> tuple[Path, str, Mapping[str, Attribute]]:
    """The file, name and attributes of the operator to run."""
    if isinstance(operator, str | Path):
        return Path(operator), name, attributes or {}
    if isinstance(operator, CustomOperator):
        attributes = {**operator.attributes, **(attributes or {})}
        operator = type(operator)
    try:
        file = operator.__dict__["source"] if "source" in operator.__dict__ else inspect.getfile(operator)
    except (TypeError, OSError):
        found = "its class is not in a file, so another process cannot load it"
        raise DefinitionError(f"operator {operator.name} in its own process", found, "write it to a file") from None
    return Path(file), operator.name, attributes or {}


def _failure(asked: str, stage: str, code: int | None, timeout_s: float) -> CheckFailedError:
    """How the process ended without a result; ``code`` is ``None`` at its time limit."""
    if code is None:
        return CheckFailedError(asked, f"its {stage} did not finish in {timeout_s:g} s", "look for an endless loop")
    if code < 0:
        return CheckFailedError(asked, f"its {stage} was ended by {_signal(-code)}", "look for an out-of-bounds access")
    return CheckFailedError(asked, f"its {stage} ended the process with status {code}", "return instead")


_MEANINGS: Final = {
    signal.SIGSEGV: "it accessed invalid memory",
    signal.SIGBUS: "it accessed memory that does not exist",
    signal.SIGABRT: "it aborted, or freed corrupted memory",
    signal.SIGFPE: "it divided an integer by zero",
    signal.SIGILL: "it executed an instruction that this processor lacks",
    signal.SIGKILL: "it was killed, perhaps for lack of memory",
}


def _signal(number: int) -> str:
    """``SIGSEGV (it accessed invalid memory)``."""
    try:
        found = signal.Signals(number)
    except ValueError:
        return f"signal {number}"
    return f"{found.name} ({_MEANINGS.get(found, signal.strsignal(number))})"


# In the operator's process, which reports each stage (loading, forward, backward) and then the result.


def answer(request: JsonLine, say: Say) -> None:
    """The part of :func:`run_isolated` that runs in the other process."""
    # If a signal ends the process, its stack goes to standard error.
    faulthandler.enable()
    stage = "start"

    def at(name: str) -> None:
        nonlocal stage
        stage = name
        say({"stage": name})

    folder, slopes = Path(request["folder"]), None
    try:
        at("loading")
        operator = _choose(load_file(request["path"]), request)
        if isinstance(operator, CompiledOperator):
            operator.poison = True
        inputs = [each for each in read_arrays(folder, request["inputs"]) if each is not None]
        at("forward")
        outputs = host.forward(operator, inputs)
        written = write_arrays(folder, "output", outputs)
        if request["gradients"] is not None:
            gradients = read_arrays(folder, request["gradients"])
            at("backward")
            slopes = write_arrays(folder, "slope", host.backward(operator, gradients, inputs, outputs))
    except LevelbenchError:
        raise
    except (Exception, SystemExit) as error:  # the boundary to foreign code
        found = f"its {stage} raised {type(error).__name__}: {error}"
        raise CheckFailedError(request["asked"], found, "correct the operator or its inputs") from error
    at("end")
    say({"outputs": written, "input_gradients": slopes})


def _choose(classes: list[type[CustomOperator]], request: JsonLine) -> CustomOperator:
    known = {each.name: each for each in classes}
    name = request["name"]
    if not name and len(known) > 1:
        raise UsageError(request["path"], f"it defines {', '.join(known)}", "choose one by its name")
    if name and name not in known:
        raise UnknownNameError("operator of the file", name, known)
    return (known[name] if name else classes[0])(**request["attributes"])
