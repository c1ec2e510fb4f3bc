"""Proposes a task's target from accuracy curves, by the knee rule (``levelbench.analysis.targets``).

Make curves that go on past any target, with twenty seeds or more, then read them:

    levelbench run digits --framework numpy --crossing sustained --epochs 40 -n 30 --store curves --no-report
    python benchmarks/targets.py curves 'digits[recipe=mlp]'
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from levelbench.analysis.targets import propose_target
from levelbench.records import Store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("runs", help="a selection of runs of one recipe")
    parser.add_argument("--step", type=float, help="round targets to multiples of this")
    options = parser.parse_args()
    records = [record for record in Store(options.store).find(options.runs) if record.status == "done"]
    length = min(len(record.evaluations) for record in records)
    split = records[0].header.specification.target.split
    curves = np.array([[each.quality[split] for each in record.evaluations[:length]] for record in records]).T
    epochs = [each.epoch for each in records[0].evaluations[:length]]
    proposal = propose_target(curves, epochs, step=options.step)
    print(f"{options.runs}: {len(records)} seeds, {length} evaluations; final median {np.median(curves[-1]):.4f}")
    print(f"knee at {proposal.knee_x:g} epochs, {proposal.knee_quality:.4f}; proposed target: {proposal.target}")
    print(f"{proposal.reason}\n")
    print("| target | reached | median epochs | spread of epochs (cv) | conditioning | quantisation | finding |")
    print("|---|---|---|---|---|---|---|")
    for each in proposal.candidates:
        print(
            f"| {each.threshold:.4g} | {each.reached}/{proposal.seeds} | {_text(each.crossing)} | {_text(each.cv)} "
            f"| {_text(each.conditioning)} | {_text(each.quantisation)} | {each.finding} |"
        )
    tests = np.array([record.end.quality["test"] for record in records if record.end])
    print(f"\ntest at the end: mean {tests.mean():.4f}, from {tests.min():.4f} to {tests.max():.4f}")


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


if __name__ == "__main__":
    main()
