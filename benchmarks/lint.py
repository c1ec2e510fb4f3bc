"""The linter on a store of 10,000 records: read them, make claims of them, hold the claims to every rule.

    python benchmarks/lint.py [--runs 10000] [--store FOLDER]

Makes a store of synthetic records (8 evaluations and 320 step times each), then lints it in processes of their own, as
a command would: the whole store by its path, one task of it with the rest beside it (the index is there already), and
the same as SARIF. It prints seconds on the wall and of the processor (which a busy machine does not stretch), the
records a second, peak memory, and the machine's own limit: the same files read and decoded, with nothing done. The
promise: 10,000 records in under 5 s. It wants a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from records import make_store

_TASK = "task-1"


def _floor(store: Path) -> int:
    """Every file read and every line decoded as JSON, which is what no reader can leave out."""
    import msgspec

    decoder = msgspec.json.Decoder()
    count = 0
    for path in store.rglob("*.jsonl"):
        count += 1
        for line in path.read_bytes().splitlines():
            decoder.decode(line)
    return count


def _read_only(store: Path) -> int:
    from levelbench.claims.reading.records import read_runs
    from levelbench.records import Store

    return sum(len(side.runs) for claim in read_runs(f"{store}/", Store(store)) for side in claim.sides)


def _lint(store: Path, what: str) -> int:
    from levelbench.claims.lint import lint
    from levelbench.claims.reading import read
    from levelbench.records import Store

    report = lint((what, claim) for claim in read(what, Store(store)))
    return sum(len(side.runs) for each in report.linted for side in each.claim.sides)


def _sarif(store: Path) -> int:
    from levelbench.claims.formats import as_sarif
    from levelbench.claims.lint import lint
    from levelbench.claims.reading import read
    from levelbench.records import Store

    report = lint((str(store), claim) for claim in read(f"{store}/", Store(store)))
    json.dumps(as_sarif(report, "not-stated"))
    return sum(len(side.runs) for each in report.linted for side in each.claim.sides)


ACTIONS: dict[str, Callable[[Path], int]] = {
    "files decoded, no more": _floor,
    "read into claims": _read_only,
    "lint the store": lambda store: _lint(store, f"{store}/"),
    "lint one task of it": lambda store: _lint(store, _TASK),
    "lint, as SARIF": _sarif,
}


def _measure(name: str, store: Path) -> dict[str, float | str]:
    """Do one action in this process; its seconds, peak memory and how many runs were seen."""
    began, cpu_began = time.perf_counter(), time.process_time()
    runs = ACTIONS[name](store)
    seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"name": name, "seconds": seconds, "cpu_s": cpu_s, "runs": float(runs), "peak_mib": peak}


def main() -> None:
    """Make the store unless it is there, then measure each action in a process of its own."""
    parser = argparse.ArgumentParser(description="the linter on a store of records")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--store", type=Path, help="a folder to keep; made anew in a temporary one without it")
    parser.add_argument("--action", choices=list(ACTIONS), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.action:
        sys.stdout.write(json.dumps(_measure(chosen.action, chosen.store)) + "\n")
        return
    with tempfile.TemporaryDirectory() as temporary:
        store = chosen.store or Path(temporary) / "store"
        if not store.exists():
            make_store(store, chosen.runs)
        # The index is derived and there in any store that was listed once; making it is not what is measured.
        from levelbench.records import Store

        Store(store).rows(limit=1)
        _report(store)


def _report(store: Path) -> None:
    sys.stdout.write(f"{'':24}{'wall s':>9}{'cpu s':>9}{'runs':>9}{'runs/s':>10}{'MiB':>8}\n")
    for name in ACTIONS:
        command = [sys.executable, __file__, "--store", str(store), "--action", name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found = json.loads(done.stdout.splitlines()[-1])
        rate = found["runs"] / found["cpu_s"]
        line = f"{name:24}{found['seconds']:9.2f}{found['cpu_s']:9.2f}{found['runs']:9.0f}{rate:10,.0f}"
        sys.stdout.write(f"{line}{found['peak_mib']:8.0f}\n")


if __name__ == "__main__":
    main()
