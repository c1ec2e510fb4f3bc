"""How long until a number can be trusted: levelbench beside pyperf, PyTorch's timer and pytest-benchmark.

Precision inside one process and agreement across processes are two questions. ``--part inside`` asks how
long each tool takes to an interval, ``--part across`` and ``--part pyperf`` how often an interval over processes
covers the long-run median, which is the median over the processes of all *other* trials. Each part adds to ``--out``
and prints its table in Markdown; ``--part table`` prints what is there. ``docs/explanation/precision.md`` explains.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from levelbench.measure.clocks import FakeClock
from levelbench.measure.processes import Answer, Launcher, Running, sample_processes, sample_replicates
from levelbench.measure.statistics import median_interval, wilson
from levelbench.measure.stopping import Budget, FixedCount, Precision

HERE = Path(__file__).resolve().parent
PEERS = HERE / "peers"
sys.path.insert(0, str(PEERS))

import workloads  # noqa: E402

ONE_PROCESS = ("levelbench", "blocked_autorange", "pytest-benchmark")
WANTED = 0.02
ACROSS_BUDGET_S = 4.0
RECORDED = 12
DRAWN = 90
Trials = dict[str, list[dict[str, Any]]]


def workload(name: str) -> str:
    return f"{PEERS / 'workloads.py'}:{name}"


def environment(**more: str) -> dict[str, str]:
    paths = [str(HERE.parent / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    fixed = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}
    return {**os.environ, **fixed, **more}


def trial_inside(name: str, index: int) -> dict[str, Any]:
    """All one-process tools in one fresh process, in an order that rotates with ``index``."""
    turn = index % len(ONE_PROCESS)
    order = ",".join(ONE_PROCESS[turn:] + ONE_PROCESS[:turn])
    words = [sys.executable, str(PEERS / "one_process.py"), workload(name), order]
    done = subprocess.run(words, env=environment(), check=True, capture_output=True, text=True)
    answers = json.loads(done.stdout.splitlines()[-1])
    return {tool: {**summary(found["values"]), "wall_s": found["wall_s"]} for tool, found in answers.items()}


def trial_across(name: str, index: int) -> dict[str, Any]:
    """One independent sample across processes."""
    found = sample_processes(workload(name), Precision(WANTED) | Budget(ACROSS_BUDGET_S))
    values = found.values.tolist()
    return {**summary(values), "values": values, "wall_s": found.wall_s, "stopped_by": found.stopped_by}


def trial_pyperf(name: str, index: int) -> dict[str, Any]:
    """One run of pyperf with its defaults; the values are the medians of its processes."""
    import pyperf

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        passed = "LEVELBENCH_WORKLOAD,PYTHONPATH,OMP_NUM_THREADS,OPENBLAS_NUM_THREADS"
        words = [
            sys.executable,
            str(PEERS / "pyperf_case.py"),
            "-o",
            str(out),
            "--quiet",
            f"--inherit-environ={passed}",
        ]
        start = time.perf_counter()
        subprocess.run(words, env=environment(LEVELBENCH_WORKLOAD=workload(name)), check=True, capture_output=True)
        wall_s = time.perf_counter() - start
        found = pyperf.Benchmark.load(str(out))
    values = [float(np.median(run.values)) for run in found.get_runs() if run.values]
    claim = float(found.stdev() / found.mean()) if found.get_nvalue() > 1 else None
    return {**summary(values), "values": values, "wall_s": wall_s, "claimed_sd": claim}


def trial_record(name: str, index: int) -> dict[str, Any]:
    """Processes to draw from later: a dozen at a time, so that a workload's are spread over the whole time."""
    found = sample_processes(workload(name), FixedCount(RECORDED), least=RECORDED)
    return {"values": found.values.tolist(), "wall_s": found.wall_s}


TRIALS = {"inside": trial_inside, "across": trial_across, "pyperf": trial_pyperf, "record": trial_record}


class Recorded(Launcher, Running):
    """A recorded process drawn at random; the clock goes on by what such a process took."""

    def __init__(self, trials: list[dict[str, Any]], rng: np.random.Generator) -> None:
        self.values = np.concatenate([trial["values"] for trial in trials])
        self.each_ns = int(1e9 * sum(trial["wall_s"] for trial in trials) / len(self.values))
        self.clock, self._rng = FakeClock(), rng

    def start(self) -> Running:
        """Itself."""
        return self

    def wait_ready(self) -> None:
        """At once."""

    def measure(self) -> Answer:
        """The median of one of the processes."""
        self.clock.advance(self.each_ns)
        return Answer((float(self._rng.choice(self.values)) * 1e9,))

    def __exit__(self, *_: object) -> None:
        pass


