"""A leaderboard of 10,000 entries: check it, build its site, and build it again over itself.

    python benchmarks/board.py [--entries 10000] [--folder FOLDER]

Makes a leaderboard (5 runs of 40 evaluations an entry), then does each thing in a process of its own, as a command
would, and prints its seconds (on the wall, and of the processor, which a busy machine does not stretch), its peak
memory, and the seconds as a multiple of the machine's own ceiling: every file read and decoded as JSON, and as many
files of a page's size written, with nothing done in between. The promise: a site is built in under 30 s on two cores.
It wants a quiet machine. Each process finds the modules compiled, as
Python leaves them after their first use, even where ``PYTHONDONTWRITEBYTECODE`` says otherwise.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date, timedelta
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from levelbench.competition.entries import (
    SUBMISSION_SCHEMA,
    Author,
    Code,
    Hardware,
    Provenance,
    Submission,
    SubmittedCurve,
    SubmittedRun,
    SystemPrice,
    TuningEffort,
    curve_digest,
    encode,
)
from levelbench.competition.rulesets import ruleset, task_rules

if TYPE_CHECKING:
    from levelbench.competition.leaderboard import Lint

_RUNS, _POINTS = 5, 40
_RULES, _TASK = "levelbench-1.0", "cifar10"
_PAGE = 19_000
"""About the bytes of an entry's page."""


