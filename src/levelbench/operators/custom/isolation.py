"""A custom operator in a process of its own (``python -m levelbench.operators.custom.isolation FOLDER``).

One that crashes is reported and takes nothing with it. Arrays travel as raw bytes in files and everything else as JSON,
so nothing that the operator's process writes is executed when it is read.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import ml_dtypes  # noqa: F401  # it teaches NumPy the name bfloat16
import numpy as np
from numpy.typing import NDArray

from levelbench import errors
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
from levelbench.operators.custom.definition import CustomOperator
from levelbench.operators.custom.library import load_file

__all__ = ["Isolated", "main", "read_arrays", "run_isolated", "write_arrays"]


def write_arrays(folder: Path, kind: str, arrays: Sequence[NDArray[Any] | None]) -> list[dict[str, Any] | None]:
    """Write each to ``folder/<kind>-<number>``; the answer describes them."""
    described: list[dict[str, Any] | None] = []
    for at, each in enumerate(arrays):
        if each is None:
            described.append(None)
            continue
        native = np.asarray(each, each.dtype.newbyteorder("="), order="C")
        (folder / f"{kind}-{at}").write_bytes(native.tobytes())
        described.append({"file": f"{kind}-{at}", "dtype": native.dtype.name, "shape": list(native.shape)})
    return described


def read_arrays(folder: Path, described: Sequence[Mapping[str, Any] | None]) -> list[NDArray[Any] | None]:
    """The arrays; ``DataError`` for a file that is not what its description says, or is not in ``folder``."""
    return [None if each is None else _read(folder, each) for each in described]


def _read(folder: Path, said: Mapping[str, Any]) -> NDArray[Any]:
    file = folder / Path(str(said["file"])).name
    try:
        dtype = np.dtype(str(said["dtype"]))
        if dtype.hasobject:
            raise TypeError(f"{dtype} holds Python objects")
        return np.fromfile(file, dtype).reshape([int(size) for size in said["shape"]])
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"the array {file.name}", str(error), "run the operator again") from None


# Runs a custom operator in a process of its own, so that one that crashes is reported and takes nothing with it.


_PACKAGES: Final = str(Path(__file__).resolve().parents[3])


class Isolated(NamedTuple):
    """What an operator answered in its own process; ``input_gradients`` is ``None`` if no backward was asked for."""

    outputs: tuple[NDArray[Any], ...]
    input_gradients: tuple[NDArray[Any] | None, ...] | None


def run_isolated(
    operator: str | Path | type[CustomOperator] | CustomOperator,
    inputs: Sequence[NDArray[Any]],
    *,
    name: str = "",
    attributes: Mapping[str, Any] | None = None,
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
    with tempfile.TemporaryDirectory(prefix="levelbench-") as made:
        folder = Path(made)
        request = {
            "path": str(path.resolve()),
            "name": name,
            "attributes": dict(attributes),
            "inputs": write_arrays(folder, "input", inputs),
            "gradients": None if gradients is None else write_arrays(folder, "gradient", gradients),
        }
        (folder / "request.json").write_text(json.dumps(request))
        said = _run(folder, f"operator {name or path.name} in its own process", timeout_s)
        answer = json.loads((folder / "answer.json").read_text())
        if "error" in answer:
            raise _again(answer["error"], said)
        outputs = read_arrays(folder, answer["outputs"])
        found = answer["input_gradients"]
        slopes = None if found is None else tuple(read_arrays(folder, found))
        return Isolated(tuple(each for each in outputs if each is not None), slopes)


def _place(
    operator: str | Path | type[CustomOperator] | CustomOperator, name: str, attributes: Mapping[str, Any] | None
) -> tuple[Path, str, Mapping[str, Any]]:
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


def _run(folder: Path, asked: str, timeout_s: float) -> str:
    """What the process said on its standard error; ``CheckFailedError`` unless it left an answer."""
    inherited = os.environ.get("PYTHONPATH")
    paths = os.pathsep.join([_PACKAGES, *([inherited] if inherited else [])])
    words = [sys.executable, "-X", "faulthandler", "-m", "levelbench.operators.custom.isolation", str(folder)]
    with (folder / "said").open("wb") as sink:
        # A session of its own, so that what it starts ends with it.
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env={**os.environ, "PYTHONPATH": paths},
            start_new_session=True,
        )
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
    said = (folder / "said").read_text(errors="replace")
    stage = _stage(folder)
    if code is None:
        failure = CheckFailedError(asked, f"its {stage} was not done after {timeout_s:g} s", "look for an endless loop")
    elif code < 0:
        failure = CheckFailedError(asked, f"its {stage} was ended by {_signal(-code)}", "look for what it wrote beyond")
    elif code > 0 or not (folder / "answer.json").is_file():
        failure = CheckFailedError(asked, f"its {stage} ended the process with status {code}", "return instead")
    else:
        return said
    failure.trace = said
    raise failure


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing of the process running, nor of what it started, also where it ended well itself."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _stage(folder: Path) -> str:
    """What the process was at: loading, forward or backward."""
    file = folder / "stage"
    return file.read_text(errors="replace").strip() if file.is_file() else "start"


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


def _again(said: Mapping[str, str], trace: str) -> LevelbenchError:
    """The error of the other process: one of ours by its name, ``CheckFailedError`` for any other."""
    kind = getattr(errors, said["kind"], None) if said["kind"] in errors.__all__ else None
    cls = kind if isinstance(kind, type) and issubclass(kind, LevelbenchError) else CheckFailedError
    failure = cls.__new__(cls)
    LevelbenchError.__init__(failure, said["asked"], said["found"], said["do"])
    failure.trace = said.get("trace") or trace
    return failure


# The process of an isolated operator: It reads ``request.json``, says in ``stage`` what it is at, and leaves
# ``answer.json``.


def main(folder: Path) -> None:
    """Do what the request asks, and write the answer."""
    request = json.loads((folder / "request.json").read_text())
    try:
        answer = _answer(folder, request)
    except LevelbenchError as error:
        answer = {"error": _error(type(error).__name__, error.asked, error.found, error.do, error.trace)}
    except (Exception, SystemExit) as error:  # noqa: BLE001  # the boundary to code that is not ours
        asked = f"operator {request['name'] or Path(request['path']).name} in its own process"
        stage = (folder / "stage").read_text()
        found = f"its {stage} raised {type(error).__name__}: {error}"
        trace = traceback.format_exc()
        answer = {"error": _error("CheckFailedError", asked, found, "correct the operator or its inputs", trace)}
    (folder / "answer.json").write_text(json.dumps(answer))


def _error(kind: str, asked: str, found: str, do: str, trace: str) -> dict[str, str]:
    return {"kind": kind, "asked": asked, "found": found, "do": do, "trace": trace}


def _answer(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    stage = folder / "stage"
    stage.write_text("loading")
    operator = _choose(load_file(request["path"]), request)
    if isinstance(operator, CompiledOperator):
        operator.poison = True
    inputs = [each for each in read_arrays(folder, request["inputs"]) if each is not None]
    stage.write_text("forward")
    outputs = host.forward(operator, inputs)
    answer: dict[str, Any] = {"outputs": write_arrays(folder, "output", outputs), "input_gradients": None}
    if request["gradients"] is not None:
        gradients = read_arrays(folder, request["gradients"])
        stage.write_text("backward")
        slopes = host.backward(operator, gradients, inputs, outputs)
        answer["input_gradients"] = write_arrays(folder, "slope", slopes)
    stage.write_text("end")
    return answer


def _choose(classes: list[type[CustomOperator]], request: dict[str, Any]) -> CustomOperator:
    known = {each.name: each for each in classes}
    name = request["name"]
    if not name and len(known) > 1:
        raise UsageError(request["path"], f"it defines {', '.join(known)}", "say which by its name")
    if name and name not in known:
        raise UnknownNameError("operator of the file", name, known)
    return (known[name] if name else classes[0])(**request["attributes"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
