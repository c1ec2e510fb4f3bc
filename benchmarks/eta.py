"""How often the time remaining that `levelbench run` shows holds the truth, and how wide it is, over recorded runs.

    python benchmarks/eta.py STORE [STORE...]

Replays the runs of each task of a store as one command would have made them, arms in turns in the order in which they
started. At each evaluation it asks for the range of the remaining time, as the command's line does, and compares it
with what the rest of the runs took. The goal is 80 %.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from levelbench.analysis.remaining import RemainingTime
from levelbench.records import Record, Store, read_record, summarise

STAGES = ("first run", "an arm without a finished run", "one finished run an arm", "two and more")


def replay(records: list[Record]) -> list[tuple[str, bool, float]]:
    """For each evaluation: the stage, whether the range held the truth, and its upper end over its lower one."""
    runs = [summarise(record) for record in records]
    keys = list(dict.fromkeys(run.key for run in runs))
    arms = [keys.index(run.key) for run in runs]
    walls = [run.wall_s for run in runs]
    remaining = RemainingTime(list(arms))
    found = []
    for at, (record, run, arm) in enumerate(zip(records, runs, arms, strict=True)):
        finished = min(len(remaining.times_s.get(each, [])) for each in range(len(keys)))
        stage = STAGES[0] if at == 0 else STAGES[1 + min(finished, 2)]
        for evaluation in record.evaluations:
            elapsed_s = sum(evaluation.phases_ns.values()) * 1e-9
            truth_s = walls[at] - elapsed_s + sum(walls[at + 1 :])
            told = remaining.range_s(arm, elapsed_s, evaluation.epoch, run.specification.budget_epochs)
            if told is not None and truth_s > 0:
                low, high = told
                found.append((stage, low <= truth_s <= high, high / max(low, 1e-9)))
        remaining.finished(arm, walls[at], run.epochs_to_target)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", nargs="+", type=Path)
    parser.add_argument("--arms", type=int, default=2, help="arms of a replayed command")
    parser.add_argument("-n", type=int, default=5, help="runs of each arm")
    parser.add_argument("--commands", type=int, default=200, help="replayed commands of each task")
    chosen = parser.parse_args()
    rng = np.random.default_rng(0)
    found: dict[str, list[tuple[bool, float]]] = defaultdict(list)
    for store in chosen.stores:
        by_task: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
        for row in Store(store).rows():
            if row.status == "done":
                record = read_record(Path(row.path))
                by_task[row.task][record.header.key].append(record)
        for arms in by_task.values():
            enough = [records for records in arms.values() if len(records) >= chosen.n]
            for _ in range(chosen.commands if enough else 0):
                picked = rng.choice(len(enough), min(chosen.arms, len(enough)), replace=False)
                drawn = [rng.permutation(len(enough[arm]))[: chosen.n] for arm in picked]
                turns = [(arm, at) for at in range(chosen.n) for arm in rng.permutation(len(picked))]
                command = [enough[picked[arm]][drawn[arm][at]] for arm, at in turns]
                for stage, held, width in replay(command):
                    found[stage].append((held, width))
    print("| stage | ranges | hold the truth, % | upper end over lower, median |\n|---|--:|--:|--:|")
    for stage in STAGES:
        if rows := found[stage]:
            held, widths = zip(*rows, strict=True)
            print(f"| {stage} | {len(rows):,} | {100 * np.mean(held):.0f} | {np.median(widths):.2f} |")
    every = [held for rows in found.values() for held, _ in rows]
    print(
        f"| all | {len(every):,} | {100 * np.mean(every):.0f} | |" if every else "no task has two arms of enough runs"
    )


if __name__ == "__main__":
    main()