def make_entry(number: int) -> Submission:
    """Entry ``number``: curves that saturate around the target, with noise; times that spread by some per cent."""
    rng = np.random.default_rng(number)
    rules = task_rules(ruleset(_RULES), _TASK)
    assert rules is not None
    step_s = 2.0 * float(rng.lognormal(0.0, 0.6))
    runs = []
    for seed in range(_RUNS):
        times = np.cumsum(step_s * rng.lognormal(0.0, 0.03, _POINTS))
        ceiling = 0.947 + 0.004 * rng.standard_normal()
        noise = 0.002 * rng.standard_normal(_POINTS)
        quality = np.clip(ceiling - 0.5 * np.exp(-np.arange(_POINTS) / 6.0) + noise, 0.0, 1.0)
        curve = SubmittedCurve([round(float(each), 4) for each in times], [round(float(each), 5) for each in quality])
        digest = f"{number:032x}{seed:032x}"
        runs.append(SubmittedRun(curve, seed=seed, record_digest=digest, curve_digest=curve_digest(curve)))
    day = date(2026, 11, 21) + timedelta(days=number * 700 // 10_000) - timedelta(days=700)
    price = SystemPrice(round(0.5 + float(rng.random()) * 20, 2), "https://example.org/prices", day.isoformat(), True)
    return Submission(
        schema=SUBMISSION_SCHEMA,
        ruleset=_RULES,
        task=_TASK,
        mode="training",
        author=Author(f"Author {number % 400}", organisation=f"Organisation {number % 40}"),
        submitted=day.isoformat(),
        model=f"network-{number % 90}",
        framework=("PyTorch 2.13", "JAX 0.8", "ONNX Runtime 1.31")[number % 3],
        hardware=Hardware(f"{2 ** (number % 4)} accelerators of kind {number % 7}"),
        target=rules.target,
        clock="wall",
        crossing="confirmed",
        code=Code(f"https://example.org/code/{number}", f"{number:040x}"),
        price=price,
        runs=runs,
        tuning=TuningEffort(trials=number % 50),
        provenance=Provenance("0.1.0", {"numpy": "2.4"}, {}, _TASK, checksums={"data": "0" * 64}),
    )


def make_leaderboard(folder: Path, entries: int) -> None:
    """Write the entries where a leaderboard has them."""
    place = folder / _TASK / "training"
    place.mkdir(parents=True)
    for number in range(entries):
        (place / f"entry-{number:05d}.json").write_bytes(encode(make_entry(number)))


def _check(folder: Path, site: Path) -> str:
    """As the command does: with the linter's errors."""
    from levelbench.cli.board_check import worst_of_linter

    return _checked(folder, worst_of_linter)


def _rules_alone(folder: Path, site: Path) -> str:
    """As the command does with ``--no-lint``."""
    return _checked(folder, None)


def _checked(folder: Path, lint: Lint | None) -> str:
    from levelbench.cli.board_limits import known_limits
    from levelbench.competition.leaderboard import checked_folder

    processes = len(os.sched_getaffinity(0))
    entries, found = checked_folder(folder, processes=processes, limits=known_limits, lint=lint)
    errors = sum(each.severity == "error" for each in found)
    return f"{entries} entries, {len(found)} findings, {errors} of them errors"


def _build(folder: Path, site: Path) -> str:
    from levelbench.cli.board_limits import known_limits
    from levelbench.competition.claims import remarks_on_entry
    from levelbench.competition.site.build import build

    processes = len(os.sched_getaffinity(0))
    built = build(folder, site, processes=processes, lint=remarks_on_entry, limits=known_limits)
    return f"{built.entries} entries, {built.read} read, {len(built.written)} written"


def _decode(folder: Path, site: Path) -> str:
    """The ceiling of reading."""
    size = sum(len(path.read_bytes()) for path in folder.rglob("*.json") if json.loads(path.read_bytes()))
    return f"{size / 1e6:.0f} MB"


def _write(folder: Path, site: Path) -> str:
    """The ceiling of writing: each file beside its place and renamed."""
    page, count = b"x" * _PAGE, sum(1 for _ in folder.rglob("*.json"))
    # Left to the end: after so many files were removed ext4 takes ten times as long, for a while, to make each new one.
    scratch = Path(tempfile.mkdtemp(dir=site.parent))
    for number in range(count):
        beside = scratch / ".part"
        beside.write_bytes(page)
        beside.replace(scratch / f"{number}.html")
    return f"{count} files of {_PAGE} bytes"


ACTIONS: dict[str, Callable[[Path, Path], str]] = {
    "decode": _decode,
    "write": _write,
    "check, no lint": _rules_alone,
    "check": _check,
    "build": _build,
    "rebuild": _build,
}


def measure(name: str, folder: Path, site: Path) -> dict[str, float | str]:
    """Do one action in this process; its seconds, peak memory and answer."""
    began, cpu_began = time.perf_counter(), _cpu_s()
    answer = ACTIONS[name](folder, site)
    wall_s, cpu_s = time.perf_counter() - began, _cpu_s() - cpu_began
    # Of the largest process, times as many as there may be: more than there ever is at one time.
    children_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024 * len(os.sched_getaffinity(0))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 + children_mb
    return {"wall_s": wall_s, "cpu_s": cpu_s, "peak_mb": peak_mb, "answer": answer}


def _cpu_s() -> float:
    """Of this process and of those that it had and that ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="an existing leaderboard, or where to make one; kept")
    parser.add_argument("--action", choices=ACTIONS, help=argparse.SUPPRESS)
    parser.add_argument("--site", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.action:
        print(json.dumps(measure(chosen.action, chosen.folder, chosen.site)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = chosen.folder or Path(scratch) / "leaderboard"
        site = Path(scratch) / "site"
        if not folder.exists():
            began = time.perf_counter()
            make_leaderboard(folder, chosen.entries)
            print(f"made {chosen.entries} entries in {time.perf_counter() - began:.1f} s")
        _report(folder, site)
        shutil.rmtree(site)


def _report(folder: Path, site: Path) -> None:
    compileall.compile_dir(str(files("levelbench")), quiet=2)
    ceiling_s = 0.0
    for name in ACTIONS:
        command = [sys.executable, __file__, "--action", name, "--folder", str(folder), "--site", str(site)]
        began = time.perf_counter()
        answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        whole_s = time.perf_counter() - began
        ceiling_s += answer["wall_s"] if name in ("decode", "write") else 0.0
        times = f"{answer['wall_s'] / ceiling_s:5.1f} x the ceiling"
        print(
            f"{name:21} {answer['wall_s']:7.2f} s (whole process {whole_s:.2f} s, CPU {answer['cpu_s']:.2f} s)  {times}"
            f"  {answer['peak_mb']:5.0f} MB  {answer['answer']}",
            flush=True,
        )


if __name__ == "__main__":
    main()
