"""Measures one workload in a fresh process when its parent asks: ``python -m levelbench.measure.worker``.

Start-up is not part of the measurement. The process sets up, prints ``ready`` and waits, so that several can start
together and are then measured alone, one after the other. Standard library only: importing more would cost each of
these short processes more than its measurement.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from typing import Final

from levelbench.measure.clocks import HOST, Calibration, Clock, Work, calibrate, time_ns

READY: Final = "ready"


def load(workload: str) -> Work:
    """Call the setup named by ``module:function`` or ``path.py:function``, and return the callable that it returns."""
    place, _, name = workload.rpartition(":")
    if place.endswith(".py"):
        specification = importlib.util.spec_from_file_location("levelbench_workload", place)
        if specification is None or specification.loader is None:
            raise ImportError(f"{place} is not a Python file")
        module = importlib.util.module_from_spec(specification)
        sys.modules[specification.name] = module
        specification.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    work = getattr(module, name)()
    if not callable(work):
        raise TypeError(f"{workload} returned {type(work).__name__}, but a setup returns a callable without arguments")
    call: Work = work
    return call


def measure(work: Work, slice_ns: int, least: int, clock: Clock = HOST) -> tuple[Calibration, list[float]]:
    """Values of ``work`` in nanoseconds a call for ``slice_ns``, and at least ``least`` of them."""
    started_ns = clock.now_ns()
    found = calibrate(work, clock)
    values_ns = list(found.values_ns)
    while len(values_ns) < least or clock.now_ns() - started_ns < slice_ns:
        values_ns.append(time_ns(work, clock, found.inner) / found.inner)
    return found, values_ns


def main(arguments: list[str]) -> None:
    """``workload slice_ns least``: set up, print ready, wait for a line, measure, answer with one line of JSON."""
    workload, slice_ns, least = arguments
    # Keep what the workload prints out of the answer.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    work = load(workload)
    print(READY, file=answers, flush=True)
    if not sys.stdin.readline():
        return
    found, values_ns = measure(work, int(slice_ns), int(least))
    answer = {"inner": found.inner, "timer": found.timer, "first_ns": found.first_ns, "values_ns": values_ns}
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
