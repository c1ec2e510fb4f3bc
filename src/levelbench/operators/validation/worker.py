"""Checks one operator in a process of its own: ``python -m ...worker`` reads a request on its input.

The request is a line of JSON; lines of JSON go out: what is being tried, each finding as it comes, and at last the
answer or the error. A path on the command line is where the deviation from the reference is written.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from levelbench.errors import LevelbenchError
from levelbench.measure.lifetime import die_with_parent
from levelbench.operators.validation.files import Request, check_in_file, operator_names


def main() -> None:
    """Carry out the request on standard input."""
    die_with_parent()
    # What an operator prints must not come between our lines.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")

    def say(**line: Any) -> None:
        print(json.dumps(line), file=answers)

    try:
        _carry_out(json.loads(sys.stdin.readline()), say)
    except LevelbenchError as error:
        traceback.print_exc()
        say(error={"kind": type(error).__name__, "parts": [error.asked, error.found, error.do]})


def _carry_out(request: dict[str, Any], say: Callable[..., None]) -> None:
    if "list" in request:
        say(names=operator_names(Path(request["list"])))
        return
    report, deviation = check_in_file(
        Request(**request), lambda check: say(started=check), lambda finding: say(finding=asdict(finding))
    )
    if deviation is not None and len(sys.argv) > 1:
        np.save(sys.argv[1], deviation, allow_pickle=False)
    say(done=[asdict(finding) for finding in report.findings])


if __name__ == "__main__":
    main()
