"""The process of an isolated operator: ``python -m levelbench.operators.custom.worker FOLDER``.

It reads ``request.json``, says in ``stage`` what it is at, and leaves ``answer.json``.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

from levelbench.errors import LevelbenchError, UnknownNameError, UsageError
from levelbench.operators.custom import host
from levelbench.operators.custom.compiled import CompiledOperator
from levelbench.operators.custom.definition import CustomOperator
from levelbench.operators.custom.exchange import read_arrays, write_arrays
from levelbench.operators.custom.library import load_file

__all__ = ["main"]


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
