"""A custom operator in a process of its own: one that crashes is reported and takes nothing with it.

Arrays travel as raw bytes in files and everything else as JSON, so nothing that the operator's process writes is
executed when it is read.
"""

from __future__ import annotations

import faulthandler
import inspect
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import ml_dtypes  # noqa: F401  # it teaches NumPy the name bfloat16
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

__all__ = ["Isolated", "answer", "read_arrays", "run_isolated", "write_arrays"]

Described = Mapping[str, Any]
"""Where an array lies, its dtype and its shape, as JSON."""


def write_arrays(folder: Path, kind: str, arrays: Sequence[NDArray[Any] | None]) -> list[Described | None]:
    """Write each to ``folder/<kind>-<number>``; the answer describes them."""
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
    """The arrays; ``DataError`` for a file that is not what its description says, or is not in ``folder``."""
    return [None if each is None else _read(folder, each) for each in described]


def _read(folder: Path, said: Described) -> NDArray[Any]:
    file = folder / Path(str(said["file"])).name
    try:
        dtype = np.dtype(str(said["dtype"]))
        if dtype.hasobject:
            raise TypeError(f"{dtype} holds Python objects")
        return np.fromfile(file, dtype).reshape([int(size) for size in said["shape"]])
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"the array {file.name}", str(error), "run the operator again") from None


class Isolated(NamedTuple):
    """What an operator answered in its own process; ``input_gradients`` is ``None`` if no backward was asked for."""

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
    """Forward on ``inputs`` and, given ``gradients`` (one an output), backward.

    ``operator`` is a file (with ``name``, where it defines several), or a class or an operator whose file is known. The
    outputs of a compiled one hold 0xFF bytes (NaN, -1) where it writes nothing.

    Raises ``CheckFailedError`` for an operator that crashes, saying by which signal and in what, that does not end
    within ``timeout_s`` seconds, or that raises an exception; what levelbench itself refuses is raised as it is there.
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
    """The file, the name and the attributes of what is to be run."""
    if isinstance(operator, str | Path):
        return Path(operator), name, attributes or {}
    if isinstance(operator, CustomOperator):
        attributes = {**operator.attributes, **(attributes or {})}
        operator = type(operator)
    try:
        file = operator.__dict__["source"] if "source" in operator.__dict__ else inspect.getfile(operator)
    except (TypeError, OSError):
        found = "its class is in no file, so another process cannot load it"
        raise DefinitionError(f"operator {operator.name} in its own process", found, "write it to a file") from None
    return Path(file), operator.name, attributes or {}


def _failure(asked: str, stage: str, code: int | None, timeout_s: float) -> CheckFailedError:
    """How the process ended, without an answer; ``code`` is ``None`` at its time limit."""
    if code is None:
        return CheckFailedError(asked, f"its {stage} was not done after {timeout_s:g} s", "look for an endless loop")
    if code < 0:
        return CheckFailedError(asked, f"its {stage} was ended by {_signal(-code)}", "look for what it wrote beyond")
    return CheckFailedError(asked, f"its {stage} ended the process with status {code}", "return instead")


_MEANINGS: Final = {
    signal.SIGSEGV: "it read or wrote memory that is not its own",
    signal.SIGBUS: "it read or wrote memory that is not there",
    signal.SIGABRT: "it aborted, or freed memory that it had corrupted",
    signal.SIGFPE: "it divided an integer by zero",
    signal.SIGILL: "it ran an instruction that this processor has not",
    signal.SIGKILL: "something ended it, for want of memory perhaps",
}


def _signal(number: int) -> str:
    """``SIGSEGV (it read or wrote memory that is not its own)``."""
    try:
        found = signal.Signals(number)
    except ValueError:
        return f"signal {number}"
    return f"{found.name} ({_MEANINGS.get(found, signal.strsignal(number))})"


# In the process of the operator, which says what it is at (loading, forward, backward) and then its answer.


def answer(request: JsonLine, say: Say) -> None:
    """Do what the request asks: what a process does for :func:`run_isolated`."""
    # Where a signal ends it, what it was at goes to standard error.
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
    except (Exception, SystemExit) as error:  # the boundary to code that is not ours
        found = f"its {stage} raised {type(error).__name__}: {error}"
        raise CheckFailedError(request["asked"], found, "correct the operator or its inputs") from error
    at("end")
    say({"outputs": written, "input_gradients": slopes})


def _choose(classes: list[type[CustomOperator]], request: JsonLine) -> CustomOperator:
    known = {each.name: each for each in classes}
    name = request["name"]
    if not name and len(known) > 1:
        raise UsageError(request["path"], f"it defines {', '.join(known)}", "say which by its name")
    if name and name not in known:
        raise UnknownNameError("operator of the file", name, known)
    return (known[name] if name else classes[0])(**request["attributes"])
