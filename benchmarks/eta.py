"""How often the time remaining that `levelbench run` shows holds the truth, and how wide it is, over recorded commands.

    python benchmarks/eta.py record FOLDER/NAME KIND [--commands N] [--within SECONDS] [--seed N] [--busy PROCESSES]
    python benchmarks/eta.py replay FOLDER/NAME...

``record`` makes commands of a KIND with drawn arms and numbers of runs (``digits``, ``fashion-mnist``, and ``program``,
a program of its own under `levelbench time`), and keeps what the line of each command was told and when. ``--busy``
loops beside them take a core each.

``replay`` tells it to the line again, twice a second as then, and compares each range with what the command still took.
Ranges of the last tenth of a second are left out. A command's ranges are far from independent: each command counts once
in each stage, by the share of its ranges that hold, and intervals (95 %) are Wilson's with each command as one trial,
which is wider than shares between 0 and 1 would need. The goal is 80 %.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from levelbench.cli import watching
from levelbench.cli.watching import LiveWatcher
from levelbench.experiments.kernel import Plan, Turn
from levelbench.experiments.request import Arm
from levelbench.experiments.training import RunPlan
from levelbench.measure.clocks import HOST, FakeClock
from levelbench.measure.statistics import wilson
from levelbench.records import Evaluation, Record, Specification, read_record
from levelbench.records.schema import Source
from levelbench.report.live import LiveLine

STAGES = ("first run", "an arm without a finished run", "one finished run an arm", "two and more")
LEAST_S = 0.1

PROGRAM = """
import sys
import numpy as np
seed, lr, hidden = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
data, rng = np.random.default_rng(0), np.random.default_rng(seed)
centres, which = 0.9 * data.standard_normal((30, 32)), data.integers(0, 30, 12000)
x, y = centres[which] + data.standard_normal((12000, 32)), which % 10
w1, w2 = rng.standard_normal((32, hidden)) / 6, rng.standard_normal((hidden, 10)) / hidden**0.5
for epoch in range(1, 101):
    for batch in rng.permutation(10000).reshape(-1, 50):
        h = np.maximum(x[batch] @ w1, 0)
        p = np.exp(h @ w2 - (h @ w2).max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        p[np.arange(50), y[batch]] -= 1
        p *= lr / 50
        step = x[batch].T @ ((p @ w2.T) * (h > 0))
        w2 -= h.T @ p
        w1 -= step
    right = (np.maximum(x[10000:] @ w1, 0) @ w2).argmax(1) == y[10000:]
    print(f"epoch {epoch} val_accuracy {right.mean():.4f}", flush=True)
"""


def digits(rng: np.random.Generator, folder: Path) -> list[str]:
    """One to three arms of both recipes, on NumPy and PyTorch."""
    recipes = [("mlp", lr) for lr in (0.02, 0.05, 0.1, 0.3)] + [("onecycle", lr) for lr in (0.05, 0.2)]
    arms = [
        f"digits[framework={framework},recipe={recipe},lr={lr},hidden={hidden}]"
        for framework in ("numpy", "torch")
        for recipe, lr in recipes
        for hidden in (64, 256)
    ]
    return ["run", *rng.choice(arms, rng.choice([1, 2, 2, 2, 3]), replace=False), *runs(rng), "--no-report"]


def fashion_mnist(rng: np.random.Generator, folder: Path) -> list[str]:
    """Narrow convolutional networks of two recipes to 78 %, on PyTorch."""
    arms = [f"{recipe},channels=4,hidden=32,lr={lr}" for recipe in ("plain", "cnn") for lr in (0.002, 0.004, 0.008)]
    chosen = [f"fashion-mnist[recipe={each}]" for each in rng.choice(arms, rng.choice([1, 2, 2]), replace=False)]
    return ["run", *chosen, "--target", "0.78", "--every", "30 steps", *runs(rng), "--no-report"]


def program(rng: np.random.Generator, folder: Path) -> list[str]:
    """A program of its own with one or two settings."""
    path = folder / "program.py"
    path.write_text(PROGRAM)
    settings = [f"{lr} {hidden}" for lr in (0.02, 0.05, 0.1) for hidden in (32, 256)]
    chosen = rng.choice(settings, rng.choice([1, 2, 2, 2]), replace=False)
    first, *others = [f"{sys.executable} {path.resolve()} {{seed}} {each}" for each in chosen]
    vs = [word for other in others for word in ("--vs", other)]
    return ["time", first, *vs, "--target", "val_accuracy=0.95", *runs(rng)]


def runs(rng: np.random.Generator) -> list[str]:
    """Three to five."""
    return ["-n", str(rng.integers(3, 6))]


KINDS: dict[str, Callable[[np.random.Generator, Path], list[str]]] = {
    "digits": digits,
    "fashion-mnist": fashion_mnist,
    "program": program,
}


def record(chosen: argparse.Namespace) -> None:
    """Make the commands, each in a process and a store of its own."""
    rng, began = np.random.default_rng(chosen.seed), time.monotonic()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    with busy(chosen.busy):
        for number in range(chosen.commands):
            if time.monotonic() - began > chosen.within:
                break
            words = KINDS[chosen.kind](rng, chosen.folder)
            place = chosen.folder / f"{number:03}"
            words += ["--seed", str(1000 * chosen.seed + 10 * number), "--store", str(place)]
            print(time.strftime("%H:%M:%S"), *words, flush=True)
            told = [sys.executable, __file__, "tell", f"{place}.log", "--", *words]
            subprocess.run(told, stdout=subprocess.DEVNULL, check=False)


@contextmanager
def busy(count: int) -> Iterator[None]:
    """``count`` processes that do nothing, fast."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for each in processes:
            each.kill()


def tell(log: Path, words: list[str]) -> None:
    """Run a command and write what its line is told to ``log``."""
    from levelbench.cli import main

    with log.open("w") as file:

        def put(**what: object) -> None:
            file.write(json.dumps({"t_ns": HOST.now_ns(), **what}) + "\n")
            file.flush()

        class Told(LiveWatcher):
            def __init__(self, plan: RunPlan, on_stderr: bool) -> None:
                arms = [msgspec.to_builtins(arm.specification) for arm in plan.arms]
                put(plan={"arms": arms, "seeds": plan.seeds, "to_go": [turn.place for turn in plan.to_go]})
                super().__init__(plan, on_stderr)

            def started(self, turn: Turn, number: int, total: int) -> None:
                put(started=[*turn.place, number, total])
                super().started(turn, number, total)

            def progress(self, turn: Turn, stage: str, elapsed_s: float = 0.0, events: Any = (), steps: Any = (0, 0)):
                evaluations = [msgspec.to_builtins(each) for each in events if isinstance(each, Evaluation)]
                put(progress=[*turn.place, stage, elapsed_s, evaluations, steps])
                super().progress(turn, stage, elapsed_s, events, steps)

            def finished(self, turn: Turn, record: Record | None) -> None:
                put(finished=[*turn.place, None if record is None else str(record.path.resolve())])
                super().finished(turn, record)

        watching.LiveWatcher = Told  # type: ignore[misc]
        main(words)


def replay(log: Path) -> list[tuple[str, float, float, float]]:
    """The stage, the truth and both ends of each range that the command of ``log`` showed; none if it did not end."""
    told, *lines = map(json.loads, log.read_text().splitlines())
    plan = told["plan"]
    if sum("finished" in line for line in lines) < len(plan["to_go"]):
        return []
    specifications = [msgspec.convert(each, Specification) for each in plan["arms"]]
    arms = tuple(Arm(each.task, each, Source("", "", "")) for each in specifications)
    turns = tuple(Turn(*place) for place in plan["to_go"])
    clock = FakeClock(told["t_ns"])
    watching.HOST, watching.live_line = clock, lambda _: LiveLine()  # type: ignore[assignment]
    watcher = LiveWatcher(Plan(arms, tuple(plan["seeds"]), {}, turns), on_stderr=False)
    done, found = [0] * len(arms), []
    for line in lines:
        clock.advance(line["t_ns"] - clock.now_ns())
        match line:
            case {"started": [arm, seed, number, total]}:
                watcher.started(Turn(arm, seed), number, total)
            case {"progress": [arm, seed, stage, elapsed_s, evaluations, steps]}:
                events = [msgspec.convert(each, Evaluation) for each in evaluations]
                watcher.progress(Turn(arm, seed), stage, elapsed_s, events, tuple(steps))
            case {"finished": [arm, seed, path]}:
                watcher.finished(Turn(arm, seed), None if path is None else read_record(path))
                done[arm] += 1
                continue
        truth_s = (lines[-1]["t_ns"] - line["t_ns"]) * 1e-9
        if watcher.left_s is not None and truth_s >= LEAST_S:
            at = STAGES[1 + min(*done, 2)] if any(done) else STAGES[0]
            found.append((at, truth_s, *watcher.left_s))
    return found


def table(groups: dict[str, list[Path]]) -> list[str]:
    """A row for each folder and stage."""
    rows = [
        "| folder | stage | commands | ranges | hold the truth, % | it took less, % | it took more, % | ratio of ends |"
    ]
    rows.append("|---|---|--:|--:|--:|--:|--:|--:|")
    by_stage: dict[str, dict[str, list[np.ndarray]]] = defaultdict(lambda: defaultdict(list))
    for name, logs in groups.items():
        for log in logs:
            shown = replay(log)
            for stage in STAGES:
                ranges = [
                    (low <= truth <= high, truth < low, truth > high, high / max(low, LEAST_S))
                    for at, truth, low, high in shown
                    if at == stage
                ]
                if ranges:
                    for group in (name, "all"):
                        by_stage[group][stage].append(np.array(ranges, float))
    for name in (*groups, "all"):
        rows += [row(name, stage, by_stage[name][stage]) for stage in STAGES if by_stage[name][stage]]
    return rows


def row(name: str, stage: str, commands: Sequence[np.ndarray]) -> str:
    """Means over commands of their shares, with a 95 % interval, and the median ratio of a range's ends."""
    shares = np.array([each[:, :3].mean(axis=0) for each in commands])
    held, less, more = 100 * shares.mean(axis=0)
    interval = wilson(float(shares[:, 0].sum()), len(commands))  # type: ignore[arg-type]
    ratio = np.median([np.median(each[:, 3]) for each in commands])
    figures = (
        f"{held:.0f} [{100 * interval.low:.0f}, {100 * interval.high:.0f}] | {less:.0f} | {more:.0f} | {ratio:.1f}"
    )
    return f"| {name} | {stage} | {len(commands)} | {sum(map(len, commands)):,} | {figures} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, dest="verb")
    recording = verbs.add_parser("record", help="make commands and keep what their lines are told")
    recording.add_argument("folder", type=Path)
    recording.add_argument("kind", choices=KINDS)
    recording.add_argument("--commands", type=int, default=10)
    recording.add_argument(
        "--within", type=float, default=float("inf"), help="begin no command after this many seconds"
    )
    recording.add_argument("--seed", type=int, default=0)
    recording.add_argument("--busy", type=int, default=0, help="processes that take a core each meanwhile")
    replaying = verbs.add_parser("replay", help="compare the ranges with the truth")
    replaying.add_argument("folders", nargs="+", type=Path)
    telling = verbs.add_parser("tell", help="make one command; record calls it")
    telling.add_argument("log", type=Path)
    telling.add_argument("words", nargs="+")
    chosen = parser.parse_args()
    if chosen.verb == "record":
        record(chosen)
    elif chosen.verb == "tell":
        tell(chosen.log, chosen.words)
    else:
        print(*table({str(folder): sorted(folder.glob("*.log")) for folder in chosen.folders}), sep="\n")


if __name__ == "__main__":
    main()
