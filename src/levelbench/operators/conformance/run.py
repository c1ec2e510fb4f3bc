"""Runs node tests on a framework in a process of its own, and goes on behind a case that kills it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import IO

from levelbench.errors import DefinitionError
from levelbench.operators.conformance.cases import Case
from levelbench.operators.conformance.tally import Result, Tally, tally

__all__ = ["run_conformance"]

_WORKER = [sys.executable, "-m", "levelbench.operators.conformance.worker"]


def run_conformance(
    framework: str, cases: Sequence[Case], device: str = "cpu", tell: Callable[[Result], None] = lambda _: None
) -> Tally:
    """All ``cases`` on ``framework``, which can run here; ``tell`` hears of each result as it comes.

    A case that kills the process is wrong, with the signal as its detail. ``DefinitionError`` if the framework cannot
    be opened at all.
    """
    operators = {case.name: case.operator for case in cases}
    left = [case.name for case in cases]
    results: list[Result] = []
    while left:
        found, died_in = _round(framework, device, left, tell)
        done = {each.name for each in found}
        if died_in is not None:
            name, how = died_in
            found.append(Result(name, operators[name], "wrong", how))
            tell(found[-1])
            done.add(name)
        results += found
        left = [name for name in left if name not in done]
    order = {name: at for at, name in enumerate(operators)}
    return tally(framework, sorted(results, key=lambda each: order[each.name]))


@contextmanager
def _worker(errors: IO[str]) -> Iterator[subprocess.Popen[str]]:
    """The process; it does not outlive an interruption."""
    pipe = subprocess.PIPE
    with subprocess.Popen(_WORKER, stdin=pipe, stdout=pipe, stderr=errors, text=True, encoding="utf-8") as process:
        try:
            yield process
        finally:
            process.kill()


def _round(
    framework: str, device: str, names: Sequence[str], tell: Callable[[Result], None]
) -> tuple[list[Result], tuple[str, str] | None]:
    """Results until the process ends, and the case it died in, if it did."""
    results: list[Result] = []
    started = ""
    with TemporaryFile("w+", encoding="utf-8", errors="replace") as printed, _worker(printed) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"framework": framework, "device": device, "names": list(names)}) + "\n")
        process.stdin.close()
        for line in process.stdout:
            answer = json.loads(line)
            if "started" in answer:
                started = answer["started"]
                continue
            results.append(Result(**answer))
            tell(results[-1])
            started = ""
        process.wait()
        printed.seek(0)
        errors = printed.read()
    if process.returncode == 0:
        return results, None
    if not started:
        last = errors.strip().splitlines()[-1] if errors.strip() else f"exit code {process.returncode}"
        raise DefinitionError(f"the node tests on {framework!r}", f"their process failed: {last}", "run with --debug")
    how = signal.Signals(-process.returncode).name if process.returncode < 0 else f"exit code {process.returncode}"
    return results, (started, f"the process died: {how}")
