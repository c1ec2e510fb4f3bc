"""A store of 100,000 runs: the first indexing, a list, a filtered ranking, and one more run.

    python benchmarks/records.py [--runs 100000] [--store FOLDER]

Makes a store of synthetic records (written as text: the files are what matters), then does each thing in a fresh
process, as a command would, and prints its seconds (on the wall, and of the processor, which a busy machine does not
stretch) and its peak memory. The promise: ``list`` and a filtered ranking within a second once indexed, in under
300 MB.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from levelbench.records import (
    SCHEMA,
    End,
    Evaluation,
    Event,
    Header,
    Samples,
    Source,
    Specification,
    Store,
    Target,
    key_of,
)
from levelbench.records.lines import encode_file

_EVALUATIONS = 8


def make_store(store: Path, runs: int) -> None:
    """Write ``runs`` records: 4 tasks, 5 learning rates, 2 frameworks, 100 days."""
    began = datetime(2026, 1, 1, tzinfo=UTC)
    environment = {"machine": {"id": "0" * 16}, "libraries": {f"library-{i}": "1.2.3" for i in range(60)}}
    tails: dict[int, list[Event]] = {}
    text = "# source\n" * 40
    source = Source("task.py", hashlib.sha256(text.encode()).hexdigest(), text)
    specifications: dict[tuple[int, int, int], tuple[Specification, str]] = {}
    for number in range(runs):
        place = (number % 4, number // 4 % 5, number // 20 % 2)
        if place not in specifications:
            specification = _specification(*place)
            specifications[place] = (specification, key_of(specification))
        specification, key = specifications[place]
        started = began + timedelta(seconds=86_400 * 100 / runs * number)
        identity = f"{number:08x}"
        header = Header(
            SCHEMA,
            identity,
            key,
            number,
            started.isoformat(timespec="milliseconds"),
            specification,
            environment,
            source,
            "0.1.0",
        )
        folder = store / specification.task / started.date().isoformat()
        if number % 1000 < 8 or not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
        spread = number * 7919 % 1000
        tail = tails.setdefault(spread, _tail(spread))
        (folder / f"{key[:8]}-s{number}-{identity}.jsonl").write_bytes(encode_file(header, tail))


def _specification(task: int, rate: int, framework: int) -> Specification:
    return Specification(
        f"task-{task}",
        "mlp",
        ("numpy", "torch")[framework],
        "cpu",
        {"lr": (rate + 1) / 100, "hidden": 128, "batch": 64},
        Target("accuracy", 0.9),
        "confirmed",
        "wall",
        "1 epoch",
        20.0,
    )


def _tail(spread: int) -> list[Event]:
    """The events of a run whose speed ``spread`` (0 to 999) decides."""
    parts: list[Event] = []
    epoch_ns = 100_000_000 + 50_000 * spread
    for index in range(1, _EVALUATIONS + 1):
        phases_ns = {"data": index * epoch_ns // 10, "forward": index * epoch_ns * 4 // 10}
        phases_ns["backward"] = index * epoch_ns - sum(phases_ns.values())
        parts.append(Samples("step_time", "ns", [epoch_ns // 40 - i for i in range(40)]))
        quality = {"validation": 0.6 + 0.05 * index}
        parts.append(Evaluation(index * epoch_ns, 40 * index, index, 2560 * index, quality, 1 / index, phases_ns))
    return [*parts, End("done", _EVALUATIONS * epoch_ns, phases_ns, {**quality, "test": 0.97})]


ACTIONS: dict[str, Callable[[Store], int]] = {
    "index": lambda store: len(store.rows(limit=1)),
    "list (all rows)": lambda store: len(store.rows()),
    "list (newest 50)": lambda store: len(store.rows(descending=True, limit=50)),
    "ranking": lambda store: len(
        store.rows("task-1[framework=torch,lr=0.03,reached=true]", order_by="time_to_accuracy_s", limit=20)
    ),
    "one by id": lambda store: len(store.rows("0000beef")),
}


def measure(name: str, store: Path) -> dict[str, float | str]:
    """Do one action in this process; its seconds, peak memory and answer."""
    began, cpu_began = time.perf_counter(), time.process_time()
    answer = ACTIONS[name](Store(store))
    query_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"action": name, "query_s": query_s, "cpu_s": cpu_s, "peak_mb": peak_mb, "n": answer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--store", type=Path, help="an existing store, or where to make one; kept")
    parser.add_argument("--action", choices=ACTIONS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.action:
        print(json.dumps(measure(chosen.action, chosen.store)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        store = chosen.store or Path(scratch) / "store"
        if not store.exists():
            began = time.perf_counter()
            make_store(store, chosen.runs)
            print(f"made {chosen.runs} runs in {time.perf_counter() - began:.1f} s")
        for name in [*ACTIONS, "list (all rows)", "ranking"]:
            command = [sys.executable, __file__, "--action", name, "--store", str(store)]
            began = time.perf_counter()
            answer = msgspec.json.decode(subprocess.run(command, check=True, capture_output=True).stdout)
            whole_s = time.perf_counter() - began
            print(
                f"{answer['action']:18} {answer['query_s']:8.3f} s, {answer['cpu_s']:.3f} s of CPU ("
                f"{whole_s:.3f} s for the whole process)"
                f"  {answer['peak_mb']:6.0f} MB  {answer['n']} rows"
            )


if __name__ == "__main__":
    main()