def table_resampled(part: Trials, trials: int) -> str:
    """How often the interval of ``sample_processes`` covers the median of the processes that its own are drawn from."""
    rows = [
        "| workload | recorded | spread of processes | trials | processes | ± | covered |",
        "|---|---|---|---|---|---|---|",
    ]
    rng = np.random.default_rng(0)
    hits = total = 0
    for name, recorded in part.items():
        found = []
        for _ in range(trials):
            drawn = Recorded(recorded, rng)
            until = Precision(WANTED) | Budget(ACROSS_BUDGET_S)
            found.append(summary(sample_replicates(drawn, until, clock=drawn.clock).values.tolist()))
        truth, (low, high) = np.median(drawn.values), np.quantile(drawn.values, [0.1, 0.9])
        covered = sum(each["interval"][0] <= truth <= each["interval"][1] for each in found)
        hits, total = hits + covered, total + trials
        cells = [name, str(len(drawn.values)), share((high - low) / truth), str(trials)]
        cells += [f"{np.mean([each['n'] for each in found]):.1f}", share(mean([each["half_width"] for each in found]))]
        rows.append(f"| {' | '.join(cells)} | {covered / trials:.1%} |")
    interval = wilson(hits, total)
    rows.append(
        f"\nCovered {hits} of {total}: {hits / total:.1%} [{interval.low:.1%}, {interval.high:.1%}] (Wilson, 95 %)."
    )
    return "\n".join(rows)


def summary(values: list[float]) -> dict[str, Any]:
    """Median, number of values, exact interval (``None`` below six) and its half-width as a share of the median."""
    median = float(np.median(values))
    interval = median_interval(values)
    bounds = [interval.low, interval.high] if interval else None
    half = max(interval.high - median, median - interval.low) / median if interval else None
    return {"median": median, "n": len(values), "interval": bounds, "half_width": half}


def run_part(part: str, names: list[str], trials: int, budget_s: float, save: Any) -> None:
    """Trials in rounds over all workloads, so that each workload's are spread over the whole time."""
    start = time.perf_counter()
    for index in range(trials):
        for name in names:
            if time.perf_counter() - start > budget_s:
                print(f"{part}: budget of {budget_s:g} s spent in round {index + 1}", file=sys.stderr)
                return
            save(part, name, TRIALS[part](name, index))
            print(f"{part} {index + 1}/{trials} {name} {time.perf_counter() - start:.0f} s", file=sys.stderr)


def coverage(trials: list[dict[str, Any]]) -> tuple[int, int]:
    """How many trials' intervals cover the median over the processes of all other trials, and of how many."""
    hits = total = 0
    for index, trial in enumerate(trials):
        others = [value for j, other in enumerate(trials) if j != index for value in other["values"]]
        if others and trial["interval"]:
            total += 1
            hits += trial["interval"][0] <= np.median(others) <= trial["interval"][1]
    return int(hits), total


def spread(medians: list[float]) -> float | None:
    """Largest over smallest median, less one."""
    return max(medians) / min(medians) - 1.0 if len(medians) > 1 else None


def mean(values: list[float | None]) -> float | None:
    """The mean of what is there."""
    present = [value for value in values if value is not None]
    return float(np.mean(present)) if present else None


def share(value: float | None) -> str:
    return "none" if value is None else f"{value:.2%}"


def seconds(value: float) -> str:
    for unit, factor in (("µs", 1e6), ("ms", 1e3)):
        if value * factor < 1000:
            return f"{value * factor:.3g} {unit}"
    return f"{value:.3g} s"


def table_inside(part: Trials) -> str:
    rows = [
        "| workload | time | tool | to its end (s) | n | claimed ± | medians differ by |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, trials in part.items():
        for tool in ONE_PROCESS:
            found = [trial[tool] for trial in trials]
            medians = [each["median"] for each in found]
            with_interval = sum(each["interval"] is not None for each in found)
            claim = share(mean([each["half_width"] for each in found]))
            if 0 < with_interval < len(found):
                claim += f" ({with_interval} of {len(found)} runs)"
            cells = [
                name,
                seconds(float(np.median(medians))),
                tool,
                f"{np.mean([each['wall_s'] for each in found]):.2f}",
            ]
            cells += [f"{np.mean([each['n'] for each in found]):.0f}", claim, share(spread(medians))]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def table_across(part: Trials) -> str:
    rows = ["| workload | median | trials | processes | wall (s) | ± | covered |", "|---|---|---|---|---|---|---|"]
    hits = total = 0
    for name, trials in part.items():
        covered, of = coverage(trials)
        hits, total = hits + covered, total + of
        cells = [name, seconds(float(np.median([trial["median"] for trial in trials]))), str(len(trials))]
        cells += [f"{np.mean([trial['n'] for trial in trials]):.1f}", f"{np.mean([t['wall_s'] for t in trials]):.2f}"]
        cells += [share(mean([trial["half_width"] for trial in trials])), f"{covered}/{of}" if of else "one trial"]
        rows.append(f"| {' | '.join(cells)} |")
    if total:
        interval = wilson(hits, total)
        low, high = interval.low, interval.high
        rows.append(f"\nCovered {hits} of {total}: {hits / total:.1%} [{low:.1%}, {high:.1%}] (Wilson, 95 %).")
    return "\n".join(rows)


def table_time(document: dict[str, Trials]) -> str:
    """Wall time across processes, ours over pyperf's, where both were measured; and whether the medians agree."""
    rows = ["| workload | levelbench (s) | pyperf (s) | share | pyperf's median / ours |", "|---|---|---|---|---|"]
    ours, theirs = document.get("across", {}), document.get("pyperf", {})
    shares = []
    for name in (name for name in ours if name in theirs):
        a, b = (float(np.mean([trial["wall_s"] for trial in part[name]])) for part in (ours, theirs))
        medians = [float(np.median([trial["median"] for trial in part[name]])) for part in (ours, theirs)]
        shares.append(a / b)
        rows.append(f"| {name} | {a:.2f} | {b:.2f} | {a / b:.2f} | {medians[1] / medians[0]:.3f} |")
    if shares:
        rows.append(f"\nGeometric mean of the share: {np.exp(np.mean(np.log(shares))):.2f} (goal: 0.20).")
    return "\n".join(rows)


def print_tables(document: dict[str, Trials]) -> None:
    for part, title in (("inside", "Inside one process"), ("across", "Across processes"), ("pyperf", "pyperf")):
        if document.get(part):
            table = table_inside if part == "inside" else table_across
            print(f"\n### {title}\n\n{table(document[part])}")
    if document.get("record"):
        print(f"\n### Across processes, drawn from recorded ones\n\n{table_resampled(document['record'], DRAWN)}")
    if "across" in document and "pyperf" in document:
        print(f"\n### Time across processes\n\n{table_time(document)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=[*TRIALS, "all", "table"], default="all")
    parser.add_argument(
        "--trials", type=int, help="trials a workload (default: inside 5, across 20, pyperf 2, record 6)"
    )
    parser.add_argument("--workloads", default=",".join(workloads.ALL), help="names, separated by commas")
    parser.add_argument("--budget", type=float, default=600.0, help="seconds after which a part starts no new trial")
    parser.add_argument("--quick", action="store_true", help="two workloads, two trials: does it run?")
    parser.add_argument("--out", type=Path, default=Path("precision.json"), help="JSON file, added to")
    options = parser.parse_args()
    names = ["python_join", "python_json"] if options.quick else options.workloads.split(",")
    unknown = sorted(set(names) - set(workloads.ALL))
    if unknown:
        parser.error(f"no such workload: {', '.join(unknown)}; there are {', '.join(workloads.ALL)}")
    document: dict[str, Trials] = json.loads(options.out.read_text()) if options.out.exists() else {}

    def save(part: str, name: str, trial: dict[str, Any]) -> None:
        document.setdefault(part, {}).setdefault(name, []).append(trial)
        options.out.write_text(json.dumps(document))

    parts = {"all": list(TRIALS), "table": []}.get(options.part, [options.part])
    for part in parts:
        usual = {"inside": 5, "across": 20, "pyperf": 2, "record": 6}[part]
        trials = options.trials or (2 if options.quick else usual)
        run_part(part, names, trials, options.budget, save)
    chosen = parts or list(TRIALS)
    print_tables({part: found for part, found in document.items() if part in chosen})


if __name__ == "__main__":
    main()
